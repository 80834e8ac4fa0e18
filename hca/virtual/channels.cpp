// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/channels.h"

#include <cerrno>
#include <memory>

namespace turnout::hca {

Channel* Channels::create(Context& context) {
  auto channel = std::make_unique<VirtualChannel>();
  channel->verbs.context = &context.verbs.context;
  channel->verbs.fd = -1;  // nothing can sleep in virtual time: ask with get_cq_event
  channel->verbs.refcnt = 0;
  channel->write = -1;
  ++context.users;
  return channel.release();
}

int Channels::destroy(Channel& channel) {
  if (channel.users.load() != 0) return EBUSY;
  --context_of(channel.verbs.context).users;
  delete static_cast<VirtualChannel*>(&channel);
  return 0;
}

int Channels::get_event(Channel& base, ibv_cq** cq, void** cq_context) {
  auto& channel = static_cast<VirtualChannel&>(base);
  if (channel.events.empty()) return EAGAIN;
  VirtualCq& of = *channel.events.front();
  channel.events.pop_front();
  ++of.comp_events_read;
  *cq = ibv_cq_ex_to_cq(&of.verbs);
  *cq_context = of.verbs.cq_context;
  return 0;
}

}  // namespace turnout::hca
