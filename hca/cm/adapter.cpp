// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/adapter.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/log.h"

namespace turnout::cm {
namespace {

std::uint8_t depth(int limit) {
  return static_cast<std::uint8_t>(std::clamp(limit, 0, 255));
}

bool describe(Adapter& a) {
  ibv_device_attr device{};
  ibv_port_attr port{};
  if (ibv_query_device(a.verbs, &device) != 0 || ibv_query_port(a.verbs, kPort, &port) != 0 ||
      ibv_query_gid(a.verbs, kPort, 0, &a.gid) != 0 ||
      ibv_query_pkey(a.verbs, kPort, 0, &a.pkey) != 0) {
    return false;
  }
  a.lid = port.lid;
  a.mtu = port.active_mtu;
  a.max_responder_resources = depth(device.max_qp_rd_atom);
  a.max_initiator_depth = depth(device.max_qp_init_rd_atom);
  return true;
}

}  // namespace

Adapter* adapter() {
  static Adapter* opened = nullptr;
  static pid_t owner = 0;
  // A child of fork() has no place on the adapter: it opens it for itself.
  if (opened != nullptr && owner == getpid()) return opened;
  ibv_device** const list = ibv_get_device_list(nullptr);
  if (list == nullptr) return nullptr;
  errno = ENODEV;
  auto made = std::make_unique<Adapter>();
  if (list[0] != nullptr) made->verbs = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  if (made->verbs == nullptr) return nullptr;
  if (!describe(*made)) {
    TURNOUT_LOG(hca, error, "querying the adapter failed: port {}: {}", kPort,
                std::strerror(errno));
    ibv_close_device(made->verbs);
    errno = ENODEV;
    return nullptr;
  }
  owner = getpid();
  opened = made.release();
  return opened;
}

ibv_pd* default_pd(Adapter& a) {
  if (a.pd == nullptr) a.pd = ibv_alloc_pd(a.verbs);
  return a.pd;
}

ibv_xrcd* default_xrcd(Adapter& a) {
  if (a.xrcd == nullptr) {
    ibv_xrcd_init_attr attr{};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = -1;  // of this process alone
    attr.oflags = O_CREAT;
    a.xrcd = ibv_open_xrcd(a.verbs, &attr);
  }
  return a.xrcd;
}

}  // namespace turnout::cm
