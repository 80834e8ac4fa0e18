// SPDX-License-Identifier: BSD-3-Clause
#include "core/report/receive_cost.h"

namespace turnout {

std::vector<ReceiveCostLine> ReceiveCost::lines() const {
  std::vector<ReceiveCostLine> lines;
  for (std::size_t kind = 0; kind < sums_.size(); ++kind) {
    const Sum& sum = sums_[kind];
    if (sum.messages == 0) continue;
    lines.push_back({static_cast<ChannelKind>(kind), sum.messages, sum.mean()});
  }
  return lines;
}

std::optional<double> ReceiveCost::gain(ChannelKind kind) const noexcept {
  const Sum& base = sums_[static_cast<std::size_t>(default_channel_)];
  const Sum& own = sums_[static_cast<std::size_t>(kind)];
  if (kind == default_channel_ || base.messages < kLeastSample || own.messages < kLeastSample) {
    return {};
  }
  return base.mean() - own.mean();
}

}  // namespace turnout
