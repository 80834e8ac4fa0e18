// SPDX-License-Identifier: BSD-3-Clause
// copy_in_order: memcpy whose last byte becomes visible last, as the last byte of an adapter's
// write does; a program that polls it sees the rest.
//
// The ranges may overlap, and both are mapped. Zero bytes: nothing. Any thread.
#pragma once

#include <cstdint>

namespace turnout::hca {

void copy_in_order(std::uint8_t* to, const std::uint8_t* from, std::uint64_t length) noexcept;

}  // namespace turnout::hca
