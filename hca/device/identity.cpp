// SPDX-License-Identifier: BSD-3-Clause
#include "hca/device/identity.h"

#include "base/log.h"
#include "base/settings.h"
#include "hca/device/limits.h"

namespace turnout::hca {
namespace {

// No vendor's driver may take us for its device: a locally administered number.
constexpr std::uint32_t kOwnVendor = 0x02'54'55;
constexpr std::uint32_t kMellanox = 0x02'c9;
constexpr std::uint32_t kSoftwareVendor = 0xff'ff'ff;
constexpr std::uint32_t kRxeMaxCqe = (1U << 15) - 1;

constexpr Identity kIdentities[] = {
    {kAdapterNames[0], kOwnVendor, 1, nullptr, kMaxCqe, kMaxDeviceMemory, true, true, true, true,
     true},
    {kAdapterNames[1], kMellanox, 0x1017, "16.35.2000", kMaxCqe, kMaxDeviceMemory, true, true, true,
     true, true},
    {kAdapterNames[2], kMellanox, 0x1011, "10.16.1200", kMaxCqe, 0, true, true, false, true, true},
    {kAdapterNames[3], kSoftwareVendor, 0, "", kRxeMaxCqe, 0, false, false, true, false, false},
};

const Identity& chosen() {
  const auto settings = Settings::load(UnknownNames::ignore);
  if (!settings) {
    TURNOUT_LOG(hca, error, "loading the settings failed: {}: {}; using the default adapter model",
                kDeviceName, settings.status().text());
    return kIdentities[0];
  }
  for (const Identity& one : kIdentities) {
    if (one.name == settings.value().adapter) return one;
  }
  return kIdentities[0];
}

}  // namespace

const Identity& identity() {
  static const Identity& one = chosen();
  return one;
}

}  // namespace turnout::hca
