// SPDX-License-Identifier: BSD-3-Clause
// LiveMulticast: multicast groups of datagrams: who is attached.
//
// Source: ibv_attach_mcast(3), IBTA 10.5. A group exists while somebody is attached to it; there is
// no subnet manager to join it at. Any thread.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "hca/device/common_objects.h"
#include "hca/live/fork_guard.h"
#include "hca/live/parts.h"

namespace turnout::hca {

class LiveMulticast : LiveParts {
 public:
  explicit LiveMulticast(const LiveParts& parts) : LiveParts(parts) {}

  // 0 or errno.
  [[nodiscard]] int attach(Qp& qp, const ibv_gid& group) {
    std::uint64_t gid[2];
    if (const int error = check_membership(qp, group, gid); error != 0) return error;
    const TableGuard guard(fabric);
    Header& h = fabric.header();
    const std::uint32_t high = std::min(h.multicast_high.load(), kMaxMulticasts);
    std::uint32_t free = kNone;
    for (std::uint32_t i = 0; i < high; ++i) {
      const MulticastRecord& r = fabric.multicast(i);
      const Token owner = r.owner.load(std::memory_order_relaxed);
      if (owner == 0 && free == kNone) free = i;
      if (owner == fabric.me() && r.qpn.load(std::memory_order_relaxed) == qp.number &&
          is_group(r, gid)) {
        return 0;
      }
    }
    if (free == kNone && high < kMaxMulticasts) free = high;
    if (free == kNone) return ENOMEM;
    MulticastRecord& r = fabric.multicast(free);
    r.qpn.store(0, std::memory_order_relaxed);
    r.owner.store(fabric.me(), std::memory_order_release);
    r.gid[0].store(gid[0], std::memory_order_relaxed);
    r.gid[1].store(gid[1], std::memory_order_relaxed);
    r.qpn.store(qp.number, std::memory_order_release);
    if (free == high) h.multicast_high.store(high + 1, std::memory_order_release);
    ++qp.attached;
    return 0;
  }
  [[nodiscard]] int detach(Qp& qp, const ibv_gid& group) {
    std::uint64_t gid[2];
    if (const int error = check_membership(qp, group, gid); error != 0) return error;
    const TableGuard guard(fabric);
    const std::uint32_t high = std::min(fabric.header().multicast_high.load(), kMaxMulticasts);
    for (std::uint32_t i = 0; i < high; ++i) {
      MulticastRecord& r = fabric.multicast(i);
      if (r.owner.load(std::memory_order_relaxed) != fabric.me() ||
          r.qpn.load(std::memory_order_relaxed) != qp.number || !is_group(r, gid)) {
        continue;
      }
      r.qpn.store(0, std::memory_order_release);
      r.owner.store(0, std::memory_order_release);
      --qp.attached;
      return 0;
    }
    return EINVAL;
  }
  // Calls f(number) for every queue pair that is attached to the group.
  template <class F>
  void for_each_member(const std::uint64_t* gid, F&& f) const {
    const std::uint32_t high =
        std::min(fabric.header().multicast_high.load(std::memory_order_acquire), kMaxMulticasts);
    for (std::uint32_t i = 0; i < high; ++i) {
      const MulticastRecord& r = fabric.multicast(i);
      const std::uint32_t number = r.qpn.load(std::memory_order_acquire);
      if (number != 0 && is_group(r, gid)) f(number);
    }
  }

 private:
  // 0, or why this queue pair cannot be in this group. gid: how records name the group.
  [[nodiscard]] static int check_membership(const Qp& qp, const ibv_gid& group,
                                            std::uint64_t (&gid)[2]) {
    if (const int error = refuse_child(qp.verbs.qp_base.context); error != 0) return error;
    std::memcpy(gid, group.raw, sizeof gid);
    return qp.kind == QpKind::ud && is_multicast(group) ? 0 : EINVAL;
  }
  [[nodiscard]] static bool is_group(const MulticastRecord& record,
                                     const std::uint64_t* gid) noexcept {
    return record.gid[0].load(std::memory_order_relaxed) == gid[0] &&
           record.gid[1].load(std::memory_order_relaxed) == gid[1];
  }
};

}  // namespace turnout::hca
