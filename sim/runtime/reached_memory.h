// SPDX-License-Identifier: BSD-3-Clause
// ReachedMemory: the part of a simulated rank's memory that other ranks' one-sided operations
// access while content is checked. Each operation has separate bytes with known content, followed
// by a guard that no operation may write.
//
// Owned by the rank; in the simulation's thread. Regions live as long as this object, because
// operations in flight may use one after a larger one was created.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/endpoint.h"

namespace turnout::sim {

class ReachedMemory {
 public:
  struct Place {
    std::size_t region = 0;
    std::uint64_t at = 0, bytes = 0;
  };

  // Nothing: a region of least() bytes is wanted.
  [[nodiscard]] std::optional<Place> take(std::uint64_t bytes);
  void give_back(const Place& place);
  [[nodiscard]] std::uint64_t least(std::uint64_t bytes) const noexcept;
  // Made before it is registered; the key is told then.
  [[nodiscard]] std::byte* add_region(std::uint64_t size);
  void set_key(const MemoryKey& key) noexcept { regions_.back().key = key; }

  [[nodiscard]] std::byte* data(const Place& place) noexcept;
  [[nodiscard]] const MemoryKey& key(const Place& place) const noexcept;

  // What an operation that writes has to change, and one that reads has to find.
  void spoil(const Place& place, std::uint64_t content) noexcept;
  void fill(const Place& place, std::uint64_t content) noexcept;
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

}  // namespace turnout::sim
