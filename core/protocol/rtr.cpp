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
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/log.h"
#include "core/endpoint/endpoint_core.h"

namespace turnout {
namespace {

// No RTR is sent for a receive behind more than so many others.
constexpr int kMostBefore = 256;
// Cancels of one peer that may wait for a reply.
constexpr std::size_t kMostCancels = std::size_t{1} << 16;

std::byte last_of(const IoVec& iov) noexcept {
  for (std::uint32_t i = iov.count; i-- > 0;) {
    const iovec& part = iov.parts[i];
    if (part.iov_len > 0) return static_cast<const std::byte*>(part.iov_base)[part.iov_len - 1];
  }
  return {};
}

// A byte that no message wrote keeps its value [MPI 4.1, 3.2.4: a shorter message modifies only the
// places it takes].
void restore_last_byte(const Transfer& transfer) noexcept {
  if (transfer.last != nullptr && *transfer.last == transfer.sentinel &&
      transfer.saved_byte != transfer.sentinel) {
    *transfer.last = transfer.saved_byte;
  }
}

bool overlap(const iovec& a, const iovec& b) noexcept {
  const auto begin_of = [](const iovec& v) { return reinterpret_cast<std::uintptr_t>(v.iov_base); };
  return begin_of(a) < begin_of(b) + b.iov_len && begin_of(b) < begin_of(a) + a.iov_len;
}

bool has_changed(const Transfer& transfer) noexcept {
  return std::atomic_ref(*transfer.last).load(std::memory_order_acquire) != transfer.sentinel;
}

}  // namespace

void EndpointCore::poll_for_last_byte(Transfer& transfer, std::byte* last, std::byte sentinel) {
  // The program may use this byte, so it is written only if needed.
  if (*last != sentinel) *last = sentinel;
  transfer.last = last;
  transfer.sentinel = sentinel;
  polled_.push_back(&transfer);
}

bool EndpointCore::poll_last_bytes(const Peer* of) {
  bool moved = false;
  charge(Work::poll_ring, polled_.size());
  for (std::size_t i = 0; i < polled_.size();) {
    Transfer* const transfer = polled_[i];
    const bool is_rtr = transfer->kind == Transfer::Kind::rtr_recv;
    if ((of != nullptr && (transfer->peer != of || !is_rtr)) || !has_changed(*transfer)) {
      ++i;
      continue;
    }
    moved = true;
    if (is_rtr) {
      end_rtr_recv(*transfer, transfer->completion, Status{});
    } else {
      end_read_early(*transfer);
    }
    i = 0;  // the list has changed
  }
  return moved;
}

// --- at the receiver

// Whether an RTR may be sent for such a receive at all.
bool EndpointCore::wants_rtr(const RecvRequest& request, const Peer& peer) const noexcept {
  const bool sends_rtrs = rendezvous_ == Rendezvous::put || rendezvous_ == Rendezvous::putnr ||
                          rendezvous_ == Rendezvous::automatic;
  if (!sends_rtrs || request.buffer.size() != 1 || request.multi) return false;
  const std::size_t threshold = settings_.rendezvous_threshold;
  const std::size_t fits = peer.eager_size - stream_overhead_;
  const std::size_t least = threshold != 0 ? std::min(threshold, fits) : fits;
  return request.buffer[0].iov_len > least && !over_datagrams() && !closing_ && !peer.self &&
         !peer.lost && peer.remote_index != wire::kUnknownIndex;
}

bool EndpointCore::may_send_rtr(const RecvOperation& receive, Peer& peer) {
  int before = 0;
  for (const RecvOperation* r = matcher_.posted(receive.match.tagged).first(); r != &receive;
       r = r->next) {
    if (++before > kMostBefore) return false;
    // MPI forbids overlapping receives; some benchmarks post them.
    if (r->rtr != nullptr && overlap(r->iov.parts[0], receive.iov.parts[0])) return false;
    const PostedMatch &a = r->match, &b = receive.match;
    if (a.peer != kAnyPeer && a.peer != b.peer) continue;
    if (b.tagged && ((a.tag ^ b.tag) & ~(a.ignore | b.ignore)) != 0) continue;
    if (r->rtr == nullptr || r->rtr->where.sequence != peer.receive_sequence) return false;
  }
  if (rendezvous_ == Rendezvous::automatic &&
      ((open_rtrs_ > 0 && !is_registered(receive.iov.parts[0], kPeerWrites)) ||
       !peer.rtr_success.worth_trying())) {
    return false;
  }
  return transfers_.ready();
}

// Access for a large message that is read or written. Under `auto` RTRs are for registered buffers;
// this makes the buffer one for the next message.
int EndpointCore::receive_access() const noexcept {
  return rendezvous_ == Rendezvous::automatic ? kPeerWrites : IBV_ACCESS_LOCAL_WRITE;
}

// The receive is posted and wants_rtr().
void EndpointCore::send_rtr(RecvOperation& receive, Peer& peer) {
  if (!may_send_rtr(receive, peer)) return;
  Transfer& transfer = *transfers_.take();
  transfer.kind = Transfer::Kind::rtr_recv;
  transfer.peer = &peer;
  if (Status status = register_iov(transfer, receive.iov, kPeerWrites); !status.ok()) {
    TURNOUT_LOG(protocol, debug, "no RTR sent for a receive: {}", status.text());
    drop_transfer(transfer);
    return;
  }
  transfer.receive = &receive;
  transfer.total = receive.iov.total;
  transfer.incoming_id = incoming_.add(&transfer);
  receive.rtr = &transfer;
  ++peer.rtrs_sent;
  ++open_rtrs_;
  ++rtrs_sent_;

  wire::Detail& rtr = transfer.where;
  rtr.address = transfer.local[0].address;
  rtr.length = transfer.total;
  rtr.transfer = transfer.incoming_id;
  rtr.tag = receive.match.tag;
  rtr.ignore = receive.match.ignore;
  rtr.data = peer.last_data;  // of its next message, too, as a rule
  rtr.rkey = transfer.regions[0].rkey();
  rtr.sequence = peer.receive_sequence;
  rtr.flags = wire::flags_of(receive.match.tagged, peer.last_had_data);
  if (placement_.dc_in_order() && transfer.total <= settings_.rendezvous_segment) {
    std::byte* const last = reinterpret_cast<std::byte*>(rtr.address) + rtr.length - 1;
    rtr.polled = 1;
    transfer.saved_byte = *last;
    if (!sets_sentinels_) {
      rtr.last = std::to_integer<std::uint8_t>(transfer.saved_byte);
    } else if (rendezvous_ != Rendezvous::putnr) {
      rtr.last = static_cast<std::uint8_t>(sentinels_.next());
    }
    poll_for_last_byte(transfer, last, std::byte{rtr.last});
  }
  transfer.completion.length = transfer.total;
  transfer.completion.tag = rtr.tag;
  transfer.completion.data = rtr.data;
  transfer.completion.flags =
      kRecv | (receive.match.tagged ? kTagged : kMessage) | (peer.last_had_data ? kRemoteData : 0u);
  transfer.completion.source = peer.id;
  transfer.completion.buffer = receive.iov.parts[0].iov_base;
  wire::ControlMessage message;
  message.type = wire::Control::rtr;
  send_control(peer, Purpose::credit, message, &rtr);
}

// Ends the RTR, used or not, and frees the transfer.
void EndpointCore::close_rtr(Transfer& transfer, bool taken) {
  transfer.receive->rtr = nullptr;
  Peer& peer = *transfer.peer;
  peer.rtr_success.count(taken);
  --peer.rtrs_sent;
  --open_rtrs_;
  incoming_.remove(transfer.incoming_id);
  drop_transfer(transfer);
}

// The receive consumes a message of the stream, or was cancelled.
void EndpointCore::abandon_rtr(RecvOperation& receive) {
  Transfer& transfer = *receive.rtr;
  if (!closing_) restore_last_byte(transfer);  // else the memory belongs to the program again
  close_rtr(transfer, false);
}

// Its message arrived or failed.
void EndpointCore::end_rtr_recv(Transfer& transfer, const Completion& completion,
                                const Status& status) {
  const Completion ended = completion;  // may belong to the transfer
  RecvOperation& receive = *transfer.receive;
  Peer& peer = *transfer.peer;
  close_rtr(transfer, true);
  unpost(receive);
  ++delivered_;
  ++peer.window;
  peer.received.count(ended.length);
  peer.heard_since_tick = true;
  eviction_.touch(peer.eviction, false);
  end_receive(receive, ended, 0, status);
  on_message_counted(peer);
}

void EndpointCore::on_put_completion(Peer& peer, const wire::Header& header,
                                     const std::byte* payload) {
  wire::PutCompletion message;
  if (Status status = wire::parse_put_completion(payload, header.length, &message); !status.ok()) {
    lose_peer(peer, status);
    return;
  }
  Transfer* const transfer = find_incoming(peer, message.transfer, Transfer::Kind::rtr_recv);
  if (transfer == nullptr || message.length > transfer->total) {
    lose_peer(peer,
              Status{Code::invalid,
                     fmt::format("{}: put completion for {} bytes of RTR {:#x}, which is not open",
                                 peer.address.to_string(), message.length, message.transfer)});
    return;
  }
  restore_last_byte(*transfer);
  if (message.length > 0) {
    static_cast<std::byte*>(transfer->completion.buffer)[message.length - 1] =
        std::byte{message.last};
  }
  Completion completion = completion_of(header, peer.id, message.length);
  completion.buffer = transfer->completion.buffer;
  end_rtr_recv(*transfer, completion, status_reported(peer, message.status, "write"));
}

// True: the message of this RTS was already received through its RTR; the sender cannot know.
bool EndpointCore::put_completed(Peer& peer, const wire::Rts& rts) {
  if (rts.has_rtr == 0) return false;
  if (find_incoming(peer, rts.rtr, Transfer::Kind::rtr_recv) != nullptr) return false;
  send_fin(peer, rts.operation, Status{});
  return true;
}

void EndpointCore::on_rtr_cancelled(Peer& peer, std::uint64_t number) {
  const Transfer* const transfer = find_incoming(peer, number, Transfer::Kind::rtr_recv);
  // Else its message arrived first.
  if (transfer != nullptr && transfer->receive->cancelled) end_cancelled(*transfer->receive);
}

// --- at the sender

void EndpointCore::on_rtr(Peer& peer, const wire::Detail& rtr) {
  if (over_datagrams() || closing_) return;
  const bool waiting = !peer.backlog.empty() && !defers(peer);
  bool declined = rtr.sequence != peer.send_sequence || waiting ||
                  (peer.declines_rtrs && peer.declined_at == rtr.sequence);
  if (!peer.rtrs || !peer.rtrs->bytes) {  // else made by on_rtr_cancel()
    Reservation bytes = Reservation::take(account_, MemoryKind::operations,
                                          sizeof(PeerRtrs) + kMostRtrs * sizeof(Rtr));
    if (bytes) {
      if (!peer.rtrs) peer.rtrs = std::make_unique<PeerRtrs>();
      peer.rtrs->open.reserve(kMostRtrs);
      peer.rtrs->bytes = std::move(bytes);
    } else {
      declined = true;
    }
  }
  declined = declined || peer.rtrs->open.size() >= kMostRtrs;
  if (!declined) {
    peer.rtrs->open.push_back({rtr});
    if (defers(peer)) put_deferred(peer);
    return;
  }
  peer.declines_rtrs = true;
  peer.declined_at = rtr.sequence;
  if (defers(peer)) {  // a usable one is unlikely
    peer.rtrs->waits.count(false);
    release_deferred(peer);
  }
}

// --- at the sender, deferred messages: they wait for an RTR that is in flight when both sides
// reach a transfer at the same time. They are sent by RTS as soon as another message is queued
// behind them, an RTR cannot be used, or rtr_wait has passed.

bool EndpointCore::may_defer(Peer& peer) {
  if (!peer.rtrs || !peer.rtrs->bytes || settings_.rtr_wait == 0 || closing_) return false;
  return peer.rtrs->deferring || (peer.backlog.empty() && peer.rtrs->waits.worth_trying());
}

// may_defer(); the message is prepared for both protocols.
void EndpointCore::defer(SendOperation& operation) {
  PeerRtrs& rtrs = *operation.peer->rtrs;
  if (!std::exchange(rtrs.deferring, true)) {
    rtrs.deferred_since = clock_.now();
    deferred_until_ = std::min(deferred_until_, rtrs.deferred_since + settings_.rtr_wait);
  }
  operation.peer->backlog.push_back(&operation);
  list_backlog(*operation.peer);
}

// An RTR arrived, which may match one of them; the others do not match the earlier RTRs. Those
// behind the first may be put before it: what it takes is not what they take.
void EndpointCore::put_deferred(Peer& peer) {
  for (SendOperation* operation = peer.backlog.first(); operation != nullptr;
       operation = operation->next) {
    SendRequest request;
    request.tagged = (operation->flags & wire::kTagged) != 0;
    request.tag = operation->tag;
    const std::size_t at = find_rtr(peer, request.tagged, request.tag);
    if (at == kNoRtr) continue;
    request.has_remote_data = (operation->flags & wire::kRemoteData) != 0;
    request.remote_data = operation->data;
    request.report = operation->report;
    const wire::Detail rtr = peer.rtrs->open[at].detail;
    const bool may = may_put(peer, operation->iov, rtr);
    consume_rtr(peer, at);
    if (!may) {  // it consumes the receive as a message of the stream
      release_deferred(peer);
      return;
    }
    peer.rtrs->waits.count(true);
    peer.backlog.remove(operation);
    // Cannot fail any more.
    (void)put(peer, request, operation->iov, rtr, operation);
    forget_awaiting(*operation);
    sends_.give_back(operation);
    break;
  }
  if (peer.backlog.empty()) peer.rtrs->deferring = false;
}

// Sends them by RTS.
void EndpointCore::release_deferred(Peer& peer) {
  peer.rtrs->deferring = false;
  (void)pump_backlog(peer);
}

void EndpointCore::release_overdue() {
  const Nanoseconds now = clock_.now();
  if (now < deferred_until_) return;
  deferred_until_ = INT64_MAX;
  for (std::size_t i = 0; i < backlogged_.size(); ++i) {
    Peer& peer = *backlogged_[i];
    if (!defers(peer)) continue;
    const Nanoseconds until = peer.rtrs->deferred_since + settings_.rtr_wait;
    if (now < until) {
      deferred_until_ = std::min(deferred_until_, until);
      continue;
    }
    peer.rtrs->waits.count(false);
    release_deferred(peer);
  }
}
// The first RTR that matches the message.
std::size_t EndpointCore::find_rtr(const Peer& peer, bool tagged,
                                   std::uint64_t tag) const noexcept {
  if (!peer.rtrs) return kNoRtr;
  const auto& open = peer.rtrs->open;
  for (std::size_t i = 0; i < open.size(); ++i) {
    if (open[i].accepts(tagged, tag)) return i;
  }
  return kNoRtr;
}

// A message was sent that will consume the receive.
void EndpointCore::consume_rtr(Peer& peer, std::size_t at) noexcept {
  if (at == kNoRtr || peer.lost) return;
  peer.rtrs->open.erase(peer.rtrs->open.begin() + static_cast<std::ptrdiff_t>(at));
}

// Whether the message can be written to the RTR; otherwise it travels in the stream.
bool EndpointCore::may_put(const Peer& peer, const IoVec& iov, const wire::Detail& rtr) {
  return (peer.backlog.empty() || defers(peer)) && iov.total <= rtr.length && transfers_.ready() &&
         sends_.ready();
}

// may_put(). After an error nothing was sent.
Status EndpointCore::put(Peer& peer, const SendRequest& request, const IoVec& iov,
                         const wire::Detail& rtr, SendOperation* deferred) {
  wire::Detail message = rtr;  // of this message
  message.tag = request.tag;
  message.data = request.remote_data;
  message.flags = wire::flags_of(request.tagged, request.has_remote_data);
  message.last = std::to_integer<std::uint8_t>(last_of(iov));
  const bool as_announced =
      rtr.polled != 0 && iov.total == rtr.length && iov.total <= settings_.rendezvous_segment &&
      iov.count == 1 && message.flags == rtr.flags && (!request.tagged || message.tag == rtr.tag) &&
      (!request.has_remote_data || message.data == rtr.data) && message.last != rtr.last;
  Transfer& transfer = *transfers_.take();
  Status status;
  if (deferred != nullptr) {
    use_registrations(*deferred, &transfer);
  } else {
    status = register_iov(transfer, iov, 0);
  }
  if (!status.ok()) {
    drop_transfer(transfer);
    return status;
  }
  transfer.kind = Transfer::Kind::put;
  transfer.write = true;
  transfer.peer = &peer;
  // Without the last byte the receiver does not see a complete message; the put completion has it.
  const bool all = as_announced || rtr.polled == 0 || iov.total < rtr.length;
  transfer.total = iov.total - (all ? 0 : 1);
  transfer.remote[0] = {rtr.address, transfer.total, rtr.rkey, 0};
  transfer.remote_count = 1;
  transfer.where = message;
  transfer.report = request.report;
  transfer.completion.context = request.report.context;
  transfer.completion.length = iov.total;
  transfer.completion.tag = request.tag;
  transfer.completion.flags = kSend | (request.tagged ? kTagged : kMessage);
  if (!as_announced) transfer.announcement = make_put_completion(transfer);
  ++peer.rtrs->writing;
  peer.sent.count(iov.total);
  if (uses_feedback_) feedback_.count(peer.feedback_sent, peer.id, peer.data_queue);
  ++rendezvous_count_;
  ++puts_;
  if (!as_announced) ++put_completions_;
  pump(transfer);
  return {};
}

// A record is free.
SendOperation* EndpointCore::make_put_completion(const Transfer& transfer) {
  SendOperation* const completion_message = sends_.take();
  completion_message->peer = transfer.peer;
  completion_message->type = wire::Type::put_completion;
  completion_message->flags = transfer.where.flags;
  completion_message->tag = transfer.where.tag;
  completion_message->data = transfer.where.data;
  completion_message->grant.transfer = transfer.where.transfer;
  completion_message->grant.length = transfer.completion.length;
  completion_message->grant.last = transfer.where.last;
  completion_message->report = Report{nullptr, transfer.report.errors, nullptr, nullptr};
  return completion_message;
}

// Ahead of the backlog, which was sent later.
void EndpointCore::send_before_backlog(SendOperation& operation) {
  if (try_operation(operation)) return;
  if (defers(*operation.peer)) operation.peer->rtrs->deferring = false;
  operation.peer->backlog.push_front(&operation);
  list_backlog(*operation.peer);
}

void EndpointCore::end_put(Transfer& transfer) {
  Peer& peer = *transfer.peer;
  --peer.rtrs->writing;
  release_regions(transfer);
  SendOperation* completion_message = std::exchange(transfer.announcement, nullptr);
  if (peer.lost && completion_message != nullptr) {
    sends_.give_back(completion_message);
  } else if (!peer.lost) {
    // The receiver cannot detect a failed write.
    if (completion_message == nullptr && !transfer.status.ok() && sends_.ready())
      completion_message = make_put_completion(transfer);
    if (completion_message != nullptr) {
      completion_message->outcome = static_cast<std::uint32_t>(transfer.status.code());
      send_before_backlog(*completion_message);
    }
  }
  if (transfer.status.ok()) {
    finish(transfer.report, transfer.completion);
  } else {
    fail(transfer.report, transfer.completion, transfer.status);
  }
  drop_transfer(transfer);
}

// Its queue pair failed before the request completed.
void EndpointCore::fetch_instead(Transfer& transfer) {
  Peer& peer = *transfer.peer;
  SendOperation* const operation = sends_.take();
  if (operation == nullptr) {
    Status why{Code::over_budget,
               fmt::format("recovering a put failed: {}: TURNOUT_MEMORY_BUDGET={} has no room for "
                           "the request; raise it",
                           peer.address.to_string(), account_.budget())};
    lose_peer(peer, why);
    on_transfer_done(transfer, why);
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
  --peer.rtrs->writing;
  drop_transfer(transfer);
  if (Status status = prepare_rendezvous(*operation); !status.ok()) {
    lose_peer(peer, status);
    end_send(*operation, status);
    return;
  }
  send_before_backlog(*operation);
}

void EndpointCore::on_rtr_cancel(Peer& peer, std::uint64_t number) {
  if (over_datagrams() || closing_) return;
  if (!peer.rtrs) {  // no RTR was stored, so the reply need not wait
    peer.rtrs = std::make_unique<PeerRtrs>();
  }
  if (peer.rtrs->cancelled.size() == kMostCancels) {
    lose_peer(peer,
              Status{Code::invalid,
                     fmt::format("{}: cancels more than {} RTRs without waiting for an answer",
                                 peer.address.to_string(), kMostCancels)});
    return;
  }
  std::erase_if(peer.rtrs->open,
                [number](const Rtr& rtr) { return rtr.detail.transfer == number; });
  peer.rtrs->cancelled.push_back(number);
  rtr_cancels_.push_back(&peer);
}

// In the stream, so that it arrives after the writes and put completions.
bool EndpointCore::pump_rtr_cancels() {
  bool moved = false;
  for (std::size_t i = 0; i < rtr_cancels_.size();) {
    Peer& peer = *rtr_cancels_[i];
    while (!peer.lost && !peer.rtrs->cancelled.empty() && sends_.ready()) {
      SendOperation& answer = *sends_.take();
      answer.peer = &peer;
      answer.type = wire::Type::rtr_cancelled;
      answer.tag = peer.rtrs->cancelled.back();
      peer.rtrs->cancelled.pop_back();
      if (!peer.backlog.empty() || !try_operation(answer)) enqueue(answer);
      moved = true;
    }
    if (peer.lost || peer.rtrs->cancelled.empty()) {
      rtr_cancels_[i] = rtr_cancels_.back();
      rtr_cancels_.pop_back();
    } else {
      ++i;
    }
  }
  return moved;
}

}  // namespace turnout
