// SPDX-License-Identifier: BSD-3-Clause
// The cases of the conformance table, by topic. Each asks an adapter one thing and answers with
// what it saw, in a few words that are the same whenever the behaviour is: no number, time or
// address that the next run would change.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/verbs/bed.h"

namespace turnout::conform {

struct Case {
  std::string name;  // "topic: what is asked"
  std::function<std::string(Bed&)> ask;
};

// To and fro between the states, and the attributes that each step takes.
[[nodiscard]] std::vector<Case> state_cases();
// What every operation does, on every type of queue pair.
[[nodiscard]] std::vector<Case> operation_cases();
// Keys, bounds, rights, lengths.
[[nodiscard]] std::vector<Case> protection_cases();
// Receivers that are not ready, targets that are not there, sequence, death.
[[nodiscard]] std::vector<Case> connection_cases();
// Limits, orders, overflow, flushing, RESET, shared receives.
[[nodiscard]] std::vector<Case> queue_cases();
// UD.
[[nodiscard]] std::vector<Case> datagram_cases();
// Memory windows.
[[nodiscard]] std::vector<Case> window_cases();
// Events, and the objects that they or others hold.
[[nodiscard]] std::vector<Case> event_cases();

}  // namespace turnout::conform
