// SPDX-License-Identifier: BSD-3-Clause
// Startup: creates what an endpoint has from its start on: the default transport, queues, pools,
// and reservations of the budget for them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/launcher.h"
#include "core/endpoint/components.h"

namespace turnout {

struct Need {
  MemoryKind kind;
  std::uint64_t bytes, objects;
};

class Startup : ComponentsUser {
 public:
  using ComponentsUser::ComponentsUser;

  [[nodiscard]] Status start();

 private:
  [[nodiscard]] Status create_queues();
  [[nodiscard]] Status choose_default_channel();
  // With the setting `prediction`: the rank is a part of the own id.
  void take_rank();
  void use_prediction();
  void limits_from_costs();
  void receives_for_job();
  [[nodiscard]] std::uint64_t credits_beside(std::uint64_t data) const noexcept;
  // So many that send data, with those that return credits beside them.
  void use_initiators(std::uint64_t data) noexcept;
  [[nodiscard]] Status create_pool(Purpose purpose, std::size_t initiators, std::size_t targets,
                                   ibv_srq* srq);
  // Entries of the completion queues, including those for private receives.
  [[nodiscard]] std::uint32_t receive_entries() const noexcept;
  [[nodiscard]] std::uint32_t send_entries() const noexcept;
  [[nodiscard]] std::uint32_t private_entries() const noexcept;
  // The memory that an endpoint with these settings allocates at the start and keeps.
  [[nodiscard]] std::array<Need, 4> fixed_needs() const noexcept;
  [[nodiscard]] std::uint64_t needed_at_start() const noexcept;  // bytes, with the first records
  [[nodiscard]] bool fits_at_start() const noexcept;
  [[nodiscard]] Status check_budget() const;
  [[nodiscard]] Status reserve_fixed();
  [[nodiscard]] Status create_pools();
  [[nodiscard]] bool settles_for_fewer(const Status& failure);
  [[nodiscard]] std::uint64_t dc_pool_bytes(Object pool, std::uint64_t initiators,
                                            std::uint64_t targets) const noexcept;

  // Of the job, this one included; 0: unknown.
  [[nodiscard]] std::uint64_t job_processes() const noexcept {
    return static_cast<std::uint64_t>(std::max(launcher_.ranks, 0));
  }

  LauncherIdentity launcher_;            // what a simulation says in its place
  std::uint64_t receives_at_start_ = 0;  // if there is room for more than first_receives()
};

}  // namespace turnout
