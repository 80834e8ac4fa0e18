// SPDX-License-Identifier: BSD-3-Clause
// EventQueue: what is to happen, by virtual time; equal times in the order of insertion.
//
// A heap of small records with four children a node: no allocation once it has grown. One thread.
#pragma once

#include <cassert>
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
  std::uint64_t order = 0;
  void* object = nullptr;
  std::uint64_t argument = 0;
  void (*callback)(void*, std::uint64_t) = nullptr;  // of EventKind::callback
  EventKind kind = EventKind::callback;

  [[nodiscard]] bool before(const Event& other) const noexcept {
    return time != other.time ? time < other.time : order < other.order;
  }
};

class EventQueue {
 public:
  void push(Event event) {
    event.order = next_++;
    std::size_t at = heap_.size();
    heap_.push_back(event);
    while (at > 0) {
      const std::size_t parent = (at - 1) / 4;
      if (!event.before(heap_[parent])) break;
      heap_[at] = heap_[parent];
      at = parent;
    }
    heap_[at] = event;
  }
  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }
  // Not empty.
  Event pop() {
    assert(!empty());
    const Event first = heap_.front();
    const Event last = heap_.back();
    heap_.pop_back();
    const std::size_t n = heap_.size();
    if (n > 0) {
      std::size_t at = 0;
      for (;;) {
        const std::size_t child = at * 4 + 1;
        if (child >= n) break;
        std::size_t least = child;
        const std::size_t end = child + 4 < n ? child + 4 : n;
        for (std::size_t c = child + 1; c < end; ++c) {
          if (heap_[c].before(heap_[least])) least = c;
        }
        if (!heap_[least].before(last)) break;
        heap_[at] = heap_[least];
        at = least;
      }
      heap_[at] = last;
    }
    return first;
  }

 private:
  std::vector<Event> heap_;
  std::uint64_t next_ = 0;
};

}  // namespace turnout::hca
