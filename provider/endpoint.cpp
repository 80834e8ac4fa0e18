// SPDX-License-Identifier: BSD-3-Clause
#include "provider/endpoint.h"

#include <rdma/fi_cm.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/log.h"

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
      ep.closing = true;
      if (ep.core->close()) return;
      for (Ep* const other : ep.domain.endpoints) other->progress();
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
  const int result = contain([&] {
    flush(ep);
    return 0;
  });
  {
    const Guard guard(ep.domain.lock);
    // Not before: what the core still reports while it ends goes to queues.
    ep.leave_all();
    ep.core.reset();
  }
  delete &ep;
  return result;
}

int bind_queue(Ep& ep, Cq& cq, std::uint64_t flags) {
  constexpr std::uint64_t known = FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION;
  if ((flags & ~known) != 0) return -FI_EBADFLAGS;
  if ((flags & (FI_TRANSMIT | FI_RECV)) == 0) return -FI_EINVAL;
  if (&cq.domain != &ep.domain) return -FI_EDOMAIN;
  if ((flags & FI_TRANSMIT) != 0 && ep.tx_cq != nullptr) return -FI_EINVAL;
  if ((flags & FI_RECV) != 0 && ep.rx_cq != nullptr) return -FI_EINVAL;
  CompletionQueue& queue = cq.join(ep);
  const bool selective = (flags & FI_SELECTIVE_COMPLETION) != 0;
  if ((flags & FI_TRANSMIT) != 0) {
    ep.tx_cq = &cq;
    ep.tx_queue = ep.tx_errors = &queue;
    ep.tx_selective = selective;
  }
  if ((flags & FI_RECV) != 0) {
    ep.rx_cq = &cq;
    ep.rx_queue = ep.rx_errors = &queue;
    ep.rx_selective = selective;
  }
  return 0;
}

int bind_counter(Ep& ep, Cntr& cntr, std::uint64_t flags) {
  constexpr std::uint64_t known =
      FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  if (flags == 0 || (flags & ~known) != 0) return -FI_EBADFLAGS;
  if (&cntr.domain != &ep.domain) return -FI_EDOMAIN;
  // The target of an RDMA read or of a write without data learns nothing of it: that is
  // FI_RMA_EVENT.
  if ((flags & FI_REMOTE_READ) != 0) return -FI_ENOSYS;
  cntr.join(ep);
  if ((flags & FI_SEND) != 0) ep.send_cntr = &cntr;
  if ((flags & FI_RECV) != 0) ep.recv_cntr = &cntr;
  if ((flags & FI_READ) != 0) ep.read_cntr = &cntr;
  if ((flags & FI_WRITE) != 0) ep.write_cntr = &cntr;
  if ((flags & FI_REMOTE_WRITE) != 0) ep.remote_write_cntr = &cntr;
  if (ep.enabled) ep.use_bindings();
  return 0;
}

int bind_endpoint(fid* f, fid* other, std::uint64_t flags) {
  Ep& ep = Ep::of(f);
  return contain([&] {
    const Guard guard(ep.domain.lock);
    // Counters come later, too: Sandia OpenSHMEM binds those of its contexts to endpoints that it
    // has enabled, which libfabric's own providers allow.
    if (other->fclass == FI_CLASS_CNTR) return bind_counter(ep, Cntr::of(other), flags);
    if (ep.enabled) return -FI_EOPBADSTATE;
    switch (other->fclass) {
      case FI_CLASS_CQ:
        return bind_queue(ep, Cq::of(other), flags);
      case FI_CLASS_AV: {
        AddressVector& av = AddressVector::of(other);
        if (&av.domain != &ep.domain) return -FI_EDOMAIN;
        if (ep.av != nullptr) return -FI_EINVAL;
        av.endpoints.push_back(&ep);
        ep.av = &av;
        ep.core->expect_peers(av.size());
        return 0;
      }
      case FI_CLASS_EQ:
        return 0;  // a connectionless endpoint has no events
      default:
        return -FI_ENOSYS;  // shared contexts are not offered
    }
  });
}

int enable(Ep& ep) {
  if (ep.enabled) return -FI_EOPBADSTATE;
  if (ep.av == nullptr) return -FI_ENOAV;
  const bool sends = (ep.caps & (FI_SEND | FI_READ | FI_WRITE)) != 0;
  const bool receives = (ep.caps & FI_RECV) != 0;
  const bool counted =
      ep.send_cntr != nullptr || ep.read_cntr != nullptr || ep.write_cntr != nullptr;
  if (sends && ep.tx_cq == nullptr && !counted) return -FI_ENOCQ;
  if (receives && ep.rx_cq == nullptr && ep.recv_cntr == nullptr) return -FI_ENOCQ;
  ep.use_bindings();
  ep.msg = &message_ops(true);
  ep.tagged = &tagged_ops(true);
  ep.rma = &rma_ops(true);
  ep.atomic = &atomic_ops((ep.caps & FI_ATOMIC) != 0, true);
  ep.enabled = true;
  if (ep.domain.progress_thread != nullptr) ep.domain.progress_thread->start();
  return 0;
}

int set_op_flags(Ep& ep, std::uint64_t flags) {
  const std::uint64_t direction = flags & (FI_TRANSMIT | FI_RECV);
  const std::uint64_t rest = flags & ~direction;
  if (direction == FI_TRANSMIT) {
    if ((rest & ~kTxOpFlags) != 0) return -FI_EBADFLAGS;
    ep.tx_op_flags = rest;
  } else if (direction == FI_RECV) {
    if ((rest & ~kRxOpFlags) != 0) return -FI_EBADFLAGS;
    ep.rx_op_flags = rest;
  } else {
    return -FI_EINVAL;  // fi_endpoint(3): exactly one of the two
  }
  ep.set_flags();
  return 0;
}

int get_op_flags(const Ep& ep, std::uint64_t& flags) {
  if ((flags & (FI_TRANSMIT | FI_RECV)) == FI_TRANSMIT) {
    flags = ep.tx_op_flags;
  } else if ((flags & (FI_TRANSMIT | FI_RECV)) == FI_RECV) {
    flags = ep.rx_op_flags;
  } else {
    return -FI_EINVAL;
  }
  return 0;
}

int control_endpoint(fid* f, int command, void* argument) {
  Ep& ep = Ep::of(f);
  return contain([&] {
    const Guard guard(ep.domain.lock);
    switch (command) {
      case FI_ENABLE:
        return enable(ep);
      case FI_SETOPSFLAG:
        if (argument == nullptr) return -FI_EINVAL;
        return set_op_flags(ep, *static_cast<std::uint64_t*>(argument));
      case FI_GETOPSFLAG:
        if (argument == nullptr) return -FI_EINVAL;
        return get_op_flags(ep, *static_cast<std::uint64_t*>(argument));
      default:
        return -FI_ENOSYS;
    }
  });
}

ssize_t cancel(fid* f, void* context) {
  Ep& ep = Ep::of(f);
  return contain([&]() -> ssize_t {
    const Guard guard(ep.domain.lock);
    return ep.core->cancel(context) ? 0 : -FI_ENOENT;
  });
}

int get_option(fid* f, int level, int name, void* value, std::size_t* length) {
  const Ep& ep = Ep::of(f);
  if (level != FI_OPT_ENDPOINT) return -FI_ENOPROTOOPT;
  if (name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
  if (value == nullptr || length == nullptr) return -FI_EINVAL;
  const bool fits = *length >= sizeof(std::size_t);
  *length = sizeof(std::size_t);
  if (!fits) return -FI_ETOOSMALL;
  std::memcpy(value, &ep.min_multi_recv, sizeof(std::size_t));
  return 0;
}

int set_option(fid* f, int level, int name, const void* value, std::size_t length) {
  Ep& ep = Ep::of(f);
  if (level != FI_OPT_ENDPOINT) return -FI_ENOPROTOOPT;
  if (name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
  if (value == nullptr || length != sizeof(std::size_t)) return -FI_EINVAL;
  const Guard guard(ep.domain.lock);
  std::memcpy(&ep.min_multi_recv, value, sizeof(std::size_t));
  return 0;
}

// A program may ask with length 0 first, to learn how long the name is.
int get_name(fid* f, void* out, std::size_t* length) {
  if (f->fclass != FI_CLASS_EP || length == nullptr) return -FI_EINVAL;
  const Ep& ep = Ep::of(f);
  const std::size_t room = *length;
  *length = sizeof(Address);
  if (room != 0 && out == nullptr) return -FI_EINVAL;
  if (out != nullptr && room != 0) {
    std::memcpy(out, &ep.core->address(), std::min(room, sizeof(Address)));
  }
  return room < sizeof(Address) ? -FI_ETOOSMALL : 0;
}

fi_ops ep_fid_ops = {
    .size = sizeof(fi_ops),
    .close = close_endpoint,
    .bind = bind_endpoint,
    .control = control_endpoint,
    .ops_open = kNotHere,
    .tostr = nullptr,
    .ops_set = kNotHere,
};

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

fi_ops_cm cm_ops = {
    .size = sizeof(fi_ops_cm),
    .setname = kNotHere,
    .getname = get_name,
    .getpeer = kNotHere,
    .connect = kNotHere,
    .listen = kNotHere,
    .accept = kNotHere,
    .reject = kNotHere,
    .shutdown = kNotHere,
    .join = kNotHere,
};

}  // namespace

int Ep::open(Domain& domain, fi_info* info, fid_ep** ep, void* context) {
  if (info == nullptr || info->ep_attr == nullptr) return -FI_EINVAL;
  if (info->ep_attr->type != FI_EP_RDM && info->ep_attr->type != FI_EP_UNSPEC) return -FI_EINVAL;
  if (info->ep_attr->tx_ctx_cnt > 1 || info->ep_attr->rx_ctx_cnt > 1) return -FI_EINVAL;
  if (info->tx_attr != nullptr && (info->tx_attr->op_flags & ~kTxOpFlags) != 0) return -FI_EINVAL;
  if (info->rx_attr != nullptr && (info->rx_attr->op_flags & ~kRxOpFlags) != 0) return -FI_EINVAL;
  const Guard guard(domain.lock);
  auto made = std::make_unique<Ep>(domain);
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
  made->core = std::move(core).value();
  made->fid.fclass = FI_CLASS_EP;
  made->fid.context = context;
  made->fid.ops = &ep_fid_ops;
  made->ops = &ep_ops;
  made->cm = &cm_ops;
  made->msg = &message_ops(false);
  made->tagged = &tagged_ops(false);
  made->rma = &rma_ops(false);
  made->collective = nullptr;
  made->caps = info->caps != 0 ? info->caps : kCapabilities;
  made->atomic = &atomic_ops((made->caps & FI_ATOMIC) != 0, false);
  made->directed = (made->caps & FI_DIRECTED_RECV) != 0;
  if (info->tx_attr != nullptr) made->tx_op_flags = info->tx_attr->op_flags;
  if (info->rx_attr != nullptr) made->rx_op_flags = info->rx_attr->op_flags;
  domain.endpoints.push_back(made.get());
  *ep = made.release();
  return 0;
}

Ep::~Ep() {
  log_unread_errors();
  domain.references.fetch_sub(1);
}

void Ep::leave_all() noexcept {
  if (tx_cq != nullptr) tx_cq->leave(*this);
  if (rx_cq != nullptr) rx_cq->leave(*this);
  for (Cntr* cntr : {send_cntr, recv_cntr, read_cntr, write_cntr, remote_write_cntr}) {
    if (cntr != nullptr) cntr->leave(*this);
  }
  if (av != nullptr) std::erase(av->endpoints, this);
  std::erase(domain.endpoints, this);
}

void Ep::use_bindings() {
  core->set_remote_write_report({rx_queue, rx_errors, counter_of(remote_write_cntr), nullptr});
  set_flags();
}

void Ep::set_flags() noexcept {
  tx_msg_flags = tx_selective ? 0 : FI_COMPLETION;
  rx_msg_flags = rx_selective ? 0 : FI_COMPLETION;
  tx_flags = tx_op_flags | tx_msg_flags;
  rx_flags = rx_op_flags | rx_msg_flags;
  // An injected operation has no entry; how far it must have come matters to counters only.
  const bool counted = send_cntr != nullptr || write_cntr != nullptr;
  tx_inject_flags = FI_INJECT | (counted ? tx_op_flags & kCompletionLevels : 0);
}

bool Ep::progress() {
  if (closing) [[unlikely]]
    return false;  // whoever closes it moves it
  const bool moved = core->progress();
  if (unread_errors.has_error()) log_unread_errors();
  return moved;
}

void Ep::log_unread_errors() {
  while (unread_errors.has_error()) {
    const ErrorCompletion error = unread_errors.pop_error();
    TURNOUT_LOG(
        provider, warn,
        "operation failed: endpoint without a completion queue: {}; bind one to receive its errors",
        error.status.text());
  }
}

fi_addr_t Ep::name_of(PeerId peer) {
  if ((caps & FI_SOURCE) == 0 || peer == kAnyPeer || av == nullptr) return FI_ADDR_NOTAVAIL;
  if (peer < names_.size() && names_[peer] != FI_ADDR_NOTAVAIL) [[likely]]
    return names_[peer];
  const fi_addr_t name = av->find(core->peer_address(peer));
  if (name == FI_ADDR_NOTAVAIL) return name;
  if (peer >= names_.size()) names_.resize(peer + 1, FI_ADDR_NOTAVAIL);
  names_[peer] = name;
  return name;
}

void Ep::forget(std::uint64_t index) noexcept {
  if (index < peers_.size()) peers_[index] = kAnyPeer;
  for (fi_addr_t& name : names_) {
    if (name == index) name = FI_ADDR_NOTAVAIL;
  }
}

ssize_t Ep::resolve_slowly(fi_addr_t address, PeerId& peer) {
  const Address* found = av->at(address);
  if (found == nullptr) return -FI_EINVAL;
  const std::uint64_t index = address & av->index_mask;
  if (index < peers_.size() && peers_[index] != kAnyPeer) {  // reached through fi_rx_addr
    peer = peers_[index];
    return 0;
  }
  const Result<PeerId> known = core->peer(*found);
  if (!known.ok()) return refuse(known.status());
  if (index >= peers_.size()) peers_.resize(av->size(), kAnyPeer);
  peers_[index] = known.value();
  peer = known.value();
  return 0;
}

// Back-pressure ends by progress, and the program may not read a queue before it tries again.
ssize_t Ep::refuse(const Status& status) {
  if (status.code() == Code::again) progress();
  return -fi_error(status);
}

ssize_t Ep::peek(const Incoming& in) {
  PeekRequest request;
  if (const ssize_t error = source_of(in.from, request.peer)) return error;
  request.tagged = in.with_tag;
  request.claim = (in.flags & FI_CLAIM) != 0;
  request.discard = (in.flags & FI_DISCARD) != 0;
  request.tag = in.tag;
  request.ignore = in.ignore;
  // Its completion is all that a peek is for: selective completion does not apply.
  request.report = {rx_queue, rx_errors, nullptr, in.context};
  const Status status = core->peek(request);
  return status.ok() ? 0 : refuse(status);
}

ssize_t Ep::receive_claimed(const Incoming& in) {
  const Report report{(in.flags & FI_COMPLETION) != 0 ? rx_queue : nullptr, rx_errors,
                      counter_of(recv_cntr), in.context};
  if ((in.flags & FI_DISCARD) != 0) {
    const Status status = core->discard_claimed(report);
    return status.ok() ? 0 : refuse(status);
  }
  RecvRequest request;
  request.buffer = in.buffer;
  request.tagged = in.with_tag;
  request.tag = in.tag;
  request.ignore = in.ignore;
  request.report = report;
  const Status status = core->recv_claimed(request);
  return status.ok() ? 0 : refuse(status);
}

ssize_t Ep::atomic_operation(const AtomicCall& call) {
  AtomicRequest request;
  if (const ssize_t error = find_peer(call.with, request.peer)) return error;
  request.form = call.form;
  request.op = call.op;
  request.type = call.type;
  request.inject = (call.flags & FI_INJECT) != 0;
  request.has_remote_data = (call.flags & FI_REMOTE_CQ_DATA) != 0;
  request.count = call.count;
  request.operands = call.operands;
  request.compare = call.compare;
  request.result = call.result;
  request.remote_address = call.address;
  request.key = call.key;
  request.remote_data = call.remote_data;
  request.report = {(call.flags & FI_COMPLETION) != 0 ? tx_queue : nullptr, tx_errors,
                    counter_of(call.form == AtomicForm::update ? write_cntr : read_cntr),
                    call.context};
  const Status status = core->atomic(request);
  return status.ok() ? 0 : refuse(status);
}

ssize_t Ep::transfer(const Transfer& op) {
  RmaRequest request;
  if (const ssize_t error = find_peer(op.with, request.peer)) return error;
  request.write = op.write;
  request.inject = (op.flags & FI_INJECT) != 0;
  request.delivery_complete = (op.flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)) != 0;
  request.has_remote_data = (op.flags & FI_REMOTE_CQ_DATA) != 0;
  request.local = op.local;
  request.remote_address = op.address;
  request.key = op.key;
  for (const iovec& part : op.local) request.length += part.iov_len;
  request.remote_data = op.remote_data;
  request.report = {(op.flags & FI_COMPLETION) != 0 ? tx_queue : nullptr, tx_errors,
                    counter_of(op.write ? write_cntr : read_cntr), op.context};
  const Status status = core->rma(request);
  if (status.ok()) [[likely]]
    return 0;
  return refuse(status);
}

}  // namespace turnout::provider
