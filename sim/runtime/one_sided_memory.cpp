// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/one_sided_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace turnout::sim {
namespace {
constexpr std::uint64_t kLeastWindow = 64 << 10;
}

void CellCount::keep(std::uint32_t at_least) {
  if (at_least <= count) return;
  if (used) {
    throw SimulationError(
        fmt::format("{} cells requested after the first addition to one of {}", at_least, count));
  }
  count = at_least;
}

void OneSidedMemory::expect_endpoint(const char* what) const {
  if (state_ != State::exited) return;
  throw SimulationError(fmt::format("{} of rank {}, which has exited", what, rank_));
}

MemoryKey OneSidedMemory::key_for(const char* what, void* memory, std::uint64_t bytes) {
  auto key = register_(memory, bytes);
  if (key) return key.value();
  throw SimulationError(fmt::format("{} of rank {}: {}", what, rank_, key.status().text()));
}

std::uint64_t OneSidedMemory::window_key(void* memory, std::uint64_t bytes) {
  expect_endpoint("memory");
  const std::uint64_t size = std::bit_ceil(std::max(bytes, kLeastWindow));
  if (window_bytes_ < size) {
    window_ = key_for("memory", memory, size);
    window_bytes_ = size;
  }
  return window_.remote;
}

OneSidedMemory::Target OneSidedMemory::open(std::uint64_t bytes, std::uint64_t content, bool puts) {
  expect_endpoint("memory");
  auto place = reached_.take(bytes);
  if (!place) {
    if (state_ == State::killed) {
      throw OperationError(fmt::format("rank {} was killed; its keys are unknown", rank_));
    }
    const std::uint64_t size = reached_.least(bytes);
    reached_.set_key(key_for("memory", reached_.add_region(size), size));
    place = reached_.take(bytes);
  }
  puts ? reached_.spoil(*place, content) : reached_.fill(*place, content);
  return {*place, reinterpret_cast<std::uint64_t>(reached_.data(*place)),
          reached_.key(*place).remote};
}

std::uint64_t* OneSidedMemory::cells() {
  if (cells_.empty()) {
    cell_count_.used = true;
    cells_.resize(cell_count_.count);
  }
  return cells_.data();
}

std::uint64_t OneSidedMemory::cells_key() {
  expect_endpoint("cells");
  std::uint64_t* const begin = cells();
  if (!cells_key_) cells_key_ = key_for("cells", begin, cells_.size() * sizeof *begin);
  return cells_key_->remote;
}

}  // namespace turnout::sim
