// SPDX-License-Identifier: BSD-3-Clause
// FragmentEngine: messages in fragments of the stream: large ones where neither end can use RDMA,
// and eager ones that are too long for one message.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/memory/slot_table.h"
#include "core/operations/rdma_engine.h"

namespace turnout {

class FragmentEngine : MessagingUser {
 public:
  FragmentEngine(EndpointState& state, Messaging& messaging, SendBacklog& backlog, RdmaEngine& rdma)
      : MessagingUser(state, messaging), backlog_(backlog), rdma_(rdma) {}

  void request_fragments(Transfer& transfer, const wire::Rts& rts);
  void fall_back_to_fragments(Transfer& transfer);
  void on_fragment_request(Peer& peer, const wire::ControlMessage& message);
  bool pump_fragments();
  void on_fragment(Peer& peer, const wire::Header& header, const std::byte* payload);
  // The other fragments of an eager message of `expected` bytes go where the transfer says, from
  // its byte `arrived` on.
  void expect_fragments(Transfer& transfer, std::uint64_t expected, std::uint64_t arrived);
  // An eager message of the peer has not arrived whole.
  [[nodiscard]] bool awaits_fragment(const Peer& peer) const noexcept {
    return peer.state->rx.partial != nullptr ||
           find_incoming(peer, peer.state->rx.fragmented, Transfer::Kind::read) != nullptr;
  }
  void end_incoming(const Peer* peer);
  // Of those in incoming_ of this peer; null: none of that number and kind.
  [[nodiscard]] Transfer* find_incoming(const Peer& peer, std::uint64_t number,
                                        Transfer::Kind kind) const noexcept;
  [[nodiscard]] SlotTable<Transfer>& incoming() noexcept { return incoming_; }

 private:
  void add_incoming(Transfer& transfer, std::uint64_t expected);
  [[nodiscard]] bool is_next(Peer& peer, const wire::Header& header, std::uint64_t arrived,
                             std::uint64_t expected);
  void keep_fragment(Peer& peer, const wire::Header& header, const std::byte* payload);

  SendBacklog& backlog_;
  RdmaEngine& rdma_;

  SlotTable<Transfer> incoming_;  // large messages that peers send in fragments or write
};

}  // namespace turnout
