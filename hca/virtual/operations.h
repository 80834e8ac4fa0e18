// SPDX-License-Identifier: BSD-3-Clause
// Operations: the work requests on their way, and their events.
//
// Owns all of them, in blocks that are kept; an operation is its user's between create() and
// free(). `events` counts the pending events that name one: it is freed when there are none. One
// thread.
#pragma once

#include <memory>
#include <vector>

#include "hca/virtual/kernel.h"
#include "hca/virtual/objects.h"

namespace turnout::hca {

class Operations {
 public:
  explicit Operations(Kernel& kernel) : kernel_(kernel) {}

  // One without a request, a queue pair or events.
  [[nodiscard]] Operation* create();
  void free(Operation* operation) noexcept;
  void schedule(Picoseconds time, EventKind kind, Operation& operation) {
    ++operation.events;
    kernel_.schedule(time, kind, &operation);
  }
  // The target's answer, at answer_at.
  void answer(Operation& operation) { schedule(operation.answer_at, EventKind::answer, operation); }

 private:
  Kernel& kernel_;
  std::vector<std::unique_ptr<Operation[]>> blocks_;
  Operation* free_ = nullptr;
};

}  // namespace turnout::hca
