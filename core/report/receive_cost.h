// SPDX-License-Identifier: BSD-3-Clause
// ReceiveCost: the CPU cost of receiving a message over each kind of channel, from samples. One
// round of progress in about kEvery messages is measured, with a few clock reads; the others only
// compare two numbers. A new kind is measured more often, because peers may switch from the default
// transport after their first second. Owner: the endpoint; one thread. Under a virtual clock
// reading takes no time, and the measured cost is what the core was charged.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/report/report.h"
#include "core/time/clock.h"

namespace turnout {

class ReceiveCost {
 public:
  static constexpr std::uint64_t kEvery = 64;
  static constexpr std::uint64_t kEveryFirst = 8;  // until there are kEnough of a kind
  static constexpr std::uint64_t kEnough = 64;
  // Larger costs of a message are outliers: something else ran on the CPU.
  static constexpr Nanoseconds kInterrupted = 50'000;
  static constexpr std::uint64_t kLeastSample = 16;  // messages; fewer are not significant

  // The default transport, DC-sendrecv or UD-sendrecv: gains are relative to it. Set before the
  // first round.
  void set_default_channel(ChannelKind channel) noexcept { default_channel_ = channel; }

  // Whether to measure the round that begins after so many delivered messages.
  [[nodiscard]] bool due(std::uint64_t delivered) const noexcept { return delivered >= next_; }

  // `messages` were received over `kind`, at a cost of `time`.
  void add(ChannelKind kind, Nanoseconds time, std::uint64_t messages,
           std::uint64_t delivered) noexcept {
    Sum& sum = sums_[static_cast<std::size_t>(kind)];
    next_ = delivered + (sum.messages < kEnough ? kEveryFirst : kEvery);
    if (time < 0 || time > kInterrupted) return;
    sum.messages += messages;
    sum.time += time;
  }
  // Receives are reposted at the end of a round: the messages of the default transport include that
  // cost.
  void open(Nanoseconds time, std::uint64_t messages) noexcept {
    open_messages_ = messages;
    open_time_ = time;
  }
  [[nodiscard]] bool is_open() const noexcept { return open_messages_ > 0; }
  void close(Nanoseconds posting, std::uint64_t delivered) noexcept {
    add(default_channel_, open_time_ + posting, open_messages_, delivered);
    open_messages_ = 0;
  }

  [[nodiscard]] std::vector<ReceiveCostLine> lines() const {
    std::vector<ReceiveCostLine> lines;
    for (std::size_t kind = 0; kind < sums_.size(); ++kind) {
      const Sum& sum = sums_[kind];
      if (sum.messages == 0) continue;
      lines.push_back({static_cast<ChannelKind>(kind), sum.messages, sum.mean()});
    }
    return lines;
  }
  // Of the kind, relative to the default transport; none if one of them has too few samples.
  [[nodiscard]] std::optional<double> gain(ChannelKind kind) const noexcept {
    const Sum& base = sums_[static_cast<std::size_t>(default_channel_)];
    const Sum& own = sums_[static_cast<std::size_t>(kind)];
    const bool enough = std::min(base.messages, own.messages) >= kLeastSample;
    return kind != default_channel_ && enough ? std::optional(base.mean() - own.mean())
                                              : std::nullopt;
  }

 private:
  struct Sum {
    std::uint64_t messages = 0;
    Nanoseconds time = 0;
    [[nodiscard]] double mean() const noexcept {
      return static_cast<double>(time) / static_cast<double>(messages);
    }
  };
  std::array<Sum, kChannelKinds> sums_{};
  ChannelKind default_channel_ = ChannelKind::dc_sendrecv;
  std::uint64_t next_ = kEveryFirst;
  std::uint64_t open_messages_ = 0;
  Nanoseconds open_time_ = 0;
};

}  // namespace turnout
