// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/shared_copies.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "hca/live/idle_polls.h"

namespace turnout::hca {
namespace {

constexpr std::uint64_t kLeastRange = std::uint64_t{16} << 10;
constexpr std::uint64_t kMostAlone = std::uint64_t{4} << 20;
// A helper has its own work: it looks for that between two ranges.
constexpr std::uint64_t kMostOfHelper = std::uint64_t{256} << 10;

struct Range {
  std::uint64_t from = 0, length = 0;
};

// The next range of at most `most` bytes, a `share`-th of what is left: the last ones are short, so
// that both end together. Length 0: nothing is left.
Range take_range(CopyRecord& record, std::uint64_t length, std::uint64_t share,
                 std::uint64_t most) noexcept {
  std::uint64_t from = record.next.load(std::memory_order_relaxed);
  for (;;) {
    if (from >= length) return {};
    const std::uint64_t left = length - from;
    const std::uint64_t part = std::clamp(page_align(left / share), kLeastRange, most);
    const std::uint64_t n = std::min(part, left);
    if (record.next.compare_exchange_weak(from, from + n, std::memory_order_relaxed)) {
      return {from, n};
    }
  }
}

}  // namespace

Access SharedCopies::copy_range(const SharedCopy& wanted, std::uint64_t from,
                                std::uint64_t length) noexcept {
  Place place = wanted.place;
  place.remote += from;
  return wanted.reads ? memory.read(wanted.local + from, place, length)
                      : memory.write(place, wanted.local + from, length);
}

Access SharedCopies::copy(const SharedCopy& wanted) noexcept {
  // The last byte of a write is stored after all others.
  const std::uint64_t last = wanted.reads ? 0 : kPage;
  const std::uint64_t shared = wanted.length - last;
  const std::uint32_t slot = slot_of(wanted.place.owner);
  if (slot >= kMaxProcesses) return Access::unreachable;
  CopyRecord& record = fabric.copy(slot);
  const std::uint64_t job = std::uint64_t{fabric.me()} << 32 | ++jobs_;
  std::uint64_t nobody = 0;
  if (!record.reserved.compare_exchange_strong(nobody, job, std::memory_order_acquire)) {
    return copy_range(wanted, 0, wanted.length);  // it helps another
  }
  Access result = Access::ok;
  bool whole = false;
  // A helper of a job whose initiator died may still have a range.
  if (record.active.load(std::memory_order_acquire) == 0) {
    record.next.store(0, std::memory_order_relaxed);
    record.copied.store(0, std::memory_order_relaxed);
    record.target = wanted.place.owner;
    record.key = wanted.key;
    record.number = wanted.number;
    record.reads = wanted.reads ? 1 : 0;
    record.address = wanted.address;
    record.local = reinterpret_cast<std::uint64_t>(wanted.local);
    record.length = static_cast<std::uint32_t>(shared);
    record.open.store(job, std::memory_order_release);
    std::uint64_t ours = 0;
    while (result == Access::ok) {
      const bool alone = record.active.load(std::memory_order_relaxed) != job;
      const Range range = alone ? take_range(record, shared, 2, kMostAlone)
                                : take_range(record, shared, 4, kMostAlone);
      if (range.length == 0) break;
      result = copy_range(wanted, range.from, range.length);
      ours += range.length;
    }
    record.open.store(0, std::memory_order_seq_cst);
    wait_for_helper(record, job, wanted.place.owner);
    // A target that failed, or that died with a range in hand, has not counted it.
    whole = ours + record.copied.load(std::memory_order_acquire) == shared;
  }
  std::uint64_t own = job;
  record.reserved.compare_exchange_strong(own, 0, std::memory_order_release);
  if (result != Access::ok) return result;
  if (!whole) return copy_range(wanted, 0, wanted.length);
  return last == 0 ? Access::ok : copy_range(wanted, shared, last);
}

void SharedCopies::wait_for_helper(const CopyRecord& record, std::uint64_t job,
                                   Token target) const noexcept {
  for (std::uint32_t round = 1; record.active.load(std::memory_order_seq_cst) == job; ++round) {
    constexpr std::uint32_t kSpins = 4096, kBetween = 1024;
    if (round < kSpins) {
      __builtin_ia32_pause();
    } else {
      sched_yield();
      if (round % kBetween == 0 && !fabric.alive(target)) return;
    }
  }
}

void SharedCopies::help_with(CopyRecord& record) noexcept {
  // The child of a fork has other memory behind the same addresses.
  if (::getpid() != fabric.pid() || helping_.exchange(true, std::memory_order_acquire)) return;
  const std::uint64_t job = record.open.load(std::memory_order_acquire);
  record.active.store(job, std::memory_order_seq_cst);
  // The initiator closes, then looks for a helper: it waits for us, or we see that it has closed.
  if (job != 0 && record.open.load(std::memory_order_seq_cst) == job) {
    const std::uint32_t key = record.key, index = key >> 8;
    const std::uint64_t length = record.length, address = record.address, local = record.local;
    const bool reads = record.reads != 0;
    const Range range = take_range(record, length, 4, kMostOfHelper);
    Place here, there;
    there.owner = static_cast<Token>(job >> 32);
    there.remote = local + range.from;
    const bool done =
        range.length != 0 &&
        (record.target == fabric.me() && index < kMaxMrs && memory.reach(there.owner, there.pid) &&
         memory.find(key, fabric.mr(index).pd, address + range.from, range.length,
                     reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE, here,
                     record.number) == Access::ok &&
         here.direct != nullptr &&
         (reads ? memory.write(there, here.direct, range.length)
                : memory.read(here.direct, there, range.length)) == Access::ok);
    if (done) record.copied.fetch_add(range.length, std::memory_order_release);
    if (range.length != 0) {
      ++record.helped;
      idle_polls.found_work();
    }
  }
  record.active.store(0, std::memory_order_release);
  helping_.store(false, std::memory_order_release);
}

}  // namespace turnout::hca
