// SPDX-License-Identifier: BSD-3-Clause
#include "provider/endpoint_options.h"

#include <rdma/fi_errno.h>

#include <cassert>
#include <cstring>

#include "provider/info.h"

namespace turnout::provider {

EpOptions::EpOptions(std::uint64_t tx_op_flags, std::uint64_t rx_op_flags) noexcept
    : tx_op_flags_(tx_op_flags), rx_op_flags_(rx_op_flags) {
  assert((tx_op_flags & ~kTxOpFlags) == 0 && (rx_op_flags & ~kRxOpFlags) == 0);
}

int EpOptions::get(int level, int name, void* value, std::size_t* length) const noexcept {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
  if (value == nullptr || length == nullptr) return -FI_EINVAL;
  const bool fits = *length >= sizeof(min_multi_recv_);
  *length = sizeof(min_multi_recv_);
  if (!fits) return -FI_ETOOSMALL;
  std::memcpy(value, &min_multi_recv_, sizeof(min_multi_recv_));
  return 0;
}

int EpOptions::set(int level, int name, const void* value, std::size_t length) noexcept {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
  if (value == nullptr || length != sizeof(min_multi_recv_)) return -FI_EINVAL;
  std::memcpy(&min_multi_recv_, value, sizeof(min_multi_recv_));
  return 0;
}

int EpOptions::control(int command, void* argument) noexcept {
  if (command != FI_SETOPSFLAG && command != FI_GETOPSFLAG) return -FI_ENOSYS;
  if (argument == nullptr) return -FI_EINVAL;
  std::uint64_t& flags = *static_cast<std::uint64_t*>(argument);
  const std::uint64_t direction = flags & (FI_TRANSMIT | FI_RECV);
  if (direction != FI_TRANSMIT && direction != FI_RECV)
    return -FI_EINVAL;  // exactly one of the two
  const bool transmits = direction == FI_TRANSMIT;
  std::uint64_t& own = transmits ? tx_op_flags_ : rx_op_flags_;
  if (command == FI_GETOPSFLAG) {
    flags = own;
    return 0;
  }
  const std::uint64_t wanted = flags & ~direction;
  if ((wanted & ~(transmits ? kTxOpFlags : kRxOpFlags)) != 0) return -FI_EBADFLAGS;
  own = wanted;
  return 0;
}

void EpOptions::bind_queue(std::uint64_t flags) noexcept {
  assert((flags & (FI_TRANSMIT | FI_RECV)) != 0);
  const std::uint64_t added = (flags & FI_SELECTIVE_COMPLETION) != 0 ? 0 : FI_COMPLETION;
  if ((flags & FI_TRANSMIT) != 0) tx_msg_flags_ = added;
  if ((flags & FI_RECV) != 0) rx_msg_flags_ = added;
}

void EpOptions::bind_counter(std::uint64_t flags) noexcept {
  if ((flags & (FI_SEND | FI_WRITE)) != 0) counted_levels_ = kCompletionLevels;
}

}  // namespace turnout::provider
