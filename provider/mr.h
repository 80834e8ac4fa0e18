// SPDX-License-Identifier: BSD-3-Clause
// Region: libfabric's fid_mr. Memory that peers may read or write.
//
// Owned by the program (fi_close). Registered with the domain, so its key is valid at every
// endpoint of it. A region without remote access costs nothing: the core registers local buffers
// when they are used. Calls hold the domain's lock. Source: fi_mr(3).
#pragma once

#include <rdma/fi_domain.h>

#include "core/types/memory_domain.h"
#include "provider/domain.h"

namespace turnout::provider {

struct Region final : ObjectOfDomain<Region, fid_mr> {
  using ObjectOfDomain::ObjectOfDomain;

  MemoryDomain* registered_with = nullptr;  // null: local access only
  MemoryKey memory;
};

// The registration calls of a domain.
[[nodiscard]] fi_ops_mr& region_ops() noexcept;

}  // namespace turnout::provider
