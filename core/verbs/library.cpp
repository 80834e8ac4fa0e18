// SPDX-License-Identifier: BSD-3-Clause
#include "core/verbs/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <atomic>
#include <mutex>

#include "base/installation.h"

namespace turnout::verbs {
namespace {

std::mutex mutex;
Functions current;
void* loaded_ibverbs = nullptr;
bool loaded = false;
Library loaded_library = Library::system;
std::atomic<int> users{0};

std::string own_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&own_folder), &info) == 0 || info.dli_fname == nullptr) {
    return ".";
  }
  const std::string path = info.dli_fname;
  if (path.find('/') == std::string::npos) return program_folder();  // found through PATH
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace

const Functions& functions() noexcept {
  return current;
}

std::string virtual_folder(const Settings& settings) {
  if (!settings.verbs_path.empty()) return settings.verbs_path;
  return adapter_folder(own_folder());
}

Status load(Library library, const Settings& settings) {
  const std::lock_guard guard(mutex);
  if (loaded && loaded_library == library) return {};
  if (users.load() > 0) {
    return {Code::invalid,
            "another verbs library is in use in this process; close its endpoints before changing "
            "TURNOUT_DEVICE"};
  }
  const bool is_virtual = library == Library::virtual_adapter;
  const std::string folder = is_virtual ? virtual_folder(settings) + "/" : std::string();
  const std::string names[] = {folder + "libibverbs.so.1", folder + "libmlx5.so.1"};
  void* const ibverbs = dlopen(names[0].c_str(), RTLD_NOW | RTLD_LOCAL);
  // Without mlx5's library there is no DC, but every other adapter of the host.
  void* const mlx5 = ibverbs != nullptr ? dlopen(names[1].c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (ibverbs == nullptr || (mlx5 == nullptr && is_virtual)) {
    const char* const why = dlerror();
    return {
        Code::no_device,
        fmt::format("loading {} failed: {}; {}", names[ibverbs == nullptr ? 0 : 1],
                    why != nullptr ? why : "unknown reason",
                    is_virtual
                        ? "set TURNOUT_VERBS_PATH to the folder of the virtual adapter"
                        : "install rdma-core (ibverbs-providers), or use TURNOUT_DEVICE=virtual")};
  }
  Functions table;
#define OPTIONAL_VERB(from, symbol) \
  table.symbol##_fn = reinterpret_cast<decltype(table.symbol##_fn)>(dlsym(from, #symbol));
#define OWN_VERB(from, symbol)                                                    \
  if (from != nullptr) {                                                          \
    OPTIONAL_VERB(from, symbol)                                                   \
  }                                                                               \
  if (from != nullptr && table.symbol##_fn == nullptr) {                          \
    return {Code::unsupported, fmt::format("{}" #from " has no symbol " #symbol   \
                                           "; rdma-core 34 or newer is required", \
                                           folder)};                              \
  }
#define VERB(from, result, symbol, parameters, arguments) OWN_VERB(from, symbol)
#include "core/verbs/functions.def"
#undef VERB
#undef OWN_VERB
#undef OPTIONAL_VERB
  current = table;
  loaded_ibverbs = ibverbs;
  loaded = true;
  loaded_library = library;
  return {};
}

void* symbol(const char* name) noexcept {
  const std::lock_guard guard(mutex);
  return loaded_ibverbs == nullptr ? nullptr : dlsym(loaded_ibverbs, name);
}

void retain() noexcept {
  users.fetch_add(1);
}
void release() noexcept {
  users.fetch_sub(1);
}

}  // namespace turnout::verbs
