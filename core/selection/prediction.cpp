// SPDX-License-Identifier: BSD-3-Clause
#include "core/selection/prediction.h"

#include <algorithm>
#include <span>

namespace turnout::selection {

namespace {

// What a message over each kind of ring saves, and what polling the ring costs in all.
struct Savings {
  double dc = 0, rc = 0, polls = 0;
};

// As TurnoutSelector::share(), for the time in which the source sent.
Savings savings(const LastRun::Source& s, const DeviceCosts& c, std::uint32_t ring_entries) {
  const double beside = static_cast<double>(std::max(s.beside, s.messages));
  const double active = static_cast<double>(std::max<std::int64_t>(s.active, 1));
  const double receiver = std::clamp(beside * c.receiver_busy_dc_sendrecv.value / active, 0.0, 1.0);
  const double sender = std::clamp<double>(s.busy, 0, 1);
  const double busy = std::max(sender, receiver);
  const double switched = std::clamp<double>(s.switched, 0, 1);
  const double credit = (1 - receiver) * c.receiver_credit.value / std::max(ring_entries, 1u);
  const double post_dc =
      c.sender_post_dc.value + switched * (c.sender_post_dc_switch.value - c.sender_post_dc.value);
  const double slow = c.receiver_dc_sendrecv.value, busy_slow = c.receiver_busy_dc_sendrecv.value;
  Savings out;
  out.dc = (1 - busy) * (slow - c.receiver_dc_rdma.value) +
           receiver * (busy_slow - c.receiver_busy_dc_rdma.value) - credit;
  out.rc =
      (1 - busy) * (slow - c.receiver_rc_rdma.value + switched * c.sender_switch_latency.value) +
      receiver * (busy_slow - c.receiver_busy_rc_rdma.value) +
      sender * (post_dc - c.sender_post_rc.value) - credit;
  out.polls = (1 - receiver) * beside * c.receiver_poll.value / 2;
  return out;
}

}  // namespace

Prediction::Prediction(const LastRun& last, std::int64_t age, const DeviceCosts& costs,
                       std::uint32_t ring_entries, const Limits& limits)
    : start_(last.start),
      price_dc_(costs.setup_dc_processor.value),
      price_rc_(rc_price(costs)),
      setup_time_(std::clamp(costs.setup_rc_time.value, 0.0, 1e12)) {
  // Half of the room is left for queue pairs that others ask for. Where it is too small for one of
  // each source, which of them is worth its place changes while the program runs, and rings need
  // the room: three quarters of the rest are left for what the selection finds.
  constexpr std::uint64_t kEnds = 2;
  const std::uint64_t each =
      std::max<std::uint64_t>(limits.bytes_per_rc + limits.bytes_per_ring, 1);
  const std::uint64_t places = limits.bytes_available / each / kEnds;
  const std::uint64_t most_rc = std::min<std::uint64_t>(
      limits.max_active_rc, places < last.sources.size() ? places / 4 : places);
  std::uint64_t rc = 0;
  // Set-ups begin now.
  double ready = static_cast<double>(since_start(age, false));
  for (const LastRun::Source& s : last.sources) {
    const Savings save = savings(s, costs, ring_entries);
    const double n = static_cast<double>(s.messages);
    const double dc = limits.dc_rdma_available ? n * save.dc - save.polls : kNever;
    const double first = static_cast<double>(s.first), length = static_cast<double>(s.last) - first;
    // Of its messages, those that come after its queue pair is ready.
    const double then = ready + setup_time_;
    const double served =
        length > 0 ? std::clamp((first + length - std::max(first, then)) / length, 0.0, 1.0) : 0;
    const double more = n * save.rc - save.polls - std::max(dc, 0.0);  // over a queue pair
    const bool over_rc = rc < most_rc && served * more > price_rc_;
    const bool over_dc = dc > price_dc_;
    if (!over_rc && !over_dc) continue;
    if (over_rc) {
      ++rc;
      ready = then;
    }
    sources_.push_back({.messages = s.messages,
                        .gain_dc = over_dc ? dc : more,
                        .gain_rc = more,
                        .last = static_cast<double>(s.last),
                        .length = std::max(length, 1.0),
                        .rank = s.rank,
                        .wants_ring = limits.dc_rdma_available,
                        .wants_rc = over_rc});
    if (sources_.size() >= limits.max_channels) break;
  }
  sources_.shrink_to_fit();
}

std::int64_t Prediction::since_start(std::int64_t age, bool any_message) noexcept {
  if (!any_message) return std::min<std::int64_t>(age - start_, 0);
  if (!started_) start_ = age;
  started_ = true;
  return age - start_;
}

bool Prediction::expect(std::uint32_t rank, std::int64_t now) noexcept {
  const std::span first(sources_.data(), std::min(sources_.size(), kMostOnTrust));
  const auto found = std::ranges::find(first, rank, &Source::rank);
  if (found == first.end() || found->heard) return false;
  found->expected_until = now + static_cast<std::int64_t>(setup_time_);
  return true;
}

bool Prediction::hear(std::uint32_t rank, std::uint32_t peer) noexcept {
  const auto found = std::ranges::find(sources_, rank, &Source::rank);
  if (found == sources_.end() || found->heard) return false;
  found->peer = peer;
  found->heard = true;
  return true;
}

bool Prediction::settle(Source& source, Asked asked, bool rc) noexcept {
  if (asked == Asked::later) return false;
  if (asked == Asked::refused && ++source.tries < kMostTries) return false;
  (rc ? source.wants_rc : source.wants_ring) = false;
  if (asked != Asked::yes) return false;
  if (rc) source.asked_rc = true;
  if (source.owed <= 0) ++on_trust_;
  source.owed = std::max(source.owed, 0.0) + (rc ? price_rc_ : price_dc_);
  return true;
}

std::uint64_t least_predicted(const DeviceCosts& costs) {
  const double saving = std::max(costs.receiver_dc_sendrecv.value - costs.receiver_dc_rdma.value,
                                 costs.receiver_dc_sendrecv.value - costs.receiver_rc_rdma.value +
                                     costs.sender_switch_latency.value);
  const double price = std::min(costs.setup_dc_processor.value, rc_price(costs));
  if (saving <= 0) return UINT64_MAX;
  return static_cast<std::uint64_t>(std::clamp(price / saving, 1.0, 1e15));
}

}  // namespace turnout::selection
