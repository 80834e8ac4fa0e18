// SPDX-License-Identifier: BSD-3-Clause
// PeerResolver: translates between the program's names of peers (fi_addr_t, indices of an address
// vector) and the core's (PeerId), for one endpoint.
//
// Two tables, filled as peers are used: fi_addr_t -> PeerId (4 bytes per address of the vector) and
// back (8 bytes per known peer). Owned by the endpoint's DataPath. Refers to the core endpoint and
// to the bound vector; both outlive the binding, as a vector in use cannot be closed. Calls hold
// the domain's lock. Source: fi_av(3).
#pragma once

#include <rdma/fi_domain.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/endpoint.h"
#include "core/types/completion.h"

namespace turnout::provider {

struct AddressVector;
class Connection;

class PeerResolver {
 public:
  // `caps` of the endpoint: FI_DIRECTED_RECV makes receives look at the source address, FI_SOURCE
  // makes completions name it.
  PeerResolver(Endpoint& core, std::uint64_t caps) noexcept
      : core_(core), directed_((caps & FI_DIRECTED_RECV) != 0), named_((caps & FI_SOURCE) != 0) {}
  ~PeerResolver() { unbind(); }
  PeerResolver(const PeerResolver&) = delete;
  PeerResolver& operator=(const PeerResolver&) = delete;

  // Precondition: not bound.
  void bind(AddressVector& av);
  void unbind() noexcept;
  [[nodiscard]] bool bound() const noexcept { return av_ != nullptr; }
  [[nodiscard]] const AddressVector* vector() const noexcept { return av_; }
  // FI_EP_MSG: every address means the peer of this connection.
  void connect(std::shared_ptr<const Connection> connection) noexcept;

  // 0 and the peer, or an error: -FI_EINVAL when no such address is in the vector, -FI_ENOTCONN or
  // -FI_ESHUTDOWN of a connection that is not there yet or any more, or that of Endpoint::peer.
  // Precondition: bound, or of an FI_EP_MSG endpoint.
  [[nodiscard]] int find(fi_addr_t address, PeerId& peer) {
    if (address < peers_.size() && peers_[address] != kAnyPeer) [[likely]] {
      peer = peers_[address];
      return 0;
    }
    return look_up(address, peer);
  }
  // The same for the source of a receive: kAnyPeer for FI_ADDR_UNSPEC, or if not directed.
  [[nodiscard]] int find_source(fi_addr_t address, PeerId& peer) {
    peer = kAnyPeer;
    return directed_ && address != FI_ADDR_UNSPEC ? find(address, peer) : 0;
  }
  // The address of a peer. FI_ADDR_NOTAVAIL if it is not in the vector, or without FI_SOURCE.
  [[nodiscard]] fi_addr_t name_of(PeerId peer) {
    return named_ ? source_of(peer) : FI_ADDR_NOTAVAIL;
  }
  // The same, without FI_SOURCE, too.
  [[nodiscard]] fi_addr_t source_of(PeerId peer);

  // Called by the vector: it has these addresses now; the address `index` was removed.
  void expect(std::span<const Address> addresses);
  // `name`: by which completions name it.
  void forget(std::uint64_t index, fi_addr_t name) noexcept {
    if (index < peers_.size()) peers_[index] = kAnyPeer;
    for (fi_addr_t& known : names_) {
      if (known == name) known = FI_ADDR_NOTAVAIL;
    }
  }

 private:
  int look_up(fi_addr_t address, PeerId& peer);
  int find_connected(PeerId& peer);

  Endpoint& core_;
  AddressVector* av_ = nullptr;
  std::shared_ptr<const Connection> connection_;
  PeerId connected_ = kAnyPeer;
  const bool directed_, named_;
  std::size_t learned_ = 0;       // addresses of the vector that the core was told of
  std::vector<PeerId> peers_;     // by fi_addr_t; kAnyPeer: not looked up yet
  std::vector<fi_addr_t> names_;  // by PeerId; FI_ADDR_NOTAVAIL: not looked up yet
};

}  // namespace turnout::provider
