// SPDX-License-Identifier: BSD-3-Clause
// Library: the functions of the libfabric that loaded this provider.
//
// Linking with libfabric would bind the symbol versions of the build's headers, and an old
// fi_dupinfo in a new library allocates the old layout. An MPI library may also load its libfabric
// where global symbol lookup does not find it. So find() locates the object that called fi_prov_ini
// by its return address and takes its default symbol versions. Filled once before any other call of
// the provider; read by any thread afterwards.
#pragma once

#include <rdma/fabric.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>

#include <cstdint>
#include <memory>

namespace turnout::provider {

struct Library {
  fi_info* (*dupinfo)(const fi_info*) = nullptr;
  void (*freeinfo)(fi_info*) = nullptr;
  std::uint32_t version = 0;  // FI_VERSION of the running library
  // What only tells the user something: null where the library lacks it.
  decltype(&fi_param_define) param_define = nullptr;
  decltype(&fi_log_enabled) log_enabled = nullptr;
  decltype(&fi_log) log = nullptr;

  // `caller`: an address inside the library. False (and a message in the log) if it is no
  // libfabric.
  [[nodiscard]] bool find(const void* caller);
};

// The one of this process.
[[nodiscard]] Library& library() noexcept;

struct FreeInfo {
  void operator()(fi_info* info) const noexcept { library().freeinfo(info); }
};
using InfoPtr = std::unique_ptr<fi_info, FreeInfo>;  // a list made by dupinfo

}  // namespace turnout::provider
