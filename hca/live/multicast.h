// SPDX-License-Identifier: BSD-3-Clause
// LiveMulticast: multicast groups of datagrams: who is attached.
//
// Source: ibv_attach_mcast(3), IBTA 10.5. A group exists while somebody is attached to it; there is
// no subnet manager to join it at. Any thread.
#pragma once

#include <algorithm>

#include "hca/device/objects.h"
#include "hca/live/fabric.h"

namespace turnout::hca {

class LiveMulticast {
 public:
  explicit LiveMulticast(Fabric& fabric) : fabric_(fabric) {}

  // 0 or errno.
  [[nodiscard]] int attach(Qp& qp, const ibv_gid& group);
  [[nodiscard]] int detach(Qp& qp, const ibv_gid& group);
  // Calls f(number) for every queue pair that is attached to the group.
  template <class F>
  void for_each_member(const std::uint64_t* gid, F&& f) const {
    const std::uint32_t high =
        std::min(fabric_.header().multicast_high.load(std::memory_order_acquire), kMaxMulticasts);
    for (std::uint32_t i = 0; i < high; ++i) {
      const MulticastRecord& r = fabric_.multicast(i);
      const std::uint32_t number = r.qpn.load(std::memory_order_acquire);
      if (number != 0 && is_group(r, gid)) f(number);
    }
  }

 private:
  [[nodiscard]] static bool is_group(const MulticastRecord& record,
                                     const std::uint64_t* gid) noexcept {
    return record.gid[0].load(std::memory_order_relaxed) == gid[0] &&
           record.gid[1].load(std::memory_order_relaxed) == gid[1];
  }

  Fabric& fabric_;
};

}  // namespace turnout::hca
