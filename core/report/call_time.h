// SPDX-License-Identifier: BSD-3-Clause
// CallTime: estimates the time that a program spends in its calls by sampling them.
//
// About one call in kEvery is measured with two clock reads, at first one in kEveryFirst; the
// others only decrement a counter. The distance is random, so that a program that repeats a
// sequence of calls is not sampled always at the same one. Each measured call stands for the calls
// before it: the sum is unbiased, and its standard error, which rare long calls make large, is
// reported. Preemption within a call counts. A nested call counts as part of the outer one. The
// layers around the endpoint (libfabric's functions, tens of nanoseconds) are not included.
//
// Under a virtual clock reading is free, and every call is measured: the sum is exact. One per
// endpoint, its thread only. Nanoseconds.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/report/profile.h"
#include "core/time/clock.h"

namespace turnout {

class CallTime {
 public:
  static constexpr std::uint32_t kEvery = 512;
  static constexpr std::uint32_t kEveryFirst = 16;
  static constexpr std::uint32_t kFirst = 64;  // measured calls

  explicit CallTime(bool every_call) noexcept : gap_(every_call ? 1 : kEveryFirst), left_(gap_) {}

  // Makes the call: one function, so that what is not measured costs a branch and a jump.
  template <class Function>
  auto run(Clock& clock, Function&& function) {
    if constexpr (kProfiled) {
      if (--left_ == 0) [[unlikely]]
        return measure(clock, function);
    }
    return function();
  }

  // Fills in the four members of the report that are about calls.
  void report(ProfileReport* out) const noexcept {
    const std::uint64_t since = gap_ - left_;
    out->calls = stood_for_ + since;
    out->calls_measured = measured_;
    if (stood_for_ == 0) return;
    const double mean = sum_ / static_cast<double>(stood_for_);
    out->library_time =
        static_cast<std::uint64_t>(std::llround(mean * static_cast<double>(out->calls)));
    if (stood_for_ == measured_ && since == 0) return;  // all of them
    const double squares = of_squares_ - 2 * mean * of_times_ + mean * mean * of_gaps_;
    out->library_time_error = static_cast<std::uint64_t>(std::sqrt(squares > 0 ? squares : 0) *
                                                         static_cast<double>(out->calls) /
                                                         static_cast<double>(stood_for_));
  }

 private:
  template <class Function>
  [[gnu::noinline]] auto measure(Clock& clock, Function& function) {
    const Nanoseconds begun = clock.now();
    auto result = function();
    add(clock.now() - begun);
    return result;
  }
  void add(Nanoseconds time) noexcept {
    const auto gap = static_cast<double>(gap_);
    const auto took = static_cast<double>(time);
    sum_ += gap * took;
    of_squares_ += gap * gap * took * took;
    of_times_ += gap * gap * took;
    of_gaps_ += gap * gap;
    stood_for_ += gap_;
    ++measured_;
    if (gap_ > 1) {
      const std::uint32_t around = measured_ < kFirst ? kEveryFirst : kEvery;
      random_ = random_ * 6364136223846793005u + 1442695040888963407u;  // Knuth, MMIX
      // From a half of it to one and a half.
      gap_ = around / 2 + 1 + static_cast<std::uint32_t>(random_ >> 33) % around;
    }
    left_ = gap_;
  }

  std::uint32_t gap_;   // calls from the last measured one to the next, that one included
  std::uint32_t left_;  // until it; wraps within a measured call, and is set anew at its end
  std::uint64_t stood_for_ = 0, measured_ = 0;
  std::uint64_t random_ = 1;
  double sum_ = 0;                                      // of gap * time
  double of_squares_ = 0, of_times_ = 0, of_gaps_ = 0;  // of gap^2 times time^2, time, 1
};

}  // namespace turnout
