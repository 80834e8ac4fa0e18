// SPDX-License-Identifier: BSD-3-Clause
// The order in which the selection looks at sources: busiest first, equals with an RC ring, with
// another ring, then by peer. Many sources that come in the order of peers are sorted by digits,
// because comparing 65,536 takes longer than all the rest of a decision.
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
