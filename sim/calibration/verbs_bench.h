// SPDX-License-Identifier: BSD-3-Clause
// Micro-benchmarks at the verbs level on a modelled adapter, as perftest has them: raw verbs in
// virtual time, without the messaging core. For `turnout calibrate --profile` and the experiment
// `validation`.
//
// Deterministic. Each call makes a world of its own: none may exist. One thread; times are
// nanoseconds. Errors: those of create_world() and of the verbs.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "hca/virtual/profile.h"

namespace turnout::sim {

enum class VerbsTransport : std::uint8_t { rc, ud };

// ib_send_lat: half a round trip of SENDs.
[[nodiscard]] Result<double> send_latency(const hca::Profile& profile, VerbsTransport transport,
                                          std::uint32_t bytes, bool inlined);
// ib_write_lat: half a round trip of RDMA WRITEs of at least 2 bytes, seen in memory.
[[nodiscard]] Result<double> write_latency(const hca::Profile& profile, std::uint32_t bytes,
                                           bool inlined);
// ib_read_lat: one RDMA READ from its post to its completion, one at a time.
[[nodiscard]] Result<double> read_latency(const hca::Profile& profile, std::uint32_t bytes);
// The same over one DC initiator that reads 8 bytes from so many targets in turn.
[[nodiscard]] Result<double> dc_read_latency(const hca::Profile& profile, std::uint32_t targets);

// Processes of one node write inline over RC queue pairs, each over its own in turn, to as many
// nodes as keep the targets idle. At least as many queue pairs as processes.
struct WriteStreams {
  std::uint32_t processes = 16;
  std::uint32_t queue_pairs = 16;  // of all processes together
  std::uint32_t bytes = 8;
  std::uint32_t under_way = 16;  // of each process
  std::uint32_t rounds = 3;
};
// Time of one write of all processes together, for each round.
[[nodiscard]] Result<std::vector<double>> write_times(const hca::Profile& profile,
                                                      const WriteStreams& streams);

}  // namespace turnout::sim
