// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/domains.h"

#include <cerrno>
#include <memory>

#include "hca/live/fork_guard.h"

namespace turnout::hca {

Pd* LiveDomains::alloc(Context& context) {
  if (const int error = refuse_child(context); error != 0) return failed(error);
  auto pd = std::make_unique<Pd>();
  pd->verbs.context = &context.verbs.context;
  pd->number = static_cast<std::uint32_t>(fabric_.header().next_pd.fetch_add(1));
  pd->verbs.handle = pd->number;
  ++context.users;
  return pd.release();
}

// Domains have no record: a handle that was given out may be of one that is gone, and then its
// regions and queue pairs are, too.
Pd* LiveDomains::import(Context& context, std::uint32_t handle) {
  if (const int error = refuse_child(context); error != 0) return failed(error);
  if (handle >= fabric_.header().next_pd.load()) return failed(EINVAL);
  auto pd = std::make_unique<Pd>();
  pd->verbs.context = &context.verbs.context;
  pd->number = pd->verbs.handle = handle;
  ++context.users;
  return pd.release();
}

int LiveDomains::dealloc(Pd& pd) {
  if (pd.users.load() != 0) return EBUSY;
  --context_of(pd.verbs.context).users;
  delete &pd;
  return 0;
}

}  // namespace turnout::hca
