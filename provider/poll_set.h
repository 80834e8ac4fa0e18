// SPDX-License-Identifier: BSD-3-Clause
// PollSet: libfabric's fid_poll, a list of completion queues and counters that one call looks at.
// fi_poll makes progress on each and tells the contexts of those with something new. Owned by the
// program; what is in it cannot be closed. Calls hold the domain's lock. Source: fi_poll(3).
#pragma once

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include <vector>

#include "provider/domain.h"

namespace turnout::provider {

struct PollSet final : ObjectOfDomain<PollSet, fid_poll> {
  using ObjectOfDomain::ObjectOfDomain;
  ~PollSet();

  std::vector<::fid*> members;

  [[nodiscard]] static bool in_use() noexcept { return false; }
  [[nodiscard]] int add(::fid* member);
  [[nodiscard]] int remove(::fid* member);

  static int open(Domain& domain, fi_poll_attr* attr, fid_poll** set);
};

}  // namespace turnout::provider
