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
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "core/endpoint/endpoint_core.h"

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
void EndpointCore::begin_receives() noexcept {
  const std::uint64_t quarter = std::max(receive_pool_.count() / 4, 1u);
  shared_.watermark = static_cast<std::uint32_t>(std::min(settings_.receive_watermark, quarter));
  shared_.may_grow = shared_.watermark > 0 && settings_.receive_growth > 0;
  shared_.least = shared_.posted;
  update_flow_control();
  shared_.idle_backoff = settings_.receive_idle;
  shared_.shrink_at = clock_.now() + shared_.idle_backoff;
  arm_limit();
}

void EndpointCore::begin_flow_control() noexcept {
  using Rule = SrqFlowControl::Rule;
  SrqFlowControl::Limits limits;
  limits.first = std::bit_floor(
      static_cast<std::uint32_t>(std::min(settings_.credits_first, settings_.credits)));
  limits.most = static_cast<std::uint32_t>(settings_.credits);
  limits.most_receives = static_cast<std::uint32_t>(settings_.receive_buffers);
  limits.retries = !over_datagrams();
  limits.rule = settings_.break_rule == "lend-freely"  ? Rule::unlimited
                : settings_.break_rule == "lend-least" ? Rule::safe
                                                       : Rule::by_demand;
  flow_.configure(limits);
}

void EndpointCore::post_receives() {
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
    list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(done));
    return posted;
  };
  charge(Work::post, to_post_.size() + to_post_control_.size());
  if (shared_.posted < shared_.watermark) shared_.look_at = 0;
  shared_.least = std::min(shared_.least, shared_.posted);
  shared_.posted += post(
      data_srq_.get(),
      [this](std::uint32_t buffer, ibv_sge* part) {
        if (receive_pool_.shrinking() && receive_pool_.keep(buffer)) [[unlikely]]
          return false;
        *part = {reinterpret_cast<std::uint64_t>(receive_pool_.data(buffer)), receive_pool_.size(),
                 receive_pool_.lkey(buffer)};
        return true;
      },
      to_post_, 0);
  post(
      control_srq_.get(),
      [this](std::uint32_t buffer, ibv_sge* part) {
        *part = {reinterpret_cast<std::uint64_t>(control_receive_pool_.data(buffer)),
                 control_receive_pool_.size(), control_receive_pool_.lkey()};
        return true;
      },
      to_post_control_, kControlReceive);
}

void EndpointCore::arm_limit() noexcept {
  if (shared_.watermark == 0) return;
  ibv_srq_attr attr{};
  attr.srq_limit = shared_.watermark;
  const int error = ibv_modify_srq(data_srq_.get(), &attr, IBV_SRQ_LIMIT);
  shared_.armed = error == 0;
  update_flow_control();
  if (error == 0) return;
  TURNOUT_LOG(channel, info, "arming the low watermark failed: {}: {}", device_->name(),
              std::strerror(error));
  shared_.watermark = 0;
  shared_.may_grow = false;
  update_flow_control();
}

void EndpointCore::look_after_receives(Nanoseconds now) {
  shared_.look_at = device_->is_simulated() ? now : now + kLookEvery;
  if (domain_->take_limit_event(data_srq_.get())) {
    ++shared_.limit_events;
    ++profile_.low_watermark_events;
    shared_.armed = false;
    update_flow_control();
    more_receives(now);
  } else if (!shared_.armed && now >= shared_.arm_at && shared_.posted >= shared_.watermark) {
    arm_limit();
  }
  if (now >= shared_.shrink_at) fewer_receives(now);
}

// Keeps a chunk that was to be released, or adds one as far as settings and budget allow.
void EndpointCore::more_receives(Nanoseconds now) {
  if (receive_pool_.shrinking()) {
    receive_pool_.call_back(&to_post_);
    update_flow_control();
    shared_.idle_backoff =
        std::min(2 * shared_.idle_backoff, kMostBackoff * settings_.receive_idle);
  } else {
    const auto most = static_cast<std::uint32_t>(settings_.receive_buffers);
    const std::uint32_t room = most - std::min(most, receive_pool_.count());
    const auto more =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(settings_.receive_growth, room));
    Status status{Code::over_budget, "TURNOUT_RECEIVE_BUFFERS limit reached"};
    if (more > 0)
      status = receive_pool_.grow(*device_, account_, more, reserved_headroom(), &to_post_);
    if (!status.ok()) {
      TURNOUT_LOG(channel, debug, "shared receive queue not enlarged: {}", status.text());
      shared_.arm_at = now + (flow_.is_overcommitted() ? kArmWhileOvercommitted : kArmAfterRefusal);
      shared_.may_grow = false;
      update_flow_control();
      flow_.low_and_full();
      return;
    }
    charge(Work::register_memory, std::uint64_t{more} * receive_pool_.size());
    ++shared_.growths;
    shared_.may_grow = receive_pool_.count() < settings_.receive_buffers;
    update_flow_control();
  }
  post_receives();
  shared_.least = shared_.posted;
  shared_.shrink_at = now + shared_.idle_backoff;
  arm_limit();
  serve_credit_waiters();
}

// Releases the youngest chunk if the queue was above the watermark by its size for two periods.
void EndpointCore::fewer_receives(Nanoseconds now) {
  const std::uint32_t less = receive_pool_.would_shrink_by();
  const bool idle = less > 0 && shared_.least >= less + 2 * shared_.watermark;
  if (idle) (void)receive_pool_.begin_shrink();
  // The budget may allow now what it refused before.
  shared_.may_grow = shared_.watermark > 0 && settings_.receive_growth > 0;
  shared_.least = shared_.posted;
  shared_.shrink_at = now + shared_.idle_backoff;
  update_flow_control();
}

}  // namespace turnout
