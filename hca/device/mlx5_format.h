// SPDX-License-Identifier: BSD-3-Clause
// The entries of an mlx5's queues in memory: completions, receives and send requests.
//
// Pure functions on bytes, any thread. Everything in a work queue entry is the program's and may be
// anything: lengths and counts are checked here, addresses and keys by whoever uses them. Sources:
// the structs of mlx5dv.h and mlx5dv_init_obj(3).
#pragma once

#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "hca/device/objects.h"

namespace turnout::hca {

inline constexpr std::uint32_t kMlx5CqeBytes = 64;
inline constexpr std::uint32_t kMlx5BlockBytes = MLX5_SEND_WQE_BB;  // unit of a send queue
inline constexpr std::uint32_t kMlx5UnitBytes = 16;                 // unit of a work queue entry
// The longest send request, in blocks, that the device allows (mlx5_ib_alloc_ucontext_resp).
inline constexpr std::uint32_t kMlx5MaxBlocks = 16;
// lkey of a piece that is no region's but lies in the send queue itself.
inline constexpr std::uint32_t kMlx5InlineKey = 0xffff'ffff;

// wr_id of what an mlx5's queues hold: the index that the entry of a completion tells, the opcode
// of a send request, and the user's index of the queue.
struct Mlx5Id {
  std::uint16_t index;
  std::uint8_t opcode;
  std::uint32_t user_index;
};
[[nodiscard]] constexpr std::uint64_t pack(const Mlx5Id& id) noexcept {
  return std::uint64_t{id.user_index} << 32 | std::uint64_t{id.opcode} << 16 | id.index;
}
[[nodiscard]] constexpr Mlx5Id unpack(std::uint64_t wr_id) noexcept {
  return {static_cast<std::uint16_t>(wr_id), static_cast<std::uint8_t>(wr_id >> 16),
          static_cast<std::uint32_t>(wr_id >> 32)};
}

// The entry of a completion at this position of a queue with so many entries. user_index: of the
// queue pair, or of the XRC shared receive queue, that it is of. The last byte hands it over.
[[nodiscard]] mlx5_cqe64 completion_entry(const Completion& done, std::uint32_t user_index,
                                          bool solicited, std::uint64_t position,
                                          std::uint32_t entries) noexcept;
// Says that the queue goes on in another buffer (mlx5's RESIZE_CQ).
[[nodiscard]] mlx5_cqe64 resize_entry(std::uint64_t position, std::uint32_t entries) noexcept;

// A receive. `stride` bytes at `entry`; linked: of a shared queue, whose entries have heads.
struct Mlx5Receive {
  std::uint32_t num_sge = 0;
  std::uint16_t next = 0;  // of a list
  ReceiveSge sge[kMaxSge];
};
[[nodiscard]] Mlx5Receive parse_receive(std::span<const std::byte> entry, bool linked) noexcept;

// A send queue in memory, a ring of blocks.
struct Mlx5Ring {
  const std::byte* start;
  std::uint32_t blocks;  // power of two
};
// What is wrong with a send request.
enum class Mlx5Fault : std::uint8_t { none, length, opcode };
struct Mlx5Request {
  std::uint32_t blocks = 1;  // that it takes
  Mlx5Fault fault = Mlx5Fault::none;
  // Address vector of a datagram or of DC; valid where `addressed`.
  ibv_ah_attr address{};
  bool addressed = false;
};
// Reads the request that begins at block `position` of the ring, of a queue pair of this kind, into
// `wqe`; at most `available` blocks were posted. What is inline among pointers stays in the ring:
// it is told as a piece with the key kMlx5InlineKey.
[[nodiscard]] Mlx5Request parse_send(const Mlx5Ring& ring, std::uint16_t position,
                                     std::uint32_t available, QpKind kind, std::uint32_t user_index,
                                     SendWqe& wqe) noexcept;

}  // namespace turnout::hca
