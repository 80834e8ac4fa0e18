// SPDX-License-Identifier: BSD-3-Clause
// Profile: the parameters of the cost model (profile.def), in picoseconds, bytes and counts.
//
// Plain data; read by the virtual engine, filled from profile files by sim/profile_file. The
// default is `ideal`. A rate is kept as picoseconds per KiB, so that all times are integers: the
// same on every machine and in every build.
#pragma once

#include <cmath>
#include <cstdint>

namespace turnout::hca {

using Picoseconds = std::int64_t;
inline constexpr Picoseconds kNanosecond = 1'000;
inline constexpr Picoseconds kMicrosecond = 1'000'000;
inline constexpr Picoseconds kSecond = 1'000'000'000'000;

namespace unit {
inline Picoseconds ns(double value) noexcept {
  return std::llround(value * 1000.0);
}
// Picoseconds per KiB; 0: no limit.
inline Picoseconds rate(double gigabytes_per_second) noexcept {
  return gigabytes_per_second <= 0 ? 0 : std::llround(1024.0 * 1000.0 / gigabytes_per_second);
}
inline std::int64_t count(double value) noexcept {
  return std::llround(value);
}
inline constexpr auto bytes = count, ppm = count;
}  // namespace unit

struct Profile {
  // processor_post, pcie_read, wire_rate, ...
#define TURNOUT_PARAMETER(group, name, unit_name, ideal, help) \
  std::int64_t group##_##name = unit::unit_name(ideal);
#include "hca/virtual/profile.def"
#undef TURNOUT_PARAMETER
};

// Time of so many bytes at a rate kept as picoseconds per KiB.
[[nodiscard]] constexpr Picoseconds time_of(std::int64_t rate, std::uint64_t bytes) noexcept {
  return static_cast<Picoseconds>(static_cast<std::uint64_t>(rate) * bytes / 1024);
}

}  // namespace turnout::hca
