// SPDX-License-Identifier: BSD-3-Clause
// The order in which the selection visits sources: busiest first; among equals, those with an RC
// ring, then with another ring, then by peer. Many sources in the order of peers are radix-sorted,
// because a comparison sort of 65,536 takes longer than the rest of a decision.
//
// Pure. Any thread.
#pragma once

#include <span>
#include <vector>

#include "core/selection/policy.h"

namespace turnout::selection {

[[nodiscard]] bool busier(const SourceView& a, const SourceView& b);
[[nodiscard]] std::vector<SourceView> busiest_first(std::span<const SourceView> sources);

}  // namespace turnout::selection
