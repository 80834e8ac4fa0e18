// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/profile_costs.h"

#include <iterator>

namespace turnout::sim {

void ProfileCosts::charge(Work work, std::uint64_t amount) noexcept {
  const hca::Profile& profile = world_.profile();
  const auto times = static_cast<hca::Picoseconds>(amount);
  if (work == Work::poll_ring) world_.charge(profile.processor_poll_ring * times);
  if (work == Work::match) world_.charge(profile.processor_match * times);
  if (work == Work::copy) {
    world_.charge(profile.processor_copy + hca::time_of(profile.processor_copy_rate, amount));
  }
  // All other work is charged by the adapter's driver.
}

std::uint64_t ProfileCosts::bytes(Object object, std::uint64_t count,
                                  std::uint64_t computed) const noexcept {
  const hca::Profile& p = world_.profile();
  // By Object; 0: no paper measured one, the driver's rules count.
  const std::int64_t sizes[] = {p.memory_rc_qp,
                                p.memory_dc_data_qp,
                                p.memory_dc_credit_qp,
                                p.memory_dc_establishment_qp,
                                0,
                                p.memory_cq_entry,
                                p.memory_srq_entry};
  static_assert(std::size(sizes) == static_cast<std::size_t>(Object::srq_entry) + 1);
  const std::int64_t each = sizes[static_cast<std::size_t>(object)];
  const std::int64_t fixed = object == Object::dc_data_pool ? p.memory_dc_data_fixed : 0;
  return (each == 0 ? computed : static_cast<std::uint64_t>(each) * count) +
         static_cast<std::uint64_t>(fixed);
}

}  // namespace turnout::sim
