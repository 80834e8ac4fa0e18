// SPDX-License-Identifier: BSD-3-Clause
#include "hca/device/address_handle.h"

#include <cerrno>
#include <memory>

#include "hca/device/limits.h"

namespace turnout::hca {

Ah* make_address_handle(Pd& pd, const ibv_ah_attr& attr, bool reachable) {
  if (attr.port_num != kPort || (attr.is_global != 0 && attr.grh.sgid_index != 0)) {
    errno = EINVAL;
    return nullptr;
  }
  auto ah = std::make_unique<Ah>();
  ah->verbs.context = pd.verbs.context;
  ah->verbs.pd = &pd.verbs;
  ah->attr = attr;
  constexpr std::uint8_t kMulticastPrefix = 0xff;  // IBTA 4.1.1
  ah->multicast = attr.is_global != 0 && attr.grh.dgid.raw[0] == kMulticastPrefix;
  ah->reachable = reachable;
  ++pd.users;
  return ah.release();
}

void destroy_address_handle(Ah& ah) noexcept {
  --pd_of(ah.verbs.pd).users;
  delete &ah;
}

}  // namespace turnout::hca
