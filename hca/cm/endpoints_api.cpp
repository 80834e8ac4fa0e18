// SPDX-License-Identifier: BSD-3-Clause
// The exported functions that resolve names and make endpoints of the answer: rdma_getaddrinfo(3),
// rdma_create_ep(3), rdma_get_request(3); of later versions than this header's,
// rdma_resolve_addrinfo(3).
#include <infiniband/ib.h>
#include <netdb.h>
#include <rdma/rdma_verbs.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "hca/cm/connection.h"
#include "hca/cm/export.h"

using namespace turnout::cm;

namespace {

constexpr int kResolveMs = 2000;

// The user frees a result with rdma_freeaddrinfo(): C memory.
bool copy(const void* from, std::size_t length, void** to) {
  if (from == nullptr || length == 0) return true;
  *to = std::malloc(length);
  if (*to != nullptr) std::memcpy(*to, from, length);
  return *to != nullptr;
}

bool copy_address(const sockaddr* from, socklen_t length, sockaddr*& to, socklen_t& to_length) {
  void* made = nullptr;
  if (!copy(from, length, &made)) return false;
  to = static_cast<sockaddr*>(made);
  to_length = made != nullptr ? length : 0;
  return true;
}

bool wants_gid(const rdma_addrinfo& hints) {
  return (hints.ai_flags & RAI_FAMILY) != 0 && hints.ai_family == kFamilyIb;
}

// An AF_IB address in C memory, of an IPv6 one: its service is that of the port space, and of the
// port if one was given. False: no memory.
bool make_gid(const sockaddr& from, int port_space, sockaddr*& to, socklen_t& to_length) {
  Address a;
  if (!from_sockaddr(&from, a)) return false;
  constexpr std::uint16_t kDefaultPartition = 0xffff;
  constexpr std::uint64_t kPortMask = 0xffff;
  a.family = kFamilyIb;
  a.service.pkey = kDefaultPartition;
  a.service.scope = a.scope;
  a.service.id = static_cast<std::uint64_t>(port_space) << 16 | a.port;
  a.service.mask = RDMA_IB_IP_PS_MASK | (a.port != 0 ? kPortMask : 0);
  sockaddr_storage made;
  to_sockaddr(a, made);
  return copy_address(reinterpret_cast<const sockaddr*>(&made), sizeof(sockaddr_ib), to, to_length);
}

addrinfo hints_of(const rdma_addrinfo& hints) {
  addrinfo a{};
  if ((hints.ai_flags & RAI_PASSIVE) != 0) a.ai_flags |= AI_PASSIVE;
  if ((hints.ai_flags & RAI_NUMERICHOST) != 0) a.ai_flags |= AI_NUMERICHOST;
  // A GID is written as an IPv6 address.
  if ((hints.ai_flags & RAI_FAMILY) != 0)
    a.ai_family = wants_gid(hints) ? AF_INET6 : hints.ai_family;
  const bool datagram = hints.ai_qp_type == IBV_QPT_UD || hints.ai_port_space == RDMA_PS_UDP ||
                        hints.ai_port_space == RDMA_PS_IPOIB;
  if (datagram) {
    a.ai_socktype = SOCK_DGRAM;
  } else if (hints.ai_qp_type != 0 || hints.ai_port_space != 0) {
    a.ai_socktype = SOCK_STREAM;
  }
  return a;
}

// 0, a code of getaddrinfo, or -1 and errno.
int fill(const char* node, const char* service, const rdma_addrinfo& hints, rdma_addrinfo& r) {
  r.ai_flags = hints.ai_flags;
  r.ai_qp_type = hints.ai_qp_type;
  r.ai_port_space = hints.ai_port_space;
  if (node == nullptr && service == nullptr) {
    r.ai_family = hints.ai_family;
    if (!copy_address(hints.ai_dst_addr, hints.ai_dst_len, r.ai_dst_addr, r.ai_dst_len)) return -1;
  } else {
    const addrinfo wanted = hints_of(hints);
    addrinfo* list = nullptr;
    if (const int code = getaddrinfo(node, service, &wanted, &list); code != 0) return code;
    r.ai_family = list->ai_family;
    const bool datagram = list->ai_socktype == SOCK_DGRAM;
    if (r.ai_qp_type == 0) r.ai_qp_type = datagram ? IBV_QPT_UD : IBV_QPT_RC;
    if (r.ai_port_space == 0) r.ai_port_space = datagram ? RDMA_PS_UDP : RDMA_PS_TCP;
    const bool passive = (hints.ai_flags & RAI_PASSIVE) != 0;
    sockaddr*& address = passive ? r.ai_src_addr : r.ai_dst_addr;
    socklen_t& length = passive ? r.ai_src_len : r.ai_dst_len;
    const bool gid = wants_gid(hints);
    if (gid) r.ai_family = kFamilyIb;
    const bool copied = gid ? make_gid(*list->ai_addr, r.ai_port_space, address, length)
                            : copy_address(list->ai_addr, list->ai_addrlen, address, length);
    freeaddrinfo(list);
    if (!copied) return -1;
  }
  if (r.ai_port_space == 0)
    r.ai_port_space = r.ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
  if (r.ai_qp_type == 0) {
    const bool datagram = r.ai_port_space == RDMA_PS_UDP || r.ai_port_space == RDMA_PS_IPOIB;
    r.ai_qp_type = datagram ? IBV_QPT_UD : IBV_QPT_RC;
  }
  if (r.ai_src_len == 0 &&
      !copy_address(hints.ai_src_addr, hints.ai_src_len, r.ai_src_addr, r.ai_src_len)) {
    return -1;
  }
  return 0;
}

int make_passive(Id& id, const rdma_addrinfo& from, ibv_pd* pd, const ibv_qp_init_attr* qp) {
  if (rdma_bind_addr(&id.verbs, from.ai_src_addr) != 0) return -1;
  if (pd != nullptr) id.verbs.pd = pd;
  if (qp != nullptr) {
    id.child_qp = *qp;
    id.child_qp->qp_type = static_cast<ibv_qp_type>(from.ai_qp_type);
  }
  return 0;
}

int make_active(Id& id, const rdma_addrinfo& from, ibv_pd* pd, ibv_qp_init_attr* qp) {
  rdma_cm_id* const verbs = &id.verbs;
  if (rdma_resolve_addr(verbs, from.ai_src_addr, from.ai_dst_addr, kResolveMs) != 0) return -1;
  if (rdma_resolve_route(verbs, kResolveMs) != 0) return -1;
  release_event(id);
  if (qp != nullptr) {
    qp->qp_type = static_cast<ibv_qp_type>(from.ai_qp_type);
    if (rdma_create_qp(verbs, pd, qp) != 0) return -1;
  }
  if (from.ai_connect != nullptr) {
    const auto* data = static_cast<const std::uint8_t*>(from.ai_connect);
    id.connect_data.assign(data, data + from.ai_connect_len);
  }
  return 0;
}

}  // namespace

TURNOUT_EXPORT int rdma_getaddrinfo(const char* node, const char* service,
                                    const rdma_addrinfo* hints, rdma_addrinfo** result) {
  if (result == nullptr || (node == nullptr && service == nullptr && hints == nullptr)) {
    return failure(EINVAL);
  }
  auto* made = static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo)));
  if (made == nullptr) return failure(ENOMEM);
  const int error = fill(node, service, hints != nullptr ? *hints : rdma_addrinfo{}, *made);
  if (error != 0) {
    rdma_freeaddrinfo(made);
    return error;
  }
  *result = made;
  return 0;
}

// The answer is there at once: only its way is that of an event. There is no subnet administrator
// to ask for a service by name.
TURNOUT_EXPORT int rdma_resolve_addrinfo(rdma_cm_id* verbs, const char* node, const char* service,
                                         const rdma_addrinfo* hints) {
  constexpr int kBySubnet = 0x10;
  if (verbs == nullptr) return failure(EINVAL);
  if (hints != nullptr && (hints->ai_flags & kBySubnet) != 0) return failure(ENOTSUP);
  Id& id = id_of(verbs);
  {
    const Lock lock(state_lock());
    if (id.resolution) return failure(EBUSY);
    id.resolution.emplace(nullptr, rdma_freeaddrinfo);
  }
  rdma_addrinfo* found = nullptr;
  errno = EINVAL;  // of bad flags getaddrinfo() says -1, and no errno
  if (const int code = rdma_getaddrinfo(node, service, hints, &found); code != 0) {
    const int error = code == -1 || code == EAI_SYSTEM ? errno : EADDRNOTAVAIL;
    const Lock lock(state_lock());
    id.resolution.reset();
    return failure(error);
  }
  return run(id, [found](Id& of) {
    of.resolution->reset(found);
    queue_event(of, kAddrinfoResolved);
    return 0;
  });
}

TURNOUT_EXPORT int rdma_query_addrinfo(rdma_cm_id* verbs, rdma_addrinfo** info) {
  if (verbs == nullptr || info == nullptr) return failure(EINVAL);
  const Lock lock(state_lock());
  Id& id = id_of(verbs);
  if (!id.resolution || *id.resolution == nullptr) return failure(ENOENT);
  *info = id.resolution->release();
  id.resolution.reset();
  return 0;
}

TURNOUT_EXPORT void rdma_freeaddrinfo(rdma_addrinfo* list) {
  while (list != nullptr) {
    rdma_addrinfo* const next = list->ai_next;
    std::free(list->ai_src_addr);
    std::free(list->ai_dst_addr);
    std::free(list->ai_src_canonname);
    std::free(list->ai_dst_canonname);
    std::free(list->ai_route);
    std::free(list->ai_connect);
    std::free(list);
    list = next;
  }
}

TURNOUT_EXPORT int rdma_create_ep(rdma_cm_id** id, rdma_addrinfo* from, ibv_pd* pd,
                                  ibv_qp_init_attr* qp) {
  if (id == nullptr || from == nullptr) return failure(EINVAL);
  rdma_cm_id* verbs = nullptr;
  if (rdma_create_id(nullptr, &verbs, nullptr, static_cast<rdma_port_space>(from->ai_port_space)) !=
      0) {
    return -1;
  }
  verbs->qp_type = static_cast<ibv_qp_type>(from->ai_qp_type);
  Id& made = id_of(verbs);
  const bool passive = (from->ai_flags & RAI_PASSIVE) != 0;
  if ((passive ? make_passive(made, *from, pd, qp) : make_active(made, *from, pd, qp)) != 0) {
    const int error = errno;
    rdma_destroy_ep(verbs);
    return failure(error);
  }
  *id = verbs;
  return 0;
}

TURNOUT_EXPORT void rdma_destroy_ep(rdma_cm_id* verbs) {
  if (verbs->qp != nullptr) rdma_destroy_qp(verbs);
  if (verbs->srq != nullptr) rdma_destroy_srq(verbs);
  rdma_destroy_id(verbs);
}

TURNOUT_EXPORT int rdma_get_request(rdma_cm_id* verbs, rdma_cm_id** id) {
  if (verbs == nullptr || id == nullptr) return failure(EINVAL);
  Id& listener = id_of(verbs);
  if (!listener.synchronous()) return failure(EINVAL);
  release_event(listener);
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(verbs->channel, &event) != 0) return -1;
  const int status = event->status;
  if (status != 0 || type_of(*event) != RDMA_CM_EVENT_CONNECT_REQUEST) {
    rdma_ack_cm_event(event);
    return failure(status != 0 ? std::abs(status) : EINVAL);
  }
  rdma_cm_id* const child = event->id;
  if (listener.child_qp) {
    ibv_qp_init_attr attr = *listener.child_qp;
    if (rdma_create_qp(child, verbs->pd, &attr) != 0) {
      const int error = errno;
      rdma_ack_cm_event(event);
      rdma_destroy_id(child);
      return failure(error);
    }
  }
  child->event = event;
  *id = child;
  return 0;
}
