// SPDX-License-Identifier: BSD-3-Clause
#include "hca/mlx5/program_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace turnout::hca {
namespace {

constexpr std::uint64_t kPageBytes = 4096;

iovec part(std::uint64_t address, std::size_t bytes) noexcept {
  return {reinterpret_cast<void*>(address), bytes};  // NOLINT: the program's
}

}  // namespace

bool copy_from_program(void* to, std::uint64_t from, std::size_t bytes) noexcept {
  if (bytes == 0) return true;
  const iovec here{to, bytes}, there = part(from, bytes);
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(bytes);
}

bool copy_to_program(std::uint64_t to, const void* from, std::size_t bytes) noexcept {
  if (bytes == 0) return true;
  const iovec here{const_cast<void*>(from), bytes}, there = part(to, bytes);  // NOLINT: no const
  return process_vm_writev(getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(bytes);
}

bool is_writable(std::uint64_t address, std::uint64_t bytes) noexcept {
  if (bytes == 0 || address > UINT64_MAX - bytes) return false;
  // A byte of each page, many pages a call.
  constexpr std::size_t kPages = 256;
  std::uint64_t at = address;
  const std::uint64_t end = address + bytes;
  while (at < end) {
    std::array<iovec, kPages> pages;
    std::array<std::uint8_t, kPages> kept;
    std::size_t count = 0;
    for (; count < kPages && at < end; at = (at / kPageBytes + 1) * kPageBytes)
      pages[count++] = part(at, 1);
    const iovec here{kept.data(), count};
    const auto all = static_cast<ssize_t>(count);
    if (process_vm_readv(getpid(), &here, 1, pages.data(), count, 0) != all) return false;
    if (process_vm_writev(getpid(), &here, 1, pages.data(), count, 0) != all) return false;
  }
  return true;
}

}  // namespace turnout::hca
