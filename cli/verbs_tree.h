// SPDX-License-Identifier: BSD-3-Clause
// The files that a kernel driver would have for the virtual adapter, in /dev/infiniband and below
// /sys/class, written from what the adapter answers through verbs.
//
// Names and formats: the kernel's Documentation/ABI/stable/sysfs-class-infiniband, and
// drivers/infiniband/core/sysfs.c where it says nothing of the format. Any thread; nothing is kept.
// A tree that is there already is brought up to date, each file whole or not at all. Errors: system
// or permission, with errno.
#pragma once

#include <string>

#include "base/status.h"
#include "core/verbs/device.h"

namespace turnout::cli {

// `connection_manager`: our librdmacm is there. To the system's, what is in the place of rdma_cm
// would seem to take every command.
[[nodiscard]] Status write_tree(const std::string& folder, const verbs::Device& device,
                                bool connection_manager);

}  // namespace turnout::cli
