// SPDX-License-Identifier: BSD-3-Clause
// Device memory: bytes that an adapter has on its chip (ibv_alloc_dm(3)). Here a memfd, which peers
// map when they reach a region of it.
//
// What the adapter has is counted for the process. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/file_descriptor.h"

namespace turnout::hca {

inline constexpr char kDeviceMemoryName[] = "turnout-dm";  // of the memfd

// None with errno: the adapter has not so much left, or none at all (EOPNOTSUPP).
[[nodiscard]] Descriptor take_device_memory(std::uint64_t length) noexcept;
// Counts it as free again.
void give_back_device_memory(std::uint64_t length) noexcept;

}  // namespace turnout::hca
