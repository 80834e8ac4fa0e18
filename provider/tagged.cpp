// SPDX-License-Identifier: BSD-3-Clause
// The tagged calls of an endpoint (fi_tagged(3)).
#include <rdma/fi_tagged.h>

#include "provider/transfer.h"

namespace turnout::provider {
namespace {

constexpr std::uint64_t kSendFlags = kTxOpFlags | FI_REMOTE_CQ_DATA | FI_MORE;
constexpr std::uint64_t kRecvFlags = FI_COMPLETION | FI_MORE | FI_PEEK | FI_CLAIM | FI_DISCARD;

ssize_t recv(fid_ep* f, void* buffer, std::size_t length, void*, fi_addr_t from, std::uint64_t tag,
             std::uint64_t ignore, void* context) {
  const iovec one = part(buffer, length);
  return post(
      f,
      Incoming{{&one, 1}, from, Ep::of(f).rx_flags & ~FI_MULTI_RECV, context, true, tag, ignore});
}

ssize_t recvv(fid_ep* f, const iovec* iov, void**, std::size_t count, fi_addr_t from,
              std::uint64_t tag, std::uint64_t ignore, void* context) {
  if (count > kIovLimit) return -FI_EINVAL;
  return post(
      f, Incoming{
             {iov, count}, from, Ep::of(f).rx_flags & ~FI_MULTI_RECV, context, true, tag, ignore});
}

ssize_t recvmsg(fid_ep* f, const fi_msg_tagged* msg, std::uint64_t flags) {
  if (msg->iov_count > kIovLimit) return -FI_EINVAL;
  if ((flags & ~kRecvFlags) != 0) return -FI_EBADFLAGS;
  const Incoming in{{msg->msg_iov, msg->iov_count},
                    msg->addr,
                    flags | Ep::of(f).rx_msg_flags,
                    msg->context,
                    true,
                    msg->tag,
                    msg->ignore};
  if ((flags & (FI_PEEK | FI_CLAIM | FI_DISCARD)) == 0) return post(f, in);
  if ((flags & (FI_PEEK | FI_CLAIM)) == 0) return -FI_EINVAL;  // nothing to discard
  if ((flags & (FI_PEEK | FI_CLAIM | FI_DISCARD)) == (FI_PEEK | FI_CLAIM | FI_DISCARD)) {
    return -FI_EINVAL;  // keep it and drop it
  }
  return contain([&] {
    Ep& ep = Ep::of(f);
    const Guard guard(ep.domain.lock);
    return (flags & FI_PEEK) != 0 ? ep.peek(in) : ep.receive_claimed(in);
  });
}

ssize_t send(fid_ep* f, const void* buffer, std::size_t length, void*, fi_addr_t to,
             std::uint64_t tag, void* context) {
  const iovec one = part(buffer, length);
  return post(f, Outgoing{{&one, 1}, to, Ep::of(f).tx_flags, context, true, tag, 0});
}

ssize_t sendv(fid_ep* f, const iovec* iov, void**, std::size_t count, fi_addr_t to,
              std::uint64_t tag, void* context) {
  if (count > kIovLimit) return -FI_EINVAL;
  return post(f, Outgoing{{iov, count}, to, Ep::of(f).tx_flags, context, true, tag, 0});
}

ssize_t sendmsg(fid_ep* f, const fi_msg_tagged* msg, std::uint64_t flags) {
  if (msg->iov_count > kIovLimit) return -FI_EINVAL;
  if ((flags & ~kSendFlags) != 0) return -FI_EBADFLAGS;
  return post(f, Outgoing{{msg->msg_iov, msg->iov_count},
                          msg->addr,
                          flags | Ep::of(f).tx_msg_flags,
                          msg->context,
                          true,
                          msg->tag,
                          msg->data});
}

ssize_t inject(fid_ep* f, const void* buffer, std::size_t length, fi_addr_t to, std::uint64_t tag) {
  if (length > kInjectLimit) return -FI_EINVAL;
  const iovec one = part(buffer, length);
  return post(f, Outgoing{{&one, 1}, to, Ep::of(f).tx_inject_flags, nullptr, true, tag, 0});
}

ssize_t senddata(fid_ep* f, const void* buffer, std::size_t length, void*, std::uint64_t data,
                 fi_addr_t to, std::uint64_t tag, void* context) {
  const iovec one = part(buffer, length);
  return post(
      f, Outgoing{{&one, 1}, to, Ep::of(f).tx_flags | FI_REMOTE_CQ_DATA, context, true, tag, data});
}

ssize_t injectdata(fid_ep* f, const void* buffer, std::size_t length, std::uint64_t data,
                   fi_addr_t to, std::uint64_t tag) {
  if (length > kInjectLimit) return -FI_EINVAL;
  const iovec one = part(buffer, length);
  return post(
      f,
      Outgoing{
          {&one, 1}, to, Ep::of(f).tx_inject_flags | FI_REMOTE_CQ_DATA, nullptr, true, tag, data});
}

fi_ops_tagged live_ops = {
    .size = sizeof(fi_ops_tagged),
    .recv = recv,
    .recvv = recvv,
    .recvmsg = recvmsg,
    .send = send,
    .sendv = sendv,
    .sendmsg = sendmsg,
    .inject = inject,
    .senddata = senddata,
    .injectdata = injectdata,
};

fi_ops_tagged early_ops = {
    .size = sizeof(fi_ops_tagged),
    .recv = kNotEnabled,
    .recvv = kNotEnabled,
    .recvmsg = kNotEnabled,
    .send = kNotEnabled,
    .sendv = kNotEnabled,
    .sendmsg = kNotEnabled,
    .inject = kNotEnabled,
    .senddata = kNotEnabled,
    .injectdata = kNotEnabled,
};

}  // namespace

fi_ops_tagged& tagged_ops(bool enabled) noexcept {
  return enabled ? live_ops : early_ops;
}

}  // namespace turnout::provider
