// SPDX-License-Identifier: BSD-3-Clause
// OperationRecords: the records of an endpoint's operations, which are never moved and are
// accounted for, and the matcher of receives and unexpected messages.
//
// The endpoint owns it; only the thread that drives the endpoint uses it.
#pragma once

#include <memory>
#include <vector>

#include "core/memory/slab.h"
#include "core/protocol/atomics.h"
#include "core/protocol/matcher.h"
#include "core/protocol/operation.h"
#include "core/protocol/operation_limits.h"
#include "core/state/endpoint_context.h"

namespace turnout {

struct OperationRecords {
  OperationRecords(EndpointContext& context, std::size_t context_size);
  // With them go the copies of messages that their peers never took.
  ~OperationRecords();
  OperationRecords(const OperationRecords&) = delete;
  OperationRecords& operator=(const OperationRecords&) = delete;

  // A record for an operation of the caller; null: answer refusal().
  template <class T>
  [[nodiscard]] T* take_for_caller(Slab<T>& from) {
    T* const record = from.take();
    if (record != nullptr && refused_since != 0) [[unlikely]]
      refused_since = 0;
    return record;
  }
  [[nodiscard]] Status refusal();
  // For the data of an injected operation that waits; null: answer refusal(). Given back with the
  // same number of bytes.
  [[nodiscard]] std::byte* take_copy(std::size_t bytes);
  void give_back_copy(std::byte* copy, std::size_t bytes) noexcept;

  // Copies of more than half of the limit are in blocks of the limit. As many as a burst leaves in
  // the backlog are kept: the allocator would give their pages back to the system, each time.
  static constexpr std::size_t kMostSpareBlocks = 64;
  [[nodiscard]] static std::size_t block_of(std::size_t bytes) noexcept {
    return bytes > kInjectLimit / 2 ? kInjectLimit : bytes;
  }

  EndpointContext& context;
  OperationLimits operation_limits{};
  Slab<SendOperation> sends;
  Slab<InjectCopy> copies;
  Slab<RecvOperation> receives;
  Slab<UnexpectedMessage> messages;
  Slab<Transfer> transfers;
  Slab<AtomicOperation> atomics;
  Matcher<RecvOperation, UnexpectedMessage> matcher;
  std::vector<std::unique_ptr<std::byte[]>> spare_blocks;
  Nanoseconds refused_since = 0;  // operations, for lack of memory, without one accepted since
};

}  // namespace turnout
