// SPDX-License-Identifier: BSD-3-Clause
#include "provider/endpoint.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_collective.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "base/log.h"
#include "provider/av.h"
#include "provider/eq.h"
#include "provider/errors.h"
#include "provider/info.h"
#include "provider/ops.h"
#include "provider/passive_endpoint.h"
#include "provider/peer_receives.h"
#include "provider/profile.h"
#include "provider/shared_receives.h"

namespace turnout::provider {
namespace {

// Peers have to answer, and may need this processor for it; some do not for long. They may also
// need what other endpoints of this domain answer them: both processes may close one endpoint whose
// last messages are for another that the other process still has. So those go on, and between two
// looks other threads have the domain.
void flush(Ep& ep) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kAwake{2};
  constexpr std::chrono::microseconds kNap{50};
  const Clock::time_point begun = Clock::now();
  for (;;) {
    {
      const Guard guard(ep.domain.lock);
      if (ep.path.close()) return;
      for (Ep* const other : ep.domain.endpoints) other->path.progress();
    }
    if (Clock::now() - begun < kAwake) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

int close_endpoint(fid* f) {
  Ep& ep = Ep::of(f);
  ep.address_server.reset();  // who asks from now on waits for the next one
  {
    const Guard guard(ep.domain.lock);
    ep.domain.work.forget(ep);
  }
  const int result = contain([&] {
    flush(ep);
    return 0;
  });
  {
    const Guard guard(ep.domain.lock);
    ep.end();
  }
  if (ep.receives != nullptr) {
    static_cast<void>(contain([&] {
      if (ep.rx_cq != nullptr && ep.rx_cq->peer != nullptr) ep.rx_cq->peer->give_back(ep.domain);
      return 0;
    }));
  }
  delete &ep;
  return result;
}

int bind_endpoint(fid* f, fid* other, std::uint64_t flags) {
  Ep& ep = Ep::of(f);
  return contain([&] {
    const Guard guard(ep.domain.lock);
    // Counters come later, too: Sandia OpenSHMEM binds those of its contexts to endpoints that it
    // has enabled, which libfabric's own providers allow.
    if (other->fclass == FI_CLASS_CNTR) return ep.bind(Cntr::of(other), flags);
    if (ep.enabled) return -FI_EOPBADSTATE;
    switch (other->fclass) {
      case FI_CLASS_CQ:
        return ep.bind(Cq::of(other), flags);
      case FI_CLASS_AV:
        return ep.bind(AddressVector::of(other));
      case FI_CLASS_EQ:
        return ep.bind(EventQueue::of(other));
      case FI_CLASS_SRX_CTX:
        return SharedReceives::is(*other) ? ep.bind(SharedReceives::of(other))
                                          : ep.bind(PeerReceives::of(other));
      default:
        return -FI_ENOSYS;  // shared transmit contexts are not offered
    }
  });
}

int control_endpoint(fid* f, int command, void* argument) {
  Ep& ep = Ep::of(f);
  return contain([&] {
    const Guard guard(ep.domain.lock);
    return command == FI_ENABLE ? ep.enable() : ep.options.control(command, argument);
  });
}

ssize_t cancel(fid* f, void* context) {
  Ep& ep = Ep::of(f);
  return contain([&]() -> ssize_t {
    const Guard guard(ep.domain.lock);
    const bool found = ep.domain.work.cancel(ep, context) || ep.core->cancel(context);
    return found ? 0 : -FI_ENOENT;
  });
}

int get_option(fid* f, int level, int name, void* value, std::size_t* length) {
  const Ep& ep = Ep::of(f);
  if (ep.type == FI_EP_MSG && name == FI_OPT_CM_DATA_SIZE)
    return get_connection_option(level, name, value, length);
  return ep.options.get(level, name, value, length);
}

int set_option(fid* f, int level, int name, const void* value, std::size_t length) {
  Ep& ep = Ep::of(f);
  const Guard guard(ep.domain.lock);
  return ep.options.set(level, name, value, length);
}

// A program may ask with length 0 first, to learn how long the name is.
int get_name(fid* f, void* out, std::size_t* length) {
  if (f->fclass != FI_CLASS_EP || length == nullptr) return -FI_EINVAL;
  Ep& ep = Ep::of(f);
  return contain([&] {
    const Guard guard(ep.domain.lock);
    return ep.get_name(out, length);
  });
}

int get_peer(fid_ep* f, void* out, std::size_t* length) {
  if (length == nullptr) return -FI_EINVAL;
  Ep& ep = Ep::of(f);
  return contain([&] {
    const Guard guard(ep.domain.lock);
    return ep.get_peer(out, length);
  });
}

// `call` with the data that a program adds to the messages of a connection.
template <class Call>
int with_data(fid_ep* f, const void* data, std::size_t length, Call&& call) {
  Ep& ep = Ep::of(f);
  if (ep.type != FI_EP_MSG) return -FI_ENOSYS;
  if (length > ConnectionMessage::kMostData || (length != 0 && data == nullptr)) return -FI_EINVAL;
  return contain([&] {
    const LateSignals signals;
    const Guard guard(ep.domain.lock);
    return call(ep, std::span(static_cast<const std::byte*>(data), length));
  });
}

int connect_endpoint(fid_ep* f, const void* address, const void* data, std::size_t length) {
  return with_data(f, data, length, [&](Ep& ep, auto bytes) { return ep.connect(address, bytes); });
}

int accept_connection(fid_ep* f, const void* data, std::size_t length) {
  return with_data(f, data, length, [](Ep& ep, auto bytes) { return ep.accept(bytes); });
}

int shutdown_endpoint(fid_ep* f, std::uint64_t flags) {
  if (flags != 0) return -FI_EBADFLAGS;
  return with_data(f, nullptr, 0, [](Ep& ep, auto) { return ep.shutdown(); });
}

int set_name(fid* f, void* address, std::size_t length) {
  if (f->fclass != FI_CLASS_EP || address == nullptr) return -FI_EINVAL;
  Ep& ep = Ep::of(f);
  return contain([&] {
    const Guard guard(ep.domain.lock);
    return ep.set_name(address, length);
  });
}

fi_ops ep_fid_ops = object_ops(close_endpoint, bind_endpoint, control_endpoint, Profile::open);

fi_ops_ep ep_ops = {
    .size = sizeof(fi_ops_ep),
    .cancel = cancel,
    .getopt = get_option,
    .setopt = set_option,
    .tx_ctx = kNotHere,
    .rx_ctx = kNotHere,
    .rx_size_left = kNotHere,
    .tx_size_left = kNotHere,
};

fi_ops_cm cm_ops = [] {
  auto ops = every_call<fi_ops_cm>(kNotHere);
  ops.getname = get_name;
  ops.setname = set_name;
  ops.getpeer = get_peer;
  ops.connect = connect_endpoint;
  ops.accept = accept_connection;
  ops.shutdown = shutdown_endpoint;
  return ops;
}();

// libfabric's inline functions call them without a look.
fi_ops_collective collective_ops = every_call<fi_ops_collective>(kNotHere);

template <class Attr>
std::uint64_t op_flags_of(const Attr* attr) noexcept {
  return attr != nullptr ? attr->op_flags : 0;
}

}  // namespace

int Ep::open(Domain& domain, fi_info* info, fid_ep** ep, void* context) {
  if (info == nullptr || info->ep_attr == nullptr) return -FI_EINVAL;
  const fi_ep_type type = info->ep_attr->type;
  if (type > FI_EP_RDM) return -FI_EINVAL;
  const std::size_t receive_contexts = info->ep_attr->rx_ctx_cnt;
  if (receive_contexts > 1 && receive_contexts != FI_SHARED_CONTEXT) return -FI_EINVAL;
  if (info->ep_attr->tx_ctx_cnt > 1) return -FI_EINVAL;
  if ((op_flags_of(info->tx_attr) & ~kTxOpFlags) != 0) return -FI_EINVAL;
  if ((op_flags_of(info->rx_attr) & ~kRxOpFlags) != 0) return -FI_EINVAL;
  const AddressFormat format(info->addr_format);
  std::optional<ServiceAddress> name;
  // Who is connected is not found by a name; its source is that of the passive endpoint.
  if (info->src_addr != nullptr && type != FI_EP_MSG) {
    name = name_given(format, info->src_addr, info->src_addrlen);
    if (!name.has_value()) return -FI_EINVAL;
  } else if (format.is_internet() && type != FI_EP_MSG) {
    name = format.anywhere();
  }
  PassiveEp* const passive = type == FI_EP_MSG && info->handle != nullptr
                                 ? domain.fabric.passive_of(info->handle)
                                 : nullptr;
  const auto manager = type == FI_EP_MSG && info->handle != nullptr && passive == nullptr
                           ? domain.fabric.connection_manager()
                           : Result<ConnectionManager*>(nullptr);
  if (!manager.ok()) return -fi_error(manager.status());
  const Guard guard(domain.lock);
  domain.endpoints.reserve(domain.endpoints.size() + 1);
  const auto memory = domain.memory();
  if (!memory.ok()) return -fi_error(memory.status());
  EndpointOptions options;
  options.memory = memory.value();
  if (info->tx_attr != nullptr) options.context_size = info->tx_attr->size;
  if (info->rx_attr != nullptr) {
    options.context_size = std::max(options.context_size, info->rx_attr->size);
  }
  Result<std::unique_ptr<Endpoint>> core =
      Endpoint::create(process_settings().value(), live_clock(), std::move(options));
  if (!core.ok()) return -fi_error(core.status());  // the core logged what to do
  auto made = std::make_unique<Ep>(domain, std::move(core).value(), *info);
  made->fid.context = context;
  made->name = name;
  if (passive != nullptr) {
    if (const int error = passive->take_socket(made->name_socket); error != 0) {
      made->core.reset();
      return error;
    }
    made->name = passive->name;
  }
  if (manager.value() != nullptr) {
    // Last: an endpoint that cannot be created leaves the request to be rejected.
    made->connection = manager.value()->take_request(info->handle);
    if (made->connection == nullptr) {
      made->core.reset();
      return -FI_EINVAL;
    }
  }
  domain.endpoints.push_back(made.get());
  if (domain.work.waiting()) made->path.watch(&domain.work);
  if (!domain.profiles.empty()) Profile::watch(*made);
  *ep = made.release();
  return 0;
}

Ep::Ep(Domain& owner, std::unique_ptr<Endpoint> made, const fi_info& info)
    : ObjectOfDomain(owner),
      caps(info.caps != 0 ? info.caps : capabilities_of(info.ep_attr->type) & ~kOnlyIfAsked),
      type(info.ep_attr->type == FI_EP_UNSPEC ? FI_EP_RDM : info.ep_attr->type),
      format(info.addr_format),
      wants_shared(info.ep_attr->rx_ctx_cnt == FI_SHARED_CONTEXT),
      core(std::move(made)),
      options(op_flags_of(info.tx_attr), op_flags_of(info.rx_attr)),
      path(*core, options, caps) {
  fid.fclass = FI_CLASS_EP;
  fid.ops = &ep_fid_ops;
  ops = &ep_ops;
  cm = &cm_ops;
  collective = &collective_ops;
  set_calls(false);
}

void Ep::set_calls(bool after_enable) noexcept {
  const MessageCallSet messages = !after_enable    ? MessageCallSet::none
                                  : has_receives() ? MessageCallSet::all
                                                   : MessageCallSet::sends;
  msg = &message_ops(messages);
  tagged = &tagged_ops(messages);
  rma = &rma_ops(after_enable);
  atomic = &atomic_ops((caps & FI_ATOMIC) != 0, after_enable);
}

int Ep::bind(Cq& cq, std::uint64_t flags) {
  assert(!enabled);
  constexpr std::uint64_t known = FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION;
  if ((flags & ~known) != 0) return -FI_EBADFLAGS;
  if ((flags & (FI_TRANSMIT | FI_RECV)) == 0) return -FI_EINVAL;
  if (&cq.domain != &domain) return -FI_EDOMAIN;
  if ((flags & FI_TRANSMIT) != 0 && tx_cq != nullptr) return -FI_EINVAL;
  if ((flags & FI_RECV) != 0 && rx_cq != nullptr) return -FI_EINVAL;
  path.bind_queue(cq.join(path), flags);
  options.bind_queue(flags);
  if ((flags & FI_TRANSMIT) != 0) tx_cq = &cq;
  if ((flags & FI_RECV) != 0) rx_cq = &cq;
  return 0;
}

int Ep::bind(Cntr& cntr, std::uint64_t flags) {
  constexpr std::uint64_t known =
      FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  if (flags == 0 || (flags & ~known) != 0) return -FI_EBADFLAGS;
  if (&cntr.domain != &domain) return -FI_EDOMAIN;
  // Without it the target of an RDMA read learns nothing of it.
  if ((flags & FI_REMOTE_READ) != 0 && (caps & FI_RMA_EVENT) == 0) return -FI_ENOSYS;
  counters.push_back(&cntr);
  cntr.join(path);
  path.bind_counter(cntr.counter, flags);
  options.bind_counter(flags);
  counted |= flags;
  if (enabled) path.report_remote_access();
  return 0;
}

void Ep::count_deferred(Cntr& cntr) {
  if (std::find(counters.begin(), counters.end(), &cntr) == counters.end())
    counters.push_back(&cntr);
  cntr.join(path);
}

int Ep::bind(AddressVector& av) {
  assert(!enabled);
  if (&av.domain != &domain) return -FI_EDOMAIN;
  // One of FI_EP_MSG has a connection instead.
  if (path.peers.bound() || type == FI_EP_MSG) return -FI_EINVAL;
  path.peers.bind(av);
  return 0;
}

int Ep::bind(PeerReceives& peer) {
  assert(!enabled);
  if (&peer.domain != &domain) return -FI_EDOMAIN;
  if (!has_receives()) return -FI_EINVAL;
  if (type != FI_EP_RDM || (caps & FI_PEER) == 0) return -FI_EINVAL;
  peer.join(*this);
  receives = path.receives = &peer;
  return 0;
}

int Ep::bind(SharedReceives& of_several) {
  assert(!enabled);
  if (&of_several.domain != &domain) return -FI_EDOMAIN;
  if (!has_receives()) return -FI_EINVAL;
  of_several.join(*this);
  shared = &of_several;
  path.share(of_several);
  return 0;
}

int Ep::bind(EventQueue& eq) {
  assert(!enabled);
  if (type != FI_EP_MSG) return 0;  // a connectionless endpoint has no events
  if (events != nullptr) return -FI_EINVAL;
  events = &eq;
  eq.users.fetch_add(1);
  return 0;
}

int Ep::connect(const void* address, std::span<const std::byte> data) {
  if (address == nullptr) return -FI_EINVAL;
  if (connection != nullptr) return -FI_EOPBADSTATE;  // once in its lifetime
  const Result<Name> given = format.decode(address);
  const auto* const to = given.ok() ? std::get_if<ServiceAddress>(&given.value()) : nullptr;
  if (to == nullptr) {
    TURNOUT_LOG(provider, warn,
                "connecting an endpoint failed: {}; take dest_addr of fi_getinfo, or the name of a "
                "passive endpoint",
                given.ok() ? "not the address of a service" : given.status().text());
    return -FI_EINVAL;
  }
  const auto manager = domain.fabric.connection_manager();
  if (!manager.ok()) return -fi_error(manager.status());
  if (!enabled) {
    if (const int error = enable(); error != 0) return error;
  }
  if (name.has_value()) {
    if (const int error = bind_name(); error != 0) return error;
  }
  const int error = Connection::begin(*manager.value(), {*to, std::move(name_socket)},
                                      core->address(), data, &fid, *events, connection);
  if (error == 0) path.peers.connect(connection);
  return error;
}

int Ep::accept(std::span<const std::byte> data) {
  if (connection == nullptr) return -FI_EOPBADSTATE;
  if (!enabled) {
    if (const int error = enable(); error != 0) return error;
  }
  connection->give_to(&fid, *events);
  path.peers.connect(connection);
  return connection->accept(core->address(), data);
}

int Ep::shutdown() {
  if (connection == nullptr) return -FI_ENOTCONN;
  connection->end();
  return 0;
}

int Ep::enable() {
  if (enabled) return -FI_EOPBADSTATE;
  if (type == FI_EP_MSG && events == nullptr) return -FI_ENOEQ;
  if (type != FI_EP_MSG && !path.peers.bound()) return -FI_ENOAV;
  const bool sends = (caps & (FI_SEND | FI_READ | FI_WRITE)) != 0;
  const bool is_receiver = (caps & FI_RECV) != 0;
  if (sends && tx_cq == nullptr && (counted & (FI_SEND | FI_READ | FI_WRITE)) == 0) {
    return -FI_ENOCQ;
  }
  if (is_receiver && rx_cq == nullptr && (counted & FI_RECV) == 0) return -FI_ENOCQ;
  if (wants_shared && is_receiver && has_receives()) return -FI_EINVAL;
  if (shared != nullptr && !shared->has_vector_of(*this)) return -FI_EINVAL;
  // Only reading such a queue asks the owner of the receives.
  if (receives != nullptr && (rx_cq == nullptr || rx_cq->peer == nullptr)) return -FI_ENOCQ;
  if (const int error = domain.start_thread(); error != 0) return error;
  // Who is connected is not asked for its address.
  if (type != FI_EP_MSG && name.has_value() && (name->port() != 0 || format.is_internet())) {
    if (const int error = bind_name(); error != 0) return error;
    auto server = AddressServer::start(std::move(name_socket), *name, core->address());
    if (!server.ok()) {
      TURNOUT_LOG(provider, error, "enabling an endpoint failed: {}; choose another service",
                  server.status().text());
      return -fi_error(server.status());
    }
    address_server = std::move(server).value();
  }
  path.report_remote_access();
  set_calls(true);
  enabled = true;
  return 0;
}

int Ep::set_name(const void* bytes, std::size_t length) {
  if (enabled || name_socket) return -FI_EOPBADSTATE;
  const std::optional<ServiceAddress> given = name_given(format, bytes, length);
  if (!given.has_value()) return -FI_EINVAL;
  name = given;
  return 0;
}

int Ep::bind_name() {
  if (name_socket || address_server != nullptr || connection != nullptr) return 0;
  Result<Descriptor> bound = name->bind(format.is_internet() ? format.family() : AF_INET);
  if (!bound.ok()) {
    TURNOUT_LOG(provider, error, "enabling an endpoint failed: {}; choose another service",
                bound.status().text());
    return -fi_error(bound.status());
  }
  name_socket = std::move(bound).value();
  return 0;
}

int Ep::get_name(void* out, std::size_t* length) {
  if (!format.is_internet()) return put_name(format.encode(core->address()), out, length);
  if (type == FI_EP_MSG && (connection != nullptr || !name.has_value())) {
    ServiceAddress end =
        connection != nullptr ? connection->end_of_socket(false) : format.anywhere();
    if (end.count == 0 && name.has_value()) end = *name;  // the connection has ended
    return put_name(format.encode(end), out, length);
  }
  if (const int error = bind_name(); error != 0) return error;
  return put_name(format.encode(*name), out, length);
}

int Ep::get_peer(void* out, std::size_t* length) {
  if (connection == nullptr || connection->state() != Connection::State::connected)
    return -FI_ENOTCONN;
  const Name peer =
      format.is_internet() ? Name(connection->end_of_socket(true)) : Name(connection->peer());
  return put_name(format.encode(peer), out, length);
}

void Ep::end() noexcept {
  if (connection != nullptr) connection->end();
  if (events != nullptr) {
    events->forget(&fid);
    events->users.fetch_sub(1);
  }
  for (Cntr* cntr : counters) cntr->leave(path);
  path.peers.unbind();
  std::erase(domain.endpoints, this);
  Profile::forget(*this);
  core.reset();  // what it still reports while it ends goes to the queues
  if (receives != nullptr) receives->leave(*this);
  if (shared != nullptr) shared->leave(*this);
  for (Cq* cq : {tx_cq, rx_cq}) {
    if (cq != nullptr) cq->leave(path);
  }
}

}  // namespace turnout::provider
