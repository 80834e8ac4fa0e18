// SPDX-License-Identifier: BSD-3-Clause
#include "core/endpoint/progress_loop.h"

#include <cassert>

namespace turnout {

bool ProgressLoop::progress_now() {
  Operations& operations = parts_.operations;
  PolledRings& rings = parts_.rings;
  context_.in_progress = true;
  bool moved;
  if (context_.receive_cost.due(context_.delivered)) [[unlikely]] {
    moved = operations.receive_engine.poll_measured();
  } else {
    moved = receive_dispatch_.poll_receive_queue();
    if (!rings.speaking().empty()) moved |= operations.receive_engine.poll_rings(rings.speaking());
  }
  // An unsignalled request has a completion only if it fails.
  if ((resources_.awaits_completion() || context_.ticks % kPollForFailures == 0) &&
      send_completions_.poll_send_queue())
    moved = true;
  const bool due = rings.silent_due(moved) || context_.closing;
  if (!rings.silent().empty())  // if not due, poll again: a message may have arrived
    moved |= !due || operations.receive_engine.poll_rings(rings.silent());
  if (context_.pending.any()) moved |= go_on_with_pending();
  if (++context_.ticks >= tick_every_) {
    context_.ticks = 0;
    tick();
  }
  if (!moved) context_.statistics.found_nothing();
  context_.in_progress = false;
  return moved;
}

// With each list until it was found empty.
bool ProgressLoop::go_on_with_pending() {
  Messaging& messaging = parts_.messaging;
  Operations& operations = parts_.operations;
  Channels& channels = parts_.channels;
  PendingWork& pending = context_.pending;
  bool moved = false;
  const auto pump = [&](Pending list, auto&& has_work, auto&& go_on) {
    if (!pending.has(list)) {
      assert(!has_work());
    } else if (has_work()) {
      moved |= go_on();
    } else {
      pending.remove(list);
    }
  };
  const auto pump_list = [&](Pending list, const auto& of, auto&& go_on) {
    pump(
        list, [&] { return !of.empty(); }, go_on);
  };
  pump_list(Pending::control_messages, messaging.control.pending_control(),
            [&] { return messaging.control.pump_control(); });
  pump(
      Pending::datagrams, [&] { return messaging.ud.ud_blocked(); },
      [&] { return messaging.ud.pump_ud_blocked(); });
  pump(
      Pending::deferred_messages, [&] { return operations.put.deferred_until() != INT64_MAX; },
      [&] {
        operations.send_engine.release_overdue();
        return false;
      });
  pump_list(Pending::recoveries, channels.recovery.recovering(),
            [&] { return channels.recovery.pump_recovering(); });
  pump_list(Pending::xrc_recoveries, channels.xrc_nodes.xrc_lost(),
            [&] { return channels.xrc_recovery.pump_xrc_lost(); });
  pump_list(Pending::atomic_answers, operations.atomic_engine.answering(),
            [&] { return operations.atomic_engine.pump_answers(); });
  pump_list(Pending::backlogs, operations.backlog.backlogged(),
            [&] { return operations.send_engine.pump_backlogs(); });
  pump_list(Pending::fragments, operations.backlog.fragmented(),
            [&] { return operations.fragments.pump_fragments(); });
  pump_list(Pending::last_bytes, operations.rdma.polled(),
            [&] { return operations.rtr.poll_last_bytes(); });
  pump_list(Pending::rput_sends, operations.rput.rput_sends(),
            [&] { return operations.rput.pump_rput_sends(); });
  pump_list(Pending::rtr_cancels, operations.put.rtr_cancels(),
            [&] { return operations.put.pump_rtr_cancels(); });
  pump_list(Pending::transfers, operations.rdma.active_transfers(),
            [&] { return operations.rdma.pump_transfers(); });
  pump_list(Pending::unexpected_messages, operations.unexpected.waiting(),
            [&] { return operations.unexpected.pump_waiting(); });
  pump(
      Pending::setup_jobs, [&] { return channels.rc.jobs() > 0; },
      [&] { return channels.negotiator.pump_jobs(); });
  pump(
      Pending::stalled_peers,
      [&] {
        return !operations.unexpected.stalled().empty() ||
               !operations.unexpected.pending_wireups().empty();
      },
      [&] { return operations.receive_engine.pump_stalled(); });
  pump(
      Pending::receives,
      [&] {
        return !resources_.to_post.empty() || !resources_.to_post_control.empty() ||
               context_.receive_cost.is_open();
      },
      [&] {
        post_receives();
        return false;
      });
  return moved;
}

void ProgressLoop::post_receives() {
  if (!context_.receive_cost.is_open()) [[likely]]
    return shared_receives_.post_receives();
  const Nanoseconds begun = context_.clock.now();
  shared_receives_.post_receives();
  context_.receive_cost.close(context_.clock.now() - begun, context_.delivered);
}

void ProgressLoop::tick() {
  const Nanoseconds now = context_.clock.now();
  (void)registration_.notice_unmapped(0, 0);  // unmapped memory must not stay pinned
  parts_.live_report.tick(now, context_.clock, [&] { return reporter_.report_with_waits(now); });
  stuck_.tick(now);
  parts_.memory_history.tick(now);
  if (channels_.selector.is_due(now)) channels_.selector.run(now);
  if (now >= channels_.keep_alive.next_keepalive()) channels_.keep_alive.keep_alive(now);
  if (now >= ud_.next_ud_timer()) ud_.service_ud_timers(now);
  if (now >= shared_receives_.shared().look_at) shared_receives_.look_after_receives(now);
  if (now >= flow_.next_sweep()) credits_.sweep_credits(now);
  if (now >= eviction_.next_service()) channels_.slots.serve_slot_waiters();
}

}  // namespace turnout
