// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/identifier.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "hca/cm/multicast.h"

namespace turnout::cm {

std::unique_ptr<Id> make_id(Channel* channel, void* context, rdma_port_space ps, ibv_qp_type type) {
  auto id = std::make_unique<Id>();
  if (channel == nullptr) {
    id->own_channel = make_channel();
    if (id->own_channel == nullptr) return nullptr;
    channel = id->own_channel.get();
  }
  id->channel = channel;
  id->verbs.channel = &channel->verbs;
  id->verbs.context = context;
  id->verbs.ps = ps;
  id->verbs.qp_type = type;
  return id;
}

void retire(Id& id) {
  leave_all(id);
  for (const auto& child : id.silent) {
    child->listener = nullptr;
    retire(*child);
  }
  id.silent.clear();
  drop_events(id);
  clear_deadline(id);
  unwatch(id);
  id.socket.reset();
  id.state = State::over;
}

void abandon_in_child(rdma_cm_id* id, rdma_event_channel* channel) {
  if (id != nullptr) id_of(id).socket.reset();
  Channel& c = channel_of(channel);
  c.wake.reset();
  c.timer.reset();
  close(std::exchange(c.verbs.fd, -1));
}

int bind_adapter(Id& id) {
  if (id.adapter != nullptr) return 0;
  Adapter* const a = adapter();
  if (a == nullptr) return errno;
  id.verbs.pd = default_pd(*a);
  if (id.verbs.pd == nullptr) return errno;
  id.adapter = a;
  id.verbs.verbs = a->verbs;
  id.verbs.port_num = kPort;
  id.verbs.route.addr.addr.ibaddr.sgid = a->gid;
  id.verbs.route.addr.addr.ibaddr.pkey = a->pkey;
  return 0;
}

Address local_address(const Id& id) {
  Address a;
  static_cast<void>(from_sockaddr(&id.verbs.route.addr.src_addr, a));
  return a;
}

Address peer_address(const Id& id) {
  Address a;
  static_cast<void>(from_sockaddr(&id.verbs.route.addr.dst_addr, a));
  return a;
}

std::uint16_t space_of(const Id& id, const Address& address) noexcept {
  if (!address.ib()) return static_cast<std::uint16_t>(id.verbs.ps);
  const std::uint64_t space = address.service.id >> 16;
  return space <= UINT16_MAX ? static_cast<std::uint16_t>(space) : std::uint16_t{0};
}

void set_local(Id& id, const Address& address) {
  to_sockaddr(address, id.verbs.route.addr.src_storage);
}

void set_peer(Id& id, const Address& address) {
  to_sockaddr(address, id.verbs.route.addr.dst_storage);
}

void set_route(Id& id) {
  const rdma_ib_addr& ib = id.verbs.route.addr.addr.ibaddr;
  constexpr std::uint8_t kExactly = 2;  // IBTA table 205: the selectors of an SA's answer
  ibv_sa_path_rec& p = id.path;
  p = {};
  p.dgid = ib.dgid;
  p.sgid = ib.sgid;
  p.dlid = htobe16(id.adapter->lid);  // one host: the peer's port is ours
  p.slid = htobe16(id.adapter->lid);
  p.reversible = 1;
  p.numb_path = 1;
  p.pkey = ib.pkey;
  p.mtu_selector = p.rate_selector = p.packet_life_time_selector = kExactly;
  p.mtu = static_cast<std::uint8_t>(id.adapter->mtu);
  p.rate = IBV_RATE_200_GBPS;
  p.packet_life_time = kPacketLifeTime;
  id.verbs.route.path_rec = &p;
  id.verbs.route.num_paths = 1;
}

int complete(Id& id) {
  if (!id.synchronous()) return 0;
  release_event(id);
  Event* event = nullptr;
  if (next_event(*id.channel, &event) != 0) return -1;
  id.verbs.event = &event->verbs;
  const int status = event->verbs.status;
  if (status == 0) return 0;
  if (type_of(event->verbs) == RDMA_CM_EVENT_REJECTED) return failure(ECONNREFUSED);
  return failure(status < 0 ? -status : status);
}

void release_event(Id& id) {
  if (id.verbs.event == nullptr) return;
  acknowledge(reinterpret_cast<Event*>(id.verbs.event));
  id.verbs.event = nullptr;
}

}  // namespace turnout::cm
