// Region: libfabric's fid_mr. Memory that peers may read or write.
//
// Owned by the program (fi_close). Registered with one core endpoint of its domain, whose key it
// has; when that endpoint closes first, the region is deregistered and only its shell is left. A
// region without remote access costs nothing: local buffers are registered by the core as they are
// used. Calls come under the domain's lock.
#pragma once

#include <rdma/fi_domain.h>

#include <cstddef>

#include "core/endpoint.h"
#include "provider/domain.h"

namespace turnout::provider {

struct Region final : fid_mr {
  explicit Region(Domain& in) : domain(in) { domain.references.fetch_add(1); }
  ~Region() { domain.references.fetch_sub(1); }

  Domain& domain;
  void* address = nullptr;
  std::size_t length = 0;
  unsigned access = kAccessLocal;  // turnout::Access
  Endpoint* owner = nullptr;       // null: registered nowhere
  MemoryKey memory;

  // Registers with this core endpoint. Errors: as Endpoint::register_memory.
  [[nodiscard]] Status join(Endpoint* core);
  // Deregisters if `core` is the owner.
  void leave(Endpoint* core);

  [[nodiscard]] static Region& of(::fid* f) noexcept {
    return *static_cast<Region*>(reinterpret_cast<fid_mr*>(f));
  }
};

// The registration calls of a domain.
[[nodiscard]] fi_ops_mr& region_ops() noexcept;

}  // namespace turnout::provider
