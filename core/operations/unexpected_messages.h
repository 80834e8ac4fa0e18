// SPDX-License-Identifier: BSD-3-Clause
// UnexpectedMessages: messages that no receive was posted for: kept, copied aside when receive
// buffers get scarce, looked at (peek) and claimed; and peers whose next message finds no memory.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/operations/atomic_engine.h"
#include "core/operations/rendezvous_receiver.h"

namespace turnout {

struct PendingWireup {
  std::uint32_t buffer, length;
};

class UnexpectedMessages : MessagingUser {
 public:
  UnexpectedMessages(EndpointState& state, Messaging& messaging, PostedReceives& posted,
                     RendezvousReceiver& rndv, AtomicEngine& atomic_engine)
      : MessagingUser(state, messaging),
        posted_(posted),
        rndv_(rndv),
        atomic_engine_(atomic_engine) {}

  [[nodiscard]] Status peek(const PeekRequest& request);
  [[nodiscard]] Status recv_claimed(const RecvRequest& request);
  [[nodiscard]] Status discard_claimed(const Report& report);
  [[nodiscard]] std::optional<TakenMessage> take_message();
  [[nodiscard]] Status recv_taken(void* handle, const RecvRequest& request);
  void discard_taken(void* handle);
  // `room`: bytes of the copy, at least `length`.
  [[nodiscard]] std::unique_ptr<std::byte[]> copy_aside(const std::byte* from, std::size_t length,
                                                        std::size_t room);
  [[nodiscard]] bool may_deliver(Peer& peer, const wire::Header& header) {
    if (header.type == wire::Type::eager && records_.messages.ready()) [[likely]]
      return true;
    return may_deliver_now(peer, header);
  }
  // `total`: bytes of the message itself, as they were checked.
  [[nodiscard]] UnexpectedMessage& store(Peer& peer, const wire::Header& header,
                                         const Arrival& arrival, std::uint64_t total);
  void keep_unexpected(Peer& peer, const wire::Header& header, const Arrival& arrival,
                       std::uint64_t total);
  bool relieve(Peer& peer);
  void look_after_retained(Peer& peer, bool wildcards, Nanoseconds now);
  void release_unexpected(UnexpectedMessage& message);
  void take_unexpected(RecvOperation& receive, UnexpectedMessage& message);
  // It goes to this part of the receive; the message is in no list.
  void wait_for_transfer(UnexpectedMessage& message, RecvOperation& receive, Place place);
  // The rest of what a lost peer was sending will not come.
  void drop_partial(Peer& peer);
  bool pump_waiting();
  // A receive or a claim takes it out of the matching.
  void take_out(UnexpectedMessage& message);
  std::vector<TakenMessage> watch(UnexpectedWatcher* watcher);
  [[nodiscard]] LinkedList<UnexpectedMessage>& waiting() noexcept { return waiting_; }
  [[nodiscard]] std::vector<Peer*>& stalled() noexcept { return stalled_; }
  [[nodiscard]] std::vector<PendingWireup>& pending_wireups() noexcept { return pending_wireups_; }
  // The caller takes messages and matches them itself: whom it waits for is not known here.
  [[nodiscard]] bool matched_outside() const noexcept { return matched_outside_; }
  [[nodiscard]] std::uint64_t unexpected_count() const noexcept { return unexpected_count_; }

 private:
  [[nodiscard]] bool may_deliver_now(Peer& peer, const wire::Header& header);
  [[nodiscard]] bool has_room_for(Peer& peer, const wire::Header& header);
  [[nodiscard]] bool may_set_aside(const Peer& peer, const UnexpectedMessage& message) const;
  [[nodiscard]] DataPath path_of(const UnexpectedMessage& message);
  [[nodiscard]] bool set_aside(UnexpectedMessage& message);
  void drop_unexpected(UnexpectedMessage& message);
  [[nodiscard]] Status receive_claimed(UnexpectedMessage& message, const RecvRequest& request);
  void start_waiting(UnexpectedMessage& message, DataPath path);

  PostedReceives& posted_;
  RendezvousReceiver& rndv_;
  AtomicEngine& atomic_engine_;

  LinkedList<UnexpectedMessage> claimed_;
  LinkedList<UnexpectedMessage> waiting_;  // large ones that have a receive but no transfer yet
  std::vector<Peer*> stalled_;             // peers whose next message cannot be delivered now
  std::vector<PendingWireup> pending_wireups_;  // wire-up requests whose senders are to be rejected
  std::uint64_t unexpected_bytes_ = 0;
  std::uint64_t unexpected_count_ = 0;
  bool matched_outside_ = false;
  UnexpectedWatcher* watcher_ = nullptr;  // null: nobody
};

}  // namespace turnout
