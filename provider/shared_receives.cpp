// SPDX-License-Identifier: BSD-3-Clause
#include "provider/shared_receives.h"

#include <rdma/fi_tagged.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <type_traits>

#include "provider/endpoint.h"
#include "provider/errors.h"
#include "provider/ops.h"
#include "provider/post.h"

namespace turnout::provider {
namespace {

ssize_t cancel_receive(::fid* f, void* context) {
  SharedReceives& receives = SharedReceives::of(f);
  return contain([&] {
    const Guard guard(receives.domain.lock);
    return receives.cancel(context);
  });
}

// Tag is std::uint64_t for the tagged calls, and nothing for the others.
template <class... Tag>
struct ReceiveCalls {
  static constexpr bool kWithTag = sizeof...(Tag) != 0;
  using Message = std::conditional_t<kWithTag, fi_msg_tagged, fi_msg>;
  using Ops = std::conditional_t<kWithTag, fi_ops_tagged, fi_ops_msg>;

  static ssize_t post(fid_ep* f, std::span<const iovec> buffer, const Call& call, bool is_message,
                      std::uint64_t tag = 0, std::uint64_t ignore = 0) noexcept {
    if (buffer.size() > kIovLimit) return -FI_EINVAL;
    const RecvRequest request = receive_of(buffer, kWithTag, tag, ignore);
    SharedReceives& receives = SharedReceives::of(f);
    return contain([&] {
      const Guard guard(receives.domain.lock);
      return receives.post(request, call, is_message);
    });
  }

  static ssize_t recv(fid_ep* f, void* buffer, std::size_t length, void*, fi_addr_t from,
                      Tag... tag, Tag... ignore, void* context) {
    return post(f, part(buffer, length), {from, 0, context}, false, tag..., ignore...);
  }
  static ssize_t recvv(fid_ep* f, const iovec* iov, void**, std::size_t count, fi_addr_t from,
                       Tag... tag, Tag... ignore, void* context) {
    return post(f, {iov, count}, {from, 0, context}, false, tag..., ignore...);
  }
  static ssize_t recvmsg(fid_ep* f, const Message* msg, std::uint64_t flags) {
    if ((flags & (FI_PEEK | FI_CLAIM | FI_DISCARD | FI_MULTI_RECV)) != 0) return -FI_EOPNOTSUPP;
    if ((flags & ~(FI_COMPLETION | FI_MORE)) != 0) return -FI_EBADFLAGS;
    const Call call{msg->addr, flags, msg->context};
    if constexpr (kWithTag) {
      return post(f, {msg->msg_iov, msg->iov_count}, call, true, msg->tag, msg->ignore);
    } else {
      return post(f, {msg->msg_iov, msg->iov_count}, call, true);
    }
  }
  static Ops& ops() noexcept {
    static Ops table = [] {
      auto made = every_call<Ops>(kNotHere);
      made.recv = recv;
      made.recvv = recvv;
      made.recvmsg = recvmsg;
      return made;
    }();
    return table;
  }
};

// It needs no fi_enable, which does it no harm.
int control(::fid*, int command, void*) {
  return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

fi_ops fid_ops = object_ops(SharedReceives::close, kNotHere, control);
fi_ops_ep ep_ops = [] {
  auto ops = every_call<fi_ops_ep>(kNotHere);
  ops.cancel = cancel_receive;
  return ops;
}();

}  // namespace

SharedReceives::SharedReceives(Domain& on, const fi_rx_attr* attr, void* context)
    : ObjectOfDomain(on),
      most_(attr != nullptr && attr->size != 0 ? attr->size : kContextSize),
      directed_(attr != nullptr && (attr->caps & FI_DIRECTED_RECV) != 0) {
  fid = {FI_CLASS_SRX_CTX, context, &fid_ops};
  ops = &ep_ops;
  msg = &ReceiveCalls<>::ops();
  tagged = &ReceiveCalls<std::uint64_t>::ops();
}

int SharedReceives::open(Domain& domain, fi_rx_attr* attr, fid_ep** made, void* context) {
  if (made == nullptr) return -FI_EINVAL;
  if (attr != nullptr && (attr->op_flags & ~kRxOpFlags) != 0) return -FI_EINVAL;
  if (attr != nullptr && (attr->op_flags & FI_MULTI_RECV) != 0) return -FI_EOPNOTSUPP;
  if (attr != nullptr && attr->iov_limit > kIovLimit) return -FI_EINVAL;
  *made = std::make_unique<SharedReceives>(domain, attr, context).release();
  return 0;
}

bool SharedReceives::is(const ::fid& other) noexcept {
  return other.ops == &fid_ops;
}

void SharedReceives::leave(Ep& ep) noexcept {
  std::erase(endpoints_, &ep);
  for (std::list<Arrived>& list : waiting_)
    list.remove_if([&](const Arrived& one) { return one.path == &ep.path; });
  // Receives that its core has not begun are for others again; they were posted before the rest.
  for (auto at = matched_.end(); at != matched_.begin();) {
    --at;
    if (at->arrived.path != &ep.path) continue;
    std::list<Receive>& list = posted_[at->receive.front().tagged ? 1 : 0];
    list.splice(list.begin(), at->receive);
    at = matched_.erase(at);
  }
}

bool SharedReceives::has_vector_of(const Ep& ep) const noexcept {
  return std::ranges::all_of(endpoints_, [&](const Ep* other) {
    return !other->enabled || other->path.peers.vector() == ep.path.peers.vector();
  });
}

ssize_t SharedReceives::post(const RecvRequest& request, const Call& call, bool is_message) {
  std::list<Receive>& list = posted_[request.tagged ? 1 : 0];
  if (posted_[0].size() + posted_[1].size() + matched_.size() >= most_) return -FI_EAGAIN;
  if (spare_.empty()) spare_.emplace_back();
  Receive& receive = spare_.front();
  std::ranges::copy(request.buffer, receive.buffer.begin());
  receive.count = request.buffer.size();
  receive.tagged = request.tagged;
  receive.is_message = is_message;
  receive.tag = request.tag;
  receive.ignore = request.ignore;
  receive.call = call;
  std::list<Arrived>& waiting = waiting_[request.tagged ? 1 : 0];
  const auto found =
      std::ranges::find_if(waiting, [&](const Arrived& one) { return fits(receive, one); });
  if (found == waiting.end()) {
    list.splice(list.end(), spare_, spare_.begin());
    return 0;
  }
  const Arrived arrived = *found;
  spare_messages_.splice(spare_messages_.begin(), waiting, found);
  begin(arrived, spare_, spare_.begin());
  return 0;
}

ssize_t SharedReceives::cancel(void* context) {
  for (std::list<Receive>& list : posted_) {
    // The most recent one, as of an endpoint.
    const auto found = std::find_if(list.rbegin(), list.rend(), [&](const Receive& one) {
      return one.call.context == context;
    });
    if (found == list.rend()) continue;
    const auto at = std::prev(found.base());
    const Receive receive = *at;
    spare_.splice(spare_.begin(), list, at);
    if (endpoints_.empty()) return 0;
    DataPath& path = endpoints_.front()->path;
    path.fail(kRecv | (receive.tagged ? kTagged : kMessage), receive.tag, receive.call,
              path.counter_of(RecvRequest{}), {Code::canceled, "the program cancelled it"});
    return 0;
  }
  return -FI_ENOENT;
}

bool SharedReceives::match(DataPath& path) {
  bool moved = false;
  for (auto at = matched_.begin(); at != matched_.end();) {
    if (!start(at->arrived, at->receive.front())) {
      ++at;
      continue;
    }
    spare_.splice(spare_.begin(), at->receive);
    at = matched_.erase(at);
    moved = true;
  }
  while (const std::optional<TakenMessage> message = path.take_message()) {
    moved = true;
    const Arrived arrived{&path, *message};
    std::list<Receive>& posted = posted_[message->tagged ? 1 : 0];
    const auto found =
        std::ranges::find_if(posted, [&](const Receive& one) { return fits(one, arrived); });
    if (found != posted.end()) {
      begin(arrived, posted, found);
      continue;
    }
    if (spare_messages_.empty()) spare_messages_.emplace_back();
    spare_messages_.front() = arrived;
    std::list<Arrived>& waiting = waiting_[message->tagged ? 1 : 0];
    waiting.splice(waiting.end(), spare_messages_, spare_messages_.begin());
  }
  return moved;
}

bool SharedReceives::fits(const Receive& receive, const Arrived& arrived) const {
  if (((receive.tag ^ arrived.message.tag) & ~receive.ignore) != 0) return false;
  return !directed_ || receive.call.peer == FI_ADDR_UNSPEC ||
         receive.call.peer == arrived.path->peers.source_of(arrived.message.peer);
}

bool SharedReceives::start(const Arrived& arrived, const Receive& receive) {
  RecvRequest request = receive_of({receive.buffer.data(), receive.count}, receive.tagged,
                                   receive.tag, receive.ignore);
  Call call = receive.call;
  call.flags |= arrived.path->receive_flags(receive.is_message);
  return arrived.path->receive_taken(arrived.message.handle, request, call) == 0;
}

void SharedReceives::begin(const Arrived& arrived, std::list<Receive>& from,
                           std::list<Receive>::iterator receive) {
  if (start(arrived, *receive)) {
    spare_.splice(spare_.begin(), from, receive);
    return;
  }
  matched_.push_back({arrived, {}});
  matched_.back().receive.splice(matched_.back().receive.begin(), from, receive);
}

}  // namespace turnout::provider
