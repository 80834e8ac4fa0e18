// SPDX-License-Identifier: BSD-3-Clause
// Fabric: libfabric's fid_fabric. Owned by the program (fi_close); the domains and event queues
// opened on it count as references, and closing it before them is refused. Any thread may open and
// close. Source: fi_fabric(3).
#pragma once

#include <rdma/fabric.h>

#include <atomic>
#include <cassert>

#include "provider/ops.h"

namespace turnout::provider {

struct Fabric final : Object<Fabric, fid_fabric> {
  std::atomic<unsigned> references{0};

  ~Fabric() { assert(references.load() == 0); }

  // Errors: -FI_ENODATA for a name or settings that are not ours.
  static int open(fi_fabric_attr* attr, fid_fabric** fabric, void* context);
};

}  // namespace turnout::provider
