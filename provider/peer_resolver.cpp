// SPDX-License-Identifier: BSD-3-Clause
#include "provider/peer_resolver.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "provider/av.h"
#include "provider/connection.h"
#include "provider/errors.h"

namespace turnout::provider {

void PeerResolver::bind(AddressVector& av) {
  assert(!bound());
  av.resolvers.push_back(this);
  av_ = &av;
  expect(av.addresses());
}

void PeerResolver::expect(std::span<const Address> addresses) {
  const std::size_t learned = std::min(std::exchange(learned_, addresses.size()), addresses.size());
  core_.expect_peers(addresses.size(), addresses.subspan(learned));
}

void PeerResolver::unbind() noexcept {
  if (bound()) std::erase(av_->resolvers, this);
  av_ = nullptr;
}

int PeerResolver::look_up(fi_addr_t address, PeerId& peer) {
  if (av_ == nullptr) return find_connected(peer);
  av_->refresh();
  const Address* found = av_->at(address);
  if (found == nullptr) return -FI_EINVAL;
  const std::uint64_t index = address & av_->index_mask;
  if (index < peers_.size() && peers_[index] != kAnyPeer) {  // reached through fi_rx_addr
    peer = peers_[index];
    return 0;
  }
  const Result<PeerId> known = core_.peer(*found);
  if (!known.ok()) return -fi_error(known.status());
  assert(known.value() != kAnyPeer);
  if (index >= peers_.size()) peers_.resize(av_->size(), kAnyPeer);
  peer = peers_[index] = known.value();
  return 0;
}

void PeerResolver::connect(std::shared_ptr<const Connection> connection) noexcept {
  assert(!bound());
  connection_ = std::move(connection);
}

int PeerResolver::find_connected(PeerId& peer) {
  using State = Connection::State;
  const State state = connection_ != nullptr ? connection_->state() : State::connecting;
  if (state != State::connected) return state == State::ended ? -FI_ESHUTDOWN : -FI_ENOTCONN;
  if (connected_ == kAnyPeer) {
    const Result<PeerId> known = core_.peer(connection_->peer());
    if (!known.ok()) return -fi_error(known.status());
    connected_ = known.value();
  }
  peer = connected_;
  return 0;
}

fi_addr_t PeerResolver::source_of(PeerId peer) {
  if (peer == kAnyPeer || !bound()) return FI_ADDR_NOTAVAIL;
  if (peer < names_.size() && names_[peer] != FI_ADDR_NOTAVAIL) [[likely]]
    return names_[peer];
  av_->refresh();
  const fi_addr_t index = av_->find(core_.peer_address(peer));
  if (index == FI_ADDR_NOTAVAIL) return index;
  const fi_addr_t name = av_->user_id_of(index);
  if (peer >= names_.size()) names_.resize(peer + 1, FI_ADDR_NOTAVAIL);
  return names_[peer] = name;
}

}  // namespace turnout::provider
