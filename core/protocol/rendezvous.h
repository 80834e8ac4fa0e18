// SPDX-License-Identifier: BSD-3-Clause
// The rendezvous protocols (spec/rendezvous.md; Takagi et al., EuroMPI 2013), and the state of a
// receiver's RTRs at the sender. The receiver's setting `rendezvous` chooses the protocol. Files:
// transfer.cpp (what an RTS starts), writes.cpp (rput), rtr.cpp (put, putnr).
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
  putnr,      // RTR; the sender writes; the receiver polls the last byte
  put,        // the same, with a random sentinel
  automatic,  // by message: put if receives are posted first, else get
};
// In the order of kRendezvousNames.
[[nodiscard]] constexpr std::optional<Rendezvous> rendezvous_named(std::string_view name) noexcept {
  const std::optional<std::size_t> i = index_of(kRendezvousNames, name);
  return i ? std::optional(static_cast<Rendezvous>(*i)) : std::nullopt;
}

// At the sender: an open RTR of the peer.
struct Rtr {
  wire::Detail detail;
  [[nodiscard]] bool accepts(bool tagged, std::uint64_t tag) const noexcept {
    return ((detail.flags & wire::kTagged) != 0) == tagged &&
           (!tagged || ((tag ^ detail.tag) & ~detail.ignore) == 0);
  }
};

// What a buffer that a peer writes a message to is registered for.
inline constexpr int kPeerWrites = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

// Open RTRs of one peer; more are declined, so their messages are sent by RTS.
inline constexpr std::size_t kMostRtrs = 64;

// Recent success rate of an optimisation that depends on the peer: RTRs sent to one peer; messages
// deferred for an RTR of one peer.
class SuccessRate {
 public:
  void count(bool used) noexcept {
    share_ = static_cast<std::uint8_t>((share_ * 7 + (used ? kWhole : 0)) / 8);
  }
  // One in kTryEvery is tried even if they failed.
  [[nodiscard]] bool worth_trying() noexcept {
    return share_ >= kWhole / 2 || ++skipped_ % kTryEvery == 0;
  }

 private:
  static constexpr unsigned kWhole = 255;
  static constexpr unsigned kTryEvery = 16;
  std::uint8_t share_ = kWhole;
  std::uint8_t skipped_ = 0;
};

// RTRs received from one peer; made with the first.
struct PeerRtrs {
  Reservation bytes;
  std::vector<Rtr> open;                 // in the order of the receives
  std::vector<std::uint64_t> cancelled;  // to reply to
  std::uint32_t writing = 0;             // messages that are being written to RTRs
  // The backlog has deferred messages only, the first since `deferred_since`.
  bool deferring = false;
  Nanoseconds deferred_since = 0;
  SuccessRate waits;
};

}  // namespace turnout
