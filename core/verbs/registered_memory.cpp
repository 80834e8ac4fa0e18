// SPDX-License-Identifier: BSD-3-Clause
#include "core/verbs/registered_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/file_descriptor.h"

namespace turnout::verbs {

RegisteredMemory& RegisteredMemory::operator=(RegisteredMemory&& other) noexcept {
  std::swap(mr_, other.mr_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  std::swap(heap_, other.heap_);
  return *this;
}

RegisteredMemory::~RegisteredMemory() {
  mr_.reset();
  if (heap_ != nullptr) {
    std::free(heap_);
  } else if (data_ != nullptr) {
    munmap(data_, size_);
  }
  if (fd_ >= 0) close(fd_);
}

Result<RegisteredMemory> RegisteredMemory::create(const Device& device, std::size_t length,
                                                  int access) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  RegisteredMemory memory;
  if (device.is_simulated()) {
    constexpr std::size_t kLine = 64;
    memory.heap_ = std::calloc(1, length + kLine);
    if (memory.heap_ == nullptr) {
      return failure("calloc", fmt::format("buffer of {} bytes", length), ENOMEM);
    }
    const auto address = reinterpret_cast<std::uintptr_t>(memory.heap_);
    memory.data_ = reinterpret_cast<std::byte*>((address + kLine - 1) / kLine * kLine);
    memory.size_ = length;
    memory.mr_.reset((ibv_reg_mr)(device.pd(), memory.data_, length, access));
    if (!memory.mr_) {
      return failure("ibv_reg_mr", fmt::format("buffer of {} bytes", length), errno);
    }
    return memory;
  }
  const std::size_t size = (length + page - 1) / page * page;
  memory.fd_ = above_standard(memfd_create("turnout", MFD_CLOEXEC));
  if (memory.fd_ < 0 || !set_size(memory.fd_, size)) {
    return failure("memfd_create", fmt::format("buffer of {} bytes", size), errno);
  }
  void* const address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd_, 0);
  if (address == MAP_FAILED) {
    return failure("mmap", fmt::format("buffer of {} bytes", size), errno);
  }
  memory.data_ = static_cast<std::byte*>(address);
  memory.size_ = size;
  if (device.is_virtual()) {
    memory.mr_.reset(ibv_reg_dmabuf_mr(
        device.pd(), 0, size, reinterpret_cast<std::uint64_t>(address), memory.fd_, access));
  } else {
    memory.mr_.reset((ibv_reg_mr)(device.pd(), address, size, access));
  }
  if (!memory.mr_) {
    return failure(device.is_virtual() ? "ibv_reg_dmabuf_mr" : "ibv_reg_mr",
                   fmt::format("buffer of {} bytes", size), errno);
  }
  return memory;
}

}  // namespace turnout::verbs
