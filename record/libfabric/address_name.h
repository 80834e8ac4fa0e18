// SPDX-License-Identifier: BSD-3-Clause
// name_of_address(): the name of a process in the recordings, from an address of libfabric.
//
// fi_getname() of an endpoint and fi_av_lookup() of a peer give the same bytes, so both have the
// same name. Owns nothing. Any thread. No errors. Source: fi_cm(3), fi_av(3), FI_ADDR_STR.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace turnout::record::libfabric {

inline constexpr std::size_t kLongestAddress = 512;  // bytes; of a longer one, the beginning

[[nodiscard]] std::uint64_t name_of_address(std::span<const std::byte> address) noexcept;

}  // namespace turnout::record::libfabric
