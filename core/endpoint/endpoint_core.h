// SPDX-License-Identifier: BSD-3-Clause
// EndpointCore: the implementation of Endpoint. One class in several files:
//
//   endpoint_core.cpp            creation, destruction, the progress loop, ticks
//   endpoint_queues.cpp          the default transport (DC or UD), its queues and queue pairs
//   endpoint_report.cpp          the report
//   reservations.cpp             memory reserved at the start, and the size of queue pairs
//   rejection.cpp                rejecting peers
//   closing.cpp                  shutdown: delivers accepted messages and notifies peers
//   receive/shared_receives.cpp  posting receives; low watermark, growth, shrinking
//   receive/private_receives.cpp private receive queues, their growth and credits
//   flow/control.cpp             credit and establishment messages, peers, loss, keep-alive
//   flow/datagrams.cpp           UD as default transport: acknowledgements, timers, retransmission
//   protocol/send_path.cpp       messages out: channel, header, credits
//   protocol/send_operation.cpp  send operations: eager, RTS, backlog, FIN
//   protocol/receive_path.cpp    messages in: stream order, matching, posted receives
//   protocol/unexpected.cpp      unexpected messages, peek and claim, scarce memory
//   protocol/transfer.cpp        RDMA: rendezvous reads (getcqe), one-sided operations
//   protocol/atomics.cpp         atomic operations: requests, execution, responses
//   protocol/segments.cpp        one-sided operations as messages, where there is no connection
//   protocol/registration.cpp    registrations of user buffers, and their invalidation
//   protocol/rtr.cpp             large messages written to posted receives (put, putnr)
//   protocol/writes.cpp          large messages written after a CTS (rput)
//   protocol/fragments.cpp       large messages without DC: RC queue pair, else fragments
//   connection/decision.cpp      running the selection and its plan
//   connection/feedback.cpp      sender feedback to the receiver's selection
//   connection/negotiation.cpp   J1-J5: changing channels, the RC pool
//   connection/rc_setup.cpp      RC queue pairs: creating, connecting, resetting
//   connection/recovery.cpp      connections that failed while both processes live
//   connection/tear_down.cpp     eviction of connections
//   connection/xrc_setup.cpp     one connection for all processes of a node
//   connection/xrc_recovery.cpp  recovery of such connections
//
// Driven by one thread at a time; it destroys everything it owns, queue pairs before their queues.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/split_mix.h"
#include "core/connection/decision_log.h"
#include "core/connection/peer.h"
#include "core/connection/polled_rings.h"
#include "core/connection/traffic_statistics.h"
#include "core/connection/xrc_connection.h"
#include "core/endpoint.h"
#include "core/memory/account.h"
#include "core/memory/buffer_pool.h"
#include "core/memory/device_domain.h"
#include "core/memory/memory_history.h"
#include "core/memory/registration_cache.h"
#include "core/memory/slab.h"
#include "core/memory/slot_table.h"
#include "core/protocol/matcher.h"
#include "core/protocol/operation.h"
#include "core/protocol/operation_limits.h"
#include "core/protocol/rendezvous.h"
#include "core/receive/receive_pool.h"
#include "core/report/call_time.h"
#include "core/report/profile.h"
#include "core/report/receive_cost.h"
#include "core/report/report.h"
#include "core/report/report_live.h"
#include "core/selection/device_costs.h"
#include "core/selection/policy.h"
#include "core/selection/statistics.h"
#include "core/selection/windows.h"
#include "core/transport/dc_queue.h"
#include "core/transport/placement.h"
#include "core/transport/rc_queue.h"
#include "core/transport/ud_queue.h"
#include "core/verbs/device.h"

namespace turnout {

struct ForgedMessages;

class EndpointCore final : public Endpoint {
 public:
  EndpointCore(const Settings& settings, Clock& clock, EndpointOptions options);
  ~EndpointCore() override;
  [[nodiscard]] Status start();

  [[nodiscard]] bool close() override;
  void abandon() noexcept override { started_ = false; }
  [[nodiscard]] Nanoseconds next_deadline() const noexcept override {
    return std::min({next_decision_, next_keepalive_, next_ud_timer_, flow_.next_sweep(),
                     deferred_until_, eviction_.next_service()});
  }

  [[nodiscard]] const Address& address() const noexcept override { return address_; }
  [[nodiscard]] Result<PeerId> peer(const Address& address) override;
  [[nodiscard]] const Address& peer_address(PeerId peer) const noexcept override {
    return peers_[peer]->address;
  }
  void expect_peers(std::size_t count) override;
  [[nodiscard]] Status send(const SendRequest& request) override {
    return call_time_.run(clock_, [&] { return send_now(request); });
  }
  [[nodiscard]] Status recv(const RecvRequest& request) override {
    return call_time_.run(clock_, [&] { return recv_now(request); });
  }
  [[nodiscard]] Status peek(const PeekRequest& request) override;
  [[nodiscard]] Status recv_claimed(const RecvRequest& request) override;
  [[nodiscard]] Status discard_claimed(const Report& report) override;
  [[nodiscard]] Status rma(const RmaRequest& request) override {
    return call_time_.run(clock_, [&] { return rma_now(request); });
  }
  [[nodiscard]] Status atomic(const AtomicRequest& request) override {
    return call_time_.run(clock_, [&] { return atomic_now(request); });
  }
  bool cancel(void* context) override;
  void set_remote_write_report(const Report& report) override { remote_write_report_ = report; }
  [[nodiscard]] MemoryDomain& memory() noexcept override { return *domain_; }
  void forget_memory(const void* address, std::size_t length) override;
  bool progress() override {
    return call_time_.run(clock_, [this] { return progress_now(); });
  }
  [[nodiscard]] std::size_t inject_limit() const noexcept override { return kInjectLimit; }
  [[nodiscard]] std::size_t eager_limit() const noexcept override {
    return own_eager_size_ - stream_overhead_;
  }
  [[nodiscard]] std::size_t max_message() const noexcept override { return std::size_t{1} << 40; }
  [[nodiscard]] EndpointReport report() const override;

 private:
  friend struct ForgedMessages;                      // of tests: sends invalid messages to a peer
  static constexpr std::uint32_t kQueueDepth = 128;  // work requests of one queue pair
  static constexpr std::uint32_t kControlSendBuffers = 128;
  // Send buffers reserved for retransmission (connection/recovery.cpp): lost messages may occupy
  // all others.
  static constexpr std::uint32_t kRecoveryBuffers = 1;
  static constexpr int kPollBatch = 16;              // completions polled at a time
  static constexpr std::uint32_t kMostInline = 256;  // header, and kInjectLimit of payload
  static constexpr std::uint64_t kControlReceive = std::uint64_t{1} << 32;  // bits of a wr_id
  static constexpr std::uint64_t kPrivateReceive = std::uint64_t{1} << 33;
  static constexpr int kDecisionsRefused =
      4;  // a refused channel is not requested again for so many decisions
  static constexpr unsigned kLifetimeShift = 34;  // above them, of a private receive

  enum class Purpose : std::uint8_t { data, credit, establishment };
  struct PendingControl {
    PeerId peer;
    Purpose purpose;
    wire::ControlMessage message;
    wire::Detail detail;  // if the type has one
  };
  // One message of the data stream, with the location of its bytes.
  struct StreamMessage {
    wire::Type type = wire::Type::eager;
    std::uint8_t flags = 0;
    std::uint64_t tag = 0;
    std::uint64_t data = 0;
    const IoVec* iov = nullptr;        // payload, or
    const std::byte* bytes = nullptr;  // contiguous
    std::size_t length = 0;
    std::uint64_t operation = 0;  // precedes the payload if flags ask to acknowledge
    std::uint64_t counts_as = 0;  // message bytes, for the report
    bool counted = false;         // in the report
  };
  // The location of a delivered message's payload, and how to release it.
  struct Arrival {
    UnexpectedMessage::Storage storage = UnexpectedMessage::Storage::none;
    const std::byte* payload = nullptr;
    std::uint32_t buffer = 0;
    std::uint64_t position = 0;
    std::unique_ptr<std::byte[]>* heap = nullptr;  // if storage is heap: the owner
  };

  // The path of the data of a large message or a one-sided operation to or from this peer.
  enum class DataPath : std::uint8_t { dc, rc, fragments, wait };

  // endpoint_queues.cpp
  [[nodiscard]] Status create_queues();
  // One target serves all initiators; several spread completions of different peers.
  [[nodiscard]] std::size_t data_targets() const noexcept {
    return std::min<std::size_t>(settings_.data_qps, kMaxDataQps);
  }
  [[nodiscard]] Status choose_default_channel();
  [[nodiscard]] std::uint32_t first_receives() const noexcept {
    return static_cast<std::uint32_t>(std::min(settings_.receive_first, settings_.receive_buffers));
  }
  void limits_from_costs();
  [[nodiscard]] Status create_pool(Purpose purpose, std::size_t initiators, std::size_t targets,
                                   ibv_srq* srq);
  [[nodiscard]] bool over_datagrams() const noexcept {
    return default_channel_ == ChannelKind::ud_sendrecv;
  }

  // endpoint_core.cpp
  bool progress_now();
  void tick();
  // Messages that consume receives use the pair's queue pair; with a ring, these are the messages
  // of the rendezvous protocols.
  [[nodiscard]] static bool sends_over_rc(const Peer& peer) noexcept {
    return peer.send_kind == ChannelKind::rc_srq || peer.private_sender.request != 0;
  }
  bool poll_receive_queue();
  void note_shutdowns(std::span<const ibv_wc> entries) noexcept;
  bool poll_send_queue();
  void on_send_completion(const ibv_wc& wc);
  void on_rc_completion(RcQueue& queue, const ibv_wc& wc);
  void retire(const SendRecord& record);
  void charge(Work work, std::uint64_t amount) noexcept {
    if (processor_ != nullptr) [[unlikely]]
      processor_->charge(work, amount);
  }
  [[nodiscard]] Nanoseconds age() noexcept { return clock_.now() - born_; }
  void finish(const Report& report, const Completion& completion);
  void fail(const Report& report, const Completion& completion, Status status,
            std::size_t overflow = 0);

  // endpoint/reservations.cpp
  struct Need {
    MemoryKind kind;
    std::uint64_t bytes, objects;
  };
  // Entries of the completion queues, including those for private receives.
  [[nodiscard]] std::uint32_t receive_entries() const noexcept;
  [[nodiscard]] std::uint32_t send_entries() const noexcept;
  [[nodiscard]] std::uint32_t private_entries() const noexcept;
  // The memory that an endpoint with these settings allocates at the start and keeps.
  [[nodiscard]] std::array<Need, 4> fixed_needs() const noexcept;
  [[nodiscard]] std::uint64_t needed_at_start() const noexcept;  // bytes, with the first records
  [[nodiscard]] bool fits_at_start() const noexcept;
  [[nodiscard]] Status check_budget() const;
  [[nodiscard]] Status reserve_fixed();
  [[nodiscard]] std::uint64_t dc_pool_bytes(Object pool, std::uint64_t initiators,
                                            std::uint64_t targets) const noexcept;
  // The accounted bytes of `count` objects; used for all queue pairs and queues.
  [[nodiscard]] std::uint64_t object_bytes(Object object, std::uint64_t count,
                                           std::uint64_t computed) const noexcept;

  // receive/shared_receives.cpp
  void post_receives();
  void look_after_receives(Nanoseconds now);
  void begin_receives() noexcept;
  void begin_flow_control() noexcept;
  void update_flow_control() noexcept {
    flow_.set_queue({receive_pool_.count(), shared_.may_grow, shared_.armed});
  }
  void arm_limit() noexcept;
  void more_receives(Nanoseconds now);
  void fewer_receives(Nanoseconds now);
  // Unexpected messages occupy so many receive buffers that other messages may find none.
  [[nodiscard]] bool receives_scarce() const noexcept {
    return receives_kept_ > receive_pool_.count() / 2;
  }

  // receive/private_receives.cpp
  [[nodiscard]] std::uint32_t most_private() const noexcept {
    return static_cast<std::uint32_t>(settings_.private_receive_buffers);
  }
  [[nodiscard]] Status add_private_receives(Peer& peer, std::uint32_t count);
  [[nodiscard]] Status ready_private_receives(Peer& peer);
  void post_private_receives(Peer& peer);
  void post_private_receives(Peer& peer, ReceivePool::PrivateChunk& chunk, std::uint32_t buffer);
  void unpost_private_receives(const RcQueue& queue);
  void close_private_receives(Peer& peer, const RcQueue& queue);
  void release_private_receives(RcQueue& queue);
  void on_private_receive(const ibv_wc& wc);
  [[nodiscard]] static Status check_private_sender(const Peer& peer, const wire::Parsed& parsed);
  void on_private_message(Peer& peer, std::uint32_t buffer, std::uint32_t length);
  void on_private_control(Peer& peer, const wire::Parsed& parsed);
  void return_private_receive(std::uint32_t buffer);
  void grow_private_receives(Peer& peer);
  // Whether to return credits to the peer now.
  void report_private_credits(Peer& peer);
  void send_private_credits(Peer& peer);
  void on_private_credits(Peer& peer, std::uint32_t request, std::uint32_t credits) noexcept;
  [[nodiscard]] bool post_private_control(Peer& peer, wire::ControlMessage message,
                                          const wire::Detail* detail);

  // protocol/send_path.cpp
  [[nodiscard]] Peer* find_peer(PeerId id) noexcept {
    return id < peers_.size() ? peers_[id].get() : nullptr;
  }
  [[nodiscard]] std::size_t max_payload(const Peer& peer) const noexcept;
  [[nodiscard]] bool post_stream(Peer& peer, const StreamMessage& message);
  void send_wireup(Peer& peer);
  [[nodiscard]] bool post_over_ring(Peer& peer, const StreamMessage& message);
  static void spend_credit(Peer& peer, wire::Header* header) noexcept;
  [[nodiscard]] bool post_over_default(Peer& peer, const StreamMessage& message);
  [[nodiscard]] bool post_inline_over_rc(Peer& peer, const StreamMessage& message);
  [[nodiscard]] static const void* contiguous_payload(const StreamMessage& message,
                                                      std::byte* gathered);
  void fill_header(Peer& peer, const StreamMessage& message, wire::Header* header);
  void hand_back(Peer& peer, wire::Header* header);
  // To the peer's target of our data initiator for it.
  void address_data(const Peer& peer, SendRecord* record) const noexcept;
  void credits_given(Peer& peer, const wire::Header& header);

  // protocol/send_operation.cpp
  [[nodiscard]] Status send_now(const SendRequest& request);
  [[nodiscard]] static Status too_many_wait();
  // Whether a message of this size uses rendezvous.
  [[nodiscard]] bool is_large(const Peer& peer, std::size_t bytes) const noexcept;
  [[nodiscard]] bool try_operation(SendOperation& operation);
  void await_fin(SendOperation& operation);
  void forget_awaiting(SendOperation& operation);
  static void use_registrations(SendOperation& operation, Transfer* transfer);
  [[nodiscard]] Status prepare_rendezvous(SendOperation& operation);
  void enqueue(SendOperation& operation);
  void list_backlog(Peer& peer);
  void end_send(SendOperation& operation, Status status);
  bool pump_backlog(Peer& peer);
  bool pump_backlogs();
  void on_fin(const wire::ControlMessage& message, Peer& peer);
  // The operation that waits for this peer's FIN; null: none.
  [[nodiscard]] SendOperation* find_awaiting(const Peer& peer, std::uint64_t id) const noexcept;
  // The Status for a peer's status code of a large message; `verb`: fetch, ...
  [[nodiscard]] static Status status_reported(const Peer& peer, std::uint32_t code,
                                              std::string_view verb);

  // protocol/receive_path.cpp
  [[nodiscard]] Status recv_now(const RecvRequest& request);
  // Length of what follows the datagram's header, if there is one.
  void on_data(std::uint32_t buffer, std::uint32_t length);
  // A message of the stream, in a receive.
  void take_message(Peer& peer, const wire::Parsed& parsed, std::uint32_t buffer,
                    std::uint32_t length);
  [[nodiscard]] UnexpectedMessage::Storage storage_of(std::uint32_t buffer) const noexcept {
    return receive_pool_.is_private(buffer) ? UnexpectedMessage::Storage::private_receive
                                            : UnexpectedMessage::Storage::buffer;
  }
  void keep_out_of_order(Peer& peer, OutOfOrderMessage message);
  [[nodiscard]] OutOfOrderMessage take_out_of_order(Peer& peer, std::size_t at);
  void free_out_of_order(const OutOfOrderMessage& message);
  [[nodiscard]] std::unique_ptr<std::byte[]> copy_aside(const std::byte* from, std::size_t length);
  [[nodiscard]] const std::byte* bytes_of(const OutOfOrderMessage& message) const noexcept {
    return message.copy ? message.copy.get() : received(message.buffer);
  }
  // For a message that is dropped, as rejected or duplicate.
  void free_receive(std::uint32_t buffer) {
    if (receive_pool_.is_private(buffer)) [[unlikely]] {
      return_private_receive(buffer);
    } else {
      to_post_.push_back(buffer);
    }
  }
  [[nodiscard]] const std::byte* received(std::uint32_t buffer) const noexcept {
    return receive_pool_.data(buffer) + receive_offset_;
  }
  bool poll_rings(std::vector<Peer*>& rings);
  // Peers may leave the list meanwhile.
  template <class GoOn>
  static bool go_on_with_each(std::vector<Peer*>& list, GoOn&& go_on) {
    bool moved = false;
    for (std::size_t i = 0; i < list.size();) {
      Peer& peer = *list[i];
      moved |= go_on(peer);
      if (i < list.size() && list[i] == &peer) ++i;
    }
    return moved;
  }
  bool poll_measured();
  bool poll_ring(Peer& peer);
  void drain_reorder_buffer(Peer& peer);
  // The message is the next of its stream and may_deliver().
  void deliver(Peer& peer, const wire::Header& header, const Arrival& arrival);
  void deliver_large(Peer& peer, const wire::Header& header, const wire::Rts& rts,
                     const Arrival& arrival);
  void release_arrival(Peer& peer, UnexpectedMessage::Storage storage, std::uint32_t buffer,
                       std::uint64_t position);
  void give_ring_credits(Peer& peer, std::uint32_t count);
  void receive_eager(RecvOperation& receive, Peer& peer, const wire::Header& header,
                     const std::byte* payload);
  void end_receive(RecvOperation& receive, const Completion& completion, std::size_t overflow,
                   Status status);
  void unpost(RecvOperation& receive);
  void end_cancelled(RecvOperation& receive);
  void acknowledge(Peer& peer, const std::byte* payload);
  [[nodiscard]] bool on_wireup_request(const wire::WireupRequest& wireup, PeerId* id);
  [[nodiscard]] Completion completion_of(const wire::Header& header, PeerId peer,
                                         std::size_t length) const;

  // protocol/unexpected.cpp
  [[nodiscard]] bool has_room_for(Peer& peer, const wire::Header& header);
  [[nodiscard]] bool may_deliver(Peer& peer, const wire::Header& header);
  bool pump_stalled();
  [[nodiscard]] UnexpectedMessage& store(Peer& peer, const wire::Header& header,
                                         const Arrival& arrival);
  void keep_unexpected(Peer& peer, const wire::Header& header, const Arrival& arrival);
  [[nodiscard]] bool set_aside(UnexpectedMessage& message);
  bool relieve(Peer& peer);
  void look_after_retained(Peer& peer, bool wildcards, Nanoseconds now);
  void release_unexpected(UnexpectedMessage& message);
  void drop_unexpected(UnexpectedMessage& message);
  void take_unexpected(RecvOperation& receive, UnexpectedMessage& message);
  void start_waiting(UnexpectedMessage& message, DataPath path);
  bool pump_waiting();
  // A record for an operation of the caller; null: answer refusal().
  template <class T>
  [[nodiscard]] T* take_for_caller(Slab<T>& records) {
    T* const record = records.take();
    if (record != nullptr && refused_since_ != 0) [[unlikely]]
      refused_since_ = 0;
    return record;
  }
  [[nodiscard]] Status refusal();

  // flow/control.cpp
  // A message has left its receive; returns the credit.
  void return_credit(Peer& peer);
  void serve_credit_waiters(bool few = false);
  void sweep_credits(Nanoseconds now);

  // endpoint_report.cpp
  void report_history(EndpointReport* report) const;
  void report_memory(EndpointReport* report) const;

  // protocol/transfer.cpp
  [[nodiscard]] Status rma_now(const RmaRequest& request);
  [[nodiscard]] bool reaches_over_rc(const Peer& peer) const noexcept;
  [[nodiscard]] Place place_in(RecvOperation& receive, std::uint64_t total);
  void start_get(RecvOperation& receive, Peer& peer, const wire::Header& header,
                 const wire::Rts& rts, Place place, DataPath path);
  [[nodiscard]] bool leaves_posting(const Transfer& transfer) const noexcept;
  bool pump(Transfer& transfer);
  [[nodiscard]] bool post_segment(Transfer& transfer, std::uint64_t length);
  [[nodiscard]] Status register_iov(Transfer& transfer, const IoVec& iov, int access);
  void end_read_early(Transfer& transfer);
  bool pump_transfers();
  void on_transfer_done(Transfer& transfer, Status status);
  // The target denied access.
  [[nodiscard]] static bool refuses_key(ibv_wc_status status) noexcept;
  [[nodiscard]] static Status refused_key(const Peer& peer, const SendRecord& record,
                                          ibv_wc_status status);
  void drop_transfer(Transfer& transfer);
  void end_transfer(Transfer& transfer);

  // protocol/atomics.cpp
  [[nodiscard]] Status atomic_now(const AtomicRequest& request);
  [[nodiscard]] bool make_atomics(Peer& peer);
  [[nodiscard]] bool try_atomic(AtomicOperation& operation);
  void end_atomic(AtomicOperation& operation, Status status);
  void end_atomics(Peer& peer);
  // Answers from the peer are pending.
  [[nodiscard]] static bool owes_answers(const Peer& peer) noexcept {
    return peer.atomics && !peer.atomics->asked.empty();
  }
  [[nodiscard]] bool may_answer(Peer& peer);
  void on_request(Peer& peer, const wire::Header& header, const std::byte* payload);
  [[nodiscard]] Status take_atomic(Peer& peer, const wire::Header& header,
                                   const std::byte* payload);
  [[nodiscard]] Code carry_out(const wire::Atomic& request, const std::byte* values,
                               std::byte* fetched) noexcept;
  void send_answers(Peer& peer);
  bool pump_answers();
  void on_answer(Peer& peer, const wire::Header& header, const std::byte* payload);

  // protocol/segments.cpp
  [[nodiscard]] std::size_t most_by_message(const Peer& peer) const noexcept;
  [[nodiscard]] Status take_for_messages(Transfer& transfer, const IoVec& iov, bool inject);
  [[nodiscard]] bool ask_segment(Transfer& transfer, std::uint64_t length);
  [[nodiscard]] static std::size_t fill_segment(const AtomicOperation& operation,
                                                wire::Segment* segment, IoVec* parts) noexcept;
  [[nodiscard]] Status take_segment(Peer& peer, const wire::Header& header,
                                    const std::byte* payload);

  // protocol/registration.cpp
  void start_registrations();
  bool notice_unmapped(std::uintptr_t begin, std::uintptr_t end);
  // Errors: of ibv_reg_mr.
  [[nodiscard]] Status register_buffer(const iovec& part, int access, Registration* registration);
  [[nodiscard]] bool is_registered(const iovec& part, int access);
  static void release_regions(Transfer& transfer);

  // protocol/writes.cpp
  [[nodiscard]] bool asks_for_write(const Transfer& transfer, const IoVec& target) const noexcept;
  [[nodiscard]] Status ask_for_write(Transfer& transfer, const IoVec& target);
  void on_cts(Peer& peer, const wire::ControlMessage& message, const wire::Detail& detail);
  void start_rput_send(SendOperation& operation);
  bool pump_rput_sends();
  void end_rput_send(Transfer& transfer);
  void on_written(Peer& peer, const wire::ControlMessage& message);

  // protocol/rtr.cpp
  void send_rtr(RecvOperation& receive, Peer& peer);
  [[nodiscard]] bool wants_rtr(const RecvRequest& request, const Peer& peer) const noexcept;
  [[nodiscard]] bool may_send_rtr(const RecvOperation& receive, Peer& peer);
  void close_rtr(Transfer& transfer, bool taken);
  void abandon_rtr(RecvOperation& receive);
  void on_rtr(Peer& peer, const wire::Detail& detail);
  static constexpr std::size_t kNoRtr = SIZE_MAX;
  [[nodiscard]] static bool is_putting(const Peer& peer) noexcept {
    return peer.rtrs && peer.rtrs->writing > 0;
  }
  [[nodiscard]] std::size_t find_rtr(const Peer& peer, bool tagged,
                                     std::uint64_t tag) const noexcept;
  void consume_rtr(Peer& peer, std::size_t at) noexcept;
  [[nodiscard]] bool may_put(const Peer& peer, const IoVec& iov, const wire::Detail& rtr);
  [[nodiscard]] Status put(Peer& peer, const SendRequest& request, const IoVec& iov,
                           const wire::Detail& rtr, SendOperation* deferred = nullptr);
  // Deferred messages exist.
  [[nodiscard]] static bool defers(const Peer& peer) noexcept {
    return peer.rtrs && peer.rtrs->deferring;
  }
  [[nodiscard]] int receive_access() const noexcept;
  [[nodiscard]] bool may_defer(Peer& peer);
  void defer(SendOperation& operation);
  void put_deferred(Peer& peer);
  void release_deferred(Peer& peer);
  void release_overdue();
  void end_put(Transfer& transfer);
  void fetch_instead(Transfer& transfer);
  void end_rtr_recv(Transfer& transfer, const Completion& completion, const Status& status);
  void poll_for_last_byte(Transfer& transfer, std::byte* last, std::byte sentinel);
  // `of`: only its RTRs.
  bool poll_last_bytes(const Peer* of = nullptr);
  [[nodiscard]] bool put_completed(Peer& peer, const wire::Rts& rts);
  [[nodiscard]] SendOperation* make_put_completion(const Transfer& transfer);
  void send_before_backlog(SendOperation& operation);
  void on_put_completion(Peer& peer, const wire::Header& header, const std::byte* payload);
  void on_rtr_cancel(Peer& peer, std::uint64_t transfer);
  bool pump_rtr_cancels();
  void on_rtr_cancelled(Peer& peer, std::uint64_t transfer);

  // flow/control.cpp
  [[nodiscard]] Status check_peer(const Address& address);
  [[nodiscard]] Peer* make_peer(const Address& address, Status* status);
  [[nodiscard]] ibv_ah* address_handle(const Address& address, Status* status);
  void send_control(Peer& peer, Purpose purpose, wire::ControlMessage message,
                    const wire::Detail* detail = nullptr);
  bool pump_control();
  [[nodiscard]] bool post_control(const PendingControl& pending);
  // A message of the control pools: a datagram's header, if there is one, and its body.
  struct ControlBytes {
    const wire::Datagram* head = nullptr;
    const void* body = nullptr;
    std::size_t length = 0;
    const wire::Detail* detail = nullptr;
  };
  [[nodiscard]] bool post_control(MessageQueue& queue, PeerId peer, const Address& address,
                                  ibv_ah* ah, unsigned target, const ControlBytes& bytes,
                                  Status* status);
  // To the peer's queue pair for that purpose.
  [[nodiscard]] bool post_control(Peer& peer, bool credit, const ControlBytes& bytes);
  void on_control(std::uint32_t buffer, std::uint32_t length);
  void handle_control(Peer& peer, const wire::ControlMessage& message, const wire::Detail& detail);
  [[nodiscard]] Peer* find_sender(std::uint32_t index, std::uint64_t id) noexcept;
  void send_credits(Peer& peer);
  void send_fin(Peer& peer, std::uint64_t operation, const Status& status);
  void lose_peer(Peer& peer, const Status& why);
  void keep_alive(Nanoseconds now);
  void probe(Peer& peer, MessageQueue& queue);
  template <class Queue>
  void post_probe(Peer& peer, Queue& queue);
  void probe_over_rc(Peer& peer);
  void recover(MessageQueue& queue, const ibv_wc& wc);
  void end_of_lost(const SendRecord& record);
  [[nodiscard]] std::vector<std::unique_ptr<MessageQueue>>& pool(Purpose purpose) noexcept {
    return initiators_[static_cast<std::size_t>(purpose)];
  }

  // flow/datagrams.cpp
  void on_datagram(bool control, std::uint32_t buffer, std::uint32_t length);
  void on_control_datagram(const std::byte* bytes, std::uint32_t length);
  // Handles acknowledgements and liveness.
  void take_ud_header(Peer& peer, const wire::Datagram& datagram);
  // False: it was dropped, and its buffer reposted.
  [[nodiscard]] bool data_came(Peer& peer, const wire::Header& header, std::uint32_t buffer);
  void stamp(Peer& peer, wire::DatagramKind kind, wire::Datagram* datagram);
  void owe_ack(Peer& peer, bool at_once);
  void send_ack(Peer& peer);
  void answer_unknown_peer(const wire::WireupRequest& wireup);
  void keep_until_acknowledged(Peer& peer, std::uint32_t sequence, const SendRecord& record);
  void release_kept(std::uint32_t buffer);
  void send_control_over_ud(Peer& peer, Purpose purpose, const wire::ControlMessage& message);
  [[nodiscard]] bool transmit_control(Peer& peer);
  [[nodiscard]] bool post_ud_control(Peer& peer, std::size_t at);
  bool pump_ud_blocked();
  void resend_data(Peer& peer, const UdReliability::Sent& message);
  void send_probe(Peer& peer);
  void arm(Peer& peer, Nanoseconds now);
  void list_ud(Peer& peer, Nanoseconds at);
  void service_ud_timers(Nanoseconds now);
  void on_ud_timeout(Peer& peer, Nanoseconds now);
  void drop_ud(Peer& peer);
  [[nodiscard]] bool ud_settled() const noexcept;
  [[nodiscard]] Nanoseconds silence_of_the_lost() const noexcept;

  // protocol/fragments.cpp
  [[nodiscard]] DataPath data_path(Peer& peer);
  // Of a large message that has a receive; `wait` also for a record. Asked once for each start:
  // the answer may change with the clock.
  [[nodiscard]] DataPath path_of_transfer(Peer& peer) {
    return transfers_.ready() ? data_path(peer) : DataPath::wait;
  }
  void request_fragments(Transfer& transfer, const wire::Rts& rts);
  void fall_back_to_fragments(Transfer& transfer);
  void on_fragment_request(Peer& peer, const wire::ControlMessage& message);
  bool pump_fragments();
  void on_fragment(Peer& peer, const wire::Header& header, const std::byte* payload);
  void end_incoming(const Peer* peer);
  // Of those in incoming_ of this peer; null: none of that number and kind.
  [[nodiscard]] Transfer* find_incoming(const Peer& peer, std::uint64_t number,
                                        Transfer::Kind kind) const noexcept;
  [[nodiscard]] Status rma_to_self(const RmaRequest& request, const IoVec& iov);

  // endpoint/rejection.cpp
  [[nodiscard]] bool reject(const wire::WireupRequest& wireup);
  void reject(Peer& peer);
  [[nodiscard]] bool post_rejection(const Address& address, ibv_ah* ah, wire::Datagram* head,
                                    wire::ControlMessage* message);
  void on_rejection(Peer& peer, const wire::ControlMessage& message);

  // connection/negotiation.cpp
  [[nodiscard]] Status request_channel(Peer& peer, ChannelKind to, ChannelKind fallback);
  void request_switch_back(Peer& peer, ChannelKind to);
  void on_request(Peer& peer, const wire::ControlMessage& message);
  void switch_sending(Peer& peer, ChannelKind to, std::uint32_t request,
                      wire::Refusal refusal = wire::Refusal::none);
  void switch_after_flush(Peer& peer, ChannelKind to, std::uint32_t request);
  void post_flush(Peer& peer);
  void on_flushed(Peer& peer);
  void on_accept(Peer& peer, const wire::ControlMessage& message);
  void on_ready(Peer& peer, const wire::ControlMessage& message);
  void on_switched(Peer& peer, const wire::ControlMessage& message);
  [[nodiscard]] static bool excludes(const Peer& peer, ChannelKind to) noexcept;
  [[nodiscard]] static bool awaits_answer(const Peer& peer) noexcept;
  void on_refuse(Peer& peer, const wire::ControlMessage& message);
  void wait_before_asking(Peer& peer, wire::Refusal why, std::string_view instead);
  void send_closed(Peer& peer);
  void on_closed(Peer& peer);
  void refuse(Peer& peer, std::uint32_t request, wire::Refusal why);
  void switch_receiving(Peer& peer, ChannelKind to);
  void drop_new_ring(Peer& peer);
  void finish_drain(Peer& peer);
  void send_request(Peer& peer);
  void send_accept(Peer& peer);
  void send_ready(Peer& peer);
  void take_request(Peer& peer, std::uint32_t qp_id);
  void answer_refusal(Peer& peer, wire::Refusal why);
  [[nodiscard]] static wire::Refusal refusal_of(const Peer& peer, const Status& status);

  // connection/rc_setup.cpp
  // The maximum number of queue pairs.
  [[nodiscard]] std::uint64_t connection_slots() const noexcept {
    return std::max(settings_.rc_pool, settings_.max_active_rc);
  }
  // "It stops creating RC-QPs after creating 128 of them" [AQPS 4.2]: queue pairs that a
  // peer has not released yet count too.
  [[nodiscard]] bool may_make_rc() const noexcept {
    return active_rc_ + resetting_rc_ < connection_slots();
  }
  [[nodiscard]] bool reserve_rc();
  void forget_rc(std::unique_ptr<RcQueue> queue);
  [[nodiscard]] static std::unique_ptr<RcJob> job_of(Peer* peer, std::unique_ptr<RcQueue> queue);
  void start_job(std::unique_ptr<RcJob> job);
  [[nodiscard]] Status want_rc(Peer& peer);
  void add_queue(RcJob* job);
  static void connect_with(RcJob* job, const Peer& peer, std::uint32_t qp_id);
  void advance_rc(Peer& peer);
  void rc_failed(Peer& peer, const Status& status);
  bool pump_jobs();
  void end_job(RcJob& job);
  // `chosen_at`: when we chose it for eviction; else 0.
  void put_away(std::unique_ptr<RcQueue> queue, Nanoseconds chosen_at);
  void discard_rc(Peer& peer);
  void drop_rc_if_unused(Peer& peer);

  // connection/recovery.cpp
  void fail_connection(Peer& peer, const ibv_wc* wc);
  void wait_after_failure(Peer& peer, Nanoseconds now);
  void forget_changes(Peer& peer, Nanoseconds now);
  void requeue(Peer& peer, const std::vector<SendRecord>& records, const ibv_wc* wc);
  void restart_transfer(Transfer& transfer);
  void on_queue_pair_stopped(Peer& peer);
  void send_error(Peer& peer);
  void on_error(Peer& peer, const wire::ControlMessage& message);
  void on_replay(Peer& peer, const wire::ControlMessage& message);
  void on_resumed(Peer& peer, const wire::ControlMessage& message);
  bool pump_recovering();
  bool go_on_recovering(Peer& peer);
  void end_recovery(Peer& peer);
  // Of a message; `copied` has room for an inline one.
  [[nodiscard]] static const std::byte* bytes_of(const Recovery& recovery, const SendRecord& record,
                                                 std::byte* copied) noexcept;
  [[nodiscard]] static wire::Header header_of(const Recovery& recovery,
                                              const SendRecord& record) noexcept;
  [[nodiscard]] bool send_lost(Peer& peer, Recovery& recovery, bool* moved);
  void give_up_lost(Recovery& recovery);
  [[nodiscard]] bool replay_message(Peer& peer, Recovery& recovery, const SendRecord& lost);
  void replay_control(Peer& peer, const SendRecord& lost, const wire::Header& header);
  void break_for_test(Peer& peer);

  // connection/xrc_setup.cpp
  [[nodiscard]] Status open_xrc();
  // Connections to nodes exist or can be created.
  [[nodiscard]] bool may_use_xrc() const noexcept;
  [[nodiscard]] bool has_xrc();
  [[nodiscard]] XrcConnection* xrc_connection_to(const Address& address, Status* status);
  // Null: none.
  [[nodiscard]] XrcConnection* find_xrc_connection(const NodeKey& node) const noexcept {
    const auto found = xrc_connections_.find(node);
    return found == xrc_connections_.end() ? nullptr : found->second.get();
  }
  [[nodiscard]] bool make_xrc(Peer& peer);
  void take_xrc_request(Peer& peer, std::uint32_t srq);
  void advance_xrc_connection(XrcConnection& link);
  void on_xrc_ready(Peer& peer, const wire::ControlMessage& message);
  void begin_xrc(Peer& peer);
  void end_xrc_job(RcJob& job);
  void refuse_xrc_connection(XrcConnection& link, const Status& status);
  void refuse_xrc(Peer& peer, wire::Refusal why);
  void release_xrc_connection(Peer& peer);
  void discard_xrc_connection(XrcConnection& link);
  void look_after_xrc_connections(Nanoseconds now);
  void probe_xrc_connection(XrcConnection& link);
  static void drop_if_idle(Peer& peer) noexcept;
  void destroy_initiator(std::unique_ptr<RcQueue> queue);
  void on_xrc_accept(Peer& peer, const wire::ControlMessage& message);
  void start_target_job(std::unique_ptr<XrcTargetJob> job);
  void end_target_job(XrcTargetJob& job);
  void target_failed(Peer& peer, const Status& status);
  void release_target(Peer& peer);
  void close_target(XrcTarget target);
  void forget_xrc(Peer& peer);

  // connection/xrc_recovery.cpp
  void fail_xrc_connection(XrcConnection& link, const ibv_wc& wc);
  void on_xrc_error(Peer& peer, const wire::ControlMessage& message);
  void send_xrc_replay(Peer& peer);
  void on_xrc_replay(Peer& peer, const wire::ControlMessage& message);
  bool pump_xrc_lost();
  bool replay_xrc(Peer& peer);
  void on_xrc_resumed(Peer& peer, const wire::ControlMessage& message);

  // connection/tear_down.cpp
  void limit_connections();
  [[nodiscard]] bool has_slot(const Peer& peer, bool with_ring) const noexcept;
  // A slot is free now, and no peer is queued.
  [[nodiscard]] bool may_have_slot(const Peer& peer, bool with_ring) const noexcept {
    return peer.has_rc() || (!eviction_.has_waiting() && has_slot(peer, with_ring));
  }
  bool request_slot(Peer& peer);
  [[nodiscard]] bool park(Peer& peer, std::uint32_t qp_id);
  void serve_slot_waiters();
  void evict_for_waiters(Nanoseconds now);
  [[nodiscard]] bool can_go(const PeerEviction& eviction) const noexcept;
  void tear_down(Peer& peer, Nanoseconds now);
  void on_disconnect(Peer& peer, const wire::ControlMessage& message);
  void continue_disconnect(Peer& peer);
  void use_one_sided(Peer& peer);

  // endpoint/closing.cpp
  void abandon_user_buffers();
  [[nodiscard]] bool receives_still(PeerId id) noexcept;
  [[nodiscard]] const SendRecord* owed(const SendQueue& queue) noexcept;
  void flush(MessageQueue& queue);
  [[nodiscard]] const Peer* find_owed();
  void send_shutdowns();
  void pass_the_gone(MessageQueue& queue);

  // connection/feedback.cpp
  void report_feedback();
  void on_feedback(Peer& peer, const wire::ControlMessage& message) noexcept;

  // connection/decision.cpp
  void decide(Nanoseconds now);
  [[nodiscard]] bool keep_counts(Nanoseconds now);
  void carry_out(const selection::WindowSelection& selected, Nanoseconds now);
  void on_message_counted(Peer& peer);
  [[nodiscard]] ChannelKind first_channel(const Peer& peer);
  void request_failed(Peer& peer, const Status& status);
  void change_channel(Peer& peer, ChannelKind to, ChannelKind fallback, const std::string& reason,
                      double gain);
  void decided(Peer& peer, const std::string& outcome);
  void done(Peer& peer);  // the decision was carried out
  void count_repaid(Peer& peer);
  void note_set_up(bool repaid) noexcept;

  // The part of the budget that rings and queue pairs leave for operations and unexpected messages:
  // without it, a process whose channels use the whole budget could not complete its operations.
  // Also for the records of peers that are expected and have none yet.
  [[nodiscard]] std::uint64_t reserved_headroom() const noexcept;
  [[nodiscard]] std::uint64_t room_for_channels()
      const noexcept;  // what reserved_headroom() leaves of it
  [[nodiscard]] std::uint64_t record_bytes() const noexcept;  // of a peer
  [[nodiscard]] std::uint64_t expected_records()
      const noexcept;  // that memory is left for, at most

  Settings settings_;
  Clock& clock_;
  Processor* processor_;
  Nanoseconds born_ = 0;
  MemoryAccount account_;
  std::size_t expected_peers_ = 0;  // as the caller announced

  // Order matters: destroyed from the last to the first.
  std::shared_ptr<DeviceDomain> domain_;
  verbs::Device* device_ = nullptr;  // the domain's
  RegistrationCache registrations_;  // before the operations that use it
  std::string registrations_off_;    // why the cache is disabled; empty: it is enabled
  bool watches_ = false;             // unmap_log reports unmapped memory
  std::uint64_t unmaps_seen_ = 0;    // of unmap_log
  std::map<std::pair<std::uint16_t, std::array<std::uint8_t, 16>>, verbs::Ah> handles_;
  verbs::Cq receive_cq_, send_cq_;
  verbs::Srq data_srq_, control_srq_;
  std::unique_ptr<XrcDomain> xrc_;  // null: not used yet
  bool xrc_failed_ = false;         // opening it failed
  ReceivePool receive_pool_;
  BufferPool control_receive_pool_, send_pool_, control_send_pool_;
  std::vector<Reservation> fixed_;
  UnsignalledBuffers unsignalled_data_, unsignalled_control_;
  std::vector<DcTarget> targets_;
  std::size_t default_queues_ = 0;  // of the default transport: they have the first ids of queues_
  std::vector<std::unique_ptr<MessageQueue>> initiators_[3];
  std::vector<SendQueue*> queues_;  // by id; null: free
  std::vector<std::uint32_t> free_queue_ids_;
  std::vector<std::uint8_t> queue_epochs_;         // first epoch of the next queue pair with an id
  std::vector<std::unique_ptr<RcQueue>> rc_pool_;  // RESET, unconnected
  std::uint64_t rc_bytes_ = 0;
  std::uint32_t active_rc_ = 0;
  std::uint32_t resetting_rc_ = 0;  // released by their peers, not in the pool yet
  std::uint32_t jobs_ = 0;          // in progress
  std::vector<Peer*> recovering_;   // whose connection failed
  std::map<NodeKey, std::unique_ptr<XrcConnection>> xrc_connections_;
  std::vector<Peer*> xrc_lost_;  // with messages lost on such connections
  std::uint64_t rc_peak_ = 0;    // maximum number at one time
  std::uint8_t rc_made_ = 0;     // count, modulo 256: the generation of the QP id
  ConnectionEviction eviction_;
  bool connects_first_ = false;  // at a peer's first message, or one-sided operation
  QpTuning tuning_;
  Placement placement_;

  ChannelKind default_channel_ = ChannelKind::dc_sendrecv;  // the default transport
  std::uint32_t own_eager_size_ = 0;  // maximum bytes of a message in our receives
  std::size_t stream_overhead_ = sizeof(wire::Header);
  std::uint32_t receive_offset_ = 0;  // where a stream message begins in a receive buffer
  // Send buffers that wait for an acknowledgement, by number.
  struct KeptBuffer {
    std::uint32_t posted = 0;  // requests that still read it
    bool acknowledged = false;
  };
  std::vector<KeptBuffer> kept_;
  std::vector<Peer*> ud_pending_;  // peers with something unacknowledged, or an ack owed
  bool ud_blocked_ = false;        // one of them found a queue full
  Nanoseconds next_ud_timer_ = INT64_MAX;
  LinkedList<SendOperation> fragmented_;  // being sent in fragments
  SlotTable<Transfer> incoming_;          // large messages that peers send in fragments or write
  Rendezvous rendezvous_ = Rendezvous::getcqe;
  std::vector<Transfer*> polled_;           // whose last byte is polled
  std::deque<SendOperation*> rput_sends_;   // have a CTS, but no transfer yet
  std::vector<Peer*> rtr_cancels_;          // peers that wait for a reply
  Nanoseconds deferred_until_ = INT64_MAX;  // when the first deferred message is sent by RTS
  std::uint32_t open_rtrs_ = 0;
  bool sets_sentinels_ = false;
  SplitMix64 sentinels_{0};  // random sentinels, if they are set
  std::uint64_t rtrs_sent_ = 0, puts_ = 0,
                put_completions_ = 0;  // puts_: messages written to RTRs; with a put completion

  Address address_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Reservation> peer_bytes_;
  std::unordered_map<std::uint64_t, PeerId> by_id_;
  std::vector<Peer*> backlogged_;
  PolledRings rings_;
  std::deque<PendingControl> pending_control_;
  std::vector<std::uint64_t> shutting_down_;  // ids whose shutdown is in the batch being handled
  std::vector<std::uint32_t> to_post_, to_post_control_;  // receive buffers to post again
  std::size_t receives_kept_ = 0;                         // receive buffers occupied by messages
  // The shared data receive queue, as far as this process knows: completions not polled yet are
  // still posted.
  struct SharedReceives {
    std::uint32_t posted = 0;
    std::uint32_t watermark = 0;  // an event when fewer are left; 0: never
    std::uint32_t least = 0;      // minimum posted since the last check for shrinking
    bool armed = false;           // the adapter will raise an event
    bool may_grow = false;        // as far as is known
    Nanoseconds look_at = 0, arm_at = 0, shrink_at = 0;
    Nanoseconds idle_backoff = 0;  // interval between two checks for shrinking
    std::uint64_t limit_events = 0, growths = 0;
  } shared_;

  // Private receive queues.
  bool has_private_receives_ = false;  // policy ardma-sr: our RC queue pairs have them
  std::uint64_t refused_ = 0;          // Address::id of the latest refused peer
  std::uint32_t private_room_ = 0;     // receives for which their completion queue has room
  std::uint32_t private_count_ = 0;    // receives that exist
  PrivateReceivesReport private_report_;

  SrqFlowControl flow_{clock_};  // credits of that queue

  OperationLimits operation_limits_{};
  Slab<SendOperation> sends_;
  Slab<InjectCopy> copies_;
  Slab<RecvOperation> receives_;
  Slab<UnexpectedMessage> messages_;
  Slab<Transfer> transfers_;
  Slab<AtomicOperation> atomics_;
  std::vector<Peer*> answering_;  // peers with answers that could not be sent yet
  Matcher<RecvOperation, UnexpectedMessage> matcher_;
  LinkedList<UnexpectedMessage> claimed_;
  LinkedList<UnexpectedMessage> waiting_;  // large ones that have a receive but no transfer yet
  std::vector<Peer*> stalled_;             // peers whose next message cannot be delivered now
  struct PendingWireup {
    std::uint32_t buffer, length;
  };
  std::vector<PendingWireup> pending_wireups_;  // wire-up requests whose senders are to be rejected
  Nanoseconds refused_since_ = 0;  // when operations began to be refused for lack of memory; 0: not
  LinkedList<Transfer> active_transfers_;
  std::vector<SendOperation*> awaiting_fin_;  // by the low half of the operation's id
  std::vector<std::uint32_t> free_fin_slots_;
  std::uint32_t fin_generation_ = 1;
  std::uint64_t unexpected_bytes_ = 0;
  Report remote_write_report_;

  enum class Closing : std::uint8_t { open, flushing, shutting_down, closed };
  Closing closing_phase_ = Closing::open;
  Nanoseconds close_moved_ = 0;         // last progress in the phase
  Nanoseconds next_close_warning_ = 0;  // when to log which peer it waits for
  Nanoseconds close_deadline_ = 0;      // of shutting_down
  std::uint32_t tick_every_ = 1;        // progress calls between two clock reads
  std::uint32_t ticks_ = 0;
  bool in_progress_ = false;
  bool posts_in_progress_ = false;  // large messages are posted by progress(), see leaves_posting()
  Nanoseconds next_decision_ = 0;
  Nanoseconds next_keepalive_ = 0;
  std::size_t keepalive_at_ = 0;
  bool started_ = false;
  bool closing_ = false;
  ChannelKind first_message_ = ChannelKind::dc_sendrecv;  // requested at a peer's first message
  std::uint64_t ring_threshold_ = 0;                      // messages on RC-SRQ, RC-SR; 0: no ring
  bool frees_before_drain_ = false;                       // setting break_rule
  TrafficStatistics statistics_{account_};
  selection::WindowState window_;
  selection::DeviceCosts costs_;
  bool uses_feedback_ = false;          // policy turnout
  bool never_connects_ = false;         // policy static:ud-sendrecv
  bool waits_for_connections_ = false;  // one-sided operations do, in a simulation of ACTS
  FeedbackCounter feedback_;
  double repaid_ = 1;         // share of set-ups that repaid their cost, weighted to the latest
  Nanoseconds interval_ = 0;  // until the next decision
  Nanoseconds interval_began_ = 0;
  LiveReport live_report_;
  MemoryHistory memory_history_{account_};
  std::int64_t started_at_ = 0;  // ns since 1970; 0: the time is not this machine's
  DecisionLog decisions_{account_};
  std::uint64_t delivered_ = 0;  // messages
  ReceiveCost receive_cost_;
  CallTime call_time_;
  CommunicationProfile profile_;
  std::uint64_t unexpected_count_ = 0, rendezvous_count_ = 0, credit_messages_ = 0, refusals_ = 0;
  std::unique_ptr<Background> background_;  // last, so destroyed first: its jobs use the device
};

}  // namespace turnout
