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
  RegisteredMemory memory;
  const auto failed = [](const char* call, std::size_t size, int error) {
    return failure(call, fmt::format("buffer of {} bytes", size), error);
  };
  if (device.is_simulated()) {
    constexpr std::size_t kLine = 64;
    memory.heap_ = std::calloc(1, length + kLine);
    if (memory.heap_ == nullptr) return failed("calloc", length, ENOMEM);
    const auto address = reinterpret_cast<std::uintptr_t>(memory.heap_);
    memory.data_ = reinterpret_cast<std::byte*>((address + kLine - 1) / kLine * kLine);
    memory.size_ = length;
  } else {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t size = (length + page - 1) / page * page;
    memory.fd_ = above_standard(memfd_create("turnout", MFD_CLOEXEC));
    if (memory.fd_ < 0 || !set_size(memory.fd_, size)) return failed("memfd_create", size, errno);
    void* const address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd_, 0);
    if (address == MAP_FAILED) return failed("mmap", size, errno);
    memory.data_ = static_cast<std::byte*>(address);
    memory.size_ = size;
  }
  const bool by_descriptor = device.is_virtual() && memory.fd_ >= 0;
  memory.mr_.reset(by_descriptor ? ibv_reg_dmabuf_mr(device.pd(), 0, memory.size_,
                                                     reinterpret_cast<std::uint64_t>(memory.data_),
                                                     memory.fd_, access)
                                 : (ibv_reg_mr)(device.pd(), memory.data_, memory.size_, access));
  if (memory.mr_) return memory;
  return failed(by_descriptor ? "ibv_reg_dmabuf_mr" : "ibv_reg_mr", memory.size_, errno);
}

}  // namespace turnout::verbs
