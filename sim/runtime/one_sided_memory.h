// SPDX-License-Identifier: BSD-3-Clause
// OneSidedMemory: what a simulated rank lets the others reach by puts, gets and atomic additions.
//
// Who reads or writes asks for the other's key here: real programs exchange keys before, once.
// Memory is registered when it is first needed and when it has to be larger; what is under way uses
// the region before, which goes with the endpoint. Owned by the job; in the simulation's thread.
// Errors: SimulationError, and OperationError for memory of a rank that was killed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "core/endpoint.h"
#include "sim/runtime/content_checker.h"
#include "sim/runtime/rank.h"

namespace turnout::sim {

// ReachedMemory: the part of a simulated rank's memory that other ranks' one-sided operations
// access while content is checked. Each operation has separate bytes with known content, followed
// by a guard that no operation may write. Regions live as long as this object, because
// operations in flight may use one after a larger one was created.
class ReachedMemory {
 public:
  struct Place {
    std::size_t region = 0;
    std::uint64_t at = 0, bytes = 0;
  };

  // Nothing: a region of least() bytes is wanted.
  [[nodiscard]] std::optional<Place> take(std::uint64_t bytes);
  void give_back(const Place& place) { regions_[place.region].used.erase(place.at); }
  [[nodiscard]] std::uint64_t least(std::uint64_t bytes) const noexcept;
  // Made before it is registered; the key is told then.
  [[nodiscard]] std::byte* add_region(std::uint64_t size);
  void set_key(const MemoryKey& key) noexcept { regions_.back().key = key; }

  [[nodiscard]] std::byte* data(const Place& place) noexcept {
    return regions_[place.region].memory.get() + place.at;
  }
  [[nodiscard]] const MemoryKey& key(const Place& place) const noexcept {
    return regions_[place.region].key;
  }

  // What an operation that writes has to change, and one that reads has to find.
  void spoil(const Place& place, std::uint64_t content) noexcept;
  void fill(const Place& place, std::uint64_t content) noexcept {
    fill_content(data(place), 0, place.bytes, content);
  }
  // The first byte that is not `content`; bytes and beyond: of the guard.
  [[nodiscard]] std::optional<std::uint64_t> first_wrong(const Place& place,
                                                         std::uint64_t content) noexcept;

 private:
  struct Region {
    std::unique_ptr<std::byte[]> memory;
    std::uint64_t size = 0;
    MemoryKey key;
    std::map<std::uint64_t, std::uint64_t> used;  // ends by begins, guards included
  };
  std::vector<Region> regions_;
};

// How many cells every rank has, for additions. The same for all ranks of a simulation.
struct CellCount {
  std::uint32_t count = 1;
  bool used = false;
  void keep(std::uint32_t at_least);
};

class OneSidedMemory {
 public:
  // Registers memory of this rank, at the cost of its process.
  using Register = std::function<Result<MemoryKey>(void* memory, std::uint64_t bytes)>;
  enum class State : std::uint8_t { alive, killed, exited };
  // An operation's own bytes, while content is checked.
  struct Target {
    ReachedMemory::Place place;
    std::uint64_t address = 0, key = 0;
  };

  // `cells` outlives it.
  OneSidedMemory(std::uint32_t rank, CellCount& cells, Register register_memory)
      : rank_(rank), cell_count_(cells), register_(std::move(register_memory)) {}
  void set_state(State state) noexcept { state_ = state; }

  // The key of the first `bytes` of `memory`, always the same memory.
  [[nodiscard]] std::uint64_t window_key(void* memory, std::uint64_t bytes);
  // Bytes that no other operation reaches. A put has to change them to `content`, a get finds it.
  [[nodiscard]] Target open(std::uint64_t bytes, std::uint64_t content, bool puts);
  void close(const ReachedMemory::Place& place) { reached_.give_back(place); }
  // The first byte that is not `content`, or beyond the place was changed.
  [[nodiscard]] std::optional<std::uint64_t> first_wrong(const ReachedMemory::Place& place,
                                                         std::uint64_t content) noexcept {
    return reached_.first_wrong(place, content);
  }
  // As large as ever from the first use on.
  [[nodiscard]] std::uint64_t* cells();
  [[nodiscard]] std::uint64_t cells_key();

 private:
  [[nodiscard]] MemoryKey key_for(const char* what, void* memory, std::uint64_t bytes);
  void expect_endpoint(const char* what) const;

  std::uint32_t rank_;
  CellCount& cell_count_;
  Register register_;
  State state_ = State::alive;
  ReachedMemory reached_;
  std::uint64_t window_bytes_ = 0;
  MemoryKey window_;
  std::vector<std::uint64_t> cells_;
  std::optional<MemoryKey> cells_key_;
};

}  // namespace turnout::sim
