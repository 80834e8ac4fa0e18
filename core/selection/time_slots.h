// SPDX-License-Identifier: BSD-3-Clause
// TimeSlots: Statistics in slots of time that grow wider with age. See statistics.h for contents,
// error bounds and ownership.
//
// One source in one slot takes 8 bytes: peer (24 bits), ring (1), count (39), sorted by peer, so
// that merging two slots is one pass and a lookup is a binary search.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/selection/statistics.h"

namespace turnout::selection {

class TimeSlots final : public Statistics {
 public:
  static constexpr std::size_t kLeastBytes = 4096;

  // At least kLeastBytes.
  explicit TimeSlots(std::size_t max_bytes) : max_bytes_(max_bytes) {
    const std::size_t head = sizeof(TimeSlots) + (kMostSlots + 1) * sizeof(Slot);
    const std::size_t wanted =
        max_bytes > head ? (max_bytes - head) / (kWantedSources * sizeof(Entry)) : 0;
    most_slots_ = std::clamp(wanted > 1 + kScratchSlots ? wanted - 1 - kScratchSlots : 0,
                             kFewestSlots, kMostSlots);
    const std::size_t left = max_bytes - sizeof(TimeSlots) - (most_slots_ + 1) * sizeof(Slot);
    most_sources_ = left / sizeof(Entry) / (most_slots_ + 1 + kScratchSlots);
    slots_.reserve(most_slots_ + 1);
  }

  [[nodiscard]] Status begin_interval(TimeWindow interval) override {
    if (Status status = check_interval(interval, newest_); !status.ok()) return status;
    if (open_) end_interval(0);
    slots_.emplace_back().window = interval;
    open_ = true;
    return {};
  }
  void count(std::uint32_t peer, std::uint64_t messages, bool has_ring) override {
    if (!open_ || messages == 0) return;
    Slot& slot = slots_.back();
    slot.add(messages);
    if (peer > kMaxPeer) {
      slot.missing = std::max(slot.missing, messages);
      return;
    }
    std::vector<Entry>& heap = slot.entries;
    const Entry e = entry(peer, std::min(messages, kMessagesMask), has_ring);
    std::uint64_t lost = messages - messages_of(e);
    if (heap.size() < most_sources_) {
      if (heap.size() == heap.capacity()) {
        heap.reserve(std::min(most_sources_, std::max<std::size_t>(8, 2 * heap.capacity())));
      }
      heap.push_back(e);
      std::push_heap(heap.begin(), heap.end(), before);
    } else if (before(e, heap.front())) {
      lost = std::max(lost, messages_of(heap.front()));
      std::pop_heap(heap.begin(), heap.end(), before);
      heap.back() = e;
      std::push_heap(heap.begin(), heap.end(), before);
    } else {
      lost = messages;
    }
    slot.missing = std::max(slot.missing, lost);
  }
  void end_interval(std::uint64_t waits) override {
    if (!open_) return;
    open_ = false;
    Slot& slot = slots_.back();
    slot.set_waits(static_cast<double>(waits));
    std::sort(slot.entries.begin(), slot.entries.end());
    slot.entries.shrink_to_fit();
    newest_ = slot.window;
    if (slots_.size() > most_slots_) merge_with_next(least_harm());
  }
  [[nodiscard]] WindowCounts counts(TimeWindow asked) const override {
    const std::vector<TimeWindow> all = windows();
    if (all.empty()) return {};
    const SlotRange range = nearest_range(all, asked);
    return sum(range.first, range.last);
  }
  [[nodiscard]] std::optional<TimeWindow> newest() const override { return newest_; }
  void keep_border(Time border) override {
    const std::vector<TimeWindow> all = windows();
    if (all.empty()) return;
    kept_border_ = all[nearest_range(all, {border, all.back().end}).first].begin;
  }
  void forget(std::uint32_t peer) override {
    if (peer > kMaxPeer) return;
    for (Slot& slot : slots_) {
      std::vector<Entry>& entries = slot.entries;
      const bool heap = open_ && &slot == &slots_.back();
      const auto at = heap
                          ? std::find_if(entries.begin(), entries.end(),
                                         [peer](Entry e) { return peer_of(e) == peer; })
                          : std::lower_bound(entries.begin(), entries.end(), entry(peer, 0, false));
      if (at == entries.end() || peer_of(*at) != peer) continue;
      slot.messages = (slot.messages - messages_of(*at)) & Slot::kMostMessages;
      entries.erase(at);
      if (heap) std::make_heap(entries.begin(), entries.end(), before);
    }
  }
  [[nodiscard]] std::vector<WindowCounts> slots() const override {
    std::vector<WindowCounts> all;
    for (std::size_t i = 0; i < windows().size(); ++i) all.push_back(sum(i, i));
    return all;
  }
  [[nodiscard]] std::size_t bytes() const override {
    std::size_t total = sizeof(TimeSlots) + slots_.capacity() * sizeof(Slot);
    for (const Slot& slot : slots_) total += slot.entries.capacity() * sizeof(Entry);
    return total;
  }
  [[nodiscard]] std::size_t index_bytes() const override { return 0; }
  [[nodiscard]] std::size_t bytes_during_next(std::size_t heard) const override {
    // The open list grows by doubling or is copied to size: twice its end. Merging needs the
    // scratch list beside the two it replaces and their successor.
    const std::size_t fresh = std::min(heard, most_sources_);
    std::size_t largest = fresh;
    for (const Slot& slot : slots_) largest = std::max(largest, slot.entries.size());
    const bool merges = slots_.size() + (open_ ? 0 : 1) > most_slots_;
    const std::size_t beside = std::max(std::max<std::size_t>(8, fresh) * 2,
                                        fresh + (merges ? kScratchSlots * largest : 0));
    return std::min(max_bytes_, bytes() + beside * sizeof(Entry));
  }

  [[nodiscard]] std::size_t most_sources() const { return most_sources_; }  // of one slot

 private:
  using Entry = std::uint64_t;
  static constexpr unsigned kPeerShift = 40;
  static constexpr Entry kRing = Entry{1} << 39;
  static constexpr Entry kMessagesMask = kRing - 1;

  static std::uint32_t peer_of(Entry e) { return static_cast<std::uint32_t>(e >> kPeerShift); }
  static std::uint64_t messages_of(Entry e) { return e & kMessagesMask; }

  static Entry entry(std::uint32_t peer, std::uint64_t messages, bool ring) {
    return Entry{peer} << kPeerShift | (ring ? kRing : 0) | messages;
  }

  // Sources with a ring rank as if they had twice their messages; see statistics.h.
  static std::uint64_t rank(Entry e) {
    return (e & kRing) != 0 ? 2 * messages_of(e) : messages_of(e);
  }

  // Among equals always the same ones, so that a source is listed in all slots or in none.
  static bool before(Entry a, Entry b) {
    return rank(a) != rank(b) ? rank(a) > rank(b) : peer_of(a) < peer_of(b);
  }

  // Room for this many sources in a slot before more slots are made of the memory: above the
  // paper's tau, the most channels one decision looks at.
  static constexpr std::size_t kWantedSources = 264;
  static constexpr std::size_t kFewestSlots = 8, kMostSlots = 64;
  // A slot is cut to size in a scratch list of the two that were merged.
  static constexpr std::size_t kScratchSlots = 2;
  // Borders before the kept one serve drawings only: they go eight times as easily.
  static constexpr double kPastHarm = 1.0 / 8;

  struct Slot {
    static constexpr double kWhole = (1 << 16) - 1;
    static constexpr std::uint64_t kMostMessages = (std::uint64_t{1} << 48) - 1;
    void add(std::uint64_t more) { messages = (messages + more) & kMostMessages; }
    [[nodiscard]] double waits() const {
      return static_cast<double>(messages) * static_cast<double>(waited) / kWhole;
    }
    void set_waits(double waits) {
      const double part = messages > 0 ? waits / static_cast<double>(messages) : 0;
      waited = static_cast<std::uint16_t>(std::lround(std::min(part, 1.0) * kWhole));
    }

    TimeWindow window;
    std::uint64_t messages : 48 = 0;
    std::uint64_t waited : 16 = 0;  // the part of the messages that we waited for, in 1/kWhole
    std::uint64_t missing = 0;
    std::vector<Entry> entries;  // by peer; while its interval is open: a heap, least rank first
  };

  [[nodiscard]] std::vector<TimeWindow> windows() const {
    std::vector<TimeWindow> all;
    for (const Slot& slot : slots_) all.push_back(slot.window);
    if (open_) all.pop_back();
    return all;
  }
  [[nodiscard]] WindowCounts sum(std::size_t first, std::size_t last) const {
    WindowCounts result;
    result.window = {slots_[first].window.begin, slots_[last].window.end};
    struct Cursor {
      const Entry* at;
      const Entry* end;
    };
    std::vector<Cursor> cursors;
    std::size_t longest = 0;
    double waits = 0;
    for (std::size_t i = first; i <= last; ++i) {
      const Slot& slot = slots_[i];
      result.messages += slot.messages;
      waits += slot.waits();
      result.missing += slot.missing;
      cursors.push_back({slot.entries.data(), slot.entries.data() + slot.entries.size()});
      longest = std::max(longest, slot.entries.size());
    }
    result.waits = static_cast<std::uint64_t>(std::llround(waits));
    result.sources.reserve(longest);
    for (;;) {
      std::erase_if(cursors, [](const Cursor& c) { return c.at == c.end; });
      if (cursors.empty()) return result;
      std::uint32_t peer = std::numeric_limits<std::uint32_t>::max();
      for (const Cursor& c : cursors) peer = std::min(peer, peer_of(*c.at));
      std::uint64_t messages = 0;
      for (Cursor& c : cursors) {
        if (peer_of(*c.at) == peer) messages += messages_of(*c.at++);
      }
      result.sources.push_back({peer, messages});
    }
  }
  // The slot to merge with the next.
  // Losing a border harms the windows that would begin there: the more the wider the slot becomes
  // against the border's age.
  [[nodiscard]] std::size_t least_harm() const {
    const Time now = slots_.back().window.end;
    std::size_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i + 1 < slots_.size(); ++i) {
      const Time border = slots_[i + 1].window.begin;
      if (kept_border_ && border == *kept_border_) continue;
      double harm = static_cast<double>(slots_[i + 1].window.end - slots_[i].window.begin) /
                    static_cast<double>(now - border);
      if (kept_border_ && border < *kept_border_) harm *= kPastHarm;
      if (harm < least) {
        least = harm;
        best = i;
      }
    }
    return best;
  }
  void merge_with_next(std::size_t i) {
    Slot& older = slots_[i];
    Slot& newer = slots_[i + 1];
    older.window.end = newer.window.end;
    const double waits = older.waits() + newer.waits();
    older.add(newer.messages);
    older.set_waits(waits);
    older.missing += newer.missing;
    std::uint64_t lost = 0;
    std::vector<Entry> both;
    both.reserve(older.entries.size() + newer.entries.size());
    auto a = older.entries.begin(), b = newer.entries.begin();
    while (a != older.entries.end() || b != newer.entries.end()) {
      if (b == newer.entries.end() || (a != older.entries.end() && peer_of(*a) < peer_of(*b))) {
        both.push_back(*a++);
      } else if (a == older.entries.end() || peer_of(*b) < peer_of(*a)) {
        both.push_back(*b++);
      } else {
        const std::uint64_t messages = messages_of(*a) + messages_of(*b);
        both.push_back(entry(peer_of(*a), std::min(messages, kMessagesMask), (*b & kRing) != 0));
        lost = std::max(lost, messages - messages_of(both.back()));
        ++a, ++b;
      }
    }
    older.entries = {};
    newer.entries = {};
    if (both.size() > most_sources_) {
      const auto cut = both.begin() + static_cast<std::ptrdiff_t>(most_sources_);
      std::nth_element(both.begin(), cut, both.end(), before);
      for (auto dropped = cut; dropped != both.end(); ++dropped) {
        lost = std::max(lost, messages_of(*dropped));
      }
      both.erase(cut, both.end());
      std::sort(both.begin(), both.end());
    }
    older.missing += lost;
    older.entries = std::vector<Entry>(both.begin(), both.end());
    slots_.erase(slots_.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }

  std::size_t max_bytes_;
  std::size_t most_slots_;
  std::size_t most_sources_;
  std::vector<Slot> slots_;  // oldest first; one more than most_slots_ while an interval is open
  bool open_ = false;        // the last slot's interval has not ended
  std::optional<TimeWindow> newest_;
  std::optional<Time> kept_border_;
};

}  // namespace turnout::selection
