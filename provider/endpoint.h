// SPDX-License-Identifier: BSD-3-Clause
// Ep: libfabric's fid_ep (FI_EP_RDM) over one turnout::Endpoint.
//
// The core endpoint is created with the fid_ep, so that its name is available immediately; data
// transfer returns -FI_EOPBADSTATE until fi_enable. Owned by the program; closing it ends the core
// endpoint first, and unread completions stay in their queues. Every call holds the domain's lock,
// which the functions in this header require.
//
// The core identifies peers by small numbers. Two vectors translate, filled as peers are used:
// fi_addr_t -> PeerId (4 bytes per address of the vector) and back (8 bytes per known peer).
#pragma once

#include <rdma/fi_atomic.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/endpoint.h"
#include "core/types/completion.h"
#include "provider/av.h"
#include "provider/cntr.h"
#include "provider/cq.h"
#include "provider/domain.h"
#include "provider/errors.h"
#include "provider/info.h"
#include "provider/ops.h"

namespace turnout::provider {

// One message to send, as any of the calls describes it.
struct Outgoing {
  std::span<const iovec> data;
  fi_addr_t to;
  std::uint64_t flags;  // FI_COMPLETION, FI_INJECT, FI_REMOTE_CQ_DATA, completion levels
  void* context = nullptr;
  bool with_tag = false;
  std::uint64_t tag = 0;
  std::uint64_t remote_data = 0;
};

struct Incoming {
  std::span<const iovec> buffer;
  fi_addr_t from;
  std::uint64_t flags;  // FI_COMPLETION, FI_MULTI_RECV
  void* context = nullptr;
  bool with_tag = false;
  std::uint64_t tag = 0;
  std::uint64_t ignore = 0;
};

struct Transfer {  // RMA
  std::span<const iovec> local;
  fi_addr_t with;
  std::uint64_t address;
  std::uint64_t key;
  std::uint64_t flags;
  void* context = nullptr;
  bool write = false;
  std::uint64_t remote_data = 0;
};

struct AtomicCall {
  AtomicForm form;
  AtomicOp op;
  AtomicType type;
  std::size_t count;
  std::span<const iovec> operands, compare, result;
  fi_addr_t with;
  std::uint64_t address;
  std::uint64_t key;
  std::uint64_t flags;
  void* context = nullptr;
  std::uint64_t remote_data = 0;
};

struct Ep final : fid_ep {
  explicit Ep(Domain& owner) : domain(owner) { domain.references.fetch_add(1); }
  ~Ep();

  Domain& domain;
  std::unique_ptr<Endpoint> core;
  AddressVector* av = nullptr;
  std::uint64_t caps = 0;
  bool directed = false;  // FI_DIRECTED_RECV: receives look at the source address
  bool enabled = false, closing = false;
  std::size_t min_multi_recv = kInjectLimit;  // until set: one injected message must still fit

  Cq* tx_cq = nullptr;
  Cq* rx_cq = nullptr;
  bool tx_selective = false, rx_selective = false;
  CompletionQueue* tx_queue = nullptr;  // of tx_cq, or null
  CompletionQueue* rx_queue = nullptr;
  CompletionQueue unread_errors{1};  // where errors go when there is no CQ: logged and dropped
  CompletionQueue* tx_errors = &unread_errors;
  CompletionQueue* rx_errors = &unread_errors;
  Cntr* send_cntr = nullptr;
  Cntr* recv_cntr = nullptr;
  Cntr* read_cntr = nullptr;
  Cntr* write_cntr = nullptr;
  Cntr* remote_write_cntr = nullptr;

  std::uint64_t tx_op_flags = 0, rx_op_flags = 0;  // as the program set them
  // What calls without flags use, and what is added to the flags of calls that have them.
  std::uint64_t tx_flags = 0, tx_msg_flags = 0, tx_inject_flags = 0;
  std::uint64_t rx_flags = 0, rx_msg_flags = 0;

  // Takes this endpoint out of every object that could drive it.
  void leave_all() noexcept;
  // After queues and counters were bound.
  void use_bindings();
  // Recomputes the five above.
  void set_flags() noexcept;
  // True if anything moved.
  bool progress();
  // The fi_addr_t of a peer; FI_ADDR_NOTAVAIL when it is not in the vector (or not asked for).
  [[nodiscard]] fi_addr_t name_of(PeerId peer);
  // An address was removed from the vector.
  void forget(std::uint64_t index) noexcept;

  [[nodiscard]] ssize_t send(const Outgoing& out);
  [[nodiscard]] ssize_t receive(const Incoming& in);
  [[nodiscard]] ssize_t peek(const Incoming& in);
  [[nodiscard]] ssize_t receive_claimed(const Incoming& in);
  [[nodiscard]] ssize_t transfer(const Transfer& op);
  [[nodiscard]] ssize_t atomic_operation(const AtomicCall& call);

  static int open(Domain& domain, fi_info* info, fid_ep** ep, void* context);
  [[nodiscard]] static Ep& of(fid_ep* f) noexcept { return *static_cast<Ep*>(f); }
  [[nodiscard]] static Ep& of(::fid* f) noexcept { return of(reinterpret_cast<fid_ep*>(f)); }

 private:
  // 0 and the peer, or -FI_E*.
  ssize_t find_peer(fi_addr_t address, PeerId& peer);
  ssize_t resolve_slowly(fi_addr_t address, PeerId& peer);
  ssize_t source_of(fi_addr_t address, PeerId& peer);
  ssize_t refuse(const Status& status);
  void log_unread_errors();

  std::vector<PeerId> peers_;     // by fi_addr_t; kAnyPeer: not looked up yet
  std::vector<fi_addr_t> names_;  // by PeerId; FI_ADDR_NOTAVAIL: not looked up yet
};

// The tables of calls before fi_enable and after it.
[[nodiscard]] fi_ops_msg& message_ops(bool enabled) noexcept;
[[nodiscard]] fi_ops_tagged& tagged_ops(bool enabled) noexcept;
[[nodiscard]] fi_ops_rma& rma_ops(bool enabled) noexcept;
// `offered`: FI_ATOMIC is among the endpoint's capabilities.
[[nodiscard]] fi_ops_atomic& atomic_ops(bool offered, bool enabled) noexcept;
// fi_query_atomic's work. Errors: -FI_EOPNOTSUPP, -FI_EBADFLAGS.
[[nodiscard]] int describe_atomic(fi_datatype type, fi_op op, std::uint64_t flags,
                                  fi_atomic_attr* attr) noexcept;

inline ssize_t Ep::find_peer(fi_addr_t address, PeerId& peer) {
  if (address < peers_.size() && peers_[address] != kAnyPeer) [[likely]] {
    peer = peers_[address];
    return 0;
  }
  return resolve_slowly(address, peer);
}

inline ssize_t Ep::source_of(fi_addr_t address, PeerId& peer) {
  peer = kAnyPeer;
  if (!directed || address == FI_ADDR_UNSPEC) return 0;
  return find_peer(address, peer);
}

[[nodiscard]] inline Counter* counter_of(Cntr* cntr) noexcept {
  return cntr != nullptr ? &cntr->counter : nullptr;
}

inline ssize_t Ep::send(const Outgoing& out) {
  SendRequest request;
  if (const ssize_t error = find_peer(out.to, request.peer)) return error;
  request.data = out.data;
  request.tagged = out.with_tag;
  request.has_remote_data = (out.flags & FI_REMOTE_CQ_DATA) != 0;
  request.inject = (out.flags & FI_INJECT) != 0;
  request.delivery_complete = (out.flags & (FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE)) != 0;
  request.tag = out.tag;
  request.remote_data = out.remote_data;
  request.report = {(out.flags & FI_COMPLETION) != 0 ? tx_queue : nullptr, tx_errors,
                    counter_of(send_cntr), out.context};
  const Status status = core->send(request);
  if (status.ok()) [[likely]]
    return 0;
  return refuse(status);
}

inline ssize_t Ep::receive(const Incoming& in) {
  RecvRequest request;
  if (const ssize_t error = source_of(in.from, request.peer)) return error;
  request.buffer = in.buffer;
  request.tagged = in.with_tag;
  request.multi = (in.flags & FI_MULTI_RECV) != 0;
  request.min_free = min_multi_recv;
  request.tag = in.tag;
  request.ignore = in.ignore;
  request.report = {(in.flags & FI_COMPLETION) != 0 ? rx_queue : nullptr, rx_errors,
                    counter_of(recv_cntr), in.context};
  const Status status = core->recv(request);
  if (status.ok()) [[likely]]
    return 0;
  return refuse(status);
}

}  // namespace turnout::provider
