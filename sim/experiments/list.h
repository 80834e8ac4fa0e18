// SPDX-License-Identifier: BSD-3-Clause
// The experiments, by file.
#pragma once

#include <vector>

#include "sim/experiments/experiment.h"

namespace turnout::sim {

// AQPS figures 10 to 12: aqps-onetoall, aqps-alltoone, aqps-repeat.
[[nodiscard]] std::vector<Experiment> latency_experiments();
// AQPS figure 8: aqps-memory.
[[nodiscard]] std::vector<Experiment> memory_experiments();
// budget: onetoall within 32 MB for each process.
[[nodiscard]] std::vector<Experiment> budget_experiments();
// policies: all of them on many workloads.
[[nodiscard]] std::vector<Experiment> comparison_experiments();
// clairvoyant: all of them against the best maps found.
[[nodiscard]] std::vector<Experiment> clairvoyant_experiments();
// eager: receive buffers by design.
[[nodiscard]] std::vector<Experiment> eager_experiments();
// rendezvous: the ways of large messages.
[[nodiscard]] std::vector<Experiment> rendezvous_experiments();

// teardown: connections that give their places to others.
[[nodiscard]] std::vector<Experiment> teardown_experiments();
// nodes: one connection for all processes of a node.
[[nodiscard]] std::vector<Experiment> node_experiments();
// validation: published figures, predicted.
[[nodiscard]] std::vector<Experiment> validation_experiments();

}  // namespace turnout::sim
