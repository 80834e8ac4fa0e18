// SPDX-License-Identifier: BSD-3-Clause
// Endpoint: the progress engine and the interface of the messaging core for the provider and sim.
//
// An endpoint owns its device context, queue pairs, rings, buffers, peers and operations. One
// thread at a time may call it; the caller locks if necessary. User buffers belong to the caller
// and must not change until the operation completes. Nothing here blocks: progress() does a bounded
// amount of work and returns. Lengths are bytes, times nanoseconds.
//
// Errors: every call returns a Status; `again` means back-pressure (call progress() and retry). An
// accepted operation ends in exactly one completion or error completion, unless it requested none.
// Operations on a lost peer fail with peer_lost in bounded time.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/settings.h"
#include "base/status.h"
#include "core/report/report.h"
#include "core/time/background.h"
#include "core/time/clock.h"
#include "core/types/address.h"
#include "core/types/atomic.h"
#include "core/types/completion.h"
#include "core/types/memory_domain.h"
#include "core/types/simulation_hooks.h"

namespace turnout {

// Largest inject, in bytes; the provider reports it before an endpoint exists.
inline constexpr std::size_t kInjectLimit = 4096;

// Where an operation reports its completion. A null queue suppresses the entry of a success (errors
// always need one and then use `errors`); a null counter counts nothing.
struct Report {
  CompletionQueue* queue = nullptr;
  CompletionQueue* errors = nullptr;
  Counter* counter = nullptr;
  void* context = nullptr;
};

// What the target learns of one-sided operations on its memory.
struct RemoteAccess {
  // Of writes with data: completions, and the counter. Without a queue the data are dropped.
  Report writes;
  Counter* reads = nullptr;
  // Writes without data and reads count, if their initiators say so (has_event), and atomics; in
  // the counters of the region, too (MemoryDomain::count_accesses).
  bool events = false;
};

struct SendRequest {
  PeerId peer = kAnyPeer;
  std::span<const iovec> data;
  bool tagged = false;
  bool has_remote_data = false;
  // The data are copied, so the buffer may be reused on return; at most inject_limit() bytes; no
  // completion entry unless report.queue is set.
  bool inject = false;
  // Complete when the peer's endpoint has the data and this process is not needed any more, not
  // when the send buffer is free.
  bool delivery_complete = false;
  bool match_complete = false;  // complete when the data are in the receiver's buffer
  std::uint64_t tag = 0;
  std::uint64_t remote_data = 0;
  Report report;
};

struct RecvRequest {
  PeerId peer = kAnyPeer;  // only from this peer, or kAnyPeer
  std::span<const iovec> buffer;
  bool tagged = false;
  bool multi = false;  // one buffer for many messages, until less than min_free is left
  std::size_t min_free = 0;
  std::uint64_t tag = 0;
  std::uint64_t ignore = 0;  // set bits of the tag that need not agree
  Report report;
};

struct PeekRequest {
  PeerId peer = kAnyPeer;
  bool tagged = true;
  bool claim = false;    // keep the message aside for recv_claimed(report.context)
  bool discard = false;  // drop the message
  std::uint64_t tag = 0;
  std::uint64_t ignore = 0;
  Report report;  // a hit: a Completion; a miss: an error entry no_message
};

// A message that arrived for no posted receive and was taken out of the matching.
struct TakenMessage {
  void* handle = nullptr;  // for recv_taken() or discard_taken(), one of which ends it
  PeerId peer = kAnyPeer;
  bool tagged = false;
  bool has_remote_data = false;
  std::uint64_t tag = 0;
  std::uint64_t remote_data = 0;
  std::size_t length = 0;  // of the message, all of which need not be here yet
};

struct RmaRequest {
  PeerId peer = kAnyPeer;
  bool write = false;   // else read
  bool inject = false;  // write only; the data may be reused on return
  bool delivery_complete = false;
  bool has_remote_data = false;  // write only: the target gets a kRemoteWrite completion
  bool has_event = false;        // the target counts it (RemoteAccess::events)
  std::span<const iovec> local;
  std::uint64_t remote_address = 0;
  std::uint64_t key = 0;   // MemoryKey::remote of a region in the target's domain
  std::size_t length = 0;  // equals the sum of `local`
  std::uint64_t remote_data = 0;
  Report report;
};

// The elements are updated one by one, in order; requests to one peer execute in the order of the
// calls. They are not ordered with RDMA of the same endpoint. The operands are copied; completion
// means that the operation has executed.
struct AtomicRequest {
  PeerId peer = kAnyPeer;
  AtomicForm form = AtomicForm::update;
  AtomicOp op = AtomicOp::sum;
  AtomicType type = AtomicType::int64;
  bool inject = false;               // errors have no context
  bool has_remote_data = false;      // update only: the target gets a kRemoteWrite completion
  std::size_t count = 0;             // elements, at most most_elements(form, type)
  std::span<const iovec> operands;   // empty for AtomicOp::read
  std::span<const iovec> compare;    // of the form that has them
  std::span<const iovec> result;     // what was there, unless it is an update
  std::uint64_t remote_address = 0;  // a multiple of alignment_of(type)
  std::uint64_t key = 0;             // MemoryKey::remote of a region in the target's domain
  std::uint64_t remote_data = 0;
  Report report;
};

// Options for the creation of an endpoint.
struct EndpointOptions {
  // Shared with other endpoints; null: the endpoint creates one.
  std::shared_ptr<MemoryDomain> memory;
  // Operations per direction that are accepted before one may return `again`, within
  // operation_limits(); 0: kContextSize.
  std::size_t context_size = 0;
  SimulationHooks simulation;
  // Identifies the endpoint on the wire; 0: random. Simulations set it for reproducibility.
  std::uint64_t id = 0;
  // Creates the queue pairs; null: according to the setting setup_thread.
  std::unique_ptr<Background> background;
};

// Told of messages that arrive while no receive waits for them, and when one is taken. Within the
// calls of the endpoint, of which it may call watch_unexpected() and what is const.
class UnexpectedWatcher {
 public:
  virtual ~UnexpectedWatcher() = default;
  // Without a handle. `arrived`: else a receive, a claim or the caller's own matching took it.
  virtual void on_unexpected(const TakenMessage& message, bool arrived) = 0;
};

class Endpoint {
 public:
  // Creates the queue pairs of the default transport, on a new device unless a memory domain is
  // given. Errors: no_device, over_budget, permission, version, system.
  [[nodiscard]] static Result<std::unique_ptr<Endpoint>> create(const Settings& settings,
                                                                Clock& clock,
                                                                EndpointOptions options = {});
  virtual ~Endpoint() = default;  // flushes what it can in bounded time, then frees everything

  // The flush in steps, for callers that cannot block in a destructor: true when it is done or
  // timed out. After the first call only close() and destruction are allowed.
  [[nodiscard]] virtual bool close() = 0;
  // As if the process had died: the destructor frees everything without notifying peers.
  virtual void abandon() noexcept = 0;
  // The latest time for the next progress() call if nothing arrives.
  [[nodiscard]] virtual Nanoseconds next_deadline() const noexcept = 0;

  [[nodiscard]] virtual const Address& address() const noexcept = 0;
  // The peer with this address; its record is created on first use. The same address gives the same
  // id.
  // Errors: over_budget, version, invalid.
  [[nodiscard]] virtual Result<PeerId> peer(const Address& address) = 0;
  // Put together, with its checksum: not for each message.
  [[nodiscard]] virtual Address peer_address(PeerId peer) const noexcept = 0;
  // Address::id of the peer.
  [[nodiscard]] virtual std::uint64_t endpoint_id(PeerId peer) const noexcept = 0;
  // There will be so many peers at most, as far as the caller knows: connections and rings leave
  // the memory of their records free, up to a quarter of the budget. May be called again.
  // `learned`: addresses of peers that it did not know before, and free places (magic 0): with
  // those that the last run heard much from, the endpoint gets in touch at once (setting
  // `prediction`).
  virtual void expect_peers(std::size_t count, std::span<const Address> learned) = 0;

  [[nodiscard]] virtual Status send(const SendRequest& request) = 0;
  [[nodiscard]] virtual Status recv(const RecvRequest& request) = 0;
  [[nodiscard]] virtual Status peek(const PeekRequest& request) = 0;
  // Receives the message that a peek with report.context == context claimed; peer and tag are
  // ignored. Errors: invalid if there is none.
  [[nodiscard]] virtual Status recv_claimed(const RecvRequest& request) = 0;
  [[nodiscard]] virtual Status discard_claimed(const Report& report) = 0;
  // For a caller that posts no receives but matches the messages itself: the oldest one that it has
  // not taken, tagged ones first. From the first call on, receives are assumed to wait for any
  // peer.
  [[nodiscard]] virtual std::optional<TakenMessage> take_message() = 0;
  // Receives it; peer and tag are ignored. The message stays taken on an error: `again`, invalid.
  [[nodiscard]] virtual Status recv_taken(void* handle, const RecvRequest& request) = 0;
  virtual void discard_taken(void* handle) = 0;  // for its sender it is received
  [[nodiscard]] virtual Status rma(const RmaRequest& request) = 0;
  // Additional errors: invalid (no such operation on that type, count, lengths, alignment),
  // permission. A refusal by the target (key, range, access) is an error completion `permission`.
  [[nodiscard]] virtual Status atomic(const AtomicRequest& request) = 0;
  // Cancels the most recent pending receive (or a send that has not started) with that context; it
  // ends in an error entry `canceled`. True if one was found.
  virtual bool cancel(void* context) = 0;

  virtual void set_remote_access(const RemoteAccess& access) = 0;

  // Tells `watcher` from now on; null: nobody. It outlives the endpoint or is replaced before.
  // Answers the messages that wait for a receive, without handles: tagged ones first, each kind in
  // its order.
  virtual std::vector<TakenMessage> watch_unexpected(UnexpectedWatcher* watcher) = 0;

  // The domain whose regions peers access through this endpoint.
  [[nodiscard]] virtual MemoryDomain& memory() noexcept = 0;
  // Drops cached registrations of this memory, which the caller frees or reuses. For memory whose
  // release is not detected; munmap and similar calls are.
  virtual void forget_memory(const void* /*address*/, std::size_t /*length*/) {}

  // Makes progress on all operations. True if anything happened.
  virtual bool progress() = 0;
  // Fetches into the processor's cache what progress() reads first. For who drives thousands of
  // endpoints in turn, some time before the call; changes nothing.
  virtual void prepare_progress() const noexcept {}

  // The current channel of each peer, and why.
  [[nodiscard]] virtual EndpointReport report() const = 0;

  [[nodiscard]] virtual std::size_t inject_limit() const noexcept = 0;  // bytes
  [[nodiscard]] virtual std::size_t eager_limit() const noexcept = 0;   // bytes
  [[nodiscard]] virtual std::size_t max_message() const noexcept = 0;   // bytes
};

}  // namespace turnout
