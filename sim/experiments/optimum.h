// SPDX-License-Identifier: BSD-3-Clause
// Optimum: the best maps of channels that a search found for the parts of a line, and the line's
// time with them. The searches can run in several processes and are kept like other results.
//
// Times: picoseconds. Errors: those of the runs, naming the part; invalid (a kept text that is
// damaged, naming the field; it is untrusted). One thread and no world, see study/children.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sim/experiments/comparison.h"

namespace turnout::sim {

// Of a part.
struct Found {
  std::string part;
  std::string start;           // the map that the search began with
  double time = 0;             // at full length
  double best_start = 0;       // of the map that the search began with, likewise
  std::vector<double> shares;  // of the messages, by ChannelKind up to rc_rdma
  std::uint64_t initiators = 0;
  std::uint64_t simulations = 0;
};

struct Optimum {
  double time = 0;  // of all parts, with all channels in place
  double paid = 0;  // with their set-up
  // How often the pattern of messages changes, the beginning among them; 0 where a warm-up
  // precedes.
  std::uint64_t changes = 0;
  std::vector<Found> parts;
};

// One for each line, in their order, with at most so many maps simulated per part.
[[nodiscard]] Result<std::vector<Optimum>> optima_of(const std::vector<ComparedLine>& lines,
                                                     const ExperimentOptions& options,
                                                     std::uint32_t simulations,
                                                     const Runner& runner);

[[nodiscard]] std::string to_kept_json(const std::string& identity, const Optimum& optimum);
[[nodiscard]] Result<Optimum> optimum_from_kept_json(std::string_view text,
                                                     const std::string& identity);

}  // namespace turnout::sim
