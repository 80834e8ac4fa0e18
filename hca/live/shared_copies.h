// SPDX-License-Identifier: BSD-3-Clause
// SharedCopies: large transfers between the memory of two processes, copied by both at once.
//
// The initiator copies; a target that polls completion queues in vain meanwhile takes parts of what
// is left, as an adapter takes all of it from its host. The initiator describes the transfer in the
// target's CopyRecord (device/layout.h) and both take ranges until none is left. It waits for the
// range that the target has in hand, so nothing is written after copy() has returned, and it makes
// the whole copy itself if the target has not copied every range that it took. A record can deny
// the target an access, never extend it: the region is looked up again there.
//
// One for each process and fabric. Any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "hca/live/memory.h"
#include "hca/live/parts.h"

namespace turnout::hca {

// A transfer of `length` bytes between `local` and a region of a peer's ordinary memory.
struct SharedCopy {
  bool reads = false;         // from the peer
  std::uint32_t key = 0;      // of the region or window
  std::uint32_t number = 0;   // the queue pair that the request has reached
  std::uint64_t address = 0;  // as the region names its bytes
  const Place& place;         // the same bytes, found and allowed
  std::uint8_t* local = nullptr;
  std::uint64_t length = 0;
};

class SharedCopies : LiveParts {
 public:
  // Less ends sooner if the target looks after its own messages meanwhile.
  static constexpr std::uint64_t kLeast = std::uint64_t{512} << 10;

  explicit SharedCopies(const LiveParts& parts) : LiveParts(parts) {}

  // As Memory::read and Memory::write. The caller's hazard names the region.
  [[nodiscard]] Access copy(const SharedCopy& wanted) noexcept;
  // Of a process that has nothing to do: copies a range if an initiator wants it.
  void help() noexcept {
    if (own_.open.load(std::memory_order_relaxed) != 0) [[unlikely]]
      help_with(own_);
  }

 private:
  [[nodiscard]] Access copy_range(const SharedCopy& wanted, std::uint64_t from,
                                  std::uint64_t length) noexcept;
  // Waits until the target has no range in hand or has ended, perhaps with one.
  void wait_for_helper(const CopyRecord& record, std::uint64_t job, Token target) const noexcept;
  void help_with(CopyRecord& record) noexcept;

  CopyRecord& own_ = fabric.copy(slot_of(fabric.me()));
  std::atomic<std::uint32_t> jobs_{0};
  std::atomic<bool> helping_{false};  // one thread at a time
};

}  // namespace turnout::hca
