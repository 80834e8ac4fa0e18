// SPDX-License-Identifier: BSD-3-Clause
// Regions: the registered memory of a world, by key.
//
// A region is its program's until remove(). Sizes are bytes; registration takes the time that the
// profile says. Errors of add(): null and errno. One thread.
#pragma once

#include "hca/virtual/processes.h"

namespace turnout::hca {

class Regions : WorldParts {
 public:
  explicit Regions(const WorldParts& parts) : WorldParts(parts) {}

  [[nodiscard]] Mr* add(Pd& pd, void* address, std::uint64_t length, std::uint64_t iova,
                        unsigned access);
  [[nodiscard]] int remove(Mr& mr);
  // The region that has these bytes and all of these rights, or null.
  [[nodiscard]] const Region* find(std::uint32_t key, std::uint64_t address, std::uint64_t length,
                                   unsigned rights) const noexcept;

 private:
  NumberTable<Region> table_{1, 256};  // by key >> 8; key 0 is none
};

}  // namespace turnout::hca
