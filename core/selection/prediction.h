// SPDX-License-Identifier: BSD-3-Clause
// Prediction: which sources get a channel as soon as they are heard, because the last run of the
// job counted many messages from them, and how many of these set-ups may be on trust.
//
// The plan is that of select_turnout for a window as long as the last run, with its counts: the
// busiest sources that pay for a channel within the limits, no others are kept. A set-up is on
// trust from its request until its source's messages have saved its price. At most kMostOnTrust are
// at a time, so a prediction that is wrong costs no more than so many set-ups, whatever the sources
// do, and one whose set-ups repay is never held up for long
// (docs/decisions/047-prediction.md; ski rental with predictions, Purohit, Svitkina, Kumar,
// NeurIPS 2018).
//
// Pure: no clock, no device. The channel selector owns it, accounts for bytes(), and calls it from
// the endpoint's thread. Times are nanoseconds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/selection/turnout_policy.h"
#include "core/types/last_run.h"

namespace turnout::selection {

class Prediction {
 public:
  static constexpr std::size_t kMostOnTrust = 16;  // sources whose set-ups have not repaid
  static constexpr std::size_t kMostUnderWay = 2;  // queue pairs: one is connected, one is made
  static constexpr std::uint8_t kMostTries = 4;    // requests that nothing was set up for

  struct Source {
    std::uint64_t messages = 0;   // in the last run
    double gain_dc = 0;           // of them all over a ring over DC, ns
    double gain_rc = 0;           // and over a queue pair
    double owed = 0;              // of the prices, what they have not saved yet; above 0: on trust
    double last = 0, length = 0;  // LastRun::Source: when the last one came; from the first on
    std::int64_t expected_until = 0;  // its place in the order of queue pairs is kept
    std::uint32_t rank = 0;
    std::uint32_t peer = 0;  // its number here, once heard
    bool heard = false;
    bool wants_ring = false;  // to be asked for
    bool wants_rc = false;
    bool asked_rc = false;
    std::uint8_t tries = 0;
  };

  Prediction() = default;  // of nothing
  // `age`: of the endpoint. `limits`: of now, without any channel.
  Prediction(const LastRun& last, std::int64_t age, const DeviceCosts& costs,
             std::uint32_t ring_entries, const Limits& limits);
  Prediction(const Prediction&) = delete;
  Prediction& operator=(const Prediction&) = delete;
  Prediction(Prediction&&) = default;
  Prediction& operator=(Prediction&&) = default;

  [[nodiscard]] bool empty() const noexcept { return sources_.empty(); }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return sources_.size() * sizeof(Source); }
  [[nodiscard]] std::size_t on_trust() const noexcept { return on_trust_; }
  [[nodiscard]] const std::vector<Source>& sources() const noexcept { return sources_; }

  // The program knows that process. True: it is one of the first kMostOnTrust in the order of the
  // last run, and to be got in touch with; its place in that order is kept for a set-up time.
  bool expect(std::uint32_t rank, std::int64_t now) noexcept;
  // A process of that rank was heard. True: channels may be asked for.
  bool hear(std::uint32_t rank, std::uint32_t peer) noexcept;

  // Of an endpoint of that age, the time since its first message; below 0: until it, if it comes as
  // late as in the last run.
  [[nodiscard]] std::int64_t since_start(std::int64_t age, bool any_message) noexcept;

  // In the order of the last run, calls `ask` with each source that was heard and a channel that it
  // is to have, while trust is left and what is left of the run pays for it (`since`: see
  // since_start()): rings over DC first, then queue pairs, unless kMostUnderWay of `under_way` are.
  // Answered is what became of it.
  enum class Asked : std::uint8_t {
    yes,      // the set-up has begun
    later,    // not now
    refused,  // nothing was set up: it is tried again, kMostTries times in all
    never,    // it has such a channel
  };
  template <class Ask>
  void ask(std::int64_t now, std::int64_t since, std::size_t under_way, Ask&& ask) {
    const auto passed = static_cast<double>(since);
    for (Source& source : sources_) {
      if (source.heard && source.wants_ring && may_ask(source, source.gain_dc, price_dc_, passed))
        settle(source, ask(static_cast<const Source&>(source), ChannelKind::dc_rdma), false);
    }
    for (Source& source : sources_) {
      if (under_way >= kMostUnderWay) return;
      if (!source.wants_rc) continue;
      if (!source.heard) {
        if (now < source.expected_until) return;
        continue;
      }
      if (!may_ask(source, source.gain_rc, price_rc_, passed + setup_time_)) continue;
      if (settle(source, ask(static_cast<const Source&>(source), ChannelKind::rc_rdma), true))
        ++under_way;
    }
  }

  // Calls `saved` with each source on trust: what its messages saved since the last call, ns, at
  // least 0.
  template <class Saved>
  void repay(Saved&& saved) {
    if (on_trust_ == 0) return;
    for (Source& source : sources_) {
      if (source.owed <= 0) continue;
      source.owed -= saved(static_cast<const Source&>(source));
      if (source.owed > 0) continue;
      source.owed = 0;
      --on_trust_;
    }
  }

 private:
  [[nodiscard]] bool may_ask(const Source& source, double gain, double price,
                             double age) const noexcept {
    if (source.owed <= 0 && on_trust_ >= kMostOnTrust) return false;
    return std::clamp((source.last - age) / source.length, 0.0, 1.0) * gain > price;
  }
  bool settle(Source& source, Asked asked, bool rc) noexcept;

  std::vector<Source> sources_;  // those that pay, in the order of the last run
  std::int64_t start_ = 0;       // age at the first message; of the last run, until it comes
  double price_dc_ = 0, price_rc_ = 0, setup_time_ = 0;
  std::size_t on_trust_ = 0;
  bool started_ = false;
};

// Messages from a source in a run below which none is worth a channel, whatever it is.
[[nodiscard]] std::uint64_t least_predicted(const DeviceCosts& costs);

}  // namespace turnout::selection
