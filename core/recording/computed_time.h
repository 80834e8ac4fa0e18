// SPDX-License-Identifier: BSD-3-Clause
// ComputedTime: how long a program computes, from the processor time at the begin and the end of
// each of its calls into a library.
//
// A wait is many polls, and between two of them an MPI library yields the processor: some
// microseconds of processor time, which are no computation, and the more of them the more ranks
// share a core. So what lies between two polls of which the first told nothing counts only where
// it is long: then the program computes while it tests. Nanoseconds. One thread at a time; what
// lies between calls of two threads is unknown and does not count. No errors.
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

  void begin(Nanoseconds now, std::uint64_t thread, Call call) noexcept {
    if (left_ >= 0 && thread == thread_) {
      const bool waits = told_nothing_ && call == Call::polls;
      if (now - left_ >= (waits ? kLeastWhileTesting : kLeast)) computed_ += now - left_;
    }
    thread_ = thread;
    told_nothing_ = call == Call::polls;
  }
  // An event follows within the call: gives what was computed since the last one.
  [[nodiscard]] Nanoseconds take() noexcept {
    told_nothing_ = false;
    return std::exchange(computed_, 0);
  }
  void end(Nanoseconds now, std::uint64_t thread) noexcept {
    if (thread == thread_) left_ = now;
  }

 private:
  // What is shorter is the MPI library's own way from one call to the next.
  static constexpr Nanoseconds kLeast = 1'000;
  // A yield and the next look at everything took 1 to 10 us with 4 to 32 ranks on a core.
  static constexpr Nanoseconds kLeastWhileTesting = 20'000;

  Nanoseconds left_ = -1;  // when the last call ended; -1: there was none
  std::uint64_t thread_ = 0;
  bool told_nothing_ = false;  // the last call
  Nanoseconds computed_ = 0;   // since the last event
};

}  // namespace turnout
