// SPDX-License-Identifier: BSD-3-Clause
// Network: when data are where: through PCI Express, the ports and the wire.
//
// The switch has as much bandwidth as all ports; what stays on a node does not leave its adapter.
// Bandwidth is that of the nodes' servers (server.h). Times are picoseconds. One thread.
#pragma once

#include "hca/virtual/engine_parts.h"

namespace turnout::hca {

class Network : EngineParts {
 public:
  explicit Network(const EngineParts& parts) : EngineParts(parts) {}

  // When data that leave `from`'s adapter for `to` (null: nobody) have come to its port.
  // from_memory: they are read from it, not inline.
  [[nodiscard]] Stream travel(Operation& operation, const VirtualQp& from, const VirtualQp* to,
                              Picoseconds leaves, std::uint64_t bytes, bool from_memory) {
    Node& node = processes.node_of(from);
    Stream stream{leaves, leaves};
    if (from_memory && bytes > 0) stream = node.memory_reads.pass(stream, on_pcie(bytes));
    operation.local = to != nullptr && processes.same_node(from, *to);
    operation.received = false;
    if (operation.local) {
      stream.shift(profile.wire_loopback);
    } else {
      stream = node.link_out.pass(stream, on_wire(bytes));
      stream.shift(profile.wire_hop);
    }
    operation.spread = stream.tail - stream.head;
    return stream;
  }
  // What has begun to come now, through the port.
  [[nodiscard]] Stream receive(Node& node, Operation& operation, std::uint64_t bytes) noexcept {
    operation.received = true;
    Stream in{kernel.now(), kernel.now() + operation.spread};
    if (!operation.local) in = node.link_in.cut_through(in, on_wire(bytes));
    operation.spread = in.tail - in.head;
    return in;
  }
  [[nodiscard]] PacketTimes on_wire(std::uint64_t bytes) const noexcept {
    const auto packet = static_cast<std::uint64_t>(profile.wire_packet);
    const auto header = static_cast<std::uint64_t>(profile.wire_overhead);
    const std::uint64_t packets = bytes <= packet ? 1 : (bytes + packet - 1) / packet;
    const Picoseconds all = time_of(profile.wire_rate, bytes + packets * header);
    if (packets == 1) return {all, all, all};
    return {time_of(profile.wire_rate, packet + header),
            time_of(profile.wire_rate, bytes - (packets - 1) * packet + header), all};
  }
  [[nodiscard]] PacketTimes on_pcie(std::uint64_t bytes) const noexcept {
    const auto packet = static_cast<std::uint64_t>(profile.wire_packet);
    const Picoseconds all = time_of(profile.pcie_rate, bytes);
    if (bytes <= packet) return {all, all, all};
    return {time_of(profile.pcie_rate, packet),
            time_of(profile.pcie_rate, (bytes - 1) % packet + 1), all};
  }
  // Of a packet without data, between the two ends of an operation.
  [[nodiscard]] Picoseconds hop(const Operation& operation) const noexcept {
    const VirtualQp* const from = qps.find(operation.source);
    const VirtualQp* const to = qps.find(operation.target);
    const bool local = from != nullptr && to != nullptr && processes.same_node(*from, *to);
    return local ? profile.wire_loopback : profile.wire_hop;
  }
};

}  // namespace turnout::hca
