// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/multicast.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace turnout::cm {
namespace {

void detach(Group& g) {
  if (g.attached && g.id->verbs.qp != nullptr) ibv_detach_mcast(g.id->verbs.qp, &g.gid, g.lid);
  g.attached = false;
}

}  // namespace

std::uint32_t qkey_of(rdma_port_space ps) {
  return ps == RDMA_PS_IPOIB ? kIpoibQkey : RDMA_UDP_QKEY;
}

ibv_gid group_gid(const Address& address, rdma_port_space ps) {
  ibv_gid gid{};
  std::uint8_t* const b = gid.raw;
  // An MGID written as an address: flags "transient", IPoIB's or librdmacm's signature.
  if (address.family == AF_INET6 && address.ip[0] == 0xff && (address.ip[1] & 0xf0) == 0x10 &&
      address.ip[2] == 0xa0 && address.ip[3] == 0x1b) {
    std::memcpy(b, address.ip.data(), 16);
    return gid;
  }
  constexpr std::uint8_t kLinkLocal = 2, kTransient = 0x10;
  b[0] = 0xff;
  b[1] = kTransient | kLinkLocal;
  b[2] = address.family == AF_INET ? 0x40 : 0x60;
  b[3] = ps == RDMA_PS_IPOIB ? 0x1b : 0x01;  // other port spaces keep clear of IPoIB's own groups
  b[4] = b[5] = 0xff;                        // the default partition
  if (address.family == AF_INET) {
    std::memcpy(b + 12, address.ip.data(), 4);
    b[12] &= 0x0f;
  } else {
    std::memcpy(b + 6, address.ip.data() + 6, 10);
  }
  return gid;
}

std::uint16_t group_lid(const ibv_gid& gid) {
  constexpr std::uint32_t kFirst = 0xc000, kCount = 0x3fff;  // IBTA 4.1.3: to 0xfffe
  std::uint32_t h = 2166136261U;                             // FNV-1a
  for (const std::uint8_t b : gid.raw) h = (h ^ b) * 16777619U;
  return static_cast<std::uint16_t>(kFirst + h % kCount);
}

void deliver_join(Event& event) {
  Group& g = *event.group;
  Id& id = *g.id;
  if (id.verbs.qp != nullptr && !g.send_only && !g.attached) {
    const int error = ibv_attach_mcast(id.verbs.qp, &g.gid, g.lid);
    if (error != 0) {
      TURNOUT_LOG(hca, info, "joining a multicast group failed: {}: {}", text(g.address),
                  std::strerror(error));
      event.verbs.event = RDMA_CM_EVENT_MULTICAST_ERROR;
      event.verbs.status = -error;
      return;
    }
    g.attached = true;
  }
}

int leave(Id& id, const Address& address, std::unique_lock<std::mutex>& lock) {
  const auto it = std::find_if(id.groups.begin(), id.groups.end(),
                               [&](const Group& g) { return g.address == address; });
  if (it == id.groups.end()) return EADDRNOTAVAIL;
  std::list<Group> taken;  // nobody finds it there while this waits
  taken.splice(taken.begin(), id.groups, it);
  detach(*it);
  drop_events(id, &*it);
  acknowledged().wait(lock, [&] { return it->unacknowledged == 0; });
  return 0;
}

void leave_all(Id& id) {
  for (Group& g : id.groups) detach(g);
}

}  // namespace turnout::cm
