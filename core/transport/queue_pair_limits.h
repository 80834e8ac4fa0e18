// SPDX-License-Identifier: BSD-3-Clause
// What every connected queue pair of Turnout is given. Constants; any thread.
#pragma once

#include <cstdint>

namespace turnout {

// IBTA: 7 retries for want of a receive mean "for ever": a slow receiver loses nothing.
inline constexpr std::uint8_t kRnrRetryForever = 7;
// READs in flight per queue pair; what mlx5 adapters offer (max_qp_rd_atom).
inline constexpr std::uint8_t kMaxReads = 16;

}  // namespace turnout
