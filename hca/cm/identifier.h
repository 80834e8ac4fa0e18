// SPDX-License-Identifier: BSD-3-Clause
// Identifiers (rdma_cm_id): the implementation behind the user's struct, and their state machine.
//
// The states are those of the IB CM (IBTA 12.9.5-12.9.7), preceded by the steps of librdmacm's
// users. An identifier belongs to the user from rdma_create_id(), or from its CONNECT_REQUEST
// event, to rdma_destroy_id(); before that event it belongs to its listener. All under
// state_lock().
#pragma once

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/file_descriptor.h"
#include "hca/cm/adapter.h"
#include "hca/cm/channel.h"
#include "hca/cm/message.h"

namespace turnout::cm {

enum class State : std::uint8_t {
  idle,
  bound,  // has a port
  listening,
  addr_resolved,
  route_resolved,
  connecting,  // sent a REQ or SIDR REQ
  responded,   // has a REP that the user must answer: rdma_establish
  silent,      // an accepted socket that has not sent its request yet; nobody knows of it
  requested,   // has a REQ or SIDR REQ that the user must answer
  accepted,    // sent a REP
  established,
  disconnecting,  // sent a DREQ
  disconnected,   // in timewait, or past it
  over,           // rejected, failed, or a datagram service that has been resolved
};

// A multicast group that was joined.
struct Group {
  Id* id = nullptr;
  Address address;
  ibv_gid gid{};
  std::uint16_t lid = 0;
  bool attached = false, send_only = false;
  unsigned unacknowledged = 0;  // events the user has
  void* context = nullptr;
};

// What rdma_set_option(3) sets.
struct Options {
  bool reuse_address = false, v6_only = false;
  bool refused_at_once = false;  // an rsocket's: as TCP's, it does not wait for a listener
  std::optional<std::uint8_t> ack_timeout;
};

using AddressInfo = std::unique_ptr<rdma_addrinfo, void (*)(rdma_addrinfo*)>;

struct Id {
  rdma_cm_id verbs{};  // first: the user's pointer is to it
  Channel* channel = nullptr;
  std::unique_ptr<Channel> own_channel;  // synchronous operation
  State state = State::idle;
  Adapter* adapter = nullptr;  // what it is bound to
  Descriptor socket;
  bool watched = false;
  bool ending = false;  // established, and the peer has ended it: told at the deadline
  std::optional<std::multimap<Clock::time_point, Id*>::iterator> deadline;
  unsigned unacknowledged = 0;            // events the user has
  Id* listener = nullptr;                 // of State::silent
  std::list<std::unique_ptr<Id>> silent;  // of a listener

  Options options;
  struct Ece {
    ibv_ece local{}, remote{};
  } ece;
  std::optional<AddressInfo>
      resolution;  // rdma_resolve_addrinfo: asked for, null until it is there
  std::optional<ibv_qp_init_attr> child_qp;  // rdma_create_ep: for rdma_get_request
  std::vector<std::uint8_t> connect_data;    // rdma_create_ep: goes before the user's private data

  // The connection. What it may do to the peer and the peer to it, as the IB CM agrees on it.
  Message request;                               // as sent, or as received
  Clock::time_point give_up{}, refused_until{};  // State::connecting
  std::uint32_t local_psn = 0, remote_psn = 0, remote_qpn = 0;
  std::uint16_t remote_lid = 0;
  std::uint8_t responder_resources = 0, initiator_depth = 0, retry_count = 7, rnr_retry_count = 7;

  ibv_sa_path_rec path{};
  std::list<Group> groups;

  [[nodiscard]] bool synchronous() const { return own_channel != nullptr; }
  [[nodiscard]] bool datagram() const { return verbs.qp_type == IBV_QPT_UD; }
};

inline Id& id_of(rdma_cm_id* id) {
  return *reinterpret_cast<Id*>(id);
}

// A new identifier on a channel, or on its own (null). Null and errno on failure.
[[nodiscard]] std::unique_ptr<Id> make_id(Channel* channel, void* context, rdma_port_space ps,
                                          ibv_qp_type type);
// Ends what it takes part in: the peer learns by the end of the socket. Events about it are gone;
// the struct is the caller's to free. Not while the user has events about it.
void retire(Id& id);

// In a child of fork(), for an identifier (or null) of the parent's and its channel: closes the
// descriptors, which share the parent's epoll, and leaves the rest. Without the lock, which a
// thread of the parent's may have held.
void abandon_in_child(rdma_cm_id* id, rdma_event_channel* channel);

// Binds to the adapter: fills verbs, pd, port, GID. 0 or errno.
[[nodiscard]] int bind_adapter(Id& id);
[[nodiscard]] Address local_address(const Id& id);
[[nodiscard]] Address peer_address(const Id& id);
// The port space of a name of it, or of one that it connects to: of AF_IB what the service id says;
// 0: none.
[[nodiscard]] std::uint16_t space_of(const Id& id, const Address& address) noexcept;
void set_local(Id& id, const Address& address);
void set_peer(Id& id, const Address& address);
// The one path there is, in id.verbs.route.
void set_route(Id& id);

// For the call that waits: 0 at once when the identifier is asynchronous; else takes the next
// event, which becomes id->event, and gives -1 and errno where its status is a failure. Without the
// lock.
[[nodiscard]] int complete(Id& id);
// Acknowledges id->event, if there is one. Without the lock.
void release_event(Id& id);

// -1 and errno.
inline int failure(int error) {
  errno = error;
  return -1;
}
// What the library's functions return for an error number, 0 for none.
inline int result(int error) {
  return error == 0 ? 0 : failure(error);
}

// For the user's calls: runs a step under the lock, which gives an errno value, then waits for what
// it leads to if the identifier is synchronous.
template <class Step>
int run(Id& id, Step step) {
  {
    const Lock lock(state_lock());
    if (const int error = step(id); error != 0) return failure(error);
  }
  return complete(id);
}

}  // namespace turnout::cm
