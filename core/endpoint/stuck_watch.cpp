// SPDX-License-Identifier: BSD-3-Clause
#include "core/endpoint/stuck_watch.h"

#include <algorithm>

#include "base/log.h"
#include "base/value.h"

namespace turnout {

void StuckWatch::look(Nanoseconds now) {
  const Nanoseconds limit = context_.settings.stuck;
  next_ = now + std::clamp<Nanoseconds>(limit / kLooks, kLeast, LiveReport::kInterval);
  const WaitsReport waits = reporter_.waits().look(now);
  const auto stuck = static_cast<std::size_t>(std::ranges::count_if(
      waits.list, [&](const WaitReport& wait) { return blocks(wait.kind) && wait.age >= limit; }));
  // A receive that is meant to stay posted must not hide what hangs later.
  if (stuck <= std::exchange(stuck_, stuck)) return;
  log(waits);
  write(now);
}

void StuckWatch::log(const WaitsReport& waits) const {
  std::size_t lines = 0, more = 0;
  for (const WaitReport& wait : waits.list) {
    if (!blocks(wait.kind) || wait.age < context_.settings.stuck) continue;
    if (lines == kMostLines) {
      ++more;
      continue;
    }
    ++lines;
    TURNOUT_LOG(protocol, warn,
                "{} is pending: {}: tag {:#x}, {} bytes, for {} s: {}; run turnout stuck",
                name(wait.kind), reporter_.waits().peer_text(wait), wait.tag, wait.bytes,
                wait.age / 1'000'000'000, explain(wait.waits_for));
  }
  if (more > 0) TURNOUT_LOG(protocol, warn, "{} more operations are pending", more);
}

void StuckWatch::write(Nanoseconds now) const {
  const std::string& folder = context_.settings.report;
  const bool in_virtual_time = context_.simulation.processor != nullptr;
  if (folder.empty() || folder == "0" || folder == "1" || in_virtual_time) return;
  const Status status =
      publish(reporter_.report_with_waits(now), folder, context_.settings.report_job);
  if (status.ok()) return;
  TURNOUT_LOG(endpoint, warn, "writing the report failed: {}; check TURNOUT_REPORT", status.text());
}

}  // namespace turnout
