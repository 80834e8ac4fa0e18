// SPDX-License-Identifier: BSD-3-Clause
// Operations: the work requests on their way, and their events.
//
// Owns all of them, in blocks that are kept; an operation is its user's between create() and
// free(). `events` counts the pending events that name one: it is freed when there are none. One
// thread.
#pragma once

#include <cassert>
#include <memory>
#include <vector>

#include "hca/virtual/kernel.h"
#include "hca/virtual/objects.h"

namespace turnout::hca {

class Operations {
 public:
  explicit Operations(Kernel& kernel) : kernel_(kernel) {}

  // One without a request, a queue pair or events.
  [[nodiscard]] Operation* create() {
    constexpr std::size_t kBlock = 256;
    if (free_ == nullptr) {
      blocks_.push_back(std::make_unique<Operation[]>(kBlock));
      for (std::size_t i = 0; i < kBlock; ++i) {
        blocks_.back()[i].next_free = free_;
        free_ = &blocks_.back()[i];
      }
    }
    Operation* const operation = free_;
    free_ = operation->next_free;
    static_cast<Flight&>(*operation) = {};
    operation->copy.clear();
    return operation;
  }
  void free(Operation* operation) noexcept {
    assert(operation->events == 0);
    operation->qp = nullptr;
    operation->next_free = free_;
    free_ = operation;
  }
  void schedule(Picoseconds time, EventKind kind, Operation& operation) {
    ++operation.events;
    kernel_.schedule(time, kind, &operation);
  }
  // The target's answer is at the sender's adapter at this time.
  void answer(Operation& operation, Picoseconds at) { schedule(at, EventKind::answer, operation); }

 private:
  Kernel& kernel_;
  std::vector<std::unique_ptr<Operation[]>> blocks_;
  Operation* free_ = nullptr;
};

}  // namespace turnout::hca
