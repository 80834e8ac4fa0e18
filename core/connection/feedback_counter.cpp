// SPDX-License-Identifier: BSD-3-Clause
#include "core/connection/feedback_counter.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "core/selection/turnout_policy.h"
#include "core/transport/wire.h"

namespace turnout {
namespace {

constexpr int kNoise = 20;  // thousandths

bool changed(std::uint16_t from, std::uint16_t to) noexcept {
  const int difference = std::abs(int{to} - int{from});
  return difference > kNoise && 5 * difference > std::max(int{from}, int{to});
}
bool changed(std::uint32_t from, std::uint32_t to) noexcept {
  return 5 * (from > to ? from - to : to - from) > std::max(from, to);
}

std::uint16_t thousandths(double share) noexcept {
  return static_cast<std::uint16_t>(std::lround(std::clamp(share, 0.0, 1.0) * wire::kWhole));
}

}  // namespace

selection::SenderFeedback PackedFeedback::of_sender() const noexcept {
  const Feedback feedback = unpacked();
  const auto share = [](std::uint16_t thousandths) {
    return static_cast<float>(thousandths) / static_cast<float>(wire::kWhole);
  };
  return {.busy = share(feedback.busy),
          .switched = share(feedback.switched),
          .active_rc = feedback.active_rc,
          .here = feedback.here,
          .full = feedback.full};
}

void FeedbackCounter::configure(std::size_t initiators, bool switches) {
  targets_.assign(initiators, kAnyPeer);
  switches_ = switches;
}

void FeedbackCounter::end_interval(const selection::DeviceCosts& costs, std::uint64_t received,
                                   double interval) {
  busy_ = selection::busy_share(costs, std::exchange(sent_, 0), std::exchange(switched_, 0),
                                received, interval);
}

std::uint16_t FeedbackCounter::busy_thousandths() const noexcept {
  return thousandths(busy_);
}

std::uint16_t FeedbackCounter::take_switched(SentCount& to) noexcept {
  const std::uint32_t sent = std::exchange(to.sent, 0), switched = std::exchange(to.switched, 0);
  return sent == 0 ? std::uint16_t{0} : thousandths(static_cast<double>(switched) / sent);
}

bool FeedbackCounter::changes(const Feedback& reported, const Feedback& now) noexcept {
  return changed(reported.busy, now.busy) || changed(reported.switched, now.switched) ||
         changed(reported.active_rc, now.active_rc) ||
         changed(std::uint32_t{reported.here}, std::uint32_t{now.here}) ||
         reported.full != now.full;
}

}  // namespace turnout
