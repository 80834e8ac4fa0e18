// SPDX-License-Identifier: BSD-3-Clause
// ReceiveEngine: messages in: the order of a peer's stream, matching with posted receives,
// delivery.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/operations/rtr_engine.h"
#include "core/operations/unexpected_messages.h"

namespace turnout {

class ReceiveEngine : MessagingUser {
 public:
  ReceiveEngine(EndpointState& state, Messaging& messaging, PostedReceives& posted,
                SendBacklog& backlog, FragmentEngine& fragments, RendezvousReceiver& rndv,
                RtrEngine& rtr, AtomicEngine& atomic_engine, UnexpectedMessages& unexpected)
      : MessagingUser(state, messaging),
        posted_(posted),
        backlog_(backlog),
        fragments_(fragments),
        rndv_(rndv),
        rtr_(rtr),
        atomic_engine_(atomic_engine),
        unexpected_(unexpected) {}

  bool cancel(void* context);
  [[nodiscard]] Status recv_now(const RecvRequest& request);
  // Length of what follows the datagram's header, if there is one.
  void on_data(std::uint32_t buffer, std::uint32_t length);
  // A message of the stream, in a receive.
  void take_message(Peer& peer, const wire::Parsed& parsed, std::uint32_t buffer,
                    std::uint32_t length);
  [[nodiscard]] OutOfOrderMessage take_out_of_order(Peer& peer, std::size_t at);
  void free_out_of_order(const OutOfOrderMessage& message);
  bool poll_rings(std::vector<Peer*>& rings) {
    return go_on_with_each(rings, [this](Peer& peer) { return poll_ring(peer); });
  }
  bool poll_measured();
  bool pump_stalled();

 private:
  void keep_out_of_order(Peer& peer, OutOfOrderMessage message);
  [[nodiscard]] const std::byte* bytes_of(const OutOfOrderMessage& message) const noexcept {
    return message.copy ? message.copy.get() : resources_.received(message.buffer);
  }
  bool poll_ring(Peer& peer) {
    context_.charge(Work::poll_ring, 1);
    return peer.state->rx.ring->may_have_message() && read_ring(peer);
  }
  bool read_ring(Peer& peer);
  void look_for_fins(Peer& peer);
  void take_fin(Peer& peer, const wire::Header& header);
  void drain_reorder_buffer(Peer& peer);
  // For a large message that has a receive: to start its transfer, or to wait for that.
  [[nodiscard]] bool has_record() {
    return records_.transfers.ready() || records_.messages.ready();
  }
  // The message is the next of its stream and may_deliver().
  void deliver(Peer& peer, const wire::Header& header, const Arrival& arrival);
  void count_message(Peer& peer, const wire::Header& header, std::uint64_t total);
  void deliver_eager(Peer& peer, const wire::Header& header, const Arrival& arrival);
  void deliver_other(Peer& peer, const wire::Header& header, const Arrival& arrival);
  void deliver_first(Peer& peer, const wire::Header& header, const Arrival& arrival,
                     std::uint64_t total);
  void deliver_large(Peer& peer, const wire::Header& header, const wire::Rts& rts,
                     const Arrival& arrival);

  PostedReceives& posted_;
  SendBacklog& backlog_;
  FragmentEngine& fragments_;
  RendezvousReceiver& rndv_;
  RtrEngine& rtr_;
  AtomicEngine& atomic_engine_;
  UnexpectedMessages& unexpected_;
};

}  // namespace turnout
