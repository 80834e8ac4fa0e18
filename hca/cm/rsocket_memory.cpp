// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/rsocket_memory.h"

#include <sys/mman.h>

#include <cerrno>

#include "base/file_descriptor.h"

namespace turnout::cm {
namespace {

// Numbers: the macro mixes the enumerations of two headers.
constexpr unsigned kLocal = IBV_ACCESS_LOCAL_WRITE, kRemote = kLocal | IBV_ACCESS_REMOTE_WRITE;

}  // namespace

RsocketMemory::~RsocketMemory() {
  if (own_mr_ != nullptr) ibv_dereg_mr(own_mr_);
  if (remote_mr_ != nullptr) ibv_dereg_mr(remote_mr_);
  if (base_ != nullptr) munmap(base_, length_);
}

int RsocketMemory::create(ibv_pd* pd, std::size_t own, std::size_t remote) {
  constexpr std::size_t kPageBytes = 4096;
  const auto whole_pages = [](std::size_t n) {
    return (n + kPageBytes - 1) / kPageBytes * kPageBytes;
  };
  const std::size_t remote_at = whole_pages(own), length = remote_at + whole_pages(remote);
  // Closed again at once: the adapter keeps a descriptor of its own for as long as it needs one.
  const Descriptor file(memfd_create("turnout-rsocket", MFD_CLOEXEC));
  if (!file || !set_size(file.get(), length)) return errno;
  void* const pages = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (pages == MAP_FAILED) return errno;
  base_ = static_cast<std::uint8_t*>(pages);
  length_ = length;
  remote_at_ = remote_at;
  own_mr_ = ibv_reg_mr(pd, base_, remote_at, kLocal);
  if (own_mr_ == nullptr) return errno;
  if (remote == 0) return 0;
  remote_mr_ = ibv_reg_mr(pd, base_ + remote_at, remote, kRemote);
  return remote_mr_ != nullptr ? 0 : errno;
}

}  // namespace turnout::cm
