// SPDX-License-Identifier: BSD-3-Clause
// ComputedTime: how long a program computes, from the times at the begin and the end of each of its
// calls into a library.
//
// A wait is many polls. Between two of them an MPI library looks at everything and yields the
// processor, which takes it some microseconds of processor time: that is no computation, and there
// is more of it the more ranks share a core. So what lies between two polls counts only where it is
// long and where no other thread had the processor: then the program computes while it tests.
// Nanoseconds. One thread at a time; what lies between calls of two threads is unknown and does not
// count. No errors.
#pragma once

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
      const bool waits = polled_ && call == Call::polls;
      if (waits ? gap >= kLeastBetweenPolls && wall - wall_left_ < gap + kSwitch : gap >= kLeast) {
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
  // What is shorter is the MPI library's own way from one call to the next.
  static constexpr Nanoseconds kLeast = 1'000;
  static constexpr Nanoseconds kLeastBetweenPolls = 20'000;
  static constexpr Nanoseconds kSwitch = 2'000;  // less than it takes to give the processor away

  std::uint64_t thread_ = 0;  // of the last call; none: there was none
  Nanoseconds left_ = 0, wall_left_ = 0;
  bool polled_ = false;       // the last call
  Nanoseconds computed_ = 0;  // since the last event
};

}  // namespace turnout
