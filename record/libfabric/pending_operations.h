// SPDX-License-Identifier: BSD-3-Clause
// PendingOperations: the operations whose completions a queue has not reported yet, by context.
//
// It owns them. Any thread, with the recorder's guard held; what it points to is valid until it is
// erased. No errors. Source: fi_cq(3): a completion has the context of its operation and flags that
// say of what kind that was. A program may give one context to several operations at a time.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "record/recorder.h"

namespace turnout::record::libfabric {

class Av;

struct PendingOperation {
  Operation operation;
  Av* av = nullptr;  // of its endpoint
};

class PendingOperations {
 public:
  void add(void* context, const PendingOperation& one);
  // Null: there is none.
  [[nodiscard]] PendingOperation* find(void* context, std::uint32_t number);
  // The oldest that a completion with these flags can be of.
  [[nodiscard]] PendingOperation* oldest(void* context, std::uint64_t flags);
  void erase(void* context, const PendingOperation* one);

 private:
  std::unordered_multimap<void*, PendingOperation> pending_;
};

}  // namespace turnout::record::libfabric
