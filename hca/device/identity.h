// SPDX-License-Identifier: BSD-3-Clause
// Identity: the vendor, part and capabilities that the virtual adapter reports.
//
// The setting `adapter` selects it once per process. Programs check vendor, part and query results;
// a capability that an identity lacks is refused as on such an adapter. Any thread. Sources:
// vendors and parts as in the PCI ID database (Mellanox, MT4113 and MT4119); rxe: Linux,
// drivers/infiniband/sw/rxe/rxe_param.h.
#pragma once

#include <cstdint>
#include <string_view>

namespace turnout::hca {

struct Identity {
  std::string_view name;  // a value of the setting
  std::uint32_t vendor_id;
  std::uint32_t part_id;
  const char* firmware;  // null: ours
  std::uint32_t max_cqe;
  std::uint64_t device_memory;  // bytes that ibv_alloc_dm gives to a process; 0: none
  bool dynamically_connected;   // DC and the rest of mlx5dv
  bool xrc;
  bool windows;    // memory windows
  bool on_demand;  // paging (ODP)
  bool null_regions;
};

// Of this process; the default, with a line in the log, when the settings cannot be read.
[[nodiscard]] const Identity& identity();

}  // namespace turnout::hca
