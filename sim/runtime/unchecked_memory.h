// SPDX-License-Identifier: BSD-3-Clause
// UncheckedMemory: where messages come from and go to when their content is not checked. Pages are
// there when they are touched.
//
// One for all ranks of a simulation; in its thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace turnout::sim {

class UncheckedMemory {
 public:
  static constexpr std::uint64_t kBytes = std::uint64_t{256} << 20;  // the largest message
  enum Use : std::uint8_t { source, sink, window };  // window: what one-sided operations reach

  // Null: the machine has no more memory.
  [[nodiscard]] void* of(Use use) noexcept {
    if (!memory_[use]) memory_[use].reset(std::calloc(1, kBytes));
    return memory_[use].get();
  }

 private:
  struct Free {
    void operator()(void* memory) const noexcept { std::free(memory); }
  };
  std::array<std::unique_ptr<void, Free>, 3> memory_;
};

}  // namespace turnout::sim
