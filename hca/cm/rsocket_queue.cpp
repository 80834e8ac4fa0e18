// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/rsocket_queue.h"

#include <fcntl.h>

#include <cerrno>

namespace turnout::cm {

RsocketQueue::~RsocketQueue() {
  if (cq_ != nullptr) ibv_destroy_cq(cq_);
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
}

int RsocketQueue::create(ibv_context* context, std::uint32_t entries) {
  channel_ = ibv_create_comp_channel(context);
  if (channel_ == nullptr) return errno;
  const int flags = fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) return errno;
  cq_ = ibv_create_cq(context, static_cast<int>(entries), nullptr, channel_, 0);
  return cq_ != nullptr ? 0 : errno;
}

bool RsocketQueue::arm() {
  // The event of last time may lie there still, and would end the sleep at once.
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (armed_ && ibv_get_cq_event(channel_, &cq, &context) == 0) {
    ibv_ack_cq_events(cq, 1);
    armed_ = false;
  }
  if (!armed_) armed_ = ibv_req_notify_cq(cq_, 0) == 0;
  return armed_;
}

}  // namespace turnout::cm
