// SPDX-License-Identifier: BSD-3-Clause
// RankEnvironment: what the endpoints of simulated ranks are given: settings, the clock, the
// profile's costs, the choice of channels, a thread that makes queue pairs.
//
// One for all ranks, owned by the simulation; in its thread. Options and world outlive it, and it
// outlives the endpoints.
#pragma once

#include <memory>

#include "core/endpoint.h"
#include "core/types/simulation_hooks.h"
#include "hca/virtual/world.h"
#include "sim/runtime/rank_scheduler.h"
#include "sim/runtime/simulation.h"

namespace turnout::sim {

// A data server of Options::data_servers.
[[nodiscard]] inline bool serves(const Options& options, std::uint32_t rank) noexcept {
  return options.data_servers && rank % options.ranks_per_node == 0;
}

struct RankSettings {
  Settings ranks, servers;
};
// Errors: invalid.
[[nodiscard]] Result<RankSettings> rank_settings(const Options& options);

// What the options choose instead of the policy. They outlive it.
[[nodiscard]] PolicyOverride policy_of(const Options& options);

// What the core's work costs and how large its driver's objects are, according to the profile of
// the virtual adapter. Posting, polling of completion queues and registration are charged by the
// adapter's driver, which sees them itself.
class ProfileCosts final : public Processor, public ObjectSizes {
 public:
  explicit ProfileCosts(hca::World& world) noexcept : world_(world) {}
  void charge(Work work, std::uint64_t amount) noexcept override;
  [[nodiscard]] std::uint64_t bytes(Object object, std::uint64_t count,
                                    std::uint64_t computed) const noexcept override;

 private:
  hca::World& world_;
};

class RankEnvironment {
 public:
  RankEnvironment(const Options& options, hca::World& world, RankSettings settings);
  RankEnvironment(const RankEnvironment&) = delete;
  RankEnvironment& operator=(const RankEnvironment&) = delete;

  // Of the rank that was entered. `scheduler` outlives the endpoint.
  [[nodiscard]] Result<std::unique_ptr<Endpoint>> open(std::uint32_t rank,
                                                       RankScheduler& scheduler);

 private:
  class ProcessClock final : public Clock {
   public:
    explicit ProcessClock(hca::World& world) noexcept : world_(world) {}
    Nanoseconds now() noexcept override { return world_.process_time() / hca::kNanosecond; }

   private:
    hca::World& world_;
  };

  const Options& options_;
  hca::World& world_;
  RankSettings settings_;
  ProcessClock clock_;
  ProfileCosts costs_;
  PolicyOverride policy_;
};

}  // namespace turnout::sim
