// SPDX-License-Identifier: BSD-3-Clause
#include "core/state/operation_records.h"

#include <fmt/format.h>

namespace turnout {
namespace {
// An operation is refused for good after so many keep-alive times without one accepted.
constexpr int kGiveUpAfter = 30;
}  // namespace

OperationRecords::OperationRecords(EndpointContext& shared, std::size_t context_size)
    : context(shared),
      operation_limits(turnout::operation_limits(shared.account.budget(), context_size)),
      sends(shared.account, MemoryKind::operations, sizeof(void*) + sizeof(std::uint32_t)),
      copies(shared.account, MemoryKind::operations),
      receives(shared.account, MemoryKind::operations),
      messages(shared.account, MemoryKind::unexpected),
      transfers(shared.account, MemoryKind::operations),
      atomics(shared.account, MemoryKind::operations) {}

Status OperationRecords::refusal() {
  const Nanoseconds now = context.clock.now();
  if (refused_since == 0) refused_since = now;
  if (now - refused_since < kGiveUpAfter * context.settings.keepalive) {
    return {Code::again, "no memory for the operation within the budget"};
  }
  return {Code::over_budget,
          fmt::format("TURNOUT_MEMORY_BUDGET={} has no room for another operation, and none has "
                      "completed for {} s; raise it",
                      context.account.budget(), (now - refused_since) / 1'000'000'000)};
}

OperationRecords::~OperationRecords() {
  sends.for_each([this](SendOperation& send) {
    if (send.copy != nullptr) give_back_copy(send.copy, send.iov.total);
  });
  transfers.for_each([this](Transfer& transfer) {
    if (transfer.copy != nullptr) give_back_copy(transfer.copy, transfer.total);
  });
  context.account.release(MemoryKind::operations, spare_blocks.size() * kInjectLimit);
}

std::byte* OperationRecords::take_copy(std::size_t bytes) {
  if (bytes <= InjectCopy::kMost) {
    InjectCopy* const copy = take_for_caller(copies);
    return copy != nullptr ? copy->bytes.data() : nullptr;
  }
  const std::size_t block = block_of(bytes);
  if (block == kInjectLimit && !spare_blocks.empty()) {
    std::byte* const copy = spare_blocks.back().release();
    spare_blocks.pop_back();
    refused_since = 0;
    return copy;
  }
  if (!context.account.reserve(MemoryKind::operations, block)) return nullptr;
  refused_since = 0;
  return new std::byte[block];
}

void OperationRecords::give_back_copy(std::byte* copy, std::size_t bytes) noexcept {
  if (bytes <= InjectCopy::kMost) return copies.give_back(reinterpret_cast<InjectCopy*>(copy));
  const std::size_t block = block_of(bytes);
  std::unique_ptr<std::byte[]> owned(copy);
  if (block == kInjectLimit && spare_blocks.size() < kMostSpareBlocks) {
    spare_blocks.push_back(std::move(owned));
    return;
  }
  context.account.release(MemoryKind::operations, block);
}

}  // namespace turnout
