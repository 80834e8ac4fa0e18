// SPDX-License-Identifier: BSD-3-Clause
// What two rsockets of Turnout say to each other. A protocol of our own: both ends are on one host,
// so structs go in host byte order.
//
// Stream: the private data of the connection carries a Hello each way. Data is written into the
// peer's ring by RDMA WRITE with immediate, whose immediate is the number of bytes; everything else
// is a Control, sent into a posted receive. Both consume a receive, and are handled in their order.
// Datagram: a DatagramHeader in front of each message that goes through the UDP socket.
//
// Plain values, any thread. What valid() accepts cannot make the receiver touch memory that is not
// its own; counters are checked against what was sent where they are taken over.
#pragma once

#include <cstdint>
#include <type_traits>

namespace turnout::cm {

// Changes with the layout, so that versions that differ refuse each other.
inline constexpr std::uint32_t kRsocketMagic = 0x54'52'53'01;

struct Hello {
  std::uint32_t magic = kRsocketMagic;
  std::uint32_t ring_key = 0, ring_size = 0;
  std::uint32_t receives = 0;  // posted from the beginning on
  std::uint32_t iomaps = 0;    // mappings of the reader of this that the writer keeps
  std::uint32_t reserved = 0;
  std::uint64_t ring_address = 0;
};
static_assert(sizeof(Hello) <= 56 && std::is_trivially_copyable_v<Hello>);

// Sizes beyond these are nobody's.
inline constexpr std::uint32_t kLargestRing = 1U << 30, kMostReceives = 1U << 14;
// Receives that data leaves to controls, so that credits always get through: of them the receiver
// sends one for each quarter of the ring and each half of its receives, and one end of the stream.
inline constexpr std::uint32_t kControlReserve = 8;

[[nodiscard]] inline bool valid(const Hello& h) noexcept {
  return h.magic == kRsocketMagic && h.ring_size != 0 && h.ring_size <= kLargestRing &&
         h.receives > kControlReserve && h.receives <= kMostReceives && h.iomaps <= kMostReceives;
}

// A buffer that the peer may write with riowrite().
struct RemoteMapping {
  std::uint64_t offset = 0, length = 0, address = 0;  // length 0: there is none
  std::uint32_t key = 0, reserved = 0;
};

enum class ControlKind : std::uint32_t { credit = 1, finished, mapping };

struct Control {
  std::uint32_t magic = kRsocketMagic;
  ControlKind kind = ControlKind::credit;
  // Since the connection was made: bytes read from the ring, receives posted again.
  std::uint64_t bytes_read = 0, receives_posted = 0;
  std::uint64_t index = 0;  // mapping: its place in the table
  RemoteMapping mapping;
};
static_assert(sizeof(Control) == 64 && std::is_trivially_copyable_v<Control>);

[[nodiscard]] inline bool valid(const Control& c, std::uint64_t iomaps) noexcept {
  if (c.magic != kRsocketMagic || c.kind < ControlKind::credit || c.kind > ControlKind::mapping) {
    return false;
  }
  return c.kind != ControlKind::mapping ||
         (c.index < iomaps && c.mapping.offset <= UINT64_MAX - c.mapping.length &&
          c.mapping.address <= UINT64_MAX - c.mapping.length);
}

enum class DatagramKind : std::uint32_t { data = 1, answer };

// Over UDP: who sends, on which fabric, and whether it wants to know the receiver's queue pair. A
// message over a queue pair has none: the receiver knows the sender's number by then.
struct DatagramHeader {
  std::uint32_t magic = kRsocketMagic;
  DatagramKind kind = DatagramKind::data;
  std::uint32_t queue_pair = 0, key = 0;
  std::uint32_t answer_wanted = 0, fabric = 0;
};
static_assert(sizeof(DatagramHeader) == 24 && std::is_trivially_copyable_v<DatagramHeader>);

[[nodiscard]] inline bool valid(const DatagramHeader& h) noexcept {
  return h.magic == kRsocketMagic &&
         (h.kind == DatagramKind::data || h.kind == DatagramKind::answer) &&
         h.queue_pair <= 0xff'ffff;
}

}  // namespace turnout::cm
