// SPDX-License-Identifier: BSD-3-Clause
#include "core/endpoint/progress_loop.h"
#include "base/log.h"

namespace turnout {

namespace {
constexpr std::uint32_t kTickEvery = 64;  // progress calls between two clock reads
}

ProgressLoop::ProgressLoop(Components& parts, ReceiveDispatch& receive_dispatch,
                           SendCompletions& send_completions, EndpointReporter& reporter)
    : parts_(parts),
      context_(parts.context),
      receive_dispatch_(receive_dispatch),
      send_completions_(send_completions),
      reporter_(reporter),
      // Under a virtual clock reading it costs nothing, and every call may be the last for long.
      tick_every_(parts.context.simulation.processor == nullptr ? kTickEvery : 1) {}

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
  } else if (!parts_.resources.to_post.empty() || !parts_.resources.to_post_control.empty()) {
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
  (void)parts_.registration.notice_unmapped(0, 0);  // unmapped memory must not stay pinned
  parts_.live_report.tick(now, context_.clock, [this] { return reporter_.report(); });
  parts_.memory_history.tick(now);
  Channels& channels = parts_.channels;
  if (now >= channels.selector.next_decision()) channels.selector.end_interval(now);
  if (now >= channels.keep_alive.next_keepalive()) channels.keep_alive.keep_alive(now);
  if (now >= parts_.messaging.ud.next_ud_timer()) parts_.messaging.ud.service_ud_timers(now);
  if (now >= parts_.messaging.shared_receives.shared().look_at)
    parts_.messaging.shared_receives.look_after_receives(now);
  if (now >= parts_.flow.next_sweep()) parts_.messaging.credits.sweep_credits(now);
  if (now >= parts_.eviction.next_service()) channels.slots.serve_slot_waiters();
}

}  // namespace turnout
