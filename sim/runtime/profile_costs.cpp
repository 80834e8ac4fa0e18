// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/profile_costs.h"

namespace turnout::sim {

void ProfileCosts::charge(Work work, std::uint64_t amount) noexcept {
  const hca::Profile& profile = world_.profile();
  switch (work) {
    case Work::poll_ring:
      world_.charge(profile.processor_poll_ring * static_cast<hca::Picoseconds>(amount));
      break;
    case Work::match:
      world_.charge(profile.processor_match * static_cast<hca::Picoseconds>(amount));
      break;
    case Work::copy:
      world_.charge(profile.processor_copy + hca::time_of(profile.processor_copy_rate, amount));
      break;
    case Work::post:
    case Work::doorbell:
    case Work::poll_cq:
    case Work::register_memory:
      break;  // charged by the adapter's driver
  }
}

std::uint64_t ProfileCosts::bytes(Object object, std::uint64_t count,
                                  std::uint64_t computed) const noexcept {
  const hca::Profile& profile = world_.profile();
  std::int64_t each = 0, fixed = 0;
  switch (object) {
    case Object::rc_queue_pair:
      each = profile.memory_rc_qp;
      break;
    case Object::dc_data_pool:
      each = profile.memory_dc_data_qp;
      fixed = profile.memory_dc_data_fixed;
      break;
    case Object::dc_credit_pool:
      each = profile.memory_dc_credit_qp;
      break;
    case Object::dc_establishment_pool:
      each = profile.memory_dc_establishment_qp;
      break;
    case Object::ud_queue_pair:  // no paper measured one: what the driver's rules give
      break;
    case Object::cq_entry:
      each = profile.memory_cq_entry;
      break;
    case Object::srq_entry:
      each = profile.memory_srq_entry;
      break;
  }
  return (each == 0 ? computed : static_cast<std::uint64_t>(each) * count) +
         static_cast<std::uint64_t>(fixed);
}

}  // namespace turnout::sim
