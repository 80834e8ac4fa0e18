// SPDX-License-Identifier: BSD-3-Clause
// The remote memory calls of an endpoint (fi_rma(3)).
#include "provider/transfer.h"

namespace turnout::provider {
namespace {

constexpr std::uint64_t kReadFlags = FI_COMPLETION | kCompletionLevels | FI_MORE;
constexpr std::uint64_t kWriteFlags = kTxOpFlags | FI_REMOTE_CQ_DATA | FI_MORE;

// One remote range, as long as the local one.
bool fits(const fi_msg_rma& msg) noexcept {
  if (msg.iov_count > kIovLimit || msg.rma_iov_count != 1) return false;
  std::size_t length = 0;
  for (std::size_t i = 0; i < msg.iov_count; ++i) length += msg.msg_iov[i].iov_len;
  return length == msg.rma_iov[0].len;
}

ssize_t read(fid_ep* f, void* buffer, std::size_t length, void*, fi_addr_t from,
             std::uint64_t address, std::uint64_t key, void* context) {
  const iovec one = part(buffer, length);
  const std::uint64_t flags = Ep::of(f).tx_flags & ~FI_INJECT;
  return post(f, Transfer{{&one, 1}, from, address, key, flags, context});
}

ssize_t readv(fid_ep* f, const iovec* iov, void**, std::size_t count, fi_addr_t from,
              std::uint64_t address, std::uint64_t key, void* context) {
  if (count > kIovLimit) return -FI_EINVAL;
  const std::uint64_t flags = Ep::of(f).tx_flags & ~FI_INJECT;
  return post(f, Transfer{{iov, count}, from, address, key, flags, context});
}

ssize_t readmsg(fid_ep* f, const fi_msg_rma* msg, std::uint64_t flags) {
  if (!fits(*msg)) return -FI_EINVAL;
  if ((flags & ~kReadFlags) != 0) return -FI_EBADFLAGS;
  return post(f, Transfer{{msg->msg_iov, msg->iov_count},
                          msg->addr,
                          msg->rma_iov[0].addr,
                          msg->rma_iov[0].key,
                          flags | Ep::of(f).tx_msg_flags,
                          msg->context});
}

ssize_t write(fid_ep* f, const void* buffer, std::size_t length, void*, fi_addr_t to,
              std::uint64_t address, std::uint64_t key, void* context) {
  const iovec one = part(buffer, length);
  return post(f, Transfer{{&one, 1}, to, address, key, Ep::of(f).tx_flags, context, true});
}

ssize_t writev(fid_ep* f, const iovec* iov, void**, std::size_t count, fi_addr_t to,
               std::uint64_t address, std::uint64_t key, void* context) {
  if (count > kIovLimit) return -FI_EINVAL;
  return post(f, Transfer{{iov, count}, to, address, key, Ep::of(f).tx_flags, context, true});
}

ssize_t writemsg(fid_ep* f, const fi_msg_rma* msg, std::uint64_t flags) {
  if (!fits(*msg)) return -FI_EINVAL;
  if ((flags & ~kWriteFlags) != 0) return -FI_EBADFLAGS;
  return post(f, Transfer{{msg->msg_iov, msg->iov_count},
                          msg->addr,
                          msg->rma_iov[0].addr,
                          msg->rma_iov[0].key,
                          flags | Ep::of(f).tx_msg_flags,
                          msg->context,
                          true,
                          msg->data});
}

ssize_t inject(fid_ep* f, const void* buffer, std::size_t length, fi_addr_t to,
               std::uint64_t address, std::uint64_t key) {
  if (length > kInjectLimit) return -FI_EINVAL;
  const iovec one = part(buffer, length);
  return post(f, Transfer{{&one, 1}, to, address, key, Ep::of(f).tx_inject_flags, nullptr, true});
}

ssize_t writedata(fid_ep* f, const void* buffer, std::size_t length, void*, std::uint64_t data,
                  fi_addr_t to, std::uint64_t address, std::uint64_t key, void* context) {
  const iovec one = part(buffer, length);
  return post(f, Transfer{{&one, 1},
                          to,
                          address,
                          key,
                          Ep::of(f).tx_flags | FI_REMOTE_CQ_DATA,
                          context,
                          true,
                          data});
}

ssize_t injectdata(fid_ep* f, const void* buffer, std::size_t length, std::uint64_t data,
                   fi_addr_t to, std::uint64_t address, std::uint64_t key) {
  if (length > kInjectLimit) return -FI_EINVAL;
  const iovec one = part(buffer, length);
  return post(f, Transfer{{&one, 1},
                          to,
                          address,
                          key,
                          Ep::of(f).tx_inject_flags | FI_REMOTE_CQ_DATA,
                          nullptr,
                          true,
                          data});
}

fi_ops_rma live_ops = {
    .size = sizeof(fi_ops_rma),
    .read = read,
    .readv = readv,
    .readmsg = readmsg,
    .write = write,
    .writev = writev,
    .writemsg = writemsg,
    .inject = inject,
    .writedata = writedata,
    .injectdata = injectdata,
};

fi_ops_rma early_ops = {
    .size = sizeof(fi_ops_rma),
    .read = kNotEnabled,
    .readv = kNotEnabled,
    .readmsg = kNotEnabled,
    .write = kNotEnabled,
    .writev = kNotEnabled,
    .writemsg = kNotEnabled,
    .inject = kNotEnabled,
    .writedata = kNotEnabled,
    .injectdata = kNotEnabled,
};

}  // namespace

fi_ops_rma& rma_ops(bool enabled) noexcept {
  return enabled ? live_ops : early_ops;
}

}  // namespace turnout::provider
