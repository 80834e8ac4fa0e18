// SPDX-License-Identifier: BSD-3-Clause
#include "hca/shim/real.h"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <iterator>

#include "hca/shim/mlx5.h"

namespace turnout::shim {

namespace {

constexpr const char* kNames[] = {
#define SHIM_PATH(result, name, ...) #name,
#define SHIM_AT(result, name, ...) #name,
#define SHIM_OTHER(name) #name,
#include "hca/shim/functions.def"
#undef SHIM_PATH
#undef SHIM_AT
#undef SHIM_OTHER
};

constinit std::atomic<void*> addresses[std::size(kNames)] = {};

void* look_up(unsigned index) noexcept {
  const int before = errno;
  void* const address = dlsym(RTLD_NEXT, kNames[index]);
  errno = before;
  addresses[index].store(address, std::memory_order_release);
  return address;
}

[[gnu::constructor]] void prepare() noexcept {
  for (unsigned index = 0; index < std::size(kNames); ++index) look_up(index);
  read_root();
  read_device();
}

}  // namespace

void* real_address(Function function) noexcept {
  const auto index = static_cast<unsigned>(function);
  void* const address = addresses[index].load(std::memory_order_acquire);
  return address != nullptr ? address : look_up(index);
}

void set_no_such_function() noexcept {
  errno = ENOSYS;
}

}  // namespace turnout::shim
