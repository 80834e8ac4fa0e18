// SPDX-License-Identifier: BSD-3-Clause
// The exported functions about channels, events, identifiers, addresses and options.
// rdma_create_id(3), rdma_bind_addr(3), rdma_resolve_addr(3), rdma_get_cm_event(3) and their kin.
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "base/log.h"
#include "hca/cm/connection.h"
#include "hca/cm/export.h"
#include "hca/cm/multicast.h"
#include "hca/cm/port.h"

using namespace turnout::cm;

namespace {

int family_error(const sockaddr* address) {
  return address == nullptr ? EINVAL : EAFNOSUPPORT;
}

// Takes the port of `address`, unless several may share it: then who listens takes it.
int bind_port(Id& id, Address address) {
  const std::uint16_t space =
      address.ib() ? service_space(address, id.verbs.ps) : static_cast<std::uint16_t>(id.verbs.ps);
  if (space == 0) return EPROTONOSUPPORT;
  if (!id.options.reuse_address || address.port == 0) {
    id.socket = take_port(space, address, id.options.v6_only);
    if (!id.socket) return errno;
  }
  if (address.ib()) set_service(address, space);
  set_local(id, address);
  id.state = State::bound;
  return 0;
}

// The port that an AF_IB address means: none is told by a wildcard and by ::1, which Linux takes
// for one.
int bind_gid(Id& id, Address& address) {
  if (address.loopback()) address.ip = {};
  if (address.any()) return 0;
  const Adapter* const here = adapter();
  if (here == nullptr) return errno;
  if (address.ip != gid_address(here->gid, 0).ip) return ENODEV;
  return bind_adapter(id);
}

int bind_address(Id& id, const sockaddr* to) {
  Address address;
  if (!from_sockaddr(to, address)) return family_error(to);
  if (id.state != State::idle) return EINVAL;
  if (address.ib()) {
    if (const int error = bind_gid(id, address); error != 0) return error;
    return bind_port(id, address);
  }
  if (!address.any()) {
    if (!is_local(address)) return EADDRNOTAVAIL;
    // Linux's connection manager takes loopback for a wildcard, which is on no device. libfabric's
    // provider relies on it, with synchronous identifiers: a server that names no address asks for
    // "localhost" and lists the interfaces' addresses where no device is told; else it drops the
    // port. Other programs bind to an address of the adapter's interface, which is loopback here,
    // and use the device they find.
    if (!address.loopback() || !id.synchronous()) {
      if (const int error = bind_adapter(id); error != 0) return error;
    }
  }
  return bind_port(id, address);
}

// The host's address that a peer would see.
Address source_for(const Address& destination) {
  if (destination.any() || !destination.multicast()) {
    Address source = destination.any() ? loopback_address(destination.family) : destination;
    source.port = 0;
    return source;
  }
  const Address loopback = loopback_address(destination.family);
  for (const Address& a : host_addresses()) {
    const bool link_local = a.family == AF_INET6 && a.ip[0] == 0xfe && (a.ip[1] & 0xc0) == 0x80;
    if (a.family == destination.family && a != loopback && !link_local) return a;
  }
  return loopback;
}

// To another port of the subnet the way is looked for by resolve_route(), as an SA is asked then.
int resolve_gid(Id& id, Address destination, Address source) {
  if (!source.present()) source = any_address(kFamilyIb);
  if (source.service.pkey == 0) source.service.pkey = destination.service.pkey;
  if (const int error = bind_adapter(id); error != 0) return error;
  const Address here = gid_address(id.adapter->gid, be16toh(id.adapter->pkey));
  if (destination.any() || destination.loopback()) {
    destination.ip = here.ip;
    if (destination.service.pkey == 0) destination.service.pkey = here.service.pkey;
  }
  constexpr std::uint16_t kMembership = 0x8000;  // IBTA 10.9.3: the same partition with and without
  constexpr std::ptrdiff_t kPrefix = 8;
  if (!std::equal(here.ip.begin(), here.ip.begin() + kPrefix, destination.ip.begin()) ||
      (destination.service.pkey | kMembership) != (here.service.pkey | kMembership)) {
    return ENODEV;
  }
  if (source.any() || source.loopback()) {
    source.ip = here.ip;
  } else if (source.ip != here.ip) {
    return ENODEV;
  }
  if (id.state == State::idle) {
    if (const int error = bind_port(id, source); error != 0) return error;
  } else {
    set_local(id, source);
  }
  set_peer(id, destination);
  std::copy(destination.ip.begin(), destination.ip.end(), id.verbs.route.addr.addr.ibaddr.dgid.raw);
  id.state = State::addr_resolved;
  queue_event(id, RDMA_CM_EVENT_ADDR_RESOLVED);
  return 0;
}

int resolve(Id& id, const sockaddr* from, const sockaddr* to) {
  Address destination, source;
  if (!from_sockaddr(to, destination)) return family_error(to);
  if (id.state != State::idle && id.state != State::bound) return EINVAL;
  const bool reachable =
      destination.ib() || destination.any() || destination.multicast() || is_local(destination);
  if (id.state == State::bound) {
    source = local_address(id);
  } else if (from != nullptr && from->sa_family != AF_UNSPEC && !from_sockaddr(from, source)) {
    return family_error(from);
  }
  if (source.present() && source.family != destination.family) return EINVAL;
  if (destination.ib()) return resolve_gid(id, destination, source);
  if (!source.present() || source.any()) {
    const std::uint16_t port = source.port;
    source = reachable ? source_for(destination) : any_address(destination.family);
    source.port = port;
  } else if (!is_local(source)) {
    return EADDRNOTAVAIL;
  }
  if (const int error = bind_adapter(id); error != 0) return error;
  if (id.state == State::idle) {
    if (const int error = bind_port(id, source); error != 0) return error;
  } else {
    set_local(id, source);
  }
  if (!reachable) {
    queue_event(id, RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH);
    return 0;
  }
  if (destination.any()) {
    const std::uint16_t port = destination.port;
    destination = local_address(id);
    destination.port = port;
  }
  set_peer(id, destination);
  id.verbs.route.addr.addr.ibaddr.dgid =
      destination.multicast() ? group_gid(destination, id.verbs.ps) : id.adapter->gid;
  id.state = State::addr_resolved;
  queue_event(id, RDMA_CM_EVENT_ADDR_RESOLVED);
  return 0;
}

int listen_on(Id& id, int backlog) {
  if (id.state == State::idle) {
    if (const int error = bind_port(id, any_address(AF_INET)); error != 0) return error;
  }
  if (id.state != State::bound) return EINVAL;
  if (!id.socket) {
    Address address = local_address(id);
    id.socket = take_port(space_of(id, address), address, id.options.v6_only);
    if (!id.socket) return errno;
  }
  // A short queue would make peers ask again and again; the kernel has an upper limit, too.
  constexpr int kLeast = 128;
  if (listen(id.socket.get(), std::max(backlog, kLeast)) != 0) return errno;
  id.state = State::listening;
  return watch(id);
}

// As librdmacm tells it: of AF_IB the end of the service id, whatever the mask says.
__be16 port_of(const Address& a) {
  return htons(a.ib() ? static_cast<std::uint16_t>(a.service.id) : a.port);
}

template <class T>
bool read_option(const void* value, std::size_t length, T& to) {
  if (value == nullptr || length != sizeof to) return false;
  std::memcpy(&to, value, sizeof to);
  return true;
}

int set_id_option(Id& id, int name, const void* value, std::size_t length) {
  std::uint8_t byte = 0;
  int flag = 0;
  switch (name) {
    case RDMA_OPTION_ID_TOS:
      return read_option(value, length, byte) ? 0 : EINVAL;  // there is one class of service
    case RDMA_OPTION_ID_REUSEADDR:
    case RDMA_OPTION_ID_AFONLY:
      if (!read_option(value, length, flag)) return EINVAL;
      if (id.state != State::idle) return EINVAL;
      (name == RDMA_OPTION_ID_REUSEADDR ? id.options.reuse_address : id.options.v6_only) =
          flag != 0;
      return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      if (!read_option(value, length, byte) || byte > 31 || id.datagram()) return EINVAL;
      id.options.ack_timeout = byte;
      return 0;
    default:
      return ENOSYS;
  }
}

int resolve_route(Id& id) {
  if (id.state != State::addr_resolved) return EINVAL;
  const Address peer = peer_address(id);
  if (peer.ib() && peer.ip != gid_address(id.adapter->gid, 0).ip) {
    queue_event(id, RDMA_CM_EVENT_ROUTE_ERROR, -EINVAL);  // the status of an SA that has no record
    return 0;
  }
  set_route(id);
  id.state = State::route_resolved;
  queue_event(id, RDMA_CM_EVENT_ROUTE_RESOLVED);
  return 0;
}

// A path that the user has found by other means. All lead to the same port.
int set_path(Id& id, const void* value, std::size_t length) {
  if (value == nullptr || length == 0 || length % sizeof(ibv_path_data) != 0) return EINVAL;
  return resolve_route(id);
}

}  // namespace

TURNOUT_EXPORT rdma_event_channel* rdma_create_event_channel() {
  auto channel = make_channel();
  return channel != nullptr ? &channel.release()->verbs : nullptr;
}

TURNOUT_EXPORT void rdma_destroy_event_channel(rdma_event_channel* channel) {
  if (channel != nullptr) destroy_channel(&channel_of(channel));
}

TURNOUT_EXPORT int rdma_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  if (channel == nullptr || event == nullptr) return failure(EINVAL);
  Event* next = nullptr;
  if (next_event(channel_of(channel), &next) != 0) return -1;
  *event = &next->verbs;
  return 0;
}

// By another name, as a header that declares it has the type of events for an int.
TURNOUT_EXPORT int turnout_write_cm_event(rdma_cm_id* verbs, int type, int status,
                                          std::uint64_t argument) asm("rdma_write_cm_event");
int turnout_write_cm_event(rdma_cm_id* verbs, int type, int status, std::uint64_t argument) {
  if (type != kUserEvent) return failure(EINVAL);
  const Lock lock(state_lock());
  Event& event = queue_event(id_of(verbs), type, status);
  // The parameters of such an event are this number.
  std::memcpy(&event.verbs.param, &argument, sizeof argument);
  return 0;
}

TURNOUT_EXPORT int rdma_ack_cm_event(rdma_cm_event* event) {
  if (event == nullptr) return failure(EINVAL);
  acknowledge(reinterpret_cast<Event*>(event));
  return 0;
}

TURNOUT_EXPORT const char* rdma_event_str(rdma_cm_event_type event) {
  static constexpr const char* kNames[] = {"RDMA_CM_EVENT_ADDR_RESOLVED",
                                           "RDMA_CM_EVENT_ADDR_ERROR",
                                           "RDMA_CM_EVENT_ROUTE_RESOLVED",
                                           "RDMA_CM_EVENT_ROUTE_ERROR",
                                           "RDMA_CM_EVENT_CONNECT_REQUEST",
                                           "RDMA_CM_EVENT_CONNECT_RESPONSE",
                                           "RDMA_CM_EVENT_CONNECT_ERROR",
                                           "RDMA_CM_EVENT_UNREACHABLE",
                                           "RDMA_CM_EVENT_REJECTED",
                                           "RDMA_CM_EVENT_ESTABLISHED",
                                           "RDMA_CM_EVENT_DISCONNECTED",
                                           "RDMA_CM_EVENT_DEVICE_REMOVAL",
                                           "RDMA_CM_EVENT_MULTICAST_JOIN",
                                           "RDMA_CM_EVENT_MULTICAST_ERROR",
                                           "RDMA_CM_EVENT_ADDR_CHANGE",
                                           "RDMA_CM_EVENT_TIMEWAIT_EXIT",
                                           "RDMA_CM_EVENT_ADDRINFO_RESOLVED",
                                           "RDMA_CM_EVENT_ADDRINFO_ERROR",
                                           "RDMA_CM_EVENT_USER"};
  static_assert(std::size(kNames) == kUserEvent + 1);
  int index = 0;  // may be beyond the type
  std::memcpy(&index, &event, sizeof index);
  return index >= 0 && index <= kUserEvent ? kNames[index] : "UNKNOWN EVENT";
}

TURNOUT_EXPORT int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                                  rdma_port_space ps) {
  if (id == nullptr) return failure(EINVAL);
  const bool datagram = ps == RDMA_PS_UDP || ps == RDMA_PS_IPOIB;
  if (!datagram && ps != RDMA_PS_TCP && ps != RDMA_PS_IB) return failure(EPROTONOSUPPORT);
  // As the real library, which needs a device for an identifier, says early that there is none.
  {
    const Lock lock(state_lock());
    if (adapter() == nullptr) return -1;
  }
  auto made = make_id(channel != nullptr ? &channel_of(channel) : nullptr, context, ps,
                      datagram ? IBV_QPT_UD : IBV_QPT_RC);
  if (made == nullptr) return -1;
  *id = &made.release()->verbs;
  return 0;
}

TURNOUT_EXPORT int rdma_destroy_id(rdma_cm_id* verbs) {
  Id& id = id_of(verbs);
  release_event(id);
  {
    Lock lock(state_lock());
    retire(id);
    acknowledged().wait(lock, [&] { return id.unacknowledged == 0; });
  }
  delete &id;
  return 0;
}

TURNOUT_EXPORT int rdma_migrate_id(rdma_cm_id* verbs, rdma_event_channel* channel) {
  Id& id = id_of(verbs);
  std::unique_ptr<Channel> own;
  if (channel == nullptr) {
    own = make_channel();
    if (own == nullptr) return -1;
  }
  release_event(id);
  Lock lock(state_lock());
  acknowledged().wait(lock, [&] { return id.unacknowledged == 0; });
  move_to(id, own != nullptr ? *own : channel_of(channel));
  id.own_channel.swap(own);
  return 0;
}

TURNOUT_EXPORT int rdma_bind_addr(rdma_cm_id* verbs, sockaddr* address) {
  const Lock lock(state_lock());
  return result(bind_address(id_of(verbs), address));
}

TURNOUT_EXPORT int rdma_resolve_addr(rdma_cm_id* verbs, sockaddr* from, sockaddr* to, int) {
  return run(id_of(verbs), [&](Id& id) { return resolve(id, from, to); });
}

TURNOUT_EXPORT int rdma_resolve_route(rdma_cm_id* verbs, int) {
  return run(id_of(verbs), resolve_route);
}

TURNOUT_EXPORT int rdma_listen(rdma_cm_id* verbs, int backlog) {
  const Lock lock(state_lock());
  return result(listen_on(id_of(verbs), backlog));
}

TURNOUT_EXPORT int rdma_set_option(rdma_cm_id* verbs, int level, int name, void* value,
                                   std::size_t length) {
  if (level == RDMA_OPTION_ID) {
    const Lock lock(state_lock());
    return result(set_id_option(id_of(verbs), name, value, length));
  }
  if (level != RDMA_OPTION_IB || name != RDMA_OPTION_IB_PATH) return failure(ENOSYS);
  return run(id_of(verbs), [&](Id& id) { return set_path(id, value, length); });
}

TURNOUT_EXPORT __be16 rdma_get_src_port(rdma_cm_id* verbs) {
  return port_of(local_address(id_of(verbs)));
}

TURNOUT_EXPORT __be16 rdma_get_dst_port(rdma_cm_id* verbs) {
  return port_of(peer_address(id_of(verbs)));
}

TURNOUT_EXPORT ibv_context** rdma_get_devices(int* count) {
  const Lock lock(state_lock());
  Adapter* const a = adapter();
  auto** list = a != nullptr ? static_cast<ibv_context**>(std::calloc(2, sizeof(void*))) : nullptr;
  if (list != nullptr) list[0] = a->verbs;
  if (count != nullptr) *count = list != nullptr ? 1 : 0;
  return list;
}

TURNOUT_EXPORT void rdma_free_devices(ibv_context** list) {
  std::free(list);
}
