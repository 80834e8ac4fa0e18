// SPDX-License-Identifier: BSD-3-Clause
// Rendezvous `put` and `putnr` (spec/rendezvous.md): the receiver sends an RTR for the buffer of a
// posted receive, the sender writes the message there, and the receiver polls the last byte until
// it differs from the sentinel. If the message ends with the sentinel, or its length, tag or remote
// data are not those of the RTR, a put completion in the stream brings the last byte.
//
// Both ends must agree which message consumes the receive. An RTR is valid only while the sender
// knows everything that the receiver knew:
//  - It contains the receiver's position in the stream. A sender that has sent more declines it,
//    and all others of that position, because messages in flight may consume the receive.
//  - The sender matches every message, on any path and in order, against the open RTRs. A message
//    that matches consumes the RTR, as it will consume the receive. The receiver closes an RTR when
//    a message of the stream consumes its receive.
//  - An RTR is sent only if every earlier receive that could match the same messages has an RTR of
//    the same position.
//  - The buffers of two RTRs do not overlap: the message of one would complete the other.
//  - Messages of the stream wait until the writes to RTRs are complete. The receiver polls the last
//    bytes before it delivers one.
// So each message goes to the receive that MPI's matching order gives it, once.
//
// A queue pair that is recovered reposts its requests. The receiver may have found the message and
// reused the buffer meanwhile, so a write without a put completion is not repeated: the sender
// sends an RTS that names the RTR, and the receiver reads the message unless it has it.
#include "core/operations/rtr_engine.h"
#include "base/log.h"

namespace turnout {
namespace {

// No RTR is sent for a receive behind more than so many others.
constexpr int kMostBefore = 256;

// A byte that no message wrote keeps its value [MPI 4.1, 3.2.4: a shorter message modifies only the
// places it takes].
void restore_last_byte(const Transfer& transfer) noexcept {
  if (transfer.watched.byte != nullptr && *transfer.watched.byte == transfer.watched.sentinel &&
      transfer.watched.saved_byte != transfer.watched.sentinel) {
    *transfer.watched.byte = transfer.watched.saved_byte;
  }
}

bool overlap(const iovec& a, const iovec& b) noexcept {
  const auto begin_of = [](const iovec& v) { return reinterpret_cast<std::uintptr_t>(v.iov_base); };
  return begin_of(a) < begin_of(b) + b.iov_len && begin_of(b) < begin_of(a) + a.iov_len;
}

bool has_changed(const Transfer& transfer) noexcept {
  return std::atomic_ref(*transfer.watched.byte).load(std::memory_order_acquire) !=
         transfer.watched.sentinel;
}

}  // namespace

bool RtrEngine::poll_last_bytes(const Peer* of) {
  bool moved = false;
  context_.charge(Work::poll_ring, rdma_.polled().size());
  for (std::size_t i = 0; i < rdma_.polled().size();) {
    Transfer* const transfer = rdma_.polled()[i];
    const bool is_rtr = transfer->kind == Transfer::Kind::rtr_recv;
    if ((of != nullptr && (transfer->peer != of || !is_rtr)) || !has_changed(*transfer)) {
      ++i;
      continue;
    }
    moved = true;
    if (is_rtr) {
      end_rtr_recv(*transfer, transfer->completion, Status{});
    } else {
      rdma_.end_read_early(*transfer);
    }
    i = 0;  // the list has changed
  }
  return moved;
}

// --- at the receiver

// Whether an RTR may be sent for such a receive at all.
bool RtrEngine::may_want_rtr(const RecvRequest& request, const Peer& peer) const noexcept {
  if (request.buffer.size() != 1 || request.multi) return false;
  const std::size_t threshold = context_.format.rendezvous_threshold;
  std::size_t least = threshold != 0
                          ? threshold
                          : eager_size(peer, context_.format) - context_.format.stream_overhead;
  if (over_ring(peer.rx.kind))
    least = std::max(least, context_.format.most_over(peer.state->rx.ring->shape()));
  return request.buffer[0].iov_len > least && !context_.over_datagrams() && !context_.closing &&
         !peer.self && !peer.lost && peer.remote_index != wire::kUnknownIndex;
}

bool RtrEngine::may_send_rtr(const RecvOperation& receive, Peer& peer) {
  int before = 0;
  for (const RecvOperation* r = records_.matcher.posted(receive.match.tagged).first();
       r != &receive; r = r->next) {
    if (++before > kMostBefore) return false;
    // MPI forbids overlapping receives; some benchmarks post them.
    if (r->rtr != nullptr && overlap(r->iov.parts[0], receive.iov.parts[0])) return false;
    const PostedMatch &a = r->match, &b = receive.match;
    if (a.peer != kAnyPeer && a.peer != b.peer) continue;
    if (b.tagged && ((a.tag ^ b.tag) & ~(a.ignore | b.ignore)) != 0) continue;
    if (r->rtr == nullptr || r->rtr->where.sequence != peer.rx.sequence) return false;
  }
  if (context_.rendezvous == Rendezvous::automatic &&
      ((open_rtrs_ > 0 && !registration_.is_registered(receive.iov.parts[0], kPeerWrites)) ||
       !peer.state.make().rx.rtr_success.worth_trying())) {
    return false;
  }
  return records_.transfers.ready();
}

// The receive is posted and wants_rtr().
void RtrEngine::send_rtr(RecvOperation& receive, Peer& peer) {
  if (!may_send_rtr(receive, peer)) return;
  Transfer& transfer = *records_.transfers.take();
  transfer.kind = Transfer::Kind::rtr_recv;
  transfer.peer = &peer;
  if (Status status = rdma_.register_iov(transfer, receive.iov, kPeerWrites); !status.ok()) {
    TURNOUT_LOG(protocol, debug, "no RTR sent for a receive: {}", status.text());
    rdma_.drop_transfer(transfer);
    return;
  }
  transfer.incoming.receive = &receive;
  transfer.total = receive.iov.total;
  transfer.incoming.id = fragments_.incoming().add(&transfer);
  receive.rtr = &transfer;
  ++peer.state.make().rx.rtrs_sent;
  ++open_rtrs_;
  ++rtrs_sent_;

  wire::Detail& rtr = transfer.where;
  rtr.address = transfer.local[0].address;
  rtr.length = transfer.total;
  rtr.transfer = transfer.incoming.id;
  rtr.tag = receive.match.tag;
  rtr.ignore = receive.match.ignore;
  rtr.data = peer.rx.last_data;  // of its next message, too, as a rule
  rtr.rkey = transfer.regions[0].rkey();
  rtr.sequence = peer.rx.sequence;
  rtr.flags = wire::flags_of(receive.match.tagged, peer.rx.last_had_data);
  if (context_.placement.dc_in_order() && transfer.total <= context_.settings.rendezvous_segment) {
    std::byte* const last = reinterpret_cast<std::byte*>(rtr.address) + rtr.length - 1;
    rtr.polled = 1;
    transfer.watched.saved_byte = *last;
    if (!sets_sentinels_) {
      rtr.last = std::to_integer<std::uint8_t>(transfer.watched.saved_byte);
    } else if (context_.rendezvous != Rendezvous::putnr) {
      rtr.last = static_cast<std::uint8_t>(sentinels_.next());
    }
    rdma_.poll_for_last_byte(transfer, last, std::byte{rtr.last});
  }
  transfer.completion.length = transfer.total;
  transfer.completion.tag = rtr.tag;
  transfer.completion.data = rtr.data;
  transfer.completion.flags = kRecv | (receive.match.tagged ? kTagged : kMessage) |
                              (peer.rx.last_had_data ? kRemoteData : 0u);
  transfer.completion.source = peer.id;
  transfer.completion.buffer = receive.iov.parts[0].iov_base;
  control_.send_control(peer, Purpose::credit, {.type = wire::Control::rtr}, &rtr);
}

// Ends the RTR, used or not, and frees the transfer.
void RtrEngine::close_rtr(Transfer& transfer, bool taken) {
  transfer.incoming.receive->rtr = nullptr;
  Peer& peer = *transfer.peer;
  peer.state.make().rx.rtr_success.count(taken);
  --peer.state.ref().rx.rtrs_sent;
  --open_rtrs_;
  fragments_.incoming().remove(transfer.incoming.id);
  rdma_.drop_transfer(transfer);
}

// The receive consumes a message of the stream, or was cancelled.
void RtrEngine::abandon_rtr(RecvOperation& receive) {
  Transfer& transfer = *receive.rtr;
  if (!context_.closing)
    restore_last_byte(transfer);  // else the memory belongs to the program again
  close_rtr(transfer, false);
}

// Its message arrived or failed.
void RtrEngine::end_rtr_recv(Transfer& transfer, const Completion& completion,
                             const Status& status) {
  const Completion ended = completion;  // may belong to the transfer
  RecvOperation& receive = *transfer.incoming.receive;
  Peer& peer = *transfer.peer;
  close_rtr(transfer, true);
  posted_.unpost(receive);
  ++context_.delivered;
  ++peer.rx.window;
  peer.rx.carried.count(ended.length);
  peer.heard_since_tick = true;
  count_use(eviction_, peer, false);
  posted_.end_receive(receive, ended, 0, status);
  events_.on_message_counted(peer);
}

void RtrEngine::on_put_completion(Peer& peer, const wire::Header& header,
                                  const std::byte* payload) {
  wire::PutCompletion message;
  if (Status status = wire::parse_put_completion(payload, header.length, &message); !status.ok())
    return events_.lose_peer(peer, status);
  Transfer* const transfer =
      fragments_.find_incoming(peer, message.transfer, Transfer::Kind::rtr_recv);
  if (transfer == nullptr || message.length > transfer->total) {
    return events_.protocol_error(
        peer, fmt::format("put completion for {} bytes of RTR {:#x}, which is not open",
                          message.length, message.transfer));
  }
  restore_last_byte(*transfer);
  if (message.length > 0) {
    static_cast<std::byte*>(transfer->completion.buffer)[message.length - 1] =
        std::byte{message.last};
  }
  Completion completion = posted_.completion_of(header, peer.id, message.length);
  completion.buffer = transfer->completion.buffer;
  end_rtr_recv(*transfer, completion, SendBacklog::status_reported(peer, message.status, "write"));
}

// True: the message of this RTS was already received through its RTR; the sender cannot know.
bool RtrEngine::put_completed(Peer& peer, const wire::Rts& rts) {
  if (rts.has_rtr == 0) return false;
  if (fragments_.find_incoming(peer, rts.rtr, Transfer::Kind::rtr_recv) != nullptr) return false;
  control_.send_fin(peer, rts.operation, Status{});
  return true;
}

void RtrEngine::on_rtr_cancelled(Peer& peer, std::uint64_t number) {
  const Transfer* const transfer = fragments_.find_incoming(peer, number, Transfer::Kind::rtr_recv);
  // Else its message arrived first.
  if (transfer != nullptr && transfer->incoming.receive->cancelled)
    posted_.end_cancelled(*transfer->incoming.receive);
}

// --- at the sender

// --- at the sender, deferred messages: they wait for an RTR that is in flight when both sides
// reach a transfer at the same time. They are sent by RTS as soon as another message is queued
// behind them, an RTR cannot be used, or rtr_wait has passed.

// Its queue pair failed before the request completed.
void RtrEngine::fetch_instead(Transfer& transfer) {
  Peer& peer = *transfer.peer;
  SendOperation* const operation = records_.sends.take();
  if (operation == nullptr) {
    Status why{Code::over_budget,
               fmt::format("recovering a put failed: {}: TURNOUT_MEMORY_BUDGET={} has no room for "
                           "the request; raise it",
                           peer.address.to_string(), context_.account.budget())};
    events_.lose_peer(peer, why);
    events_.on_transfer_done(transfer, why);
    return;
  }
  const Transfer::Local& local = transfer.local[0];
  const iovec part{reinterpret_cast<void*>(local.address), local.length};
  (void)operation->iov.set({&part, 1});
  operation->peer = &peer;
  operation->flags = transfer.where.flags;
  operation->tag = transfer.where.tag;
  operation->data = transfer.where.data;
  operation->report = transfer.report;
  operation->completion_flags = transfer.completion.flags;
  operation->rendezvous = operation->counted = true;
  operation->rtr = transfer.where.transfer;
  --peer.state.ref().tx.rtrs->writing;
  rdma_.drop_transfer(transfer);
  if (Status status = send_engine_.prepare_rendezvous(*operation); !status.ok()) {
    events_.lose_peer(peer, status);
    backlog_.end_send(*operation, status);
    return;
  }
  backlog_.send_before_backlog(*operation);
}

}  // namespace turnout
