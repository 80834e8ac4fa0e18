// SPDX-License-Identifier: BSD-3-Clause
#include "provider/peer_receives.h"

#include <algorithm>
#include <cassert>
#include <memory>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "provider/cq.h"
#include "provider/endpoint.h"
#include "provider/errors.h"
#include "provider/library.h"
#include "provider/ops.h"

namespace turnout::provider {
namespace {

// What an owner that fills in sources is answered from.
thread_local void* naming = nullptr;

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

int PeerReceives::open(Domain& domain, fi_rx_attr*, fid_ep** made, void* context) {
  if (library().version > FI_VERSION(1, 17) && library().version < kApi25) return -FI_EINVAL;
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
  for (List* const list : {&fresh_, &waiting_, &unnamed_}) {
    for (Held& held : *list) {
      if (held.path == &ep.path) held.path = nullptr;
    }
  }
  if (ep.rx_cq == nullptr || ep.rx_cq->peer == nullptr) return;  // it was never enabled
  // What the core has reported comes first.
  static_cast<void>(contain([&] { return ep.rx_cq->peer->take(*ep.rx_cq, SIZE_MAX); }));
  for (List* const list : {&started_, &matched_}) {
    for (auto at = list->begin(); at != list->end();) {
      Held& held = *at++;
      if (held.path != &ep.path) continue;
      static_cast<void>(contain([&] {
        cancel(held, *ep.rx_cq->peer);
        return 0;
      }));
      move(held, *list, spare_);
    }
  }
}

PeerRxEntry& PeerReceives::finished(void* context) noexcept {
  Held& held = *static_cast<Held*>(context);
  move(held, started_, spare_);
  return *held.entry;
}

// Its endpoint is closed, or will be before the core receives it.
void PeerReceives::cancel(Held& held, PeerCq& of_owner) {
  ErrorCompletion c;
  c.flags = kRecv | (held.message.tagged ? kTagged : kMessage);
  c.tag = held.message.tag;
  c.status = {Code::canceled, "the endpoint was closed"};
  of_owner.end(*this, *held.entry, c, true, FI_ADDR_NOTAVAIL);
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
      [&](PeerReceives& one) {
        return one.receives_to(queue) && !std::exchange(one.handing_over_, true);
      },
      [&](PeerReceives& one) { one.hand_over_from(queue); },
      [](PeerReceives& one) { one.handing_over_ = false; });
}

bool PeerReceives::receives_to(const Cq& queue) const noexcept {
  return std::ranges::any_of(endpoints_, [&](const Ep* ep) { return ep->rx_cq == &queue; });
}

void PeerReceives::hand_over_from(Cq& queue) {
  bool is_known = false;
  {
    const Guard guard(domain.lock);
    for (std::size_t n = matched_.size(); n > 0; --n) start(matched_.front());
    is_known = has_new_names();
  }
  if (is_known) name_sources();
  PeerMatch match{};
  for (;;) {
    Held* const held = next_message(queue, match);
    if (held == nullptr || ask(*held, match, *queue.peer) == Next::stop) return;
  }
}

// Null: there is none. It is the first of the fresh ones.
PeerReceives::Held* PeerReceives::next_message(Cq& queue, PeerMatch& match) {
  const Guard guard(domain.lock);
  while (!fresh_.empty() && (fresh_.front().path == nullptr || fresh_.front().path->is_closing())) {
    drop(fresh_.front());
  }
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

PeerReceives::Next PeerReceives::ask(Held& held, PeerMatch& match, PeerCq& of_owner) {
  PeerRxEntry* entry = nullptr;
  const bool is_tagged = held.message.tagged;
  const int answer = is_tagged ? srx_.owner_ops->get_tag(&srx_, &match, &entry)
                               : srx_.owner_ops->get_msg(&srx_, &match, &entry);
  if (answer == 0) {
    const Guard guard(domain.lock);
    held.entry = entry;
    if (held.path == nullptr) {  // closed meanwhile
      cancel(held, of_owner);
      move(held, fresh_, spare_);
      return Next::go_on;
    }
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
  bool is_named = false;
  {
    const Guard guard(domain.lock);
    held.entry = &entry;
    is_named = held.named;
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
  if (answer == 0) {
    if (is_named) return Next::go_on;
    const Guard guard(domain.lock);
    names_told_ = 0;  // it may have been inserted meanwhile
    return Next::go_on;
  }
  {
    const Guard guard(domain.lock);
    held.entry = nullptr;
    fresh_.splice(fresh_.begin(), waiting(held), held.self);
  }
  free_entry(&entry);
  return Next::stop;
}

// One of the matched. The core may have no room now, or not receive it any more.
void PeerReceives::start(Held& held) {
  RecvRequest request;
  request.buffer = {held.entry->iov, held.entry->count};
  request.tagged = held.message.tagged;
  const bool started = held.path->receive_taken(held.message.handle, request,
                                                {FI_ADDR_UNSPEC, FI_COMPLETION, &held}) == 0;
  move(held, matched_, started ? started_ : matched_);  // of the others the next one first
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
  held.named = true;  // its owner does not ask for it any more
  if (held.path == nullptr || held.path->is_closing()) {
    move(held, from, receives.spare_);
    return -FI_EOPBADSTATE;
  }
  move(held, from, receives.matched_);
  return contain([&] {
    receives.start(held);
    return 0;
  });
}

// The entry stays the owner's.
int PeerReceives::discard_entry(PeerRxEntry* entry) {
  Held& held = *static_cast<Held*>(entry->peer_context);
  PeerReceives& receives = *held.receives;
  const Guard guard(receives.domain.lock);
  move(held, receives.waiting(held), receives.spare_);
  held.named = true;
  return contain([&] {
    if (held.path != nullptr) held.path->discard_taken(held.message.handle);
    return 0;
  });
}

// By entry: those whose source the owner does not know. It may pass entries of other providers,
// too.
struct PeerReceives::Naming {
  PeerReceives& receives;
  std::unordered_map<const PeerRxEntry*, Held*> unnamed;
};

// Another process may have inserted some, of which one look-up learns.
bool PeerReceives::has_new_names() {
  if (unnamed_.empty()) return false;
  const Held& first = unnamed_.front();
  if (first.path != nullptr) static_cast<void>(first.path->peers.source_of(first.message.peer));
  return names_told_ != domain.names_known;
}

void PeerReceives::name_sources(Domain& domain) {
  use_each(
      domain, [](PeerReceives& one) { return one.has_new_names(); },
      [](PeerReceives& one) { one.name_sources(); }, [](PeerReceives&) {});
}

void PeerReceives::name_sources() {
  Naming all{*this, {}};
  {
    const Guard guard(domain.lock);
    names_told_ = domain.names_known;
    for (Held& held : unnamed_) all.unnamed.emplace(held.entry, &held);
  }
  naming = &all;
  srx_.owner_ops->foreach_unspec_addr(&srx_, source_of_entry);
  naming = nullptr;
}

fi_addr_t PeerReceives::source_of_entry(PeerRxEntry* entry) {
  assert(naming != nullptr);
  const Naming& all = *static_cast<const Naming*>(naming);
  const auto found = all.unnamed.find(entry);
  if (found == all.unnamed.end()) return FI_ADDR_UNSPEC;
  PeerReceives& receives = all.receives;
  Held& held = *found->second;
  const Guard guard(receives.domain.lock);
  // Another thread may have had it started since, and another message may have its record.
  if (held.entry != entry || held.named || held.path == nullptr) return FI_ADDR_UNSPEC;
  const fi_addr_t source = held.path->peers.source_of(held.message.peer);
  if (source != FI_ADDR_NOTAVAIL) {
    move(held, receives.unnamed_, receives.waiting_);
    held.named = true;
  }
  return source;
}

}  // namespace turnout::provider
