// SPDX-License-Identifier: BSD-3-Clause
// The shared data receive queue, for messages of all peers. It starts small and grows when it runs
// low (Sur, Koop, Panda, SC'06: low watermark).
//
// The adapter raises one event when fewer receives than the watermark are left. Reading it is a
// system call, so tick() reads it once in kLookEvery, and sooner only if our own count was below
// the watermark. More often is of no use: during a burst the senders retry (RNR), and added
// receives serve the next burst. A thread that waits for events, as in MVAPICH, would need a lock
// around queue and pool. Under a virtual clock reading costs nothing, and the event wakes the
// process.
#include "core/messaging/shared_receive_queue.h"
#include "base/log.h"

namespace turnout {
namespace {
constexpr Nanoseconds kLookEvery = 1'000'000;
// If nothing can be added, events are only counted, at most this often.
constexpr Nanoseconds kArmAfterRefusal = 1'000'000;
// If more credits are granted than receives exist, each event reduces the grant limit.
constexpr Nanoseconds kArmWhileOvercommitted = 100'000;
constexpr Nanoseconds kMostBackoff = 16;  // times the setting receive_idle
}  // namespace

// Posts the first receives.
void SharedReceiveQueue::begin_receives() noexcept {
  const std::uint64_t quarter = std::max(resources_.receive_pool.count() / 4, 1u);
  shared_.watermark =
      static_cast<std::uint32_t>(std::min(context_.settings.receive_watermark, quarter));
  shared_.may_grow = shared_.watermark > 0 && context_.settings.receive_growth > 0;
  shared_.least = shared_.posted;
  update_flow_control();
  shared_.idle_backoff = context_.settings.receive_idle;
  shared_.shrink_at = context_.clock.now() + shared_.idle_backoff;
  arm_limit();
}

void SharedReceiveQueue::begin_flow_control() noexcept {
  using Rule = SrqFlowControl::Rule;
  const Settings& settings = context_.settings;
  flow_.configure({.first = std::bit_floor(static_cast<std::uint16_t>(
                       std::min(settings.credits_first, settings.credits))),
                   .most = static_cast<std::uint16_t>(settings.credits),
                   .most_receives = static_cast<std::uint32_t>(settings.receive_buffers),
                   .retries = !context_.over_datagrams(),
                   .rule = settings.break_rule == "lend-freely"  ? Rule::unlimited
                           : settings.break_rule == "lend-least" ? Rule::safe
                                                                 : Rule::by_demand});
}

void SharedReceiveQueue::post_receives() {
  const auto post = [](ibv_srq* srq, const auto& buffer, std::vector<std::uint32_t>& list,
                       std::uint64_t mark) -> std::uint32_t {
    std::size_t done = 0;
    std::uint32_t posted = 0;
    for (; done < list.size(); ++done) {
      ibv_sge part;
      if (!buffer(list[done], &part)) continue;
      ibv_recv_wr request{};
      request.wr_id = mark | list[done];
      request.sg_list = &part;
      request.num_sge = 1;
      ibv_recv_wr* bad = nullptr;
      if (const int error = ibv_post_srq_recv(srq, &request, &bad); error != 0) {
        TURNOUT_LOG(channel, error, "ibv_post_srq_recv failed: {}; retrying", std::strerror(error));
        break;
      }
      ++posted;
    }
    if (done == list.size()) {
      list.clear();
    } else {
      list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(done));
    }
    return posted;
  };
  context_.charge(Work::post, resources_.to_post.size() + resources_.to_post_control.size());
  if (shared_.posted < shared_.watermark) shared_.look_at = 0;
  shared_.least = std::min(shared_.least, shared_.posted);
  shared_.posted += post(
      resources_.data_srq.get(),
      [this](std::uint32_t buffer, ibv_sge* part) {
        if (resources_.receive_pool.shrinking() && resources_.receive_pool.keep(buffer))
            [[unlikely]]
          return false;
        *part = {reinterpret_cast<std::uint64_t>(resources_.receive_pool.data(buffer)),
                 resources_.receive_pool.size(), resources_.receive_pool.lkey(buffer)};
        return true;
      },
      resources_.to_post, 0);
  if (resources_.to_post_control.empty()) return;
  post(
      resources_.control_srq.get(),
      [this](std::uint32_t buffer, ibv_sge* part) {
        *part = {reinterpret_cast<std::uint64_t>(resources_.control_receive_pool.data(buffer)),
                 resources_.control_receive_pool.size(), resources_.control_receive_pool.lkey()};
        return true;
      },
      resources_.to_post_control, kControlReceive);
}

void SharedReceiveQueue::arm_limit() noexcept {
  if (shared_.watermark == 0) return;
  ibv_srq_attr attr{};
  attr.srq_limit = shared_.watermark;
  const int error = ibv_modify_srq(resources_.data_srq.get(), &attr, IBV_SRQ_LIMIT);
  shared_.armed = error == 0;
  update_flow_control();
  if (error == 0) return;
  TURNOUT_LOG(channel, info, "arming the low watermark failed: {}: {}", context_.device->name(),
              std::strerror(error));
  shared_.watermark = 0;
  shared_.may_grow = false;
  update_flow_control();
}

void SharedReceiveQueue::look_after_receives(Nanoseconds now) {
  shared_.look_at = context_.device->is_simulated() ? now : now + kLookEvery;
  if (context_.domain->take_limit_event(resources_.data_srq.get())) {
    ++shared_.limit_events;
    ++context_.profile.low_watermark_events;
    shared_.armed = false;
    update_flow_control();
    more_receives(now);
  } else if (!shared_.armed && now >= shared_.arm_at && shared_.posted >= shared_.watermark) {
    arm_limit();
  }
  if (now >= shared_.shrink_at) fewer_receives(now);
}

// Adds one chunk, so that there are at most so many.
Status SharedReceiveQueue::add_receives(std::uint64_t most) {
  ReceivePool& pool = resources_.receive_pool;
  const std::uint64_t room = most - std::min<std::uint64_t>(most, pool.count());
  const auto more = static_cast<std::uint32_t>(std::min(context_.settings.receive_growth, room));
  if (more == 0) return {Code::over_budget, "TURNOUT_RECEIVE_BUFFERS limit reached"};
  return pool.grow(*context_.device, context_.account, more, peer_table_.reserved_headroom(),
                   &resources_.to_post);
}

void SharedReceiveQueue::add_at_start(std::uint64_t wanted) {
  while (add_receives(wanted).ok()) continue;
}

// Keeps a chunk that was to be released, or adds one as far as settings and budget allow.
void SharedReceiveQueue::more_receives(Nanoseconds now) {
  if (resources_.receive_pool.shrinking()) {
    resources_.receive_pool.call_back(&resources_.to_post);
    context_.pending.add(Pending::receives);
    update_flow_control();
    shared_.idle_backoff =
        std::min(2 * shared_.idle_backoff, kMostBackoff * context_.settings.receive_idle);
  } else {
    const std::uint32_t before = resources_.receive_pool.count();
    const Status status = add_receives(context_.settings.receive_buffers);
    context_.pending.add(Pending::receives);
    if (!status.ok()) {
      TURNOUT_LOG(channel, debug, "shared receive queue not enlarged: {}", status.text());
      shared_.arm_at = now + (flow_.is_overcommitted() ? kArmWhileOvercommitted : kArmAfterRefusal);
      shared_.may_grow = false;
      update_flow_control();
      flow_.low_and_full();
      return;
    }
    const std::uint32_t more = resources_.receive_pool.count() - before;
    context_.charge(Work::register_memory, std::uint64_t{more} * resources_.receive_pool.size());
    ++shared_.growths;
    shared_.may_grow = resources_.receive_pool.count() < context_.settings.receive_buffers;
    update_flow_control();
  }
  post_receives();
  shared_.least = shared_.posted;
  shared_.shrink_at = now + shared_.idle_backoff;
  arm_limit();
  credits_.serve_credit_waiters();
}

// Releases the youngest chunk if the queue was above the watermark by its size for two periods.
void SharedReceiveQueue::fewer_receives(Nanoseconds now) {
  const std::uint32_t less = resources_.receive_pool.would_shrink_by();
  const bool idle = less > 0 && shared_.least >= less + 2 * shared_.watermark;
  if (idle) (void)resources_.receive_pool.begin_shrink();
  // The budget may allow now what it refused before.
  shared_.may_grow = shared_.watermark > 0 && context_.settings.receive_growth > 0;
  shared_.least = shared_.posted;
  shared_.shrink_at = now + shared_.idle_backoff;
  update_flow_control();
}

}  // namespace turnout
