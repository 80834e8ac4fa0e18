// SPDX-License-Identifier: BSD-3-Clause
// FragmentEngine: large messages as fragments in the stream, where neither end can use RDMA.
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
  void end_incoming(const Peer* peer);
  // Of those in incoming_ of this peer; null: none of that number and kind.
  [[nodiscard]] Transfer* find_incoming(const Peer& peer, std::uint64_t number,
                                        Transfer::Kind kind) const noexcept;
  [[nodiscard]] SlotTable<Transfer>& incoming() noexcept { return incoming_; }

 private:
  SendBacklog& backlog_;
  RdmaEngine& rdma_;

  SlotTable<Transfer> incoming_;  // large messages that peers send in fragments or write
};

}  // namespace turnout
