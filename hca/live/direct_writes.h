// SPDX-License-Identifier: BSD-3-Clause
// DirectWrites: RDMA writes of a connection that go to the region of the one before, as those to a
// ring do, without another search for it.
//
// What the search found and allowed is kept in the queue pair (LatestWrite). It holds while the
// target is in the same phase of the same connection and the region has the same registration: all
// else that was checked is written before these are and stays while they do. The hazard is named
// before they are looked at, as for every request: see hazards.h.
//
// RC alone: the other kinds have many targets. All with the sq_lock of the queue pair held.
#pragma once

#include "hca/device/qp_state.h"
#include "hca/device/rules.h"
#include "hca/live/hazards.h"
#include "hca/live/memory.h"
#include "hca/live/receives.h"

namespace turnout::hca {

class DirectWrites : LiveParts {
 public:
  explicit DirectWrites(const LiveParts& parts) : LiveParts(parts) {}

  // Carries out a request of `length` > 0 bytes that lie where the latest write went: `copy` writes
  // them to our address of theirs. False: they lie somewhere else, and nothing was done.
  template <class Copy>
  [[nodiscard, gnu::always_inline]] bool write(Qp& qp, const SendWqe& wqe, std::uint64_t length,
                                               Copy&& copy) noexcept {
    const DirectRegion& region = qp.latest_write.region;
    const std::uint64_t iova = region.iova, remote = wqe.remote;
    if (wqe.rkey != static_cast<std::uint32_t>(region.registration) ||
        wqe.opcode != IBV_WR_RDMA_WRITE || !covers(iova, region.length, remote, length)) {
      return false;
    }
    const std::uint32_t number = qp.attr.dest_qp_num;
    const QpRecord& target = fabric.qp(number & (kMaxQps - 1));
    Hazards::name(fabric, qp, number, wqe.rkey);
    const bool same = target.identity.load(std::memory_order_acquire) == qp.latest_write.identity &&
                      target.dest_qpn == qp.number &&
                      target.sequence.follows.load(std::memory_order_relaxed) == qp.connection &&
                      (target.access & IBV_ACCESS_REMOTE_WRITE) != 0 &&
                      memory.is_registered(region.registration);
    if (same) [[likely]] {
      // NOLINTNEXTLINE: an address of ours
      auto* const to = reinterpret_cast<std::uint8_t*>(region.direct + (remote - iova));
      copy(to);
      prefetch_next(qp.latest_write, to + length, length);
    }
    qp.hazard->store(0, std::memory_order_release);
    return same;
  }
  // After another write, whose bytes end at `end`.
  void remember(Qp& qp, const RequestTarget& target, const Place& end,
                std::uint64_t length) noexcept {
    LatestWrite& latest = qp.latest_write;
    prefetch_next(latest, end.direct, length);
    latest.identity = target.record->identity.load(std::memory_order_acquire);
    if (qp.kind != QpKind::rc || end.registration == 0 ||
        fabric.header().faults.load(std::memory_order_relaxed) != 0 ||
        latest.identity >> 8 != target.number ||
        !can_receive(QpRecord::phase_of(latest.identity)) ||
        !memory.describe(end.registration, latest.region)) {
      latest.region = {};
    }
  }
  // Gives the lines of the latest write, of so many bytes, to the cache that all cores share: the
  // core that waits for them finds them there sooner than in our own cache. Not of a stream of
  // writes, whose next pass over the ring would fetch them from farther away, nor of those that are
  // too long to stay in our cache. A hint: where the latest write lies somewhere else, nothing is
  // lost.
  static void hand_over(const Qp& qp, std::uint64_t length) noexcept {
#if defined(__x86_64__)
    constexpr std::uintptr_t kLine = 64;
    constexpr std::uint64_t kMost = 64 << 10;
    if (length > kMost) return;
    const std::uintptr_t end = qp.latest_write.end;
    for (std::uintptr_t line = (end - length) & ~(kLine - 1); line < end; line += kLine) {
      // cldemote (%rax), which does nothing on processors that do not know it, and never faults
      // (Intel SDM vol. 2A).
      asm volatile(".byte 0x0f, 0x1c, 0x00" : : "a"(line) : "memory");
    }
#endif
  }

 private:
  // Writes that lie equally far apart go on so. The core that receives has the lines of the next
  // ones: they are fetched while the program prepares its message, or the stores would hold up what
  // follows them. Those of a write of at most so many bytes; of a longer one its end. Where nothing
  // is mapped a prefetch does nothing.
  static constexpr std::uint64_t kMostPrefetched = 4096, kLine = 64;
  static void prefetch_next(LatestWrite& latest, const std::uint8_t* end,
                            std::uint64_t length) noexcept {
    constexpr std::uintptr_t kAhead = 4;
    const auto now = reinterpret_cast<std::uintptr_t>(end);
    const std::uintptr_t last = now + kAhead * (now - latest.end) - 1;
    latest.end = now;
    prefetch(last);
    if (length > kLine && length <= kMostPrefetched) prefetch_lines(last, length / kLine);
  }
  // So many before the line of `last`.
  [[gnu::noinline]] static void prefetch_lines(std::uintptr_t last, std::uint64_t count) noexcept {
    for (; count > 0; --count) prefetch(last -= kLine);
  }
  static void prefetch(std::uintptr_t at) noexcept {
#if defined(__x86_64__)
    asm volatile("prefetchw (%0)" : : "r"(at));
#else
    __builtin_prefetch(reinterpret_cast<const std::uint8_t*>(at), 1);
#endif
  }
};

}  // namespace turnout::hca
