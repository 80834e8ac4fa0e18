// SPDX-License-Identifier: BSD-3-Clause
#include "core/endpoint/progress_loop.h"

namespace turnout {

bool ProgressLoop::progress_now() {
  Messaging& messaging = parts_.messaging;
  Operations& operations = parts_.operations;
  Channels& channels = parts_.channels;
  PolledRings& rings = parts_.rings;
  bool moved;
  context_.in_progress = true;
  if (context_.receive_cost.due(context_.delivered)) [[unlikely]] {
    moved = operations.receive_engine.poll_measured();
  } else {
    moved = receive_dispatch_.poll_receive_queue();
    if (!rings.speaking().empty()) moved |= operations.receive_engine.poll_rings(rings.speaking());
  }
  // An unsignalled request has a completion only if it fails.
  if (resources_.awaits_completion() || context_.ticks % kPollForFailures == 0)
    moved |= send_completions_.poll_send_queue();
  const bool due = rings.silent_due(moved) || context_.closing;
  if (!rings.silent().empty())  // if not due, poll again: a message may have arrived
    moved |= !due || operations.receive_engine.poll_rings(rings.silent());
  if (!messaging.control.pending_control().empty()) moved |= messaging.control.pump_control();
  if (messaging.ud.ud_blocked()) moved |= messaging.ud.pump_ud_blocked();
  if (operations.put.deferred_until() != INT64_MAX) operations.send_engine.release_overdue();
  if (!channels.recovery.recovering().empty()) moved |= channels.recovery.pump_recovering();
  if (!channels.xrc_nodes.xrc_lost().empty()) moved |= channels.xrc_recovery.pump_xrc_lost();
  if (!operations.atomic_engine.answering().empty())
    moved |= operations.atomic_engine.pump_answers();
  if (!operations.backlog.backlogged().empty()) moved |= operations.send_engine.pump_backlogs();
  if (!operations.backlog.fragmented().empty()) moved |= operations.fragments.pump_fragments();
  if (!operations.rdma.polled().empty()) moved |= operations.rtr.poll_last_bytes();
  if (!operations.rput.rput_sends().empty()) moved |= operations.rput.pump_rput_sends();
  if (!operations.put.rtr_cancels().empty()) moved |= operations.put.pump_rtr_cancels();
  if (!operations.rdma.active_transfers().empty()) moved |= operations.rdma.pump_transfers();
  if (!operations.unexpected.waiting().empty()) moved |= operations.unexpected.pump_waiting();
  if (channels.rc.jobs() > 0) moved |= channels.negotiator.pump_jobs();
  if (!operations.unexpected.stalled().empty() || !operations.unexpected.pending_wireups().empty())
    moved |= operations.receive_engine.pump_stalled();
  if (context_.receive_cost.is_open()) [[unlikely]] {
    const Nanoseconds begun = context_.clock.now();
    messaging.shared_receives.post_receives();
    context_.receive_cost.close(context_.clock.now() - begun, context_.delivered);
  } else if (!resources_.to_post.empty() || !resources_.to_post_control.empty()) {
    messaging.shared_receives.post_receives();
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
