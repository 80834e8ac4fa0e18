// SPDX-License-Identifier: BSD-3-Clause
// WaitsReport: the pending operations of an endpoint, and what each waits for.
//
// Plain values, no owner; any thread. Of each kind the oldest operations are listed and all are
// counted. Times are nanoseconds, sizes bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/index_of.h"

namespace turnout {

enum class WaitKind : std::uint8_t {
  receive,     // posted, and no message has matched
  unexpected,  // a message that has arrived, and no receive has matched
  send,        // a message of ours
  incoming,    // a message that has arrived in part, or not been delivered
  one_sided,   // a read or write of ours
  atomic,      // an atomic operation of ours
  channel,     // a change of the pair's channel; messages continue meanwhile
};
inline constexpr std::array<std::string_view, 7> kWaitKinds = {
    "receive", "unexpected", "send", "incoming", "one-sided", "atomic", "channel"};

enum class WaitFor : std::uint8_t {
  message,    // a matching message of the peer, or of any
  receive,    // a matching receive of this program
  match,      // rendezvous: the peer's program to receive it
  delivery,   // the peer's acknowledgement
  credits,    // receive credits of the peer
  ring,       // room in the peer's ring
  wire_up,    // the peer's answer to our first message
  channel,    // the channel, which changes or is recovered
  order,      // earlier messages to the same peer
  rtr,        // an announcement (RTR) of the peer's receive, for a short while
  resources,  // send buffers, or room in the send queue
  data,       // data that the peer sends or writes
  adapter,    // the adapter's completion of requests in flight
  memory,     // memory within the budget, or a free record
  answer,     // the peer's processor, which carries it out
};
inline constexpr std::array<std::string_view, 15> kWaitsFor = {
    "message", "receive", "match",     "delivery", "credits", "ring",   "wire-up", "channel",
    "order",   "rtr",     "resources", "data",     "adapter", "memory", "answer"};

struct WaitReport {
  WaitKind kind = WaitKind::receive;
  WaitFor waits_for = WaitFor::message;
  std::optional<std::uint32_t> peer{};  // PeerReport::peer; absent: any
  bool tagged = false;
  std::uint64_t tag = 0, ignore = 0;
  std::uint64_t bytes = 0;
  std::int64_t age = 0;  // since it was first seen pending: at least so long
};

struct WaitsReport {
  // By kind, the oldest of each first; at most kMost of a kind.
  std::vector<WaitReport> list;
  std::array<std::uint64_t, kWaitKinds.size()> totals{};
  std::int64_t quiet =
      0;            // since a message was last seen to be delivered or sent: at least so long
  std::string mpi;  // how the MPI library calls itself; empty: unknown
  static constexpr std::size_t kMost = 64;
  static constexpr std::size_t kMostText = 256;

  [[nodiscard]] std::uint64_t total(WaitKind kind) const noexcept {
    return totals[static_cast<std::size_t>(kind)];
  }
};

// Whether the program, or its peer's, is held up by it.
[[nodiscard]] constexpr bool blocks(WaitKind kind) noexcept {
  return kind != WaitKind::unexpected && kind != WaitKind::channel;
}
[[nodiscard]] constexpr std::string_view name(WaitKind kind) noexcept {
  return name_of(kWaitKinds, kind);
}
[[nodiscard]] constexpr std::string_view name(WaitFor what) noexcept {
  return name_of(kWaitsFor, what);
}

// In words: why the operation is pending.
[[nodiscard]] std::string_view explain(WaitFor what) noexcept;

}  // namespace turnout
