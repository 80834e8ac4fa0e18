// SPDX-License-Identifier: BSD-3-Clause
// The number of connections that a process makes under a limit, given the order in which it needs
// its partners: with two eviction policies, and with clairvoyant eviction.
//
// Pure; any thread. A partner in use needs a connection, so a limit of 0 counts as 1. The order is
// that of one process (Outcome::partners); evictions by its partners are not considered.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/study/study.h"

namespace turnout::sim {

struct Connections {
  std::uint64_t made = 0;
  std::uint64_t torn_down = 0;  // for another
  friend bool operator==(const Connections&, const Connections&) = default;
};

// The victim is the least recently used.
[[nodiscard]] Connections lru_connections(std::span<const std::uint32_t> needed, std::size_t limit);

// ACTS IV.B, LRU-M: of the partners that were torn down least often so far, the least recently
// used.
[[nodiscard]] Connections lru_m_connections(std::span<const std::uint32_t> needed,
                                            std::size_t limit);

// The one whose next use is the farthest away: no choice of victims makes fewer connections
// (Belady, IBM Systems Journal 5(2), 1966).
[[nodiscard]] Connections clairvoyant_connections(std::span<const std::uint32_t> needed,
                                                  std::size_t limit);

using VictimBound = Connections (*)(std::span<const std::uint32_t> needed, std::size_t limit);
// Of several processes together.
[[nodiscard]] Connections connections_of_all(std::span<const std::vector<std::uint32_t>> needed,
                                             std::size_t limit, VictimBound bound);

[[nodiscard]] std::uint64_t distinct_partners(std::span<const std::uint32_t> needed);

// The number of partners of the processes of a run, and the connections they would make under
// limits, as text: `turnout sim --limits`. Means are over processes. Of every result of the study
// that kept its partners (Options::keep_partners).
[[nodiscard]] std::string format_partners(const Study& study,
                                          std::span<const std::uint64_t> limits);

}  // namespace turnout::sim
