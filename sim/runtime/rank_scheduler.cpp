// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/rank_scheduler.h"

#include <algorithm>

namespace turnout::sim {

void RankScheduler::run_at(Picoseconds time) {
  if (scheduled_ >= 0 && scheduled_ <= time) return;
  scheduled_ = time;
  world_.at(
      time,
      [](void* context, std::uint64_t due) {
        auto* self = static_cast<RankScheduler*>(context);
        if (self->scheduled_ != static_cast<Picoseconds>(due)) return;
        self->scheduled_ = -1;
        if (!self->stopped_) self->run_(self->context_);
      },
      this, static_cast<std::uint64_t>(time));
}

void RankScheduler::wake() {
  if (!stopped_) run_at(std::max(world_.now(), world_.busy_until(process_)));
}

void RankScheduler::wake_at(Picoseconds time) {
  world_.at(
      time, [](void* self, std::uint64_t) { static_cast<RankScheduler*>(self)->wake(); }, this, 0);
}

void RankScheduler::sleep_until(Picoseconds deadline) {
  if (timer_ >= 0 && timer_ <= deadline && timer_ > world_.now()) return;
  timer_ = deadline;
  wake_at(deadline);
}

}  // namespace turnout::sim
