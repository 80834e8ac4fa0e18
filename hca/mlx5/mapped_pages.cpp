// SPDX-License-Identifier: BSD-3-Clause
#include "hca/mlx5/mapped_pages.h"

#include <rdma/mlx5-abi.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <bit>

#include "hca/device/objects.h"

namespace turnout::hca {
namespace {

constexpr std::uint64_t kMappedPage = 4096;
constexpr std::uint64_t kMemoryPages = 65536;  // page numbers have 16 bits
// A command that the kernel does not use: mmap offsets of objects are its own choice.
constexpr std::uint64_t kDoorbellPages = 64;

// The command at an offset of the command file, and the number of the page.
std::uint64_t command_at(std::uint64_t offset) noexcept {
  return offset / kMappedPage >> 8 & 0xff;
}
std::uint64_t number_at(std::uint64_t offset) noexcept {
  const std::uint64_t page = offset / kMappedPage;
  return (page & 0xff) | (page >> 16 & 0xff) << 8;
}

std::uint64_t pages_of(std::uint64_t bytes) noexcept {
  return (bytes + kMappedPage - 1) / kMappedPage;
}

}  // namespace

MappedPages& MappedPages::instance() noexcept {
  static auto* const one = new MappedPages;  // the program may use it while it exits
  return *one;
}

MappedPages::MappedPages() noexcept {
  void* const table = mmap(nullptr, kMemoryPages * sizeof *memory_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (table != MAP_FAILED) memory_ = static_cast<std::atomic<std::uint64_t>*>(table);
}

int MappedPages::add(int fd, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  if (memory_ == nullptr) return -1;
  const std::uint64_t wanted = pages_of(bytes);
  std::uint64_t free = 0;  // pages in a row, up to `page`
  for (std::uint64_t page = 0; page < kMemoryPages; ++page) {
    free = memory_[page].load(std::memory_order_relaxed) == 0 ? free + 1 : 0;
    if (free < wanted) continue;
    const std::uint64_t first = page + 1 - wanted;
    const std::uint64_t file = static_cast<std::uint64_t>(fd) + 1;
    for (std::uint64_t i = 0; i < wanted; ++i) {
      memory_[first + i].store(file << 32 | i, std::memory_order_release);
    }
    return static_cast<int>(first);
  }
  return -1;
}

void MappedPages::remove(std::uint16_t first, std::uint64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  for (std::uint64_t i = 0; i < pages_of(bytes); ++i) {
    memory_[first + i].store(0, std::memory_order_release);
  }
}

int MappedPages::add_doorbells() noexcept {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < std::size(doorbells_); ++i) {
    const std::uint64_t used = doorbells_[i].load();
    if (~used == 0) continue;
    const int bit = std::countr_one(used);
    doorbells_[i].store(used | std::uint64_t{1} << bit);
    return static_cast<int>(i) * 64 + bit;
  }
  return -1;
}

void MappedPages::remove_doorbells(std::uint16_t page) noexcept {
  const std::lock_guard lock(mutex_);
  doorbells_[page / 64].fetch_and(~(std::uint64_t{1} << page % 64));
}

bool MappedPages::has_doorbells(std::uint32_t page) const noexcept {
  return page / 64 < std::size(doorbells_) && (doorbells_[page / 64].load() >> page % 64 & 1) != 0;
}

std::uint64_t MappedPages::doorbells_offset(std::uint16_t page) noexcept {
  const std::uint64_t number = page;
  return (kDoorbellPages << 8 | (number & 0xff) | number >> 8 << 16) * kMappedPage;
}

bool MappedPages::make_clock() noexcept {
  const std::lock_guard lock(mutex_);
  if (clock_.load() >= 0) return true;
  Descriptor fd(memfd_create("turnout-mlx5-clock", MFD_CLOEXEC));
  // Cycles are nanoseconds of CLOCK_MONOTONIC, as in completions; the time of day goes on from here
  // at the same rate, as a kernel's timecounter does that nobody adjusts.
  mlx5_ib_clock_info info{};
  info.mult = 1;
  info.mask = ~std::uint64_t{0};
  info.cycles = clock_ns(CLOCK_MONOTONIC);
  info.nsec = clock_ns(CLOCK_REALTIME);
  info.overflow_period = ~std::uint64_t{0};
  if (!fd || !set_size(fd.get(), kMappedPage) ||
      pwrite(fd.get(), &info, sizeof info, 0) != static_cast<ssize_t>(sizeof info)) {
    return false;
  }
  clock_.store(fd.release());
  return true;
}

bool MappedPages::is_clock_register(std::uint64_t offset) noexcept {
  return command_at(offset) == MLX5_IB_MMAP_CORE_CLOCK;
}

bool MappedPages::is_memory(std::uint64_t offset) noexcept {
  const std::uint64_t command = command_at(offset);
  return command == MLX5_IB_MMAP_DEVICE_MEM || command == MLX5_IB_MMAP_CLOCK_INFO;
}

bool MappedPages::show(std::uint64_t page, std::uint64_t offset, int protection) noexcept {
  int fd = clock_.load();
  std::uint64_t at = 0;
  if (command_at(offset) == MLX5_IB_MMAP_DEVICE_MEM) {
    const std::uint64_t entry =
        memory_ != nullptr ? memory_[number_at(offset)].load(std::memory_order_acquire) : 0;
    fd = static_cast<int>(entry >> 32) - 1;
    at = (entry & UINT32_MAX) * kMappedPage;
  }
  if (fd < 0) return false;
  return mmap(reinterpret_cast<void*>(page), kMappedPage, protection, MAP_SHARED | MAP_FIXED, fd,
              static_cast<off_t>(at)) != MAP_FAILED;
}

}  // namespace turnout::hca
