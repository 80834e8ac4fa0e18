// SPDX-License-Identifier: BSD-3-Clause
// The untagged message calls of an endpoint (fi_msg(3)).
#include "provider/transfer.h"

namespace turnout::provider {
namespace {

constexpr std::uint64_t kSendFlags = kTxOpFlags | FI_REMOTE_CQ_DATA | FI_MORE;
constexpr std::uint64_t kRecvFlags = FI_COMPLETION | FI_MORE | FI_MULTI_RECV;

// Many messages go to one buffer, not to many.
ssize_t post_receive(fid_ep* f, const Incoming& in) noexcept {
  if ((in.flags & FI_MULTI_RECV) != 0 && in.buffer.size() != 1) return -FI_EINVAL;
  return post(f, in);
}

ssize_t recv(fid_ep* f, void* buffer, std::size_t length, void*, fi_addr_t from, void* context) {
  const iovec one = part(buffer, length);
  return post_receive(f, Incoming{{&one, 1}, from, Ep::of(f).rx_flags, context});
}

ssize_t recvv(fid_ep* f, const iovec* iov, void**, std::size_t count, fi_addr_t from,
              void* context) {
  if (count > kIovLimit) return -FI_EINVAL;
  return post_receive(f, Incoming{{iov, count}, from, Ep::of(f).rx_flags, context});
}

ssize_t recvmsg(fid_ep* f, const fi_msg* msg, std::uint64_t flags) {
  if (msg->iov_count > kIovLimit) return -FI_EINVAL;
  if ((flags & ~kRecvFlags) != 0) return -FI_EBADFLAGS;
  return post_receive(
      f,
      Incoming{
          {msg->msg_iov, msg->iov_count}, msg->addr, flags | Ep::of(f).rx_msg_flags, msg->context});
}

ssize_t send(fid_ep* f, const void* buffer, std::size_t length, void*, fi_addr_t to,
             void* context) {
  const iovec one = part(buffer, length);
  return post(f, Outgoing{{&one, 1}, to, Ep::of(f).tx_flags, context});
}

ssize_t sendv(fid_ep* f, const iovec* iov, void**, std::size_t count, fi_addr_t to, void* context) {
  if (count > kIovLimit) return -FI_EINVAL;
  return post(f, Outgoing{{iov, count}, to, Ep::of(f).tx_flags, context});
}

ssize_t sendmsg(fid_ep* f, const fi_msg* msg, std::uint64_t flags) {
  if (msg->iov_count > kIovLimit) return -FI_EINVAL;
  if ((flags & ~kSendFlags) != 0) return -FI_EBADFLAGS;
  return post(f, Outgoing{{msg->msg_iov, msg->iov_count},
                          msg->addr,
                          flags | Ep::of(f).tx_msg_flags,
                          msg->context,
                          false,
                          0,
                          msg->data});
}

ssize_t inject(fid_ep* f, const void* buffer, std::size_t length, fi_addr_t to) {
  if (length > kInjectLimit) return -FI_EINVAL;
  const iovec one = part(buffer, length);
  return post(f, Outgoing{{&one, 1}, to, Ep::of(f).tx_inject_flags});
}

ssize_t senddata(fid_ep* f, const void* buffer, std::size_t length, void*, std::uint64_t data,
                 fi_addr_t to, void* context) {
  const iovec one = part(buffer, length);
  return post(
      f, Outgoing{{&one, 1}, to, Ep::of(f).tx_flags | FI_REMOTE_CQ_DATA, context, false, 0, data});
}

ssize_t injectdata(fid_ep* f, const void* buffer, std::size_t length, std::uint64_t data,
                   fi_addr_t to) {
  if (length > kInjectLimit) return -FI_EINVAL;
  const iovec one = part(buffer, length);
  return post(
      f,
      Outgoing{
          {&one, 1}, to, Ep::of(f).tx_inject_flags | FI_REMOTE_CQ_DATA, nullptr, false, 0, data});
}

fi_ops_msg live_ops = {
    .size = sizeof(fi_ops_msg),
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

fi_ops_msg early_ops = {
    .size = sizeof(fi_ops_msg),
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

fi_ops_msg& message_ops(bool enabled) noexcept {
  return enabled ? live_ops : early_ops;
}

}  // namespace turnout::provider
