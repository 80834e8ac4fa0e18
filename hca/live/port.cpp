// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/port.h"

namespace turnout::hca {

bool names_this_port(const ibv_ah_attr& attr, const Context& context) noexcept {
  if (attr.dlid != 0 && attr.dlid != kLid) return false;
  if (attr.is_global == 0) return attr.dlid == kLid;
  const auto* device = reinterpret_cast<const Device*>(context.verbs.context.device);
  const std::uint64_t prefix = htobe64(0xfe80'0000'0000'0000ULL), guid = htobe64(device->guid);
  return attr.grh.dgid.global.subnet_prefix == prefix && attr.grh.dgid.global.interface_id == guid;
}

}  // namespace turnout::hca
