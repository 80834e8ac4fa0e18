// SPDX-License-Identifier: BSD-3-Clause
// CommunicationProfile: what an endpoint gave the network to carry, and what came before anybody
// waited for it, by size; counted while it runs, for the report.
//
// A message here is a work request of a send queue: an eager message with its headers is one, a
// credit or an RTS is one, and a large message is its RTS, its reads or writes by segment and its
// FIN. Who posts a request counts it, a read too, so each is counted once in a job; what UD sends
// again is counted again. Sizes include headers of ours, not those of the network.
//
// A count is an increment and an addition in one cache line, in fixed arrays; a switch at run time
// would cost as much. TURNOUT_PROFILE=0 leaves them out when the core is compiled, to measure what
// they cost (bench/run_profile_cost.py). Owner: the endpoint; one thread.
// Source: "profiling mechanism internal to MVAPICH", Koop et al., SC 2006, section 3.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/index_of.h"

#ifndef TURNOUT_PROFILE
#define TURNOUT_PROFILE 1
#endif

namespace turnout {

inline constexpr bool kProfiled = TURNOUT_PROFILE != 0;

enum class Traffic : std::uint8_t {
  data,     // eager messages, fragments, atomics and their answers
  control,  // credits, establishment, rendezvous, probes, acknowledgements
  read,     // RDMA reads of large messages and of the application
  write,    // RDMA writes of them
  count,
};

[[nodiscard]] constexpr std::string_view name(Traffic traffic) noexcept {
  constexpr std::array<std::string_view, 4> kNames = {"data", "control", "read", "write"};
  return name_of(kNames, traffic);
}
inline constexpr std::size_t kTrafficKinds = static_cast<std::size_t>(Traffic::count);

// Bin i has the sizes below 2^i that are in no bin before it: 0, 1, 2 to 3, 4 to 7, ...; the last
// one everything else.
inline constexpr std::size_t kSizeBins = 42;  // a message has 2^40 bytes at most

[[nodiscard]] constexpr std::size_t size_bin(std::uint64_t bytes) noexcept {
  return std::min<std::size_t>(static_cast<std::size_t>(std::bit_width(bytes)), kSizeBins - 1);
}

struct SizeCount {
  std::uint64_t messages = 0, bytes = 0;
  void add(const SizeCount& other) noexcept {
    messages += other.messages;
    bytes += other.bytes;
  }
};

class SizeCounts {
 public:
  void count(std::uint64_t bytes) noexcept {
    if constexpr (kProfiled) {
      SizeCount& bin = bins_[size_bin(bytes)];
      ++bin.messages;
      bin.bytes += bytes;
    }
  }
  void add(std::size_t bin, const SizeCount& more) noexcept { bins_[bin].add(more); }
  void add(const SizeCounts& other) noexcept {
    for (std::size_t i = 0; i < kSizeBins; ++i) bins_[i].add(other.bins_[i]);
  }
  [[nodiscard]] const SizeCount& operator[](std::size_t bin) const noexcept { return bins_[bin]; }
  [[nodiscard]] SizeCount total() const noexcept {
    SizeCount sum;
    for (const SizeCount& bin : bins_) sum.add(bin);
    return sum;
  }

 private:
  std::array<SizeCount, kSizeBins> bins_{};
};

struct CommunicationProfile {
  std::array<SizeCounts, kTrafficKinds> sent{};
  SizeCounts unexpected;  // messages of the application, by their whole size
  // Times the adapter told that a shared receive queue ran low.
  std::uint64_t low_watermark_events = 0;

  void add(const CommunicationProfile& more) noexcept {
    for (std::size_t kind = 0; kind < kTrafficKinds; ++kind) sent[kind].add(more.sent[kind]);
    unexpected.add(more.unexpected);
    low_watermark_events += more.low_watermark_events;
  }
  void count_sent(Traffic traffic, std::uint64_t bytes) noexcept {
    sent[static_cast<std::size_t>(traffic)].count(bytes);
  }
};

// The profile as the report has it.
struct ProfileReport {
  CommunicationProfile counts;
  // Requests of ours that found no receive and were made again by the adapter; none where the
  // adapter does not tell. On a real adapter those of the whole port (verbs::Device).
  std::optional<std::uint64_t> rnr_retries;
  // Calls of the layer above, those that were measured, and what all took by that, with the
  // standard error of the estimate; see call_time.h.
  std::uint64_t calls = 0, calls_measured = 0;
  std::uint64_t library_time = 0, library_time_error = 0;  // ns
};

}  // namespace turnout
