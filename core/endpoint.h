// SPDX-License-Identifier: BSD-3-Clause
// Endpoint: the progress engine and the one interface of the messaging core (provider and sim).
//
// An endpoint owns its device context, queue pairs, rings, buffers, peers and operations. One
// thread at a time may call it; the layer above locks if it must. User buffers belong to the caller
// and must stay as they are until the operation's completion. Nothing here blocks: progress() does
// bounded work and returns. Lengths are bytes, times nanoseconds.
//
// Errors: every call answers a Status; `again` means back-pressure (call progress(), try again). An
// accepted operation always ends in exactly one completion (or error completion) unless it asked
// for none; a lost peer ends its operations with peer_lost in bounded time.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/settings.h"
#include "base/status.h"
#include "core/address.h"
#include "core/atomic.h"
#include "core/background.h"
#include "core/clock.h"
#include "core/completion.h"
#include "core/memory_domain.h"
#include "core/report.h"

namespace turnout {

// Bytes that one inject may carry; the provider promises it before an endpoint exists.
inline constexpr std::size_t kInjectLimit = 192;

// Where an operation's completion goes. A null queue suppresses the entry of a success (errors
// always need one: `errors` is used then); a null counter counts nothing.
struct Report {
  CompletionQueue* queue = nullptr;
  CompletionQueue* errors = nullptr;
  Counter* counter = nullptr;
  void* context = nullptr;
};

struct SendRequest {
  PeerId peer = kAnyPeer;
  std::span<const iovec> data;
  bool tagged = false;
  bool has_remote_data = false;
  // The data may be reused on return (copied now); at most inject_limit() bytes; no completion
  // entry unless report.queue is set.
  bool inject = false;
  // Complete when the receiver's buffer holds the data, not when the send buffer is free.
  bool delivery_complete = false;
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

struct RmaRequest {
  PeerId peer = kAnyPeer;
  bool write = false;   // else read
  bool inject = false;  // write only; the data may be reused on return
  bool delivery_complete = false;
  bool has_remote_data = false;  // write only: the target gets a kRemoteWrite completion
  std::span<const iovec> local;
  std::uint64_t remote_address = 0;
  std::uint64_t key = 0;   // MemoryKey::remote of a region in the target's domain
  std::size_t length = 0;  // equals the sum of `local`
  std::uint64_t remote_data = 0;
  Report report;
};

// Elements of a peer's memory change one by one, in their order; requests to one peer are carried
// out in the order of the calls. They do not wait for RDMA of the same endpoint. The operands are
// copied; the completion says that it was carried out.
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

// What an endpoint may be given at its creation.
struct EndpointOptions {
  // Shared with other endpoints; null: one of its own.
  std::shared_ptr<MemoryDomain> memory;
  // Operations of each direction that are taken before one may be answered `again`, as far as
  // operation_limits() allows; 0: kContextSize.
  std::size_t context_size = 0;
  // Of simulations: what charges the work to a simulated processor.
  Processor* processor = nullptr;
  // Tells endpoints apart on the wire; 0: a random one. Simulations give their own, to be
  // repeatable.
  std::uint64_t id = 0;
  // Makes the queue pairs; null: as the setting setup_thread says.
  std::unique_ptr<Background> background;
};

class Endpoint {
 public:
  // Creates the start-up channels (3 DC-sendrecv pools), on a device of its own unless it is given
  // a memory domain. Errors: no_device, over_budget, permission, version, system.
  [[nodiscard]] static Result<std::unique_ptr<Endpoint>> create(const Settings& settings,
                                                                Clock& clock,
                                                                EndpointOptions options = {});
  virtual ~Endpoint() = default;  // flushes what it can in bounded time, then frees everything

  // The flush in steps, for callers that cannot wait in a destructor: true when nothing is left to
  // do, or its time is over. Nothing but close() and destruction may follow the first call.
  [[nodiscard]] virtual bool close() = 0;
  // As if the process had died: the destructor frees everything and tells nobody.
  virtual void abandon() noexcept = 0;
  // When progress() has something to do at the latest though nothing arrives.
  [[nodiscard]] virtual Nanoseconds next_deadline() const noexcept = 0;

  [[nodiscard]] virtual const Address& address() const noexcept = 0;
  // The record for this address, made on first use; the same address gives the same id.
  // Errors: over_budget, version, invalid.
  [[nodiscard]] virtual Result<PeerId> peer(const Address& address) = 0;
  [[nodiscard]] virtual const Address& peer_address(PeerId peer) const noexcept = 0;

  [[nodiscard]] virtual Status send(const SendRequest& request) = 0;
  [[nodiscard]] virtual Status recv(const RecvRequest& request) = 0;
  [[nodiscard]] virtual Status peek(const PeekRequest& request) = 0;
  // Receive the message that a peek with report.context == context claimed; peer and tag are
  // ignored. Errors: invalid when no such message is claimed.
  [[nodiscard]] virtual Status recv_claimed(const RecvRequest& request) = 0;
  [[nodiscard]] virtual Status discard_claimed(const Report& report) = 0;
  [[nodiscard]] virtual Status rma(const RmaRequest& request) = 0;
  // Errors beside the usual: invalid (no such operation on that type, count, lengths, alignment),
  // permission. What the target refuses (key, range, access) is an error completion `permission`.
  [[nodiscard]] virtual Status atomic(const AtomicRequest& request) = 0;
  // Cancels the newest-posted pending receive (or not yet started send) with that context; it ends
  // in an error entry `canceled`. True if one was found.
  virtual bool cancel(void* context) = 0;

  // Where completions of peers' RMA writes with data go; null: they are dropped.
  virtual void set_remote_write_report(const Report& report) = 0;

  // Whose regions peers reach through this endpoint.
  [[nodiscard]] virtual MemoryDomain& memory() noexcept = 0;
  // The caller gives this memory back, or has something else there from now on: registrations that
  // are kept of it go. For callers whose memory goes unseen; munmap and the like are noticed.
  virtual void forget_memory(const void* /*address*/, std::size_t /*length*/) {}

  // Moves everything that can move. True if anything happened.
  virtual bool progress() = 0;

  // What was chosen for which peer and why, at this moment.
  [[nodiscard]] virtual EndpointReport report() const = 0;

  [[nodiscard]] virtual std::size_t inject_limit() const noexcept = 0;  // bytes
  [[nodiscard]] virtual std::size_t eager_limit() const noexcept = 0;   // bytes
  [[nodiscard]] virtual std::size_t max_message() const noexcept = 0;   // bytes
};

}  // namespace turnout
