// SPDX-License-Identifier: BSD-3-Clause
// DecisionLog: the changes of channels that an endpoint asked for, with their reasons and outcomes,
// for the report. It keeps the latest: at most kMost, and no more than the budget has room for.
//
// The endpoint owns it and calls it from its thread. Memory is charged to the account. No errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "core/memory/account.h"
#include "core/report/report.h"

namespace turnout {

class DecisionLog {
 public:
  static constexpr std::size_t kMost = 4096;
  static constexpr std::uint64_t kBytes = sizeof(DecisionReport) + 160;  // of one, with its words

  explicit DecisionLog(MemoryAccount& account) noexcept : account_(account) {}
  DecisionLog(const DecisionLog&) = delete;
  DecisionLog& operator=(const DecisionLog&) = delete;

  // Its number, for set_outcome(). 0: it is not kept.
  [[nodiscard]] std::uint64_t add(DecisionReport decision) {
    if (kept_.size() >= kMost || !account_.reserve(MemoryKind::decisions, kBytes)) {
      ++dropped_;
      if (kept_.empty()) return 0;
      kept_.pop_front();
    }
    kept_.push_back(std::move(decision));
    return dropped_ + kept_.size();
  }
  // One that has been dropped meanwhile, or number 0, is ignored.
  void set_outcome(std::uint64_t number, const std::string& outcome) {
    if (number > dropped_) kept_[number - 1 - dropped_].outcome = outcome;
  }

  [[nodiscard]] const std::deque<DecisionReport>& kept() const noexcept { return kept_; }
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_; }

 private:
  MemoryAccount& account_;
  std::deque<DecisionReport> kept_;
  std::uint64_t dropped_ = 0;
};

}  // namespace turnout
