// SPDX-License-Identifier: BSD-3-Clause
// Network: when data are where: through PCI Express, the ports and the wire.
//
// The switch between the ports has as much bandwidth as all of them; what stays on a node does not
// leave its adapter. Bandwidth is that of the nodes' servers (server.h). Times are picoseconds. One
// thread.
#pragma once

#include "hca/virtual/processes.h"

namespace turnout::hca {

class Network : WorldParts {
 public:
  explicit Network(const WorldParts& parts) : WorldParts(parts) {}

  // When data that leave `from`'s adapter for `to` (null: nobody) have come to its port.
  // from_memory: they are read from it, not inline.
  [[nodiscard]] Stream travel(Operation& operation, const VirtualQp& from, const VirtualQp* to,
                              Picoseconds leaves, std::uint64_t bytes, bool from_memory);
  // What has begun to come now, through the port.
  [[nodiscard]] Stream receive(Node& node, Operation& operation, std::uint64_t bytes) noexcept;
  [[nodiscard]] PacketTimes on_wire(std::uint64_t bytes) const noexcept;
  [[nodiscard]] PacketTimes on_pcie(std::uint64_t bytes) const noexcept;
  // Of a packet without data, between the two ends of an operation.
  [[nodiscard]] Picoseconds hop(const Operation& operation) const noexcept;
};

}  // namespace turnout::hca
