// SPDX-License-Identifier: BSD-3-Clause
// ProgressLoop: one call of progress: what is polled in which order, and what is due by time.
#pragma once

#include "core/memory/memory_history.h"
#include "core/report/report_live.h"
#include "core/state/endpoint_context.h"
#include "core/state/peer.h"
#include "core/state/transport_resources.h"

namespace turnout {

struct Components;

inline constexpr std::uint32_t kTickEvery = 64;  // progress calls between two looks at the clock

class ProgressLoop {
 public:
  explicit ProgressLoop(Components& parts, EndpointContext& context);

  bool progress_now();
  [[nodiscard]] std::uint32_t& tick_every() noexcept { return tick_every_; }
  [[nodiscard]] LiveReport& live_report() noexcept { return live_report_; }
  [[nodiscard]] MemoryHistory& memory_history() noexcept { return memory_history_; }

 private:
  void tick();

  Components& parts_;
  EndpointContext& context_;

  std::uint32_t tick_every_;  // progress calls between two clock reads
  LiveReport live_report_;
  MemoryHistory memory_history_;
};

}  // namespace turnout
