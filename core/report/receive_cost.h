// SPDX-License-Identifier: BSD-3-Clause
// ReceiveCost: what a message received over each kind of channel costs the processor, from a
// sample: one round of progress is measured in about kEvery messages, with a few looks at the
// clock; the others only compare two numbers. A kind that is new is measured more often: peers may
// leave the start service after their first second. Owner: the endpoint; one thread. Under a
// virtual clock looking takes no time, and what is measured is what the core was charged.
#pragma once

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
  // No message of a round costs as much: something else ran on the processor.
  static constexpr Nanoseconds kInterrupted = 50'000;
  static constexpr std::uint64_t kLeastSample = 16;  // messages; fewer say nothing

  // The service every pair starts on, DC-sendrecv or UD-sendrecv: gains are against it. Set before
  // the first round.
  void set_base(ChannelKind base) noexcept { base_ = base; }

  // Shall the round that begins after so many messages were delivered be measured?
  [[nodiscard]] bool due(std::uint64_t delivered) const noexcept { return delivered >= next_; }

  // `messages` came over `kind` at the price of `time`.
  void add(ChannelKind kind, Nanoseconds time, std::uint64_t messages,
           std::uint64_t delivered) noexcept {
    Sum& sum = sums_[static_cast<std::size_t>(kind)];
    next_ = delivered + (sum.messages < kEnough ? kEveryFirst : kEvery);
    if (time < 0 || time > kInterrupted) return;
    sum.messages += messages;
    sum.time += time;
  }
  // Receives are posted anew at the end of a round: what came over the start service in it
  // waits for that.
  void open(Nanoseconds time, std::uint64_t messages) noexcept {
    open_messages_ = messages;
    open_time_ = time;
  }
  [[nodiscard]] bool is_open() const noexcept { return open_messages_ > 0; }
  void close(Nanoseconds posting, std::uint64_t delivered) noexcept {
    add(base_, open_time_ + posting, open_messages_, delivered);
    open_messages_ = 0;
  }

  [[nodiscard]] std::vector<ReceiveCostLine> lines() const;
  // Of the kind, against the start service; none when one of them has too small a sample.
  [[nodiscard]] std::optional<double> gain(ChannelKind kind) const noexcept;

 private:
  struct Sum {
    std::uint64_t messages = 0;
    Nanoseconds time = 0;
    [[nodiscard]] double mean() const noexcept {
      return static_cast<double>(time) / static_cast<double>(messages);
    }
  };
  std::array<Sum, kChannelKinds> sums_{};
  ChannelKind base_ = ChannelKind::dc_sendrecv;
  std::uint64_t next_ = kEveryFirst;
  std::uint64_t open_messages_ = 0;
  Nanoseconds open_time_ = 0;
};

}  // namespace turnout
