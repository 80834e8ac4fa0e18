// SPDX-License-Identifier: BSD-3-Clause
// ComputedTime: how long a program computes, from the times at the begin and the end of each of its
// calls into a library.
//
// A wait is many polls. Between two of them an MPI library looks at everything and yields the
// processor, which takes it some microseconds of processor time: that is no computation, and there
// is more of it the more ranks share a core. So what lies between two polls counts only where it is
// long and where no other thread had the processor: then the program computes while it tests.
//
// What follows such a wait runs through caches that others have filled meanwhile. What that costs
// on this host is seen between two polls around which the processor was given away, for nothing is
// computed there: the median of the latest of these is taken off.
// Nanoseconds. One thread at a time; what lies between calls of two threads is unknown and does not
// count. No errors.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/time/clock.h"

namespace turnout {

class ComputedTime {
 public:
  enum class Call : std::uint8_t {
    polls,  // asks what has ended or arrived
    acts,   // all others
  };

  // `processor`: the thread's processor time; `wall`: of any clock that goes on meanwhile.
  void begin(Nanoseconds processor, Nanoseconds wall, std::uint64_t thread, Call call) noexcept {
    if (thread == thread_) {
      const Nanoseconds gap = processor - left_;
      const bool gave_away = wall - wall_left_ >= gap + kSwitch;
      if (!polled_ || call != Call::polls) {
        const Nanoseconds own = resumed_ ? gap - resumption() : gap;
        if (own >= kLeast) computed_ += own;
        resumed_ = false;
      } else if (gave_away) {
        if (gap < kLeastBetweenPolls) resumptions_[resumption_count_++ % resumptions_.size()] = gap;
        resumed_ = true;
      } else if (gap >= kLeastBetweenPolls) {
        computed_ += gap;
      }
    }
    thread_ = thread;
    polled_ = call == Call::polls;
  }
  // An event follows within the call: gives what was computed since the last one.
  [[nodiscard]] Nanoseconds take() noexcept { return std::exchange(computed_, 0); }
  void end(Nanoseconds processor, Nanoseconds wall, std::uint64_t thread) noexcept {
    if (thread != thread_) return;
    left_ = processor;
    wall_left_ = wall;
  }

 private:
  static constexpr std::size_t kResumptions = 31;

  // Processor time from one poll to the next around which the processor was given away.
  [[nodiscard]] Nanoseconds resumption() const noexcept {
    const std::size_t count = std::min(resumption_count_, resumptions_.size());
    if (count == 0) return 0;
    std::array<Nanoseconds, kResumptions> latest = resumptions_;
    const auto middle = latest.begin() + count / 2;
    std::nth_element(latest.begin(), middle, latest.begin() + count);
    return *middle;
  }

  // What is shorter is the MPI library's own way from one call to the next: MPICH 5.0.2 takes up to
  // 1.4 us in an all-to-all exchange (the 90 % quantile, with the readings of both clocks).
  static constexpr Nanoseconds kLeast = 2'000;
  static constexpr Nanoseconds kLeastBetweenPolls = 20'000;
  static constexpr Nanoseconds kSwitch = 2'000;  // less than it takes to give the processor away

  std::uint64_t thread_ = 0;  // of the last call; none: there was none
  Nanoseconds left_ = 0, wall_left_ = 0;
  bool polled_ = false;   // the last call
  bool resumed_ = false;  // the processor was given away since the last call but polls
  std::array<Nanoseconds, kResumptions> resumptions_{};
  std::size_t resumption_count_ = 0;
  Nanoseconds computed_ = 0;  // since the last event
};

}  // namespace turnout
