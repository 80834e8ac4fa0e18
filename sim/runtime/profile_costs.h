// SPDX-License-Identifier: BSD-3-Clause
// ProfileCosts: what the core's work costs and how large its driver's objects are, according to the
// profile of the virtual adapter. Posting, polling of completion queues and registration are
// charged by the adapter's driver, which sees them itself.
//
// Owned by the simulation, one for all ranks; in its thread. The world outlives it.
#pragma once

#include "core/types/simulation_hooks.h"
#include "hca/virtual/world.h"

namespace turnout::sim {

class ProfileCosts final : public Processor, public ObjectSizes {
 public:
  explicit ProfileCosts(hca::World& world) noexcept : world_(world) {}
  void charge(Work work, std::uint64_t amount) noexcept override;
  [[nodiscard]] std::uint64_t bytes(Object object, std::uint64_t count,
                                    std::uint64_t computed) const noexcept override;

 private:
  hca::World& world_;
};

}  // namespace turnout::sim
