// SPDX-License-Identifier: BSD-3-Clause
// Cntr: libfabric's fid_cntr. Counts completions of the operations that endpoints were bound for;
// reading or waiting drives those endpoints (manual progress). Owned by the program; closing it is
// refused while endpoints are bound. add and set are atomic; all other calls hold the domain's
// lock. Source: fi_cntr(3).
#pragma once

#include <rdma/fi_eq.h>

#include <cassert>
#include <vector>

#include "core/types/completion.h"
#include "provider/domain.h"
#include "provider/idle_backoff.h"

namespace turnout::provider {

class DataPath;

struct Cntr final : fid_cntr {
  explicit Cntr(Domain& owner) : domain(owner) { domain.references.fetch_add(1); }
  ~Cntr() {
    assert(endpoints.empty());
    domain.references.fetch_sub(1);
  }

  Domain& domain;
  Counter counter;
  IdleBackoff idle_backoff;  // of who reads without waiting
  std::uint64_t read = 0;    // the value at the last look
  std::vector<DataPath*> endpoints;

  void join(DataPath& endpoint);
  void leave(DataPath& endpoint) noexcept;
  void progress();

  static int open(Domain& domain, fi_cntr_attr* attr, fid_cntr** cntr, void* context);
  [[nodiscard]] static Cntr& of(fid_cntr* f) noexcept { return *static_cast<Cntr*>(f); }
  [[nodiscard]] static Cntr& of(::fid* f) noexcept { return of(reinterpret_cast<fid_cntr*>(f)); }
};

}  // namespace turnout::provider
