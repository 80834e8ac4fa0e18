// SPDX-License-Identifier: BSD-3-Clause
// PeerTable: the peers that this endpoint knows, by number and by id, and what their records take
// of the budget.
//
// A record is made when a peer is first named, here or by its first message, and stays until the
// endpoint goes, so a reference to a Peer is good for as long. The endpoint owns the table and
// calls it from the thread that drives it. Errors: of addresses that are no peer of ours, of a
// budget that has no room for one more record, of ibv_create_ah.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/memory/account.h"
#include "core/state/endpoint_context.h"
#include "core/state/peer.h"
#include "core/state/transport_resources.h"

namespace turnout {

class PeerTable {
 public:
  PeerTable(EndpointContext& context, TransportResources& resources)
      : context_(context), resources_(resources) {}

  [[nodiscard]] Result<PeerId> peer(const Address& address);
  [[nodiscard]] const Address& peer_address(PeerId peer) const noexcept {
    return peers_[peer]->address;
  }
  void expect_peers(std::size_t count);
  [[nodiscard]] Peer* find_peer(PeerId id) noexcept {
    return id < peers_.size() ? peers_[id].get() : nullptr;
  }
  [[nodiscard]] Peer* make_peer(const Address& address, Status* status);
  [[nodiscard]] ibv_ah* address_handle(const Address& address, Status* status);
  [[nodiscard]] Peer* find_sender(std::uint32_t index, std::uint64_t id) noexcept;
  // The part of the budget that rings and queue pairs leave for operations and unexpected messages:
  // without it, a process whose channels use the whole budget could not complete its operations.
  // Also for the records of peers that are expected and have none yet.
  [[nodiscard]] std::uint64_t reserved_headroom() const noexcept;
  [[nodiscard]] std::uint64_t room_for_channels()
      const noexcept;  // what reserved_headroom() leaves of it
  [[nodiscard]] std::vector<std::unique_ptr<Peer>>& peers() noexcept { return peers_; }
  // What a peer takes of the budget.
  [[nodiscard]] std::uint64_t record_bytes() const noexcept;

 private:
  [[nodiscard]] Status check_peer(const Address& address);
  [[nodiscard]] std::uint64_t expected_records()
      const noexcept;  // that memory is left for, at most

  EndpointContext& context_;
  TransportResources& resources_;

  std::size_t expected_peers_ = 0;  // as the caller announced
  std::map<std::pair<std::uint16_t, std::array<std::uint8_t, 16>>, verbs::Ah> handles_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Reservation> peer_bytes_;
  std::unordered_map<std::uint64_t, PeerId> by_id_;
  std::uint64_t refused_ = 0;  // Address::id of the latest refused peer
};

}  // namespace turnout
