// SPDX-License-Identifier: BSD-3-Clause
#include "provider/library.h"

#include <dlfcn.h>

#include "base/log.h"

namespace turnout::provider {
namespace {

template <class Function>
Function symbol(void* handle, const char* name) noexcept {
  return reinterpret_cast<Function>(dlsym(handle, name));
}

bool load_from(void* handle, Library& library) noexcept {
  const auto version = symbol<std::uint32_t (*)()>(handle, "fi_version");
  const auto dup = symbol<fi_info* (*)(const fi_info*)>(handle, "fi_dupinfo");
  const auto release = symbol<void (*)(fi_info*)>(handle, "fi_freeinfo");
  if (version == nullptr || dup == nullptr || release == nullptr) return false;
  library.dupinfo = dup;
  library.freeinfo = release;
  library.version = version();
  library.param_define = symbol<decltype(library.param_define)>(handle, "fi_param_define");
  library.log_enabled = symbol<decltype(library.log_enabled)>(handle, "fi_log_enabled");
  library.log = symbol<decltype(library.log)>(handle, "fi_log");
  return true;
}

}  // namespace

bool Library::find(const void* caller) {
  Dl_info where{};
  if (dladdr(caller, &where) != 0 && where.dli_fname != nullptr) {
    // The caller stays loaded for as long as it may call us: no reference of our own is needed.
    if (void* handle = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD)) {
      const bool found = load_from(handle, *this);
      dlclose(handle);
      if (found) return true;
    }
  }
  // A program that has libfabric linked into itself, or calls the provider directly.
  if (load_from(RTLD_DEFAULT, *this)) return true;
  TURNOUT_LOG(provider, error,
              "loading the provider failed: {}: no fi_version, fi_dupinfo and fi_freeinfo; use "
              "libfabric 1.17 or newer",
              where.dli_fname != nullptr ? where.dli_fname : "unknown");
  return false;
}

Library& library() noexcept {
  static Library instance;
  return instance;
}

}  // namespace turnout::provider
