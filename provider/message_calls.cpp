// SPDX-License-Identifier: BSD-3-Clause
// The message calls of an endpoint, untagged (fi_msg(3)) and tagged (fi_tagged(3)).
#include <rdma/fi_tagged.h>

#include <type_traits>

#include "provider/info.h"
#include "provider/ops.h"
#include "provider/post.h"

namespace turnout::provider {
namespace {

constexpr std::uint64_t kSendFlags = kTxOpFlags | FI_REMOTE_CQ_DATA | FI_MORE;
constexpr std::uint64_t kPeekFlags = FI_PEEK | FI_CLAIM | FI_DISCARD;

// Tag is std::uint64_t for the tagged calls, and nothing for the others.
template <class... Tag>
struct MessageCalls {
  static constexpr bool kWithTag = sizeof...(Tag) != 0;
  static constexpr std::uint64_t kRecvFlags =
      FI_COMPLETION | FI_MORE | (kWithTag ? kPeekFlags : FI_MULTI_RECV);
  using Message = std::conditional_t<kWithTag, fi_msg_tagged, fi_msg>;
  using Ops = std::conditional_t<kWithTag, fi_ops_tagged, fi_ops_msg>;

  [[gnu::always_inline]] static ssize_t start_recv(fid_ep* f, std::span<const iovec> buffer,
                                                   const Call& call, std::uint64_t tag = 0,
                                                   std::uint64_t ignore = 0,
                                                   const Deferral* deferral = nullptr) noexcept {
    // Many messages go to one buffer, not to many.
    if ((call.flags & FI_MULTI_RECV) != 0 && buffer.size() != 1) return -FI_EINVAL;
    RecvRequest request = receive_of(buffer, kWithTag, tag, ignore);
    return post(f, request, call, deferral);
  }

  static std::uint64_t recv_flags(fid_ep* f) noexcept {
    return Ep::of(f).options.rx_flags() & ~(kWithTag ? FI_MULTI_RECV : 0);
  }

  static ssize_t recv(fid_ep* f, void* buffer, std::size_t length, void*, fi_addr_t from,
                      Tag... tag, Tag... ignore, void* context) {
    return start_recv(f, part(buffer, length), {from, recv_flags(f), context}, tag..., ignore...);
  }

  static ssize_t recvv(fid_ep* f, const iovec* iov, void**, std::size_t count, fi_addr_t from,
                       Tag... tag, Tag... ignore, void* context) {
    if (count > kIovLimit) return -FI_EINVAL;
    return start_recv(f, {iov, count}, {from, recv_flags(f), context}, tag..., ignore...);
  }

  [[gnu::always_inline]] static ssize_t recv_message(fid_ep* f, const Message& msg,
                                                     std::uint64_t flags, std::uint64_t own,
                                                     const Deferral* deferral = nullptr) {
    const Call call{msg.addr, flags | own, msg.context};
    if constexpr (kWithTag) {
      if ((flags & kPeekFlags) != 0)
        return deferral != nullptr ? -FI_EBADFLAGS : peek_or_claim(f, msg, call);
      return start_recv(f, {msg.msg_iov, msg.iov_count}, call, msg.tag, msg.ignore, deferral);
    } else {
      return start_recv(f, {msg.msg_iov, msg.iov_count}, call, 0, 0, deferral);
    }
  }

  static ssize_t recvmsg(fid_ep* f, const Message* msg, std::uint64_t flags) {
    if (msg->iov_count > kIovLimit) return -FI_EINVAL;
    if ((flags & ~kRecvFlags) != 0) {
      Deferral deferral;
      const int error = deferral_of(f, flags & ~kRecvFlags, msg->context, deferral);
      return error != 0 ? error : defer_recv(f, *msg, flags & ~FI_TRIGGER, deferral);
    }
    return recv_message(f, *msg, flags, Ep::of(f).options.rx_msg_flags());
  }

  static ssize_t defer_recv(fid_ep* f, const Message& msg, std::uint64_t flags,
                            const Deferral& deferral) {
    if (!Ep::of(f).has_receives()) return -FI_EOPNOTSUPP;
    if (msg.iov_count > kIovLimit) return -FI_EINVAL;
    if ((flags & ~kRecvFlags) != 0) return -FI_EBADFLAGS;
    return recv_message(f, msg, flags, deferral.flags(Ep::of(f).options.rx_msg_flags()), &deferral);
  }

  static ssize_t peek_or_claim(fid_ep* f, const fi_msg_tagged& msg, const Call& call) noexcept {
    if ((call.flags & (FI_PEEK | FI_CLAIM)) == 0) return -FI_EINVAL;  // nothing to discard
    if ((call.flags & kPeekFlags) == kPeekFlags) return -FI_EINVAL;   // keep it and drop it
    if ((call.flags & FI_PEEK) != 0) {
      PeekRequest request;
      request.tag = msg.tag;
      request.ignore = msg.ignore;
      return post(f, request, call);
    }
    return contain([&] {
      Ep& ep = Ep::of(f);
      const Guard guard(ep.domain.lock);
      RecvRequest request = receive_of({msg.msg_iov, msg.iov_count}, kWithTag, msg.tag, msg.ignore);
      return ep.path.receive_claimed(request, call);
    });
  }

  [[gnu::always_inline]] static ssize_t start_send(fid_ep* f, std::span<const iovec> data,
                                                   const Call& call, std::uint64_t remote_data,
                                                   std::uint64_t tag = 0,
                                                   const Deferral* deferral = nullptr) noexcept {
    SendRequest request;
    request.data = data;
    request.tagged = kWithTag;
    request.tag = tag;
    request.remote_data = remote_data;
    return post(f, request, call, deferral);
  }

  static ssize_t send(fid_ep* f, const void* buffer, std::size_t length, void*, fi_addr_t to,
                      Tag... tag, void* context) {
    return start_send(f, part(buffer, length), {to, Ep::of(f).options.tx_flags(), context}, 0,
                      tag...);
  }

  static ssize_t sendv(fid_ep* f, const iovec* iov, void**, std::size_t count, fi_addr_t to,
                       Tag... tag, void* context) {
    if (count > kIovLimit) return -FI_EINVAL;
    return start_send(f, {iov, count}, {to, Ep::of(f).options.tx_flags(), context}, 0, tag...);
  }

  [[gnu::always_inline]] static ssize_t send_message(fid_ep* f, const Message& msg,
                                                     std::uint64_t flags,
                                                     const Deferral* deferral = nullptr) {
    std::uint64_t tag = 0;
    if constexpr (kWithTag) tag = msg.tag;
    return start_send(f, {msg.msg_iov, msg.iov_count}, {msg.addr, flags, msg.context}, msg.data,
                      tag, deferral);
  }

  static ssize_t sendmsg(fid_ep* f, const Message* msg, std::uint64_t flags) {
    if (msg->iov_count > kIovLimit) return -FI_EINVAL;
    if ((flags & ~kSendFlags) != 0) {
      Deferral deferral;
      const int error = deferral_of(f, flags & ~kSendFlags, msg->context, deferral);
      return error != 0 ? error : defer_send(f, *msg, flags & ~FI_TRIGGER, deferral);
    }
    return send_message(f, *msg, flags | Ep::of(f).options.tx_msg_flags());
  }

  static ssize_t defer_send(fid_ep* f, const Message& msg, std::uint64_t flags,
                            const Deferral& deferral) {
    if (msg.iov_count > kIovLimit) return -FI_EINVAL;
    if ((flags & ~kSendFlags) != 0) return -FI_EBADFLAGS;
    return send_message(f, msg, flags | deferral.flags(Ep::of(f).options.tx_msg_flags()),
                        &deferral);
  }

  static ssize_t inject(fid_ep* f, const void* buffer, std::size_t length, fi_addr_t to,
                        Tag... tag) {
    if (length > kInjectLimit) return -FI_EINVAL;
    return start_send(f, part(buffer, length), {to, Ep::of(f).options.tx_inject_flags()}, 0,
                      tag...);
  }

  static ssize_t senddata(fid_ep* f, const void* buffer, std::size_t length, void*,
                          std::uint64_t data, fi_addr_t to, Tag... tag, void* context) {
    const std::uint64_t flags = Ep::of(f).options.tx_flags() | FI_REMOTE_CQ_DATA;
    return start_send(f, part(buffer, length), {to, flags, context}, data, tag...);
  }

  static ssize_t injectdata(fid_ep* f, const void* buffer, std::size_t length, std::uint64_t data,
                            fi_addr_t to, Tag... tag) {
    if (length > kInjectLimit) return -FI_EINVAL;
    const std::uint64_t flags = Ep::of(f).options.tx_inject_flags() | FI_REMOTE_CQ_DATA;
    return start_send(f, part(buffer, length), {to, flags}, data, tag...);
  }

  static Ops& ops(MessageCallSet set) noexcept {
    static Ops all = {
        .size = sizeof(Ops),
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
    static Ops sends = [] {
      Ops table = all;
      table.recv = kNotSupported;
      table.recvv = kNotSupported;
      table.recvmsg = kNotSupported;
      return table;
    }();
    static Ops early = every_call<Ops>(kNotEnabled);
    return set == MessageCallSet::all ? all : set == MessageCallSet::sends ? sends : early;
  }
};

}  // namespace

ssize_t defer_send(const fi_op_msg& op, const Deferral& deferral) noexcept {
  return MessageCalls<>::defer_send(op.ep, op.msg, op.flags, deferral);
}
ssize_t defer_recv(const fi_op_msg& op, const Deferral& deferral) noexcept {
  return MessageCalls<>::defer_recv(op.ep, op.msg, op.flags, deferral);
}
ssize_t defer_send(const fi_op_tagged& op, const Deferral& deferral) noexcept {
  return MessageCalls<std::uint64_t>::defer_send(op.ep, op.msg, op.flags, deferral);
}
ssize_t defer_recv(const fi_op_tagged& op, const Deferral& deferral) noexcept {
  return MessageCalls<std::uint64_t>::defer_recv(op.ep, op.msg, op.flags, deferral);
}

fi_ops_msg& message_ops(MessageCallSet set) noexcept {
  return MessageCalls<>::ops(set);
}

fi_ops_tagged& tagged_ops(MessageCallSet set) noexcept {
  return MessageCalls<std::uint64_t>::ops(set);
}

}  // namespace turnout::provider
