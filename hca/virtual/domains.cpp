// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/domains.h"

#include <cerrno>
#include <memory>

namespace turnout::hca {

Pd* Domains::alloc(Context& context) {
  auto pd = std::make_unique<Pd>();
  pd->verbs.context = &context.verbs.context;
  pd->number = next_++;
  ++context.users;
  return pd.release();
}

int Domains::dealloc(Pd& pd) {
  if (pd.users.load() != 0) return EBUSY;
  --context_of(pd.verbs.context).users;
  delete &pd;
  return 0;
}

}  // namespace turnout::hca
