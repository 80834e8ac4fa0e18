// SPDX-License-Identifier: BSD-3-Clause
// Which of a port's GIDs names it on Ethernet (RoCE). Each address of the interface has one for
// RoCE v1 and one for v2, and so has its link-local IPv6 address, which exists without any
// configuration. Routers carry v2 only and no link-local address, and both ends must use the same
// version: so of v2 before v1, and an IPv4 address before others. Plain functions, any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace turnout::verbs {

using Gid = std::array<std::uint8_t, 16>;

// The higher the better; 0: nobody filled it.
[[nodiscard]] constexpr unsigned gid_merit(const Gid& gid, bool v2) noexcept {
  constexpr Gid kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};  // RFC 4291, 2.5.5.2
  if (gid == Gid{}) return 0;
  const bool ipv4 = std::equal(gid.begin(), gid.begin() + 12, kMapped.begin());
  const bool link_local = gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
  const unsigned reach = ipv4 ? 2 : link_local ? 0 : 1;
  return 1 + reach + (v2 ? 3 : 0);
}

}  // namespace turnout::verbs
