// SPDX-License-Identifier: BSD-3-Clause
// Rejects processes whose messages are not accepted (any more). Otherwise their operations would
// never end, as the adapter continues to acknowledge, or would end without a reason.
#include "core/channels/rejection.h"

namespace turnout {

// Rejects a peer without a record. False: the rejection cannot be sent now.
bool PeerRejection::reject(const wire::WireupRequest& wireup) {
  const Address& address = wireup.address;
  Status status;
  const RemotePort* const port = peer_table_.port_of(address, &status);
  if (port == nullptr) return true;
  wire::ControlMessage message{.index = wireup.index,
                               .status = static_cast<std::uint32_t>(Code::over_budget)};
  wire::Datagram head{.sender = context_.address.id, .index = wireup.index};
  return post_rejection(address, *port, &head, &message);
}

// Sends a lost peer the reason, if it is a local one; tracked in its record.
void PeerRejection::reject(Peer& peer) {
  wire::ControlMessage message{.index = peer.remote_index,
                               .own_index = peer.id,
                               .status = static_cast<std::uint32_t>(peer.state->given_up)};
  wire::Datagram head;
  if (peer.link) ud_.stamp(peer, wire::DatagramKind::reject, &head);
  peer.state.make().loss_unreported =
      !post_rejection(peer.address.whole(), *peer.address.port, &head, &message);
}

bool PeerRejection::post_rejection(const Address& address, const RemotePort& port,
                                   wire::Datagram* head, wire::ControlMessage* message) {
  head->kind = wire::DatagramKind::reject;
  message->type = wire::Control::reject;
  message->sender = context_.address.id;
  message->operation = context_.account.budget();
  Status status;
  return control_sender_.post_control(
      *resources_.pool(Purpose::credit).front(), kAnyPeer, address, port, address.data_qps(),
      {context_.over_datagrams() ? head : nullptr, message, sizeof *message}, &status);
}

void PeerRejection::on_rejection(Peer& peer, const wire::ControlMessage& message) {
  const std::string who = peer.address.to_string();
  const bool over_budget = message.status == static_cast<std::uint32_t>(Code::over_budget);
  Status why;
  if (message.own_index == wire::kUnknownIndex) {
    why = {Code::peer_lost,
           fmt::format("{} rejected this process: it has no memory for a peer record; raise "
                       "TURNOUT_MEMORY_BUDGET={} there",
                       who, message.operation),
           ENOMEM};
  } else if (over_budget) {
    why = {
        Code::peer_lost,
        fmt::format("{} dropped this process: its messages exceeded the memory budget there; raise "
                    "TURNOUT_MEMORY_BUDGET={} there, or post receives in the order of the sends",
                    who, message.operation),
        ENOMEM};
  } else {
    why = {Code::peer_lost,
           fmt::format("{} dropped this process (status {}); see its log", who, message.status),
           ECONNABORTED};
  }
  events_.lose_peer(peer, why);
}

}  // namespace turnout
