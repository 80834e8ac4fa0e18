// SPDX-License-Identifier: BSD-3-Clause
// EpOptions: what a program sets on an endpoint (fi_setopt, FI_SETOPSFLAG), and the FI_* flags that
// its calls get from that and from the way queues and counters were bound.
//
// A value of its endpoint; nothing is owned. Changes hold the domain's lock. Source:
// fi_endpoint(3).
#pragma once

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/endpoint.h"
#include "provider/connection_message.h"
#include "provider/info.h"

namespace turnout::provider {

// The value of an option, into a place of *length bytes.
[[nodiscard]] inline int put_option(std::size_t option, void* value, std::size_t* length) noexcept {
  if (value == nullptr || length == nullptr) return -FI_EINVAL;
  const bool fits = *length >= sizeof option;
  *length = sizeof option;
  if (!fits) return -FI_ETOOSMALL;
  std::memcpy(value, &option, sizeof option);
  return 0;
}

// fi_getopt of what both sides of FI_EP_MSG answer alike: FI_OPT_CM_DATA_SIZE.
[[nodiscard]] inline int get_connection_option(int level, int name, void* value,
                                               std::size_t* length) noexcept {
  if (level != FI_OPT_ENDPOINT || name != FI_OPT_CM_DATA_SIZE) return -FI_ENOPROTOOPT;
  return put_option(ConnectionMessage::kMostData, value, length);
}

class EpOptions {
 public:
  // The op_flags of fi_info, within kTxOpFlags and kRxOpFlags.
  EpOptions(std::uint64_t tx_op_flags, std::uint64_t rx_op_flags) noexcept
      : tx_op_flags_(tx_op_flags), rx_op_flags_(rx_op_flags) {
    assert((tx_op_flags & ~kTxOpFlags) == 0 && (rx_op_flags & ~kRxOpFlags) == 0);
  }

  // fi_getopt and fi_setopt. Errors: -FI_ENOPROTOOPT, -FI_EINVAL, -FI_ETOOSMALL (*length then says
  // how many bytes it takes).
  int get(int level, int name, void* value, std::size_t* length) const noexcept {
    if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
    return put_option(min_multi_recv_, value, length);
  }
  int set(int level, int name, const void* value, std::size_t length) noexcept {
    if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV) return -FI_ENOPROTOOPT;
    if (value == nullptr || length != sizeof(min_multi_recv_)) return -FI_EINVAL;
    std::memcpy(&min_multi_recv_, value, sizeof(min_multi_recv_));
    return 0;
  }
  // fi_control: FI_SETOPSFLAG, FI_GETOPSFLAG. Errors: -FI_ENOSYS for other commands, -FI_EINVAL,
  // -FI_EBADFLAGS.
  int control(int command, void* argument) noexcept {
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

  // A completion queue was bound for FI_TRANSMIT, FI_RECV or both, selectively or not.
  void bind_queue(std::uint64_t flags) noexcept {
    assert((flags & (FI_TRANSMIT | FI_RECV)) != 0);
    const std::uint64_t added = (flags & FI_SELECTIVE_COMPLETION) != 0 ? 0 : FI_COMPLETION;
    if ((flags & FI_TRANSMIT) != 0) tx_msg_flags_ = added;
    if ((flags & FI_RECV) != 0) rx_msg_flags_ = added;
  }
  // A counter was bound for these operations.
  void bind_counter(std::uint64_t flags) noexcept {
    if ((flags & (FI_SEND | FI_WRITE)) != 0) counted_levels_ = kCompletionLevels;
  }

  // What calls without flags use, what is added to the flags of calls that have them, and what
  // calls that inject use.
  [[nodiscard]] std::uint64_t tx_flags() const noexcept { return tx_op_flags_ | tx_msg_flags_; }
  [[nodiscard]] std::uint64_t tx_msg_flags() const noexcept { return tx_msg_flags_; }
  // An injected operation has no entry; how far it must have come matters to counters only.
  [[nodiscard]] std::uint64_t tx_inject_flags() const noexcept {
    return FI_INJECT | (tx_op_flags_ & counted_levels_);
  }
  [[nodiscard]] std::uint64_t rx_flags() const noexcept { return rx_op_flags_ | rx_msg_flags_; }
  [[nodiscard]] std::uint64_t rx_msg_flags() const noexcept { return rx_msg_flags_; }
  // Bytes that a multi-receive buffer must have free to stay in use.
  [[nodiscard]] std::size_t min_multi_recv() const noexcept { return min_multi_recv_; }

 private:
  std::uint64_t tx_op_flags_, rx_op_flags_;
  std::uint64_t tx_msg_flags_ = FI_COMPLETION, rx_msg_flags_ = FI_COMPLETION;  // 0: selective
  std::uint64_t counted_levels_ = 0;  // all, once a counter counts sends or writes
  std::size_t min_multi_recv_ = 192;  // until set; fi_endpoint(3) leaves it to the provider
};

}  // namespace turnout::provider
