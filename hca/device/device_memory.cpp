// SPDX-License-Identifier: BSD-3-Clause
#include "hca/device/device_memory.h"

#include <sys/mman.h>

#include <atomic>

#include "hca/device/identity.h"

namespace turnout::hca {
namespace {

std::atomic<std::uint64_t> given{0};  // bytes, of all contexts of this process

}  // namespace

Descriptor take_device_memory(std::uint64_t length) noexcept {
  const std::uint64_t limit = identity().device_memory;
  if (limit == 0 || length == 0) {
    errno = limit == 0 ? EOPNOTSUPP : EINVAL;
    return {};
  }
  std::uint64_t before = given.load();
  do {
    if (length > limit || before > limit - length) {
      errno = ENOMEM;
      return {};
    }
  } while (!given.compare_exchange_weak(before, before + length));
  Descriptor fd(memfd_create(kDeviceMemoryName, MFD_CLOEXEC));
  if (fd && set_size(fd.get(), length)) return fd;
  give_back_device_memory(length);
  return {};
}

void give_back_device_memory(std::uint64_t length) noexcept {
  given -= length;
}

}  // namespace turnout::hca
