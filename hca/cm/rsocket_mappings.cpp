// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/rsocket_mappings.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

namespace turnout::cm {

RsocketMappings::~RsocketMappings() {
  for (const Mapping& m : mappings_) ibv_dereg_mr(m.mr);
}

int RsocketMappings::map(ibv_pd* pd, RsocketChannel& channel, void* buffer, std::size_t length,
                         int protection, off_t& offset) {
  if (buffer == nullptr || length == 0 || (protection != PROT_NONE && protection != PROT_WRITE) ||
      offset < -1) {
    return EINVAL;
  }
  Mapping m;
  m.remote = protection == PROT_WRITE;
  used_.resize(channel.announceable());
  const auto place = std::find(used_.begin(), used_.end(), false);
  if (m.remote && place == used_.end()) return ENOMEM;
  m.mr = ibv_reg_mr(
      pd, buffer, length,
      m.remote ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : IBV_ACCESS_LOCAL_WRITE);
  if (m.mr == nullptr) return errno;
  if (offset == -1) offset = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(buffer));
  if (m.remote) {
    *place = true;
    m.index = static_cast<std::uint64_t>(place - used_.begin());
    channel.announce(m.index, {static_cast<std::uint64_t>(offset), length,
                               reinterpret_cast<std::uintptr_t>(buffer), m.mr->rkey, 0});
  }
  mappings_.push_back(m);
  return 0;
}

int RsocketMappings::unmap(RsocketChannel& channel, const void* buffer, std::size_t length) {
  const auto found = std::find_if(mappings_.begin(), mappings_.end(), [&](const Mapping& m) {
    return m.mr->addr == buffer && m.mr->length == length;
  });
  if (found == mappings_.end()) return EINVAL;
  if (const int error = ibv_dereg_mr(found->mr); error != 0) return error;
  if (found->remote) {
    used_[found->index] = false;
    channel.announce(found->index, {});
  }
  mappings_.erase(found);
  return 0;
}

}  // namespace turnout::cm
