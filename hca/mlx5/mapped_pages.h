// SPDX-License-Identifier: BSD-3-Clause
// MappedPages: what a program gets that maps a command file at an offset which is no doorbell's:
// device memory, and the page that relates the device's clock to the time of day.
//
// The command file is empty, so the first access to such a page faults, and the page of the
// memory's own file is mapped over it. Offsets count pages, with a command in the second byte
// (mlx5-abi.h, mlx5_ib_mmap_cmd). One for the process: all command files are one file to the
// kernel.
//
// show() may be called from a signal handler, the other functions from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/file_descriptor.h"

namespace turnout::hca {

// Where the clock's register is in its page: eight bytes, big endian.
inline constexpr std::uint32_t kClockRegister = 0;

class MappedPages {
 public:
  static MappedPages& instance() noexcept;

  // The first of the pages that a memory of `bytes` > 0 in this file has from now on; -1: too many
  // are in use. fd: the caller's, until remove().
  [[nodiscard]] int add(int fd, std::uint64_t bytes) noexcept;
  void remove(std::uint16_t first, std::uint64_t bytes) noexcept;
  // A page of doorbells: its number, and where it is in the command file. -1: too many.
  [[nodiscard]] int add_doorbells() noexcept;
  void remove_doorbells(std::uint16_t page) noexcept;
  [[nodiscard]] bool has_doorbells(std::uint32_t page) const noexcept;
  [[nodiscard]] static std::uint64_t doorbells_offset(std::uint16_t page) noexcept;
  // Makes the page of the clock. False and errno.
  [[nodiscard]] bool make_clock() noexcept;

  // Is the page at this offset of the command file that of the clock's register? It is never
  // mapped: every load faults.
  [[nodiscard]] static bool is_clock_register(std::uint64_t offset) noexcept;
  // Is it memory's?
  [[nodiscard]] static bool is_memory(std::uint64_t offset) noexcept;
  // Maps it at `page`, which is a mapping of the command file there. protection: of the mapping.
  // False: there is nothing at this offset.
  [[nodiscard]] bool show(std::uint64_t page, std::uint64_t offset, int protection) noexcept;

 private:
  MappedPages() noexcept;

  std::mutex mutex_;
  std::atomic<std::uint64_t>* memory_ = nullptr;   // by page: (descriptor + 1) << 32 | page of it
  std::atomic<std::uint64_t> doorbells_[16] = {};  // a bit for each page in use
  std::atomic<int> clock_{-1};
};

}  // namespace turnout::hca
