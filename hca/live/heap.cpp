// SPDX-License-Identifier: BSD-3-Clause
// The heap of the shared state: whole pages, each tagged with its owner's token.
//
// The tags are the only truth, so a process that dies at any point leaves pages that are free or
// tagged as its own, and the reaper finds them all. Free pages are zero: a ring begins zeroed
// without touching it.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "hca/live/fabric.h"

namespace turnout::hca {
namespace {

constexpr std::uint64_t pages_of(std::uint64_t bytes) {
  return (bytes + kPage - 1) / kPage;
}
// From here on freed pages are given back to the system instead of being zeroed.
constexpr std::uint64_t kPunchPages = 16;

}  // namespace

std::uint64_t Fabric::allocate(std::uint64_t bytes) noexcept {
  const std::uint64_t pages = pages_of(bytes);
  const std::uint64_t all = Layout::heap_pages(size());
  const TableGuard guard(*this);
  Header& h = header();
  PageTag* tag = tags();
  std::uint64_t run = 0, first_free = all;
  for (std::uint64_t page = std::min(h.heap_first_free, all); pages != 0 && page < all; ++page) {
    if (tag[page] != 0) {
      run = 0;
      continue;
    }
    if (first_free == all) first_free = page;
    if (++run < pages) continue;
    const std::uint64_t first = page + 1 - pages;
    for (std::uint64_t i = first; i <= page; ++i) tag[i] = me_;
    h.heap_first_free = first == first_free ? page + 1 : first_free;
    h.heap_high = std::max(std::min(h.heap_high, all), page + 1);
    return heap_begin() + first * kPage;
  }
  TURNOUT_LOG(hca, warn,
              "allocation failed: fabric {}: no room for {} bytes; raise TURNOUT_FABRIC_SIZE",
              label_, bytes);
  errno = ENOMEM;
  return 0;
}

void Fabric::free_pages(std::uint64_t first, std::uint64_t pages) noexcept {
  std::byte* memory = base() + heap_begin() + first * kPage;
  if (pages < kPunchPages || fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                       static_cast<off_t>(heap_begin() + first * kPage),
                                       static_cast<off_t>(pages * kPage)) != 0) {
    std::memset(memory, 0, pages * kPage);
  }
  // The hint first: whoever dies between the two leaves one that is too low, which costs a search,
  // not one that hides free pages.
  Header& h = header();
  h.heap_first_free = std::min(h.heap_first_free, first);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  PageTag* tag = tags();
  for (std::uint64_t i = first; i < first + pages; ++i) tag[i] = 0;
}

void Fabric::release(std::uint64_t offset, std::uint64_t bytes) noexcept {
  if (offset == 0 || heap(offset, bytes) == nullptr || (offset - heap_begin()) % kPage != 0) return;
  const TableGuard guard(*this);
  free_pages((offset - heap_begin()) / kPage, pages_of(bytes));
}

}  // namespace turnout::hca
