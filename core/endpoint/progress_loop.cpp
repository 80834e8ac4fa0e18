// SPDX-License-Identifier: BSD-3-Clause
#include "core/endpoint/progress_loop.h"

namespace turnout {

bool ProgressLoop::progress_now() {
  bool moved;
  context_.in_progress = true;
  if (context_.receive_cost.due(context_.delivered)) [[unlikely]] {
    moved = operations_.receive_engine.poll_measured();
  } else {
    moved = receive_dispatch_.poll_receive_queue();
    if (!rings_.speaking().empty())
      moved |= operations_.receive_engine.poll_rings(rings_.speaking());
  }
  moved |= send_completions_.poll_send_queue();
  const bool due = rings_.silent_due(moved) || context_.closing;
  if (!rings_.silent().empty())  // if not due, poll again: a message may have arrived
    moved |= !due || operations_.receive_engine.poll_rings(rings_.silent());
  if (!control_.pending_control().empty()) moved |= control_.pump_control();
  if (ud_.ud_blocked()) moved |= ud_.pump_ud_blocked();
  if (operations_.put.deferred_until() != INT64_MAX) operations_.send_engine.release_overdue();
  if (!channels_.recovery.recovering().empty()) moved |= channels_.recovery.pump_recovering();
  if (!channels_.xrc_nodes.xrc_lost().empty()) moved |= channels_.xrc_recovery.pump_xrc_lost();
  if (!operations_.atomic_engine.answering().empty())
    moved |= operations_.atomic_engine.pump_answers();
  if (!operations_.backlog.backlogged().empty()) moved |= operations_.send_engine.pump_backlogs();
  if (!operations_.backlog.fragmented().empty()) moved |= operations_.fragments.pump_fragments();
  if (!operations_.rdma.polled().empty()) moved |= operations_.rtr.poll_last_bytes();
  if (!operations_.rput.rput_sends().empty()) moved |= operations_.rput.pump_rput_sends();
  if (!operations_.put.rtr_cancels().empty()) moved |= operations_.put.pump_rtr_cancels();
  if (!operations_.rdma.active_transfers().empty()) moved |= operations_.rdma.pump_transfers();
  if (!operations_.unexpected.waiting().empty()) moved |= operations_.unexpected.pump_waiting();
  if (channels_.rc.jobs() > 0) moved |= channels_.negotiator.pump_jobs();
  if (!operations_.unexpected.stalled().empty() ||
      !operations_.unexpected.pending_wireups().empty())
    moved |= operations_.receive_engine.pump_stalled();
  if (context_.receive_cost.is_open()) [[unlikely]] {
    const Nanoseconds begun = context_.clock.now();
    shared_receives_.post_receives();
    context_.receive_cost.close(context_.clock.now() - begun, context_.delivered);
  } else if (!resources_.to_post.empty() || !resources_.to_post_control.empty()) {
    shared_receives_.post_receives();
  }
  if (++context_.ticks >= tick_every_) {
    context_.ticks = 0;
    tick();
  }
  context_.in_progress = false;
  return moved;
}

void ProgressLoop::tick() {
  const Nanoseconds now = context_.clock.now();
  (void)registration_.notice_unmapped(0, 0);  // unmapped memory must not stay pinned
  parts_.live_report.tick(now, context_.clock, [this] { return reporter_.report(); });
  parts_.memory_history.tick(now);
  if (now >= channels_.selector.next_decision()) channels_.selector.end_interval(now);
  if (now >= channels_.keep_alive.next_keepalive()) channels_.keep_alive.keep_alive(now);
  if (now >= ud_.next_ud_timer()) ud_.service_ud_timers(now);
  if (now >= shared_receives_.shared().look_at) shared_receives_.look_after_receives(now);
  if (now >= flow_.next_sweep()) credits_.sweep_credits(now);
  if (now >= eviction_.next_service()) channels_.slots.serve_slot_waiters();
}

}  // namespace turnout
