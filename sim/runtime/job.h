// SPDX-License-Identifier: BSD-3-Clause
// Job: what the operations of all ranks of a simulation share.
//
// Owned by the simulation; in its thread. Options and world outlive it.
#pragma once

#include <sys/mman.h>
#include <tsl/robin_map.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/types/address.h"
#include "hca/virtual/profile.h"
#include "sim/runtime/content_checker.h"
#include "sim/runtime/one_sided_memory.h"
#include "sim/runtime/simulation.h"

namespace turnout::sim {

// MessageLatencies: the time from the start of each send to the end of its receive. Messages of one
// source, destination and tag end in the order in which they began (MPI's order).
class MessageLatencies {
 public:
  void begin(std::uint32_t source, std::uint32_t destination, std::uint64_t tag, Picoseconds now) {
    const std::uint32_t at = reserve(now);
    const auto [place, is_new] = streams_.try_emplace(stream(source, destination, tag), at, at);
    if (is_new) return;
    started_[place->second.latest].next = at;
    place.value().latest = at;
  }
  void end(std::uint32_t source, std::uint32_t destination, std::uint64_t tag, Picoseconds now) {
    const auto found = streams_.find(stream(source, destination, tag));
    if (found == streams_.end()) return;
    const std::uint32_t at = found->second.first;
    latencies_.push_back(now - started_[at].at);
    if (at == found->second.latest) {
      streams_.erase(found);
    } else {
      found.value().first = started_[at].next;
    }
    free_.push_back(at);
  }
  [[nodiscard]] std::vector<Picoseconds> take_sorted() {
    std::sort(latencies_.begin(), latencies_.end());
    return std::exchange(latencies_, {});
  }

 private:
  [[nodiscard]] static std::uint64_t stream(std::uint32_t source, std::uint32_t destination,
                                            std::uint64_t tag) noexcept {
    return content_key(source, destination, tag, 0);
  }
  [[nodiscard]] std::uint32_t reserve(Picoseconds now) {
    if (free_.empty()) {
      started_.push_back({now, 0});
      return static_cast<std::uint32_t>(started_.size() - 1);
    }
    const std::uint32_t at = free_.back();
    free_.pop_back();
    started_[at].at = now;
    return at;
  }

  struct Started {
    Picoseconds at;
    std::uint32_t next;  // of the same stream
  };
  struct Stream {
    Stream(std::uint32_t of_first, std::uint32_t of_latest) : first(of_first), latest(of_latest) {}
    std::uint32_t first, latest;  // that were not received, in started_
  };
  tsl::robin_map<std::uint64_t, Stream> streams_;
  std::vector<Started> started_;
  std::vector<std::uint32_t> free_;  // of these
  std::vector<Picoseconds> latencies_;
};

// UncheckedMemory: where messages come from and go to when their content is not checked. Pages are
// there when they are touched: it is no part of the heap, which would have to be cleared.
class UncheckedMemory {
 public:
  static constexpr std::uint64_t kBytes = std::uint64_t{256} << 20;  // the largest message
  enum Use : std::uint8_t { source, sink, window };  // window: what one-sided operations reach

  // Null: the machine has no more memory.
  [[nodiscard]] void* of(Use use) noexcept {
    if (!memory_[use]) {
      void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (memory != MAP_FAILED) memory_[use].reset(memory);
    }
    return memory_[use].get();
  }

 private:
  struct Unmap {
    void operator()(void* memory) const noexcept { munmap(memory, kBytes); }
  };
  std::array<std::unique_ptr<void, Unmap>, 3> memory_;
};

struct Job {
  const Options& options;
  hca::World& world;
  std::vector<Address> addresses = {};                         // by rank
  std::vector<std::unique_ptr<OneSidedMemory>> memories = {};  // by rank
  UncheckedMemory unchecked = {};
  CellCount cells = {};
  int last_byte = -1;  // of all messages; below 0: any
  MessageLatencies latencies = {};
  std::uint64_t messages = 0, bytes = 0;  // sent
};

}  // namespace turnout::sim
