// SPDX-License-Identifier: BSD-3-Clause
// ChannelKind: the ways in which one direction (source -> destination) of a pair can be served
// (AQPS 3.1 and its future work). Values travel in establishment messages: never renumber.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/index_of.h"

namespace turnout {

enum class ChannelKind : std::uint8_t {
  dc_sendrecv = 0,  // every pair starts here
  dc_rdma = 1,      // ring written over the DC pool
  rc_rdma = 2,      // ring written over an RC queue pair of the pair's own
  rc_srq = 3,       // messages over the pair's RC queue pair into the shared receive queue
  ud_sendrecv = 4,
  xrc_rdma = 5,  // ring written over the sender's XRC connection to the receiver's node
  rc_sr = 6,     // messages over the pair's RC queue pair into its private receive queue
};

inline constexpr std::size_t kChannelKinds = 7;

// Messages are written into a ring of the receiver's.
[[nodiscard]] constexpr bool over_ring(ChannelKind kind) noexcept {
  return kind == ChannelKind::dc_rdma || kind == ChannelKind::rc_rdma ||
         kind == ChannelKind::xrc_rdma;
}

// It takes the sender's connection to a node, which serves all processes there.
[[nodiscard]] constexpr bool over_xrc(ChannelKind kind) noexcept {
  return kind == ChannelKind::xrc_rdma;
}

// Messages over the pair's RC queue pair, which a ring can be added to.
[[nodiscard]] constexpr bool messages_over_rc(ChannelKind kind) noexcept {
  return kind == ChannelKind::rc_srq || kind == ChannelKind::rc_sr;
}

// It takes the pair's RC queue pair.
[[nodiscard]] constexpr bool over_rc(ChannelKind kind) noexcept {
  return kind == ChannelKind::rc_rdma || messages_over_rc(kind);
}

// It takes one or the other.
[[nodiscard]] constexpr bool over_connection(ChannelKind kind) noexcept {
  return over_rc(kind) || over_xrc(kind);
}
[[nodiscard]] constexpr bool ring_over_connection(ChannelKind kind) noexcept {
  return over_ring(kind) && over_connection(kind);
}

inline constexpr std::array<std::string_view, kChannelKinds> kChannelNames = {
    "DC-sendrecv", "DC-RDMA", "RC-RDMA", "RC-SRQ", "UD-sendrecv", "XRC-RDMA", "RC-SR"};
[[nodiscard]] constexpr std::string_view name(ChannelKind kind) noexcept {
  return name_of(kChannelNames, kind);
}

}  // namespace turnout
