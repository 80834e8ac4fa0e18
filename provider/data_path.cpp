// SPDX-License-Identifier: BSD-3-Clause
#include "provider/data_path.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "base/log.h"
#include "provider/deferred_work_queue.h"
#include "provider/shared_receives.h"

namespace turnout::provider {

bool DataPath::progress_specially() {
  if (closing_) return false;
  if (work_ == nullptr || work_->is_running()) return move_and_match();
  // A read of a queue asks all its endpoints in turn: the first one moves all.
  if (!std::exchange(was_moved_, false)) return work_->progress(this);
  const bool moved = move_and_match();
  if (moved) work_->start_due();
  return moved;
}

bool DataPath::move_and_match() {
  const bool moved = move();
  return (shared_ != nullptr && shared_->match(*this)) || moved;
}

void DataPath::fail(std::uint32_t flags, std::uint64_t tag, const Call& call, Counter* counter,
                    Status status) {
  ErrorCompletion error;
  error.context = call.context;
  error.flags = flags;
  error.tag = tag;
  error.status = std::move(status);
  ((flags & kRecv) != 0 ? rx_errors_ : tx_errors_)->push_error(std::move(error));
  if (counter != nullptr) counter->errors.fetch_add(1);
  if (unread_errors_.has_error()) log_unread_errors();
}

void DataPath::log_unread_errors() {
  while (unread_errors_.has_error()) {
    TURNOUT_LOG(provider, warn,
                "operation failed: endpoint without a completion queue: {}; bind one to receive "
                "its errors",
                unread_errors_.pop_error().status.text());
  }
}

}  // namespace turnout::provider
