// SPDX-License-Identifier: BSD-3-Clause
// Cntr: libfabric's fid_cntr. Counts completions of the operations that endpoints were bound for;
// reading or waiting drives those endpoints (manual progress). Owned by the program; closing it is
// refused while endpoints are bound, deferred work counts there, something waits for it, or a
// memory region is bound. add and set are atomic; all other calls hold the domain's lock. Source:
// fi_cntr(3).
#pragma once

#include <rdma/fi_eq.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/types/completion.h"
#include "provider/domain.h"
#include "provider/peer_layout.h"
#include "provider/wait_set.h"

namespace turnout::provider {

class DataPath;

struct Cntr final : ObjectOfDomain<Cntr, fid_cntr> {
  using ObjectOfDomain::ObjectOfDomain;
  ~Cntr();

  Counter counter;
  std::uint64_t read = 0;                     // the value at the last look
  std::atomic<std::uint64_t> errors_read{0};  // the same of errors
  std::atomic<std::uint64_t> polled{0};       // the value that fi_poll, add or set saw last
  std::vector<DataPath*> endpoints;
  WaitHandle wait;
  unsigned poll_sets = 0;  // that it is in
  unsigned regions = 0;    // of memory, whose remote operations it counts
  unsigned deferred = 0;   // operations in the queue of deferred work that name it
  // FI_PEER: another provider's counter, which counts what this one does; null: there is none.
  PeerCntrFid* owner = nullptr;
  std::uint64_t told = 0, errors_told = 0;  // what it has counted

  void join(DataPath& endpoint) {
    if (std::find(endpoints.begin(), endpoints.end(), &endpoint) == endpoints.end()) {
      endpoints.push_back(&endpoint);
    }
  }
  void leave(DataPath& endpoint) noexcept { std::erase(endpoints, &endpoint); }
  [[nodiscard]] bool in_use() const noexcept {
    return poll_sets != 0 || regions != 0 || deferred != 0 || !endpoints.empty();
  }
  // fi_poll tells of it, once: it has changed since it did so before, or the program set it.
  [[nodiscard]] bool tells_poll() noexcept {
    const std::uint64_t value = counter.value.load();
    return polled.exchange(value) != value;
  }
  // It has changed since it was read.
  [[nodiscard]] bool has_news() const noexcept {
    return counter.value.load() != read || counter.errors.load() != errors_read.load();
  }
  void progress();
  // With the domain's lock: no owner has a reason to call this provider from there.
  void tell_owner() {
    if (owner == nullptr) return;
    for (; told < counter.value.load(); ++told) owner->owner_ops->inc(owner);
    for (; errors_told < counter.errors.load(); ++errors_told) owner->owner_ops->incerr(owner);
  }

  static int open(Domain& domain, fi_cntr_attr* attr, fid_cntr** cntr, void* context);
};

}  // namespace turnout::provider
