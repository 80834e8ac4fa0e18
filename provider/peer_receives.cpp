// SPDX-License-Identifier: BSD-3-Clause
#include "provider/peer_receives.h"

#include <algorithm>
#include <cassert>
#include <memory>
#include <utility>

#include "base/log.h"
#include "provider/cq.h"
#include "provider/endpoint.h"
#include "provider/errors.h"
#include "provider/library.h"
#include "provider/ops.h"

namespace turnout::provider {
namespace {

// Whose sources this thread asks its owner to fill in: the owner may pass entries of other
// providers, too.
thread_local PeerReceives* naming = nullptr;

fi_ops receives_fid_ops = object_ops(PeerReceives::close);
// Receives are posted to the owner.
fi_ops_msg receives_msg_ops = every_call<fi_ops_msg>(kNotHere);
fi_ops_tagged receives_tagged_ops = every_call<fi_ops_tagged>(kNotHere);
fi_ops_ep receives_ep_ops = every_call<fi_ops_ep>(kNotHere);

}  // namespace

SrxPeerOps PeerReceives::peer_ops = {
    .size = sizeof(SrxPeerOps),
    .start_msg = start_entry,
    .start_tag = start_entry,
    .discard_msg = discard_entry,
    .discard_tag = discard_entry,
};

PeerReceives::PeerReceives(Domain& on, PeerSrxFid& srx, void* context)
    : ObjectOfDomain(on), srx_(srx) {
  fid = {FI_CLASS_SRX_CTX, context, &receives_fid_ops};
  ops = &receives_ep_ops;
  msg = &receives_msg_ops;
  tagged = &receives_tagged_ops;
  const Guard guard(domain.lock);
  domain.peer_receives.push_back(this);
}

void PeerReceives::leave_domain() {
  std::erase(domain.peer_receives, this);
}

int PeerReceives::open(Domain& domain, fi_rx_attr* attr, fid_ep** made, void* context) {
  if (attr == nullptr || (attr->op_flags & FI_PEER) == 0) return -FI_ENOSYS;
  if (library().version >= FI_VERSION(2, 0) && library().version < kApi25) return -FI_EINVAL;
  const auto* const given = static_cast<const PeerSrxContext*>(context);
  if (made == nullptr || given == nullptr || given->size < sizeof *given || given->srx == nullptr ||
      given->srx->owner_ops == nullptr || given->srx->owner_ops->size < sizeof(SrxOwnerOps)) {
    return -FI_EINVAL;
  }
  *made = std::make_unique<PeerReceives>(domain, *given->srx, context).release();
  given->srx->peer_ops = &peer_ops;
  return 0;
}

void PeerReceives::leave(Ep& ep) noexcept {
  std::erase(endpoints_, &ep);
  for (List* const list : {&fresh_, &waiting_, &unnamed_, &matched_}) {
    for (Held& held : *list) {
      if (held.path == &ep.path) held.path = nullptr;
    }
  }
}

// Calls use(one) without the lock, where begin(one), with it, says so; then finish(one)
// with it. Meanwhile it cannot be closed.
template <class Begin, class Use, class Finish>
void PeerReceives::use_each(Domain& domain, Begin&& begin, Use&& use, Finish&& finish) {
  for (std::size_t i = 0;; ++i) {
    PeerReceives* receives = nullptr;
    {
      const Guard guard(domain.lock);
      if (i >= domain.peer_receives.size()) return;
      receives = domain.peer_receives[i];
      if (!begin(*receives)) continue;
      ++receives->users_;
    }
    const struct End {
      ~End() {
        const Guard guard(receives.domain.lock);
        finish(receives);
        --receives.users_;
      }
      PeerReceives& receives;
      Finish& finish;
    } end{*receives, finish};
    use(*receives);
  }
}

void PeerReceives::hand_over(Cq& queue) {
  use_each(
      queue.domain,
      // Not where another thread does it, or the owner, within a call of ours.
      [](PeerReceives& one) { return !std::exchange(one.handing_over_, true); },
      [&](PeerReceives& one) { one.hand_over_from(queue); },
      [](PeerReceives& one) { one.handing_over_ = false; });
}

void PeerReceives::hand_over_from(Cq& queue) {
  {
    const Guard guard(domain.lock);
    for (std::size_t n = matched_.size(); n > 0; --n) start(matched_.front());
  }
  PeerMatch match{};
  for (;;) {
    Held* const held = next_message(queue, match);
    if (held == nullptr || ask(*held, match) == Next::stop) return;
  }
}

// Null: there is none. It is the first of the fresh ones.
PeerReceives::Held* PeerReceives::next_message(Cq& queue, PeerMatch& match) {
  const Guard guard(domain.lock);
  while (!fresh_.empty() && fresh_.front().path == nullptr) drop(fresh_.front());
  for (Ep* const ep : endpoints_) {
    if (!fresh_.empty()) break;
    if (ep->rx_cq != &queue) continue;
    const std::optional<TakenMessage> message = ep->path.take_message();
    if (!message.has_value()) continue;
    if (spare_.empty()) {
      spare_.emplace_back();
      spare_.back().receives = this;
      spare_.back().self = std::prev(spare_.end());
    }
    Held& held = spare_.front();
    held.path = &ep->path;
    held.message = *message;
    held.entry = nullptr;
    move(held, spare_, fresh_);
  }
  if (fresh_.empty()) return nullptr;
  Held& held = fresh_.front();
  const fi_addr_t source = held.path->peers.source_of(held.message.peer);
  held.named = source != FI_ADDR_NOTAVAIL;
  match = {source, held.message.length, held.message.tagged ? held.message.tag : 0};
  return &held;
}

PeerReceives::Next PeerReceives::ask(Held& held, PeerMatch& match) {
  PeerRxEntry* entry = nullptr;
  const bool is_tagged = held.message.tagged;
  const int answer = is_tagged ? srx_.owner_ops->get_tag(&srx_, &match, &entry)
                               : srx_.owner_ops->get_msg(&srx_, &match, &entry);
  if (answer == 0) {
    const Guard guard(domain.lock);
    held.entry = entry;
    move(held, fresh_, matched_);
    start(held);
    return Next::go_on;
  }
  if (answer == -FI_ENOENT) return queue(held, *entry);
  if (answer == -FI_EAGAIN || answer == -FI_ENOMEM) return Next::stop;  // asked again later
  TURNOUT_LOG(provider, warn,
              "receiving a message failed: {} message of {} bytes: the owner of the shared receive "
              "context answers {}; it was dropped, do not send such messages over this link",
              is_tagged ? "tagged" : "untagged", held.message.length, provider_error_text(-answer));
  const Guard guard(domain.lock);
  drop(held);
  return Next::go_on;
}

// The owner keeps the entry until a receive matches. It may do so at once.
PeerReceives::Next PeerReceives::queue(Held& held, PeerRxEntry& entry) {
  {
    const Guard guard(domain.lock);
    held.entry = &entry;
    move(held, fresh_, waiting(held));
  }
  entry.peer_context = &held;
  entry.msg_size = held.message.length;
  if (held.message.has_remote_data) {
    entry.cq_data = held.message.remote_data;
    entry.flags |= FI_REMOTE_CQ_DATA;
  }
  const int answer =
      held.message.tagged ? srx_.owner_ops->queue_tag(&entry) : srx_.owner_ops->queue_msg(&entry);
  if (answer == 0) return Next::go_on;
  {
    const Guard guard(domain.lock);
    held.entry = nullptr;
    fresh_.splice(fresh_.begin(), waiting(held), held.self);
  }
  free_entry(&entry);
  return Next::stop;
}

// One of the matched. The core may have no room now.
int PeerReceives::start(Held& held) {
  int error = -FI_EOPBADSTATE;
  if (held.path != nullptr) {
    RecvRequest request;
    request.buffer = {held.entry->iov, held.entry->count};
    request.tagged = held.message.tagged;
    error = static_cast<int>(held.path->receive_taken(held.message.handle, request, held.entry));
    if (error == -FI_EAGAIN) {
      move(held, matched_, matched_);  // the next one first
      return 0;
    }
  }
  move(held, matched_, spare_);
  return error;
}

// One of the fresh.
void PeerReceives::drop(Held& held) {
  if (held.path != nullptr) held.path->discard_taken(held.message.handle);
  move(held, fresh_, spare_);
}

int PeerReceives::start_entry(PeerRxEntry* entry) {
  Held& held = *static_cast<Held*>(entry->peer_context);
  PeerReceives& receives = *held.receives;
  const Guard guard(receives.domain.lock);
  List& from = receives.waiting(held);
  if (held.path == nullptr) {
    move(held, from, receives.spare_);
    return -FI_EOPBADSTATE;
  }
  move(held, from, receives.matched_);
  return contain([&] { return receives.start(held); });
}

// The entry stays the owner's.
int PeerReceives::discard_entry(PeerRxEntry* entry) {
  Held& held = *static_cast<Held*>(entry->peer_context);
  PeerReceives& receives = *held.receives;
  const Guard guard(receives.domain.lock);
  move(held, receives.waiting(held), receives.spare_);
  return contain([&] {
    if (held.path != nullptr) held.path->discard_taken(held.message.handle);
    return 0;
  });
}

void PeerReceives::name_sources(Domain& domain) {
  use_each(
      domain, [](PeerReceives& one) { return !one.unnamed_.empty(); },
      [](PeerReceives& one) {
        naming = &one;
        one.srx_.owner_ops->foreach_unspec_addr(&one.srx_, source_of_entry);
        naming = nullptr;
      },
      [](PeerReceives&) {});
}

fi_addr_t PeerReceives::source_of_entry(PeerRxEntry* entry) {
  assert(naming != nullptr);
  const Guard guard(naming->domain.lock);
  for (Held& held : naming->unnamed_) {
    if (held.entry != entry || held.path == nullptr) continue;
    const fi_addr_t source = held.path->peers.source_of(held.message.peer);
    if (source != FI_ADDR_NOTAVAIL) {
      move(held, naming->unnamed_, naming->waiting_);
      held.named = true;
    }
    return source;
  }
  return FI_ADDR_UNSPEC;
}

}  // namespace turnout::provider
