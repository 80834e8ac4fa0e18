// SPDX-License-Identifier: BSD-3-Clause
// The capabilities of the virtual adapter, as ibv_query_device reports them, and the sizes of its
// tables.
//
// Plain constants, no owner, any thread. Bytes unless a name says otherwise. The values follow
// rdma-core's mlx5 on a ConnectX-5, except where the virtual adapter limits them.
#pragma once

#include <cstdint>

namespace turnout::hca {

inline constexpr char kDeviceName[] = "turnout0";
inline constexpr std::uint16_t kLid = 1;  // one port, one LID for every process of the host
inline constexpr std::uint8_t kPort = 1;

// Tables of the shared state. Powers of two: keys and numbers are cut out of their indices.
inline constexpr std::uint32_t kMaxProcesses = 4096;
inline constexpr std::uint32_t kMaxQps = 1U << 16;  // 16 bits of a 24-bit number, 8 are salt
inline constexpr std::uint32_t kFirstQp = 2;        // IBTA: numbers 0 and 1 are management QPs
inline constexpr std::uint32_t kMaxCqs = 1U << 16;
inline constexpr std::uint32_t kMaxSrqs = 1U << 14;  // 14 bits of a 24-bit number, 10 generation
inline constexpr std::uint32_t kMaxMrs = 1U << 18;   // 24 bits of a key are index, 8 generation
// mlx5's queues and lists have words of their own where keys are: 0x100 ends a list of receives,
// and 0x400 heads a block that repeats.
inline constexpr std::uint32_t kFirstMr = 8;
inline constexpr std::uint32_t kMaxXrcds = 1U << 12;
inline constexpr std::uint32_t kMaxXrcHandles = 1U << 16;

inline constexpr std::uint32_t kMaxQpWr = 16384;
inline constexpr std::uint32_t kMaxSrqWr = 32768;
inline constexpr std::uint32_t kMaxCqe = 1U << 20;
inline constexpr std::uint32_t kMaxSge = 16;
inline constexpr std::uint32_t kMaxInline = 512;
inline constexpr std::uint32_t kMaxMessage = 1U << 31;  // IBTA: 2^31 bytes
inline constexpr std::uint32_t kMtu = 4096;             // also the longest UD message
inline constexpr std::uint32_t kGrhBytes = 40;  // IBTA: in front of every UD message received
inline constexpr std::uint8_t kMaxRdAtomic = 16;
inline constexpr std::uint64_t kMaxMrBytes = 1ULL << 46;
// An mlx5's keys of several regions: entries of one, and how deep such keys may stand for others.
inline constexpr std::uint32_t kMaxKeyEntries = 1U << 16;
inline constexpr std::uint32_t kMaxIndirection = 4;
inline constexpr int kCompletionVectors = 1;
// Of one process. ConnectX-5 has 128 to 256 KiB, as its firmware is set up.
inline constexpr std::uint64_t kMaxDeviceMemory = 256U << 10;
// Streams of a DCI that fail apart from each other (mlx5dv_create_qp(3)): 2^6 fit into a word.
inline constexpr std::uint8_t kMaxLogStreams = 6;
// Multicast groups times queue pairs attached to them.
inline constexpr std::uint32_t kMaxMulticasts = 1U << 12;

}  // namespace turnout::hca
