// SPDX-License-Identifier: BSD-3-Clause
#include "core/protocol/operation_limits.h"

#include <algorithm>

#include "core/protocol/atomics.h"
#include "core/protocol/operation.h"

namespace turnout {
namespace {
constexpr std::uint64_t kRecordBytes = sizeof(void*);  // a slab's own bytes for one
constexpr std::uint64_t kSendBytes = sizeof(SendOperation) + sizeof(InjectCopy) + 2 * kRecordBytes;
constexpr std::uint64_t kEachBytes =
    kSendBytes + sizeof(RecvOperation) + sizeof(AtomicOperation) + 2 * kRecordBytes;
}  // namespace

OperationLimits operation_limits(std::uint64_t budget, std::size_t wanted) noexcept {
  const std::size_t most = std::max<std::size_t>(budget / 16 / kEachBytes, 1);
  const std::size_t promised = std::min(wanted == 0 ? kContextSize : wanted, most);
  return {promised, std::max<std::size_t>(promised, budget / 4 / kSendBytes)};
}

}  // namespace turnout
