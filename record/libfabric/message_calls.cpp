// SPDX-License-Identifier: BSD-3-Clause
// The message calls of an endpoint, untagged (fi_msg(3)) and tagged (fi_tagged(3)).
#include <type_traits>

#include "record/libfabric/calls.h"
#include "record/libfabric/endpoint.h"
#include "record/sum.h"

namespace turnout::record::libfabric {
namespace {

// Tag is std::uint64_t for the tagged calls, and nothing for the others.
template <class... Tag>
struct MessageCalls {
  static constexpr bool kTagged = sizeof...(Tag) != 0;
  using Message = std::conditional_t<kTagged, fi_msg_tagged, fi_msg>;
  using Ops = std::conditional_t<kTagged, fi_ops_tagged, fi_ops_msg>;

  static Ep& of(const fid_ep* ep) noexcept {
    if constexpr (kTagged) {
      return owner_of<Ep>(ep->tagged);
    } else {
      return owner_of<Ep>(ep->msg);
    }
  }
  static const Ops& real(const Ep& e) noexcept {
    if constexpr (kTagged) {
      return e.tagged();
    } else {
      return e.msg();
    }
  }
  static std::uint64_t tag_of(const Message& msg) noexcept {
    if constexpr (kTagged) return msg.tag;
    return 0;
  }
  static std::uint64_t ignore_of(const Message& msg) noexcept {
    if constexpr (kTagged) return msg.ignore;
    return 0;
  }

  template <class Post>
  static ssize_t start_recv(Ep& e, std::uint64_t length, const Ep::Call& call, Post&& post,
                            std::uint64_t tag = 0, std::uint64_t ignore = 0) {
    return e.receive(kTagged, length, tag, ignore != 0, call, post);
  }
  template <class Post>
  static ssize_t start_send(Ep& e, std::uint64_t length, const Ep::Call& call, Post&& post,
                            std::uint64_t tag = 0) {
    return e.send(kTagged, length, tag, call, post);
  }

  static ssize_t recv(fid_ep* ep, void* buffer, std::size_t length, void* desc, fi_addr_t from,
                      Tag... tag, Tag... ignore, void* context) {
    Ep& e = of(ep);
    const auto post = [&] {
      return real(e).recv(ep, buffer, length, desc, from, tag..., ignore..., context);
    };
    return start_recv(e, length, e.receives(from, context), post, tag..., ignore...);
  }
  static ssize_t recvv(fid_ep* ep, const iovec* pieces, void** desc, std::size_t count,
                       fi_addr_t from, Tag... tag, Tag... ignore, void* context) {
    Ep& e = of(ep);
    const auto post = [&] {
      return real(e).recvv(ep, pieces, desc, count, from, tag..., ignore..., context);
    };
    return start_recv(e, sum_of(pieces, count, &iovec::iov_len), e.receives(from, context), post,
                      tag..., ignore...);
  }
  static ssize_t recvmsg(fid_ep* ep, const Message* msg, std::uint64_t flags) {
    Ep& e = of(ep);
    return start_recv(
        e, sum_of(msg->msg_iov, msg->iov_count, &iovec::iov_len), {msg->addr, flags, msg->context},
        [&] { return real(e).recvmsg(ep, msg, flags); }, tag_of(*msg), ignore_of(*msg));
  }
  static ssize_t send(fid_ep* ep, const void* buffer, std::size_t length, void* desc, fi_addr_t to,
                      Tag... tag, void* context) {
    Ep& e = of(ep);
    const auto post = [&] { return real(e).send(ep, buffer, length, desc, to, tag..., context); };
    return start_send(e, length, e.sends(to, context), post, tag...);
  }
  static ssize_t sendv(fid_ep* ep, const iovec* pieces, void** desc, std::size_t count,
                       fi_addr_t to, Tag... tag, void* context) {
    Ep& e = of(ep);
    const auto post = [&] { return real(e).sendv(ep, pieces, desc, count, to, tag..., context); };
    return start_send(e, sum_of(pieces, count, &iovec::iov_len), e.sends(to, context), post,
                      tag...);
  }
  static ssize_t sendmsg(fid_ep* ep, const Message* msg, std::uint64_t flags) {
    Ep& e = of(ep);
    return start_send(
        e, sum_of(msg->msg_iov, msg->iov_count, &iovec::iov_len), {msg->addr, flags, msg->context},
        [&] { return real(e).sendmsg(ep, msg, flags); }, tag_of(*msg));
  }
  static ssize_t inject(fid_ep* ep, const void* buffer, std::size_t length, fi_addr_t to,
                        Tag... tag) {
    Ep& e = of(ep);
    const auto post = [&] { return real(e).inject(ep, buffer, length, to, tag...); };
    return start_send(e, length, Ep::injects(to), post, tag...);
  }
  static ssize_t senddata(fid_ep* ep, const void* buffer, std::size_t length, void* desc,
                          std::uint64_t data, fi_addr_t to, Tag... tag, void* context) {
    Ep& e = of(ep);
    const auto post = [&] {
      return real(e).senddata(ep, buffer, length, desc, data, to, tag..., context);
    };
    return start_send(e, length, e.sends(to, context), post, tag...);
  }
  static ssize_t injectdata(fid_ep* ep, const void* buffer, std::size_t length, std::uint64_t data,
                            fi_addr_t to, Tag... tag) {
    Ep& e = of(ep);
    const auto post = [&] { return real(e).injectdata(ep, buffer, length, data, to, tag...); };
    return start_send(e, length, Ep::injects(to), post, tag...);
  }

  static void replace(Table<Ops>* table) {
    table->replace(&Ops::recv, &recv);
    table->replace(&Ops::recvv, &recvv);
    table->replace(&Ops::recvmsg, &recvmsg);
    table->replace(&Ops::send, &send);
    table->replace(&Ops::sendv, &sendv);
    table->replace(&Ops::sendmsg, &sendmsg);
    table->replace(&Ops::inject, &inject);
    table->replace(&Ops::senddata, &senddata);
    table->replace(&Ops::injectdata, &injectdata);
  }
};

}  // namespace

void replace_calls(Table<fi_ops_msg>* table) {
  MessageCalls<>::replace(table);
}

void replace_calls(Table<fi_ops_tagged>* table) {
  MessageCalls<std::uint64_t>::replace(table);
}

}  // namespace turnout::record::libfabric
