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
#include <cassert>
#include <map>
#include <memory>
#include <vector>

#include "core/memory/account.h"
#include "core/state/endpoint_context.h"
#include "core/state/peer.h"
#include "core/state/transport_resources.h"

namespace turnout {

// The records by number, in blocks: a record never moves.
class PeerRecords {
 public:
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] Peer& operator[](std::size_t i) const noexcept {
    assert(i < size_);
    return blocks_[i / kBlock][i % kBlock];
  }
  // The next one, whose number it has.
  [[nodiscard]] Peer& add();

  class Iterator {
   public:
    Iterator(const PeerRecords& records, std::size_t at) noexcept : records_(&records), at_(at) {}
    [[nodiscard]] Peer& operator*() const noexcept { return (*records_)[at_]; }
    Iterator& operator++() noexcept {
      ++at_;
      return *this;
    }
    friend bool operator==(const Iterator&, const Iterator&) = default;

   private:
    const PeerRecords* records_;
    std::size_t at_;
  };
  [[nodiscard]] Iterator begin() const noexcept { return {*this, 0}; }
  [[nodiscard]] Iterator end() const noexcept { return {*this, size_}; }

 private:
  static constexpr std::size_t kBlock = 16;

  std::vector<std::unique_ptr<Peer[]>> blocks_;
  std::size_t size_ = 0;
};

// The number of the record of an id: a hash table with open addressing of numbers only, as nothing
// is ever removed and records hold their ids. Half to four fifths of it are in use: at most 7 bytes
// a record of many. Not for the hot path.
class PeerIndex {
 public:
  void add(const PeerRecords& records, PeerId peer);
  [[nodiscard]] Peer* find(const PeerRecords& records, std::uint64_t id) const noexcept;

 private:
  void insert(const PeerRecords& records, PeerId peer) noexcept;

  [[nodiscard]] std::size_t next(std::size_t at) const noexcept {
    return at + 1 < slots_.size() ? at + 1 : 0;
  }

  std::vector<PeerId> slots_;  // kAnyPeer: free
};

class PeerTable {
 public:
  PeerTable(EndpointContext& context, TransportResources& resources)
      : context_(context), resources_(resources) {}

  [[nodiscard]] Result<PeerId> peer(const Address& address);
  [[nodiscard]] Address peer_address(PeerId peer) const noexcept;
  void expect_peers(std::size_t count);
  [[nodiscard]] Peer* find_peer(PeerId id) noexcept {
    return id < peers_.size() ? &peers_[id] : nullptr;
  }
  [[nodiscard]] Peer* make_peer(const Address& address, Status* status);
  // The port of that address, with its address handle; null: of no use, see `status`.
  [[nodiscard]] const RemotePort* port_of(const Address& address, Status* status);
  [[nodiscard]] Peer* find_sender(std::uint32_t index, std::uint64_t id) noexcept;
  // The part of the budget that rings and queue pairs leave for operations and unexpected messages:
  // without it, a process whose channels use the whole budget could not complete its operations.
  // Also for the records of peers that are expected and have none yet.
  [[nodiscard]] std::uint64_t reserved_headroom() const noexcept;
  [[nodiscard]] std::uint64_t room_for_channels()
      const noexcept;  // what reserved_headroom() leaves of it
  // Of the next ring. The budget has room for rings with large entries of all peers, or none gets
  // one.
  [[nodiscard]] RingShape ring_shape() const noexcept;
  [[nodiscard]] PeerRecords& peers() noexcept { return peers_; }
  [[nodiscard]] const PeerRecords& peers() const noexcept { return peers_; }
  // What a peer takes of the budget.
  [[nodiscard]] std::uint64_t record_bytes() const noexcept;

 private:
  [[nodiscard]] Status check_peer(const Address& address);
  [[nodiscard]] std::uint64_t expected_records()
      const noexcept;  // that memory is left for, at most

  EndpointContext& context_;
  TransportResources& resources_;

  std::size_t expected_peers_ = 0;  // as the caller announced
  std::map<std::pair<std::uint16_t, std::array<std::uint8_t, 16>>, RemotePort> ports_;
  PeerRecords peers_;
  PeerIndex index_;
  Reservation bytes_;          // of the records
  std::uint64_t refused_ = 0;  // Address::id of the latest refused peer
};

}  // namespace turnout
