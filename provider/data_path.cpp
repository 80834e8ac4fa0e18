// SPDX-License-Identifier: BSD-3-Clause
#include "provider/data_path.h"

#include <cassert>

#include "base/log.h"

namespace turnout::provider {

void DataPath::bind_queue(CompletionQueue& queue, std::uint64_t flags) noexcept {
  assert((flags & (FI_TRANSMIT | FI_RECV)) != 0);
  if ((flags & FI_TRANSMIT) != 0) tx_queue_ = tx_errors_ = &queue;
  if ((flags & FI_RECV) != 0) rx_queue_ = rx_errors_ = &queue;
}

void DataPath::bind_counter(Counter& counter, std::uint64_t flags) noexcept {
  if ((flags & FI_SEND) != 0) send_counter_ = &counter;
  if ((flags & FI_RECV) != 0) recv_counter_ = &counter;
  if ((flags & FI_READ) != 0) read_counter_ = &counter;
  if ((flags & FI_WRITE) != 0) write_counter_ = &counter;
  if ((flags & FI_REMOTE_WRITE) != 0) remote_write_counter_ = &counter;
}

void DataPath::report_remote_writes() {
  core_.set_remote_write_report({rx_queue_, rx_errors_, remote_write_counter_, nullptr});
}

ssize_t DataPath::start(PeekRequest& request, const Call& call) {
  if (const int error = peers.find_source(call.peer, request.peer)) return refuse(error);
  request.claim = (call.flags & FI_CLAIM) != 0;
  request.discard = (call.flags & FI_DISCARD) != 0;
  // Its completion is all that a peek is for: selective completion does not apply.
  request.report = {rx_queue_, rx_errors_, nullptr, call.context};
  return answer(core_.peek(request));
}

ssize_t DataPath::receive_claimed(RecvRequest& request, const Call& call) {
  request.report = report_of_receive(call);
  return answer((call.flags & FI_DISCARD) != 0 ? core_.discard_claimed(request.report)
                                               : core_.recv_claimed(request));
}

bool DataPath::progress() {
  if (closing_) [[unlikely]]
    return false;
  const bool moved = core_.progress();
  if (unread_errors_.has_error()) log_unread_errors();
  return moved;
}

// Back-pressure ends by progress, and the program may not read a queue before it tries again.
ssize_t DataPath::refuse(int error) {
  if (error == -FI_EAGAIN) progress();
  return error;
}

void DataPath::log_unread_errors() {
  while (unread_errors_.has_error()) {
    TURNOUT_LOG(
        provider, warn,
        "operation failed: endpoint without a completion queue: {}; bind one to receive its errors",
        unread_errors_.pop_error().status.text());
  }
}

}  // namespace turnout::provider
