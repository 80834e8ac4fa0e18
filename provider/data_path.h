// SPDX-License-Identifier: BSD-3-Clause
// DataPath: the data transfer of one endpoint. Completes requests with the peer, with what the FI_*
// flags ask for and with where to report, hands them to the core, and makes progress.
//
// Part of its Ep. Refers to the core endpoint, the endpoint's options, and the queues and counters
// that were bound, all of which outlive its use. Calls hold the domain's lock. Errors: -FI_E*;
// -FI_EAGAIN means back-pressure. Source: fi_endpoint(3).
#pragma once

#include <rdma/fi_domain.h>
#include <sys/types.h>

#include <cassert>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/endpoint.h"
#include "core/types/completion.h"
#include "provider/endpoint_options.h"
#include "provider/errors.h"
#include "provider/peer_resolver.h"

namespace turnout::provider {

class DeferredWorkQueue;

// What every call has: the peer, FI_* flags and the program's context.
struct Call {
  fi_addr_t peer;
  std::uint64_t flags;
  void* context = nullptr;
};

class PeerReceives;
class SharedReceives;

class DataPath {
 public:
  DataPath(Endpoint& core, const EpOptions& options, std::uint64_t caps) noexcept
      : peers(core, caps), core_(core), options_(options), events_((caps & FI_RMA_EVENT) != 0) {}
  ~DataPath() { log_unread_errors(); }
  DataPath(const DataPath&) = delete;
  DataPath& operator=(const DataPath&) = delete;

  PeerResolver peers;
  PeerReceives* receives = nullptr;  // FI_PEER: has the receives; null: the core has them

  // FI_TRANSMIT, FI_RECV or both.
  void bind_queue(CompletionQueue& queue, std::uint64_t flags) noexcept {
    assert((flags & (FI_TRANSMIT | FI_RECV)) != 0);
    if ((flags & FI_TRANSMIT) != 0) tx_queue_ = tx_errors_ = &queue;
    if ((flags & FI_RECV) != 0) rx_queue_ = rx_errors_ = &queue;
  }
  // FI_SEND, FI_RECV, FI_READ, FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE.
  void bind_counter(Counter& counter, std::uint64_t flags) noexcept {
    if ((flags & FI_SEND) != 0) send_counter_ = &counter;
    if ((flags & FI_RECV) != 0) recv_counter_ = &counter;
    if ((flags & FI_READ) != 0) read_counter_ = &counter;
    if ((flags & FI_WRITE) != 0) write_counter_ = &counter;
    if ((flags & FI_REMOTE_READ) != 0) remote_read_counter_ = &counter;
    if ((flags & FI_REMOTE_WRITE) != 0) remote_write_counter_ = &counter;
  }
  // From now on, peers' one-sided operations are reported to what is bound for them.
  void report_remote_access() {
    core_.set_remote_access({.writes = {rx_queue_, rx_errors_, remote_write_counter_, nullptr},
                             .reads = remote_read_counter_,
                             .events = events_});
  }

  // The counter that is bound for such a request.
  [[nodiscard]] Counter* counter_of(const SendRequest&) const noexcept { return send_counter_; }
  [[nodiscard]] Counter* counter_of(const RmaRequest& request) const noexcept {
    return request.write ? write_counter_ : read_counter_;
  }
  [[nodiscard]] Counter* counter_of(const AtomicRequest& request) const noexcept {
    return request.form == AtomicForm::update ? write_counter_ : read_counter_;
  }
  [[nodiscard]] Counter* counter_of(const RecvRequest&) const noexcept { return recv_counter_; }

  // The caller has set what `call` does not say: data, tag, remote memory.
  template <class Request>
  [[nodiscard, gnu::always_inline]] inline ssize_t start(Request& request, const Call& call) {
    return start(request, call, counter_of(request));
  }
  [[nodiscard]] ssize_t start(SendRequest& request, const Call& call, Counter* counter) {
    return initiate<&Endpoint::send>(request, call, counter);
  }
  [[nodiscard]] ssize_t start(RmaRequest& request, const Call& call, Counter* counter) {
    return initiate<&Endpoint::rma>(request, call, counter);
  }
  [[nodiscard]] ssize_t start(AtomicRequest& request, const Call& call, Counter* counter) {
    return initiate<&Endpoint::atomic>(request, call, counter);
  }
  [[nodiscard, gnu::always_inline]] ssize_t start(const RecvRequest& request, const Call& call,
                                                  Counter* counter) {
    PeerId peer = kAnyPeer;
    if (const int error = peers.find_source(call.peer, peer)) return refuse(error);
    // All of it at once: what is set twice costs a loop of stores beforehand.
    return answer(core_.recv({.peer = peer,
                              .buffer = request.buffer,
                              .tagged = request.tagged,
                              .multi = (call.flags & FI_MULTI_RECV) != 0,
                              .min_free = options_.min_multi_recv(),
                              .tag = request.tag,
                              .ignore = request.ignore,
                              .report = report_of_receive(call, counter)}));
  }
  [[nodiscard]] ssize_t start(PeekRequest& request, const Call& call) {
    if (const int error = peers.find_source(call.peer, request.peer)) return refuse(error);
    request.claim = (call.flags & FI_CLAIM) != 0;
    request.discard = (call.flags & FI_DISCARD) != 0;
    // Its completion is all that a peek is for: selective completion does not apply.
    request.report = {rx_queue_, rx_errors_, nullptr, call.context};
    return answer(core_.peek(request));
  }
  // FI_CLAIM: receives, or with FI_DISCARD drops, what a peek with this context claimed.
  [[nodiscard]] ssize_t receive_claimed(RecvRequest& request, const Call& call) {
    request.report = report_of_receive(call, recv_counter_);
    return answer((call.flags & FI_DISCARD) != 0 ? core_.discard_claimed(request.report)
                                                 : core_.recv_claimed(request));
  }

  // Where a context has the receives (FI_PEER, or shared): the next message, in order.
  [[nodiscard]] std::optional<TakenMessage> take_message() {
    return closing_ ? std::nullopt : core_.take_message();
  }
  // Receives it. Errors: -FI_EAGAIN, after which it may be tried again; -FI_EOPBADSTATE, the
  // endpoint is being closed; all others end it like those of a receive.
  [[nodiscard]] ssize_t receive_taken(void* handle, RecvRequest& request, const Call& call) {
    if (closing_) return -FI_EOPBADSTATE;  // nothing is reported any more
    request.report = report_of_receive(call, recv_counter_);
    Status status = core_.recv_taken(handle, request);
    if (status.ok()) return 0;
    if (status.code() == Code::again) return -FI_EAGAIN;
    core_.discard_taken(handle);
    fail(kRecv | (request.tagged ? kTagged : kMessage), 0, call, recv_counter_, std::move(status));
    return 0;
  }
  void discard_taken(void* handle) {
    if (!closing_) core_.discard_taken(handle);
  }

  // True if anything moved.
  [[gnu::always_inline]] bool progress() {
    if (special_) [[unlikely]]
      return progress_specially();
    return move();
  }
  // In progress of all endpoints that `asker` began: what waits for counters is not looked at.
  bool move_for(const DataPath* asker) {
    was_moved_ = asker != nullptr && asker != this;
    return move_and_match();
  }
  // Something waits for counters of the domain, or (null) nothing does.
  void watch(DeferredWorkQueue* work) noexcept {
    work_ = work;
    special_ = closing_ || work != nullptr || shared_ != nullptr;
  }
  // A shared context has the receives. Before the endpoint is enabled.
  void share(SharedReceives& receives_of_several) noexcept {
    shared_ = &receives_of_several;
    special_ = true;
  }
  // What a receive of that context asks for by being one of this endpoint.
  [[nodiscard]] std::uint64_t receive_flags(bool is_message) const noexcept {
    return is_message ? options_.rx_msg_flags() : options_.rx_flags();
  }
  // An operation that was to start later could not: CompletionFlag bits and the tag of its entry.
  void fail(std::uint32_t flags, std::uint64_t tag, const Call& call, Counter* counter,
            Status status);
  // One step of the flush: true when it is done (Endpoint::close). From the first one on, only
  // these steps move the endpoint.
  [[nodiscard]] bool close() {
    closing_ = special_ = true;
    return core_.close();
  }
  [[nodiscard]] bool is_closing() const noexcept { return closing_; }

 private:
  template <auto kCall, class Request>
  ssize_t initiate(Request& request, const Call& call, Counter* counter) {
    PeerId peer = kAnyPeer;  // the compiler keeps in registers what no function is given
    if (const int error = peers.find(call.peer, peer)) return refuse(error);
    request.peer = peer;
    constexpr std::uint64_t kDelayed = FI_DELIVERY_COMPLETE | FI_MATCH_COMPLETE;
    if ((call.flags & (FI_INJECT | FI_REMOTE_CQ_DATA | kDelayed)) != 0) {
      request.inject = (call.flags & FI_INJECT) != 0;
      request.has_remote_data = (call.flags & FI_REMOTE_CQ_DATA) != 0;
      if constexpr (requires { request.delivery_complete; })
        request.delivery_complete = (call.flags & kDelayed) != 0;
      if constexpr (requires { request.match_complete; })
        request.match_complete = (call.flags & FI_MATCH_COMPLETE) != 0;
    }
    if constexpr (requires { request.has_event; }) request.has_event = events_;
    request.report = {(call.flags & FI_COMPLETION) != 0 ? tx_queue_ : nullptr, tx_errors_, counter,
                      call.context};
    return answer((core_.*kCall)(request));
  }
  [[nodiscard]] Report report_of_receive(const Call& call, Counter* counter) const noexcept {
    return {(call.flags & FI_COMPLETION) != 0 ? rx_queue_ : nullptr, rx_errors_, counter,
            call.context};
  }
  ssize_t answer(const Status& status) {
    if (status.ok()) [[likely]]
      return 0;
    return refuse(-fi_error(status));
  }
  // Back-pressure ends by progress, and the program may not read a queue before it tries again.
  ssize_t refuse(int error) {
    if (error == -FI_EAGAIN) progress();
    return error;
  }
  [[gnu::always_inline]] bool move() {
    const bool moved = core_.progress();
    if (unread_errors_.has_error()) log_unread_errors();
    return moved;
  }
  bool move_and_match();
  bool progress_specially();
  void log_unread_errors();

  Endpoint& core_;
  const EpOptions& options_;
  CompletionQueue* tx_queue_ = nullptr;
  CompletionQueue* rx_queue_ = nullptr;
  CompletionQueue unread_errors_{1};  // where errors go when there is no CQ: logged and dropped
  CompletionQueue* tx_errors_ = &unread_errors_;
  CompletionQueue* rx_errors_ = &unread_errors_;
  Counter* send_counter_ = nullptr;
  Counter* recv_counter_ = nullptr;
  Counter* read_counter_ = nullptr;
  Counter* write_counter_ = nullptr;
  Counter* remote_read_counter_ = nullptr;
  Counter* remote_write_counter_ = nullptr;
  const bool events_;  // FI_RMA_EVENT: targets count all one-sided operations
  bool closing_ = false;
  bool special_ = false;               // closing_, or one of the two below
  bool was_moved_ = false;             // for another one, since it was asked last
  DeferredWorkQueue* work_ = nullptr;  // null: nothing waits for a counter
  SharedReceives* shared_ = nullptr;   // null: the endpoint has receives of its own
};

}  // namespace turnout::provider
