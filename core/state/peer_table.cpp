// SPDX-License-Identifier: BSD-3-Clause
#include "core/state/peer_table.h"

#include <atomic>

#include "base/log.h"
#include "core/transport/path.h"

namespace turnout {
namespace {
constexpr std::uint64_t kPartOfRecords = 4;  // of the budget
constexpr std::uint64_t kPartOfLargeRings = 4;
// (i + j) mod n of AQPS 3.1, with ids in place of ranks; ids are random, so the result is uniform.
std::uint8_t choose_queue(std::uint64_t a, std::uint64_t b, std::size_t n) noexcept {
  return static_cast<std::uint8_t>((a % n + b % n) % n);
}
}  // namespace

// The record and its table entries; rings and queue pairs are accounted separately.
std::uint64_t PeerTable::record_bytes() const noexcept {
  return kPeerBytes + 96 + (context_.over_datagrams() ? sizeof(UdReliability) + 64 : 0);
}

// A program may communicate with few of the peers in its address vector.
std::uint64_t PeerTable::expected_records() const noexcept {
  return context_.account.budget() / kPartOfRecords / record_bytes();
}

std::uint64_t PeerTable::reserved_headroom() const noexcept {
  const std::uint64_t expected = std::min<std::uint64_t>(expected_peers_, expected_records());
  const std::uint64_t missing = expected > peers_.size() ? expected - peers_.size() : 0;
  return context_.account.budget() / 8 + missing * record_bytes();
}

RingShape PeerTable::ring_shape() const noexcept {
  const RingShape large{context_.format.large_ring_entries, context_.format.large_ring_entry};
  const std::uint64_t rings = std::max(expected_peers_, peers_.size());
  if (large.entry_size != 0 &&
      rings * large.bytes() <= context_.account.budget() / kPartOfLargeRings) {
    return large;
  }
  return {static_cast<std::uint32_t>(context_.settings.ring_entries),
          static_cast<std::uint32_t>(context_.settings.ring_entry_size)};
}

std::uint64_t PeerTable::room_for_channels() const noexcept {
  std::uint64_t room = context_.account.available() + resources_.rc_pool.size() * context_.rc_bytes;
  for (const auto& ring : resources_.spare_rings) room += ring->shape().bytes();
  return room - std::min(room, reserved_headroom());
}

void PeerTable::expect_peers(std::size_t count) {
  const std::uint64_t most = expected_records();
  // Once, also if addresses are inserted one by one, or if all endpoints are in one process.
  static std::atomic<bool> told;
  if (count > most && !told.exchange(true, std::memory_order_relaxed)) {
    TURNOUT_LOG(memory, warn,
                "reserving memory for the records of {} peers failed: TURNOUT_MEMORY_BUDGET={}: "
                "{} at most; raise it to {} if the program communicates with all of them",
                count, context_.account.budget(), most, count * kPartOfRecords * record_bytes());
  }
  expected_peers_ = count;
}

const RemotePort* PeerTable::port_of(const Address& address, Status* status) {
  const auto key = std::make_pair(address.lid, address.gid);
  if (const auto found = ports_.find(key); found != ports_.end()) return &found->second;
  ibv_ah_attr attr = path_to(*context_.device, address.lid, address.gid);
  verbs::Ah handle(ibv_create_ah(context_.device->pd(), &attr));
  if (!handle) {
    *status = verbs::failure("ibv_create_ah", address.to_string(), errno);
    return nullptr;
  }
  return &ports_.emplace(key, RemotePort{address.lid, address.gid, std::move(handle)})
              .first->second;
}

// Checks that settings which must agree in a job do. Logged, because a program gets an error number
// only.
Status PeerTable::check_peer(const Address& address) {
  Status status;
  const auto service = [](bool datagrams) { return datagrams ? "UD" : "DC"; };
  if (context_.device->is_between_processes() && address.gid != context_.address.gid) {
    status = {Code::unsupported,
              fmt::format("{} is on another virtual fabric; set TURNOUT_FABRIC to the same name "
                          "for the whole job, and run it on one host as one user",
                          address.to_string())};
  } else if (address.datagrams() != context_.over_datagrams()) {
    status = {Code::unsupported,
              fmt::format("the default transport of {} is {}, but that of this process is {}; set "
                          "TURNOUT_DEFAULT_TRANSPORT=ud for the whole job",
                          address.to_string(), service(address.datagrams()),
                          service(context_.over_datagrams()))};
  }
  if (!status.ok() && refused_ != address.id) {
    refused_ = address.id;  // programs retry
    TURNOUT_LOG(connection, error, "connecting failed: {}", status.text());
  }
  return status;
}

Peer* PeerTable::make_peer(const Address& address, Status* status) {
  if (Peer* const known = index_.find(peers_, address.id); known != nullptr) return known;
  Reservation bytes = Reservation::take(context_.account, MemoryKind::peers, record_bytes(), 0, 1);
  if (!bytes) {
    *status = Status{Code::over_budget,
                     fmt::format("TURNOUT_MEMORY_BUDGET={} has no room for the record of peer "
                                 "number {}; raise it",
                                 context_.account.budget(), peers_.size() + 1)};
    return nullptr;
  }
  *status = check_peer(address);
  if (!status->ok()) return nullptr;
  const RemotePort* const port = port_of(address, status);
  if (port == nullptr) return nullptr;
  Peer& peer = peers_.add();
  peer.tx.kind = peer.rx.kind = context_.default_channel;
  if (context_.over_datagrams()) peer.link = std::make_unique<UdReliability>();
  peer.address = PeerAddress(address, *port);
  peer.self = address.id == context_.address.id;
  const auto queue_of = [&](std::uint64_t n) {
    return context_.traits.uses_feedback ? static_cast<std::uint8_t>(peer.id % n)
                                         : choose_queue(context_.address.id, address.id, n);
  };
  peer.data_queue = queue_of(context_.settings.data_qps);
  peer.data_target = static_cast<std::uint8_t>(peer.data_queue % address.data_qps());
  peer.credit_queue = queue_of(context_.settings.credit_qps);
  peer.establishment_queue =
      choose_queue(context_.address.id, address.id, context_.settings.establishment_qps);
  peer.tx.credits = address.credits();
  peer.takes_less = peer.address.most_received() < context_.format.own_eager_size;
  peer.heard = context_.clock.now();
  index_.add(peers_, peer.id);
  bytes_.add(std::move(bytes));
  return &peer;
}

Result<PeerId> PeerTable::peer(const Address& address) {
  auto checked = Address::decode(&address, sizeof address);
  if (!checked) return checked.status();
  Status status;
  Peer* const peer = make_peer(address, &status);
  if (peer == nullptr) return status;
  return peer->id;
}

Address PeerTable::peer_address(PeerId peer) const noexcept {
  Address address = peers_[peer].address.whole();
  address.seal();
  return address;
}

Peer* PeerTable::find_sender(std::uint32_t index, std::uint64_t id) noexcept {
  if (Peer* const peer = find_peer(index); peer != nullptr && peer->address.id == id) return peer;
  // The sender does not know its index yet, or the index is of an endpoint that is gone.
  return index_.find(peers_, id);
}

Peer& PeerRecords::add() {
  if (size_ == blocks_.size() * kBlock) blocks_.push_back(std::make_unique<Peer[]>(kBlock));
  Peer& peer = blocks_.back()[size_ % kBlock];
  peer.id = peer.rx.grant.peer = static_cast<PeerId>(size_++);
  return peer;
}

void PeerIndex::add(const PeerRecords& records, PeerId peer) {
  if (5 * records.size() > 4 * slots_.size()) {
    slots_.assign(slots_.size() + slots_.size() / 4 + 8, kAnyPeer);
    for (PeerId known = 0; known < peer; ++known) insert(records, known);
  }
  insert(records, peer);
}

void PeerIndex::insert(const PeerRecords& records, PeerId peer) noexcept {
  std::size_t at = records[peer].address.id % slots_.size();  // ids are random
  while (slots_[at] != kAnyPeer) at = next(at);
  slots_[at] = peer;
}

Peer* PeerIndex::find(const PeerRecords& records, std::uint64_t id) const noexcept {
  if (slots_.empty()) return nullptr;
  for (std::size_t at = id % slots_.size(); slots_[at] != kAnyPeer; at = next(at)) {
    if (Peer& peer = records[slots_[at]]; peer.address.id == id) return &peer;
  }
  return nullptr;
}

}  // namespace turnout
