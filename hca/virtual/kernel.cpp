// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/kernel.h"

#include <algorithm>
#include <cassert>

namespace turnout::hca {

void Kernel::at(Picoseconds time, World::Callback callback, void* context, std::uint64_t argument) {
  events_.push({std::max(time, now_), 0, context, argument, callback, EventKind::callback});
}

void Kernel::schedule(Picoseconds time, EventKind kind, void* object, std::uint64_t argument) {
  events_.push({std::max(time, now_), 0, object, argument, nullptr, kind});
}

bool Kernel::chance(std::int64_t ppm) noexcept {
  if (ppm <= 0) return false;
  const bool happens = random() % 1'000'000 < static_cast<std::uint64_t>(ppm);
  if (happens) ++statistics_.faults;
  return happens;
}

void Kernel::mix(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t hash = statistics_.hash ^ a;
  hash = (hash ^ (hash >> 32)) * 0x9e3779b97f4a7c15ULL + b;
  statistics_.hash = hash ^ (hash >> 29);
}

bool Kernel::next(Event& event) {
  if (events_.empty()) return false;
  event = events_.pop();
  assert(event.time >= now_);
  now_ = event.time;
  ++statistics_.events;
  mix(static_cast<std::uint64_t>(event.time), static_cast<std::uint64_t>(event.kind));
  return true;
}

}  // namespace turnout::hca
