// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/one_sided_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace turnout::sim {

constexpr std::uint64_t kLeastRegion = 64 << 10;
constexpr std::uint64_t kGuardBytes = 8;
constexpr std::byte kGuard{0xa5};

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
  const std::uint64_t size = std::bit_ceil(std::max(bytes, kLeastRegion));
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

std::optional<ReachedMemory::Place> ReachedMemory::take(std::uint64_t bytes) {
  if (regions_.empty()) return std::nullopt;
  Region& region = regions_.back();
  const std::uint64_t wanted = bytes + kGuardBytes;
  std::uint64_t at = 0;
  for (const auto& [begin, end] : region.used) {
    if (begin - at >= wanted) break;
    at = end;
  }
  if (region.size - at < wanted) return std::nullopt;
  region.used.emplace(at, at + wanted);
  const Place place{regions_.size() - 1, at, bytes};
  std::fill_n(data(place) + bytes, kGuardBytes, kGuard);
  return place;
}

std::uint64_t ReachedMemory::least(std::uint64_t bytes) const noexcept {
  const std::uint64_t size = std::max(std::bit_ceil(bytes + kGuardBytes), kLeastRegion);
  return regions_.empty() ? size : std::max(size, 2 * regions_.back().size);
}

std::byte* ReachedMemory::add_region(std::uint64_t size) {
  Region region;
  region.memory = std::make_unique<std::byte[]>(size);
  region.size = size;
  regions_.push_back(std::move(region));
  return regions_.back().memory.get();
}

void ReachedMemory::spoil(const Place& place, std::uint64_t content) noexcept {
  fill(place, content);
  std::byte* const to = data(place);
  for (std::uint64_t i = 0; i < place.bytes; ++i) to[i] = ~to[i];
}

std::optional<std::uint64_t> ReachedMemory::first_wrong(const Place& place,
                                                        std::uint64_t content) noexcept {
  const std::byte* const from = data(place);
  const std::size_t other = first_other(from, 0, place.bytes, content);
  if (other < place.bytes) return other;
  const std::byte* const guard = from + place.bytes;
  const std::byte* const wrong =
      std::find_if(guard, guard + kGuardBytes, [](std::byte b) { return b != kGuard; });
  if (wrong == guard + kGuardBytes) return std::nullopt;
  return static_cast<std::uint64_t>(wrong - from);
}

}  // namespace turnout::sim
