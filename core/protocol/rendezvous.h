// SPDX-License-Identifier: BSD-3-Clause
// The rendezvous protocols (spec/rendezvous.md; Takagi et al., EuroMPI 2013), and the state of a
// receiver's RTRs at the sender. The receiver's setting `rendezvous` chooses the protocol. Files:
// transfer.cpp (what an RTS starts), writes.cpp (rput), offers.cpp (put, putnr).
//
// Plain data, owned by the endpoint; one thread. Sizes are bytes.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/index_of.h"
#include "base/settings.h"
#include "core/memory/account.h"
#include "core/time/clock.h"
#include "core/transport/wire.h"

namespace turnout {

enum class Rendezvous : std::uint8_t {
  getcqe,     // RTS; the receiver reads, a completion queue entry tells it
  get,        // the same, but the receiver looks for the message's last byte
  rput,       // RTS, CTS; the sender writes and says so
  putnr,      // the receiver offers its buffer; the sender writes; the last byte is looked for
  put,        // the same, and what the last byte is at first is random
  automatic,  // by message: put where receives stand first, else get
};
// In the order of kRendezvousNames.
[[nodiscard]] constexpr std::optional<Rendezvous> rendezvous_named(std::string_view name) noexcept {
  const std::optional<std::size_t> i = index_of(kRendezvousNames, name);
  return i ? std::optional(static_cast<Rendezvous>(*i)) : std::nullopt;
}

// At the sender: a receive of the peer that stands, and where its message may be written.
struct Offer {
  wire::Detail detail;
  [[nodiscard]] bool accepts(bool tagged, std::uint64_t tag) const noexcept {
    return ((detail.flags & wire::kTagged) != 0) == tagged &&
           (!tagged || ((tag ^ detail.tag) & ~detail.ignore) == 0);
  }
};

// What a buffer that a peer writes a message to is registered for.
inline constexpr int kPeerWrites = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

// Beyond this many offers of one peer none is taken: its messages go by RTS.
inline constexpr std::size_t kMostOffers = 64;

// How often something that is only worth it if the other end plays along came to something, of
// late: offers of receives to one peer; messages that waited for an offer of one peer.
class OfferSuccess {
 public:
  void count(bool used) noexcept {
    share_ = static_cast<std::uint8_t>((share_ * 7 + (used ? kWhole : 0)) / 8);
  }
  // Now and then one is tried where they were in vain.
  [[nodiscard]] bool worth_trying() noexcept {
    return share_ >= kWhole / 2 || ++skipped_ % kTryEvery == 0;
  }

 private:
  static constexpr unsigned kWhole = 255;
  static constexpr unsigned kTryEvery = 16;
  std::uint8_t share_ = kWhole;
  std::uint8_t skipped_ = 0;
};

// Of the messages to one peer; made with its first offer.
struct Offers {
  Reservation bytes;
  std::vector<Offer> open;             // in the order of the receives
  std::vector<std::uint64_t> revoked;  // to be answered
  std::uint32_t writing = 0;           // messages that are being written to offers
  // The backlog holds large messages only, which wait for offers, the first since `held_since`.
  bool holding = false;
  Nanoseconds held_since = 0;
  OfferSuccess waits;
};

}  // namespace turnout
