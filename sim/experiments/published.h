// SPDX-License-Identifier: BSD-3-Clause
// Figures that others have published and that no profile was fitted to: what the experiment
// `validation` predicts. Constant data; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace turnout::sim {

// What predicts a figure.
enum class Benchmark : std::uint8_t {
  send_rc,        // half a round trip of SENDs, us
  send_ud,        // the same with datagrams
  write,          // half a round trip of RDMA WRITEs, us
  read,           // one RDMA READ, us
  write_rate,     // RDMA WRITEs of 16 processes of a node, millions a second
  dc_switch,      // a READ to another target less one to the same, over one DC initiator, us
  mpi_latency,    // half a round trip of messages, us
  mpi_bandwidth,  // two pairs of processes, windows of 64 messages, GB/s
  one_to_all,     // time of a message over DC against `against`, percent
  all_to_one,
  all_to_all,
  crossing,  // number of peers from which on DC takes no longer than RC
};

struct Figure {
  std::string_view what, profile;
  double published = 0;
  std::string_view unit;
  Benchmark benchmark = Benchmark::send_rc;
  std::uint32_t bytes = 8;
  bool inlined = false;
  bool cable = false;             // between the adapters, no switch
  bool bound = false;             // published as an upper bound
  std::string_view against = {};  // policy
};

struct Source {
  std::string_view title, what, address, adapter;
  std::vector<Figure> figures;
  std::string_view method, parameters, held_out, cause;
};

[[nodiscard]] std::span<const Source> published_sources();

// Figures that could not be read at their source, or do not name what the model needs.
extern const std::string_view kNotCompared;

}  // namespace turnout::sim
