// SPDX-License-Identifier: BSD-3-Clause
// EventQueue: what is to happen, by virtual time; equal times in the order of insertion.
//
// A radix heap (Ahuja, Mehlhorn, Orlin, Tarjan, JACM 1990) of hexadecimal digits: time does not go
// back, so an event lies with those that differ from now first in the same digit, and equally, and
// moves on as time comes near it. Equal times stay together, in their order. No allocation once it
// has grown. One thread.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "hca/virtual/profile.h"

namespace turnout::hca {

enum class EventKind : std::uint32_t {
  callback,
  ready,      // at the sender's adapter
  restart,    // of a queue pair whose head had to wait
  resend,     // what found no receive, at the sender's adapter
  arrive,     // at the target's adapter: the first packet; then all of it, if there are more
  land,       // in the target's memory
  send_back,  // the data of a read, at the sender's adapter; then in its memory
  answer,     // at the sender's adapter
  complete,   // in the sender's completion queue
  notify,     // a process, after an interrupt
};

struct Event {
  Picoseconds time = 0;
  void* object = nullptr;
  std::uint64_t argument = 0;
  void (*callback)(void*, std::uint64_t) = nullptr;  // of EventKind::callback
  EventKind kind = EventKind::callback;
};

class EventQueue {
 public:
  // Not before the time of the latest that was taken.
  void push(const Event& event) {
    assert(event.time >= latest_);
    insert(event);
  }
  [[nodiscard]] bool empty() const noexcept { return taken_ == now_.size() && filled_ == 0; }
  // Calls `fetch` with an event that comes next, or nearly.
  template <class Fetch>
  void look_ahead(Fetch&& fetch) const {
    if (taken_ < now_.size()) return fetch(now_[taken_]);
    if (filled_ == 0) return;
    const Level& level = levels_[static_cast<unsigned>(std::countr_zero(filled_))];
    fetch(level.digits[static_cast<unsigned>(std::countr_zero(level.filled))].front());
  }
  // Not empty.
  [[nodiscard]] Event pop() {
    assert(!empty());
    if (taken_ == now_.size()) refill();
    return now_[taken_++];
  }

 private:
  static constexpr unsigned kBits = 4, kDigits = 1U << kBits, kLevels = 64 / kBits;
  static constexpr unsigned kNear = 3;  // levels: less than 5 ns

  void insert(const Event& event) {
    const auto differ = static_cast<std::uint64_t>(event.time ^ latest_);
    if (differ == 0) {
      now_.push_back(event);
      return;
    }
    const unsigned level = static_cast<unsigned>(std::bit_width(differ) - 1) / kBits;
    if (level < kNear) {  // the world is larger than a processor's cache
      __builtin_prefetch(event.object);
      __builtin_prefetch(static_cast<const std::uint8_t*>(event.object) + 64);
    }
    const unsigned digit = static_cast<unsigned>(event.time >> (level * kBits)) % kDigits;
    levels_[level].digits[digit].push_back(event);
    levels_[level].filled |= 1U << digit;
    filled_ |= 1U << level;
  }
  // Takes apart the first events that are together: all go to lower levels, the first of them to
  // now_.
  void refill() {
    now_.clear();
    taken_ = 0;
    Level& level = levels_[static_cast<unsigned>(std::countr_zero(filled_))];
    std::vector<Event>& from = level.digits[static_cast<unsigned>(std::countr_zero(level.filled))];
    level.filled &= level.filled - 1;
    if (level.filled == 0) filled_ &= filled_ - 1;
    latest_ = std::min_element(from.begin(), from.end(), [](const Event& a, const Event& b) {
                return a.time < b.time;
              })->time;
    for (const Event& event : from) insert(event);
    from.clear();
  }

  // Events whose time differs from the latest first in this digit, by it.
  struct Level {
    std::array<std::vector<Event>, kDigits> digits;
    std::uint32_t filled = 0;  // a bit for each that is not empty
  };
  std::array<Level, kLevels> levels_;
  std::uint32_t filled_ = 0;  // a bit for each that is not empty
  std::vector<Event> now_;    // of the same time as the latest
  std::size_t taken_ = 0;     // of these
  Picoseconds latest_ = 0;    // time of the latest that was taken
};

}  // namespace turnout::hca
