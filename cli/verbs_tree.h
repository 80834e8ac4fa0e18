// SPDX-License-Identifier: BSD-3-Clause
// Writes the files that a kernel driver would provide for the virtual adapter, in /dev/infiniband
// and below /sys/class, from the adapter's verbs attributes.
//
// Names and formats: the kernel's Documentation/ABI/stable/sysfs-class-infiniband, and
// drivers/infiniband/core/sysfs.c for the formats it leaves open. Any thread; nothing is cached. An
// existing tree is updated; each file is replaced atomically. Errors: system or permission, with
// errno.
#pragma once

#include <string>

#include "base/status.h"
#include "core/verbs/device.h"

namespace turnout::cli {

struct TreeOptions {
  // Our librdmacm is there. To the system's, what is in the place of rdma_cm would seem to take
  // every command.
  bool connection_manager = false;
  // As an mlx5 driver would provide them for a ConnectX-5 named mlx5_0, for rdma-core's libraries
  // and those who tell adapters by their PCI functions, such as UCX. The command file is an empty
  // file: the shim shows it as a character device.
  bool mlx5 = false;
};
[[nodiscard]] Status write_tree(const std::string& folder, const verbs::Device& device,
                                const TreeOptions& options);

}  // namespace turnout::cli
