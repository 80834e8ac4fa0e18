// SPDX-License-Identifier: BSD-3-Clause
#include "record/libfabric/pending_operations.h"

#include <rdma/fabric.h>

#include <algorithm>

namespace turnout::record::libfabric {
namespace {

bool fits(Operation::Kind kind, std::uint64_t flags) noexcept {
  using enum Operation::Kind;
  constexpr std::uint64_t kKinds = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
  if ((flags & kKinds) == 0 || kind == other) return true;
  if (kind == receive || kind == receive_many) return (flags & FI_RECV) != 0;
  if (kind == send) return (flags & FI_SEND) != 0;
  return (flags & (FI_READ | FI_WRITE)) != 0;
}

}  // namespace

void PendingOperations::add(void* context, const PendingOperation& one) {
  pending_.emplace(context, one);
}

PendingOperation* PendingOperations::find(void* context, std::uint32_t number) {
  const auto [first, last] = pending_.equal_range(context);
  const auto found = std::find_if(
      first, last, [&](const auto& one) { return one.second.operation.number == number; });
  return found == last ? nullptr : &found->second;
}

PendingOperation* PendingOperations::oldest(void* context, std::uint64_t flags) {
  const auto [first, last] = pending_.equal_range(context);
  PendingOperation* oldest = nullptr;
  for (auto at = first; at != last; ++at) {
    PendingOperation& one = at->second;
    if (!fits(one.operation.kind, flags)) continue;
    if (oldest == nullptr || one.operation.number < oldest->operation.number) oldest = &one;
  }
  return oldest;
}

void PendingOperations::erase(void* context, const PendingOperation* one) {
  const auto [first, last] = pending_.equal_range(context);
  const auto found = std::find_if(first, last, [&](const auto& at) { return &at.second == one; });
  if (found != last) pending_.erase(found);
}

}  // namespace turnout::record::libfabric
