// SPDX-License-Identifier: BSD-3-Clause
// Fabric: libfabric's fid_fabric. Owned by the program (fi_close); the domains and event queues
// opened on it count as references, and closing it before them is refused. Any thread may open and
// close. Source: fi_fabric(3).
#pragma once

#include <rdma/fabric.h>

#include <atomic>
#include <cassert>
#include <memory>
#include <mutex>
#include <vector>

#include "base/status.h"
#include "provider/connection_manager.h"
#include "provider/ops.h"

namespace turnout::provider {

struct PassiveEp;

struct Fabric final : Object<Fabric, fid_fabric> {
  std::atomic<unsigned> references{0};

  // Made at its first use. Errors: as ConnectionManager::start.
  [[nodiscard]] Result<ConnectionManager*> connection_manager();

  // Its passive endpoints: a program names one by the handle in fi_info. Null: it is none of them.
  void add(PassiveEp& one);
  void remove(PassiveEp& one) noexcept;
  [[nodiscard]] PassiveEp* passive_of(const ::fid* handle);

  ~Fabric() { assert(references.load() == 0); }

  // Errors: -FI_ENODATA for a name or settings that are not ours.
  static int open(fi_fabric_attr* attr, fid_fabric** fabric, void* context);

 private:
  std::mutex mutex_;  // guards the rest
  std::vector<PassiveEp*> passive_;
  std::unique_ptr<ConnectionManager> manager_;
};

// fi_close of a fabric or a domain.
template <class T>
int close_unreferenced(::fid* f) {
  T& object = T::of(f);
  if (object.references.load() != 0) return -FI_EBUSY;
  delete &object;
  return 0;
}

}  // namespace turnout::provider
