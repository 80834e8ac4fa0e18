// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/tables.h"

namespace turnout::hca {
namespace {

// Read once, whatever the compiler thinks: what was checked is what is used.
template <class T>
T volatile_read(const T& value) noexcept {
  return *static_cast<const volatile T*>(&value);
}

}  // namespace

ReceiveRing Tables::ring(const ReceiveQueue& queue) const noexcept {
  const std::uint32_t slots = volatile_read(queue.slots), max_sge = volatile_read(queue.max_sge);
  if (slots == 0 || (slots & (slots - 1)) != 0 || max_sge > kMaxSge) return {};
  void* start = heap(volatile_read(queue.ring), slots * receive_stride(max_sge));
  return {static_cast<std::byte*>(start), slots - 1, max_sge};
}

CompletionRing Tables::ring(const CqRecord& cq) const noexcept {
  const std::uint64_t slots = volatile_read(cq.slots);
  if (slots == 0 || (slots & (slots - 1)) != 0) return {};
  void* start = heap(volatile_read(cq.ring), slots * sizeof(Cqe));
  return {static_cast<Cqe*>(start), slots - 1};
}

}  // namespace turnout::hca
