// SPDX-License-Identifier: BSD-3-Clause
#include "core/endpoint/wait_reporter.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/split_mix.h"
#include "core/types/mpi_library.h"

namespace turnout {
namespace {

template <class... Value>
std::uint64_t identity_of(Value... values) noexcept {
  std::uint64_t mixed = 0;
  ((mixed = SplitMix64(mixed + static_cast<std::uint64_t>(values)).next()), ...);
  return mixed;
}

std::uint64_t number_of_record(const void* record) noexcept {
  return std::bit_cast<std::uintptr_t>(record);
}

}  // namespace

WaitsReport WaitReporter::look(Nanoseconds now) {
  WaitsReport report;
  time_ = now;
  now_.clear();
  add_receives(&report);
  add_unexpected(&report);
  add_sends(&report);
  add_transfers(&report);
  add_atomics(&report);
  add_peers(&report);
  std::ranges::sort(now_);
  std::swap(before_, now_);
  // Sends of one kind are found in several places.
  std::stable_sort(report.list.begin(), report.list.end(),
                   [](const WaitReport& a, const WaitReport& b) {
                     return std::pair(a.kind, -a.age) < std::pair(b.kind, -b.age);
                   });
  report.quiet = now - moved_;
  if (!std::exchange(knows_mpi_, true)) mpi_ = mpi_library().substr(0, WaitsReport::kMostText);
  report.mpi = mpi_;
  return report;
}

std::string WaitReporter::peer_text(const WaitReport& wait) const {
  return wait.peer ? peer_table_.peers()[*wait.peer].address.to_string() : "any peer";
}

bool WaitReporter::may_add(const WaitsReport& report, WaitKind kind) const noexcept {
  return report.total(kind) < WaitsReport::kMost;
}

void WaitReporter::add(WaitsReport* report, WaitReport wait, std::uint64_t identity) {
  ++report->totals[static_cast<std::size_t>(wait.kind)];
  if (report->total(wait.kind) > WaitsReport::kMost) return;
  const Seen seen{identity_of(identity, wait.kind), 0};
  const auto before = std::ranges::lower_bound(before_, seen);
  const bool known = before != before_.end() && before->identity == seen.identity;
  now_.push_back({seen.identity, known ? before->since : time_});
  wait.age = time_ - now_.back().since;
  report->list.push_back(wait);
}

// A receive for one peer is the same as before if that peer has delivered nothing since, one for
// any peer if none has.
void WaitReporter::add_receives(WaitsReport* report) {
  auto& total = report->totals[static_cast<std::size_t>(WaitKind::receive)];
  for (const bool tagged : {true, false}) {
    std::size_t left = records_.matcher.posted(tagged).size();
    for (const RecvOperation* r = records_.matcher.posted(tagged).first();
         r != nullptr && may_add(*report, WaitKind::receive); r = r->next) {
      --left;
      if (r->multi) continue;  // stays posted for whatever comes
      WaitReport wait{.kind = WaitKind::receive,
                      .waits_for = WaitFor::message,
                      .tagged = tagged,
                      .tag = r->match.tag,
                      .ignore = r->match.ignore,
                      .bytes = r->iov.total};
      std::uint64_t messages = context_.delivered;
      if (const Peer* const peer = peer_table_.find_peer(r->match.peer)) {
        wait.peer = peer->id;
        messages = peer->rx.sequence;
      }
      add(report, wait,
          identity_of(number_of_record(r), number_of_record(r->report.context), r->match.tag,
                      messages));
    }
    total += left;
  }
}

void WaitReporter::add_unexpected(WaitsReport* report) {
  auto& total = report->totals[static_cast<std::size_t>(WaitKind::unexpected)];
  for (const bool tagged : {true, false}) {
    std::size_t left = records_.matcher.unexpected(tagged).size();
    for (const UnexpectedMessage* m = records_.matcher.unexpected(tagged).first();
         m != nullptr && may_add(*report, WaitKind::unexpected); m = m->next) {
      --left;
      add(report,
          {.kind = WaitKind::unexpected,
           .waits_for = WaitFor::receive,
           .peer = m->peer,
           .tagged = tagged,
           .tag = m->tag,
           .bytes = m->total},
          identity_of(m->peer, m->header.sequence));
    }
    total += left;
  }
  for (const UnexpectedMessage* m = operations_.unexpected.waiting().first(); m != nullptr;
       m = m->next) {
    add(report,
        {.kind = WaitKind::incoming,
         .waits_for = m->partial() ? WaitFor::data : WaitFor::memory,
         .peer = m->peer,
         .tagged = m->tagged,
         .tag = m->tag,
         .bytes = m->total},
        identity_of(m->peer, m->header.sequence));
  }
  for (const Peer* const peer : operations_.unexpected.stalled()) {
    add(report, {.kind = WaitKind::incoming, .waits_for = WaitFor::memory, .peer = peer->id},
        identity_of(peer->id, peer->rx.sequence));
  }
}

// Why the first operation of the peer's backlog is not sent; see MessageSender::post_stream().
WaitFor WaitReporter::what_holds(const Peer& peer, const SendOperation& operation) const {
  if (peer.tx.state >= SendState::flushing) return WaitFor::channel;
  if (defers(peer)) return WaitFor::rtr;
  if (is_putting(peer)) return WaitFor::adapter;
  if (wire::is_request(operation.type) && peer.state->atomics &&
      peer.state->atomics->asked.size() >= kAtomicWindow) {
    return WaitFor::answer;
  }
  const PrivateSender& queue = peer.state->tx.private_queue;
  const bool large = operation.rendezvous;  // an RTS
  if (over_ring(peer.tx.kind) && (queue.request == 0 || !large)) {
    return peer.state->tx.ring.credits == 0 ? WaitFor::ring : WaitFor::resources;
  }
  const bool out =
      queue.request != 0 ? queue.credits <= wire::kPrivateReserve : peer.tx.credits == 0;
  if (!out) return WaitFor::resources;
  return peer.remote_index == wire::kUnknownIndex ? WaitFor::wire_up : WaitFor::credits;
}

// Only the first of a backlog is held up by more than those before it. It is the same as before if
// nothing was sent to the peer since.
void WaitReporter::add_sends(WaitsReport* report) {
  const auto wait_of = [](const SendOperation& operation, WaitFor what) {
    return WaitReport{.kind = wire::is_request(operation.type) ? WaitKind::atomic : WaitKind::send,
                      .waits_for = what,
                      .peer = operation.peer->id,
                      .tagged = (operation.flags & wire::kTagged) != 0,
                      .tag = operation.tag,
                      .bytes = operation.iov.total};
  };
  const auto held = [&](const SendOperation& operation, WaitFor what) {
    add(report, wait_of(operation, what),
        identity_of(number_of_record(&operation), operation.id, operation.fragment_offset,
                    operation.peer->tx.sequence));
  };
  // In the order of their generations: the oldest first.
  std::vector<const SendOperation*> awaiting;
  std::ranges::copy_if(operations_.backlog.awaiting_fin(), std::back_inserter(awaiting),
                       [](const SendOperation* operation) { return operation != nullptr; });
  std::ranges::sort(awaiting, {}, [](const SendOperation* operation) { return operation->id; });
  for (const SendOperation* const operation : awaiting) {
    if (operation->announced) {
      const bool moves = operation->writing || operation->fragment_transfer != 0;
      const WaitFor what = operation->writing       ? WaitFor::adapter
                           : !operation->rendezvous ? WaitFor::delivery
                           : moves                  ? what_holds(*operation->peer, *operation)
                                                    : WaitFor::match;
      add(report, wait_of(*operation, what),
          identity_of(operation->id, operation->fragment_offset));
    } else if (operation->confirmed && operation->fragment_offset == operation->iov.total &&
               operation->in_flight > 0) {
      held(*operation, WaitFor::adapter);
    }
  }
  for (const Peer* const peer : operations_.backlog.backlogged()) {
    const LinkedList<SendOperation>& backlog = peer->state->tx.backlog;
    std::size_t left = backlog.size();
    const SendOperation* first = backlog.first();
    for (const SendOperation* s = first; s != nullptr; s = s->next) {
      if (!may_add(*report, WaitKind::send)) break;
      --left;
      // Part of a one-sided operation, which is listed.
      if (wire::is_request(s->type) && s->type != wire::Type::atomic) continue;
      held(*s, s == first ? what_holds(*peer, *s) : WaitFor::order);
    }
    report->totals[static_cast<std::size_t>(WaitKind::send)] += left;
  }
}

// One is the same as before if none of its bytes has moved.
void WaitReporter::add_transfers(WaitsReport* report) {
  records_.transfers.for_each([&](const Transfer& transfer) {
    using Kind = Transfer::Kind;
    if (transfer.peer == nullptr || transfer.kind == Kind::rtr_recv) return;
    if (transfer.kind == Kind::rput_send) return;  // its send is listed
    const bool ours = transfer.kind == Kind::user;
    const bool arrives = transfer.incoming.id != 0;  // in fragments, or written by the peer
    WaitReport wait{.kind = ours                         ? WaitKind::one_sided
                            : transfer.kind == Kind::put ? WaitKind::send
                                                         : WaitKind::incoming,
                    .waits_for = WaitFor::resources,
                    .peer = transfer.peer->id,
                    .tagged = (transfer.completion.flags & kTagged) != 0,
                    .tag = ours ? 0 : transfer.completion.tag,
                    .bytes = transfer.total};
    if (arrives) {
      wait.waits_for = WaitFor::data;
    } else if (transfer.by_messages) {
      wait.waits_for = WaitFor::answer;
    } else if (transfer.in_flight > 0) {
      wait.waits_for = WaitFor::adapter;
    } else if (context_.over_datagrams() && !transfer.over_rc) {
      wait.waits_for = WaitFor::channel;
    }
    add(report, wait,
        identity_of(number_of_record(&transfer), transfer.peer->id, transfer.total, transfer.posted,
                    transfer.in_flight, transfer.incoming.fin, transfer.incoming.id,
                    number_of_record(transfer.report.context)));
  });
}

// Those in a backlog are listed; these wait for answers.
void WaitReporter::add_atomics(WaitsReport* report) {
  for (const Peer& peer : peer_table_.peers()) {
    if (!owes_answers(peer)) continue;
    const LinkedList<SendOperation>& asked = peer.state->atomics->asked;
    for (const SendOperation* s = asked.first(); s != nullptr; s = s->next) {
      const auto& atomic = static_cast<const AtomicOperation&>(*s);
      if (atomic.transfer != nullptr) continue;  // part of a one-sided operation, which is listed
      add(report,
          {.kind = WaitKind::atomic,
           .waits_for = WaitFor::answer,
           .peer = peer.id,
           .bytes = atomic.iov.total},
          identity_of(peer.id, atomic.head.number));
    }
  }
}

// Changes of channels, and how much was sent, by RDMA too.
void WaitReporter::add_peers(WaitsReport* report) {
  std::uint64_t messages = context_.delivered;
  for (const Traffic traffic : {Traffic::read, Traffic::write})
    messages += context_.profile.sent[static_cast<std::size_t>(traffic)].total().messages;
  for (const Peer& peer : peer_table_.peers()) {
    messages += peer.tx.sequence;
    if (peer.lost || (peer.rx.state == ReceiveState::steady && peer.tx.state == SendState::steady &&
                      !peer.connection->recovery)) {
      continue;
    }
    add(report, {.kind = WaitKind::channel, .waits_for = WaitFor::answer, .peer = peer.id},
        identity_of(peer.id, peer.rx.state, peer.tx.state, peer.change->request));
  }
  if (messages != messages_ || moved_ == 0) moved_ = time_;
  messages_ = messages;
}

}  // namespace turnout
