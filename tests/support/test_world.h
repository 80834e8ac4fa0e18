// SPDX-License-Identifier: BSD-3-Clause
// TestWorld: several endpoints in one process on a virtual fabric of their own, driven by one
// thread with a clock the test moves. What order things happen in comes from the test's seed.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/endpoint.h"

namespace turnout {

// Settings by name, as in settings.def, and their values.
using Overrides = std::vector<std::pair<std::string, std::string>>;

class TestClock final : public Clock {
 public:
  // Looking takes time, so that waiting with a deadline ends.
  Nanoseconds now() noexcept override { return now_ += 100'000; }
  void advance(Nanoseconds by) noexcept { now_ += by; }

 private:
  Nanoseconds now_ = 1'000'000'000;
};

class TestWorld {
 public:
  // Queue pairs are made at once and found made in the next round; with a seed, after some rounds
  // drawn from it.
  explicit TestWorld(std::size_t endpoints, const Overrides& overrides = {},
                     std::uint64_t late_seed = 0);
  ~TestWorld();

  [[nodiscard]] std::size_t size() const noexcept { return endpoints_.size(); }
  Endpoint& operator[](std::size_t i) { return *endpoints_[i]; }
  CompletionQueue& queue(std::size_t i) { return *queues_[i]; }
  // The id of endpoint `of` at endpoint `at`.
  PeerId peer(std::size_t at, std::size_t of);
  void progress_all(int rounds = 1);
  // Progress until the condition holds; false after too many rounds.
  template <class Condition>
  bool until(Condition&& condition, int rounds = 20000) {
    for (int i = 0; i < rounds; ++i) {
      if (condition()) return true;
      progress_all();
      clock_.advance(1000);
    }
    return condition();
  }
  void close(std::size_t i) { endpoints_[i].reset(); }
  TestClock& clock() noexcept { return clock_; }
  Report report(std::size_t i, void* context) {
    return Report{queues_[i].get(), queues_[i].get(), nullptr, context};
  }

 private:
  TestClock clock_;
  std::vector<std::unique_ptr<CompletionQueue>> queues_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

}  // namespace turnout
