// SPDX-License-Identifier: BSD-3-Clause
#include "core/operations/put_engine.h"
#include "base/log.h"

namespace turnout {
namespace {
// Cancels of one peer that may wait for a reply.
constexpr std::size_t kMostCancels = std::size_t{1} << 16;
std::byte last_of(const IoVec& iov) noexcept {
  for (std::uint32_t i = iov.count; i-- > 0;) {
    const iovec& part = iov.parts[i];
    if (part.iov_len > 0) return static_cast<const std::byte*>(part.iov_base)[part.iov_len - 1];
  }
  return {};
}
}  // namespace

void PutEngine::on_rtr(Peer& peer, const wire::Detail& rtr) {
  if (context_.over_datagrams() || context_.closing) return;
  const bool waiting = !peer.state->tx.backlog.empty() && !defers(peer);
  bool declined = rtr.sequence != peer.tx.sequence || waiting ||
                  (peer.state->tx.declines_rtrs && peer.state->tx.declined_at == rtr.sequence);
  if (!peer.state->tx.rtrs || !peer.state->tx.rtrs->bytes) {  // else made by on_rtr_cancel()
    Reservation bytes = Reservation::take(context_.account, MemoryKind::operations,
                                          sizeof(PeerRtrs) + kMostRtrs * sizeof(Rtr));
    if (bytes) {
      if (!peer.state->tx.rtrs) peer.state.make().tx.rtrs = std::make_unique<PeerRtrs>();
      peer.state->tx.rtrs->open.reserve(kMostRtrs);
      peer.state->tx.rtrs->bytes = std::move(bytes);
    } else {
      declined = true;
    }
  }
  declined = declined || peer.state->tx.rtrs->open.size() >= kMostRtrs;
  if (!declined) {
    peer.state->tx.rtrs->open.push_back({rtr});
    if (defers(peer)) put_deferred(peer);
    return;
  }
  PeerTxState& tx = peer.state.make().tx;
  tx.declines_rtrs = true;
  tx.declined_at = rtr.sequence;
  if (defers(peer)) {  // a usable one is unlikely
    peer.state->tx.rtrs->waits.count(false);
    release_deferred(peer);
  }
}

bool PutEngine::may_defer(Peer& peer) {
  if (!peer.state->tx.rtrs || !peer.state->tx.rtrs->bytes || context_.settings.rtr_wait == 0 ||
      context_.closing)
    return false;
  return peer.state->tx.rtrs->deferring ||
         (peer.state->tx.backlog.empty() && peer.state->tx.rtrs->waits.worth_trying());
}

// may_defer(); the message is prepared for both protocols.
void PutEngine::defer(SendOperation& operation) {
  PeerRtrs& rtrs = *operation.peer->state->tx.rtrs;
  if (!std::exchange(rtrs.deferring, true)) {
    rtrs.deferred_since = context_.clock.now();
    look_at(rtrs.deferred_since + context_.settings.rtr_wait);
  }
  operation.peer->state.make().tx.backlog.push_back(&operation);
  backlog_.list_backlog(*operation.peer);
}

// An RTR arrived, which may match one of them; the others do not match the earlier RTRs. Those
// behind the first may be put before it: what it takes is not what they take.
void PutEngine::put_deferred(Peer& peer) {
  for (SendOperation* operation = peer.state->tx.backlog.first(); operation != nullptr;
       operation = operation->next) {
    SendRequest request;
    request.tagged = (operation->flags & wire::kTagged) != 0;
    request.tag = operation->tag;
    const std::size_t at = find_rtr(peer, request.tagged, request.tag);
    if (at == kNoRtr) continue;
    request.has_remote_data = (operation->flags & wire::kRemoteData) != 0;
    request.remote_data = operation->data;
    request.report = operation->report;
    const wire::Detail rtr = peer.state->tx.rtrs->open[at].detail;
    const bool may = may_put(peer, operation->iov, rtr) && SendBacklog::is_registered(*operation);
    consume_rtr(peer, at);
    if (!may) {  // it consumes the receive as a message of the stream
      release_deferred(peer);
      return;
    }
    peer.state->tx.rtrs->waits.count(true);
    peer.state.ref().tx.backlog.remove(operation);
    // Cannot fail any more.
    (void)put(peer, request, operation->iov, rtr, operation);
    backlog_.forget_awaiting(*operation);
    records_.sends.give_back(operation);
    break;
  }
  if (peer.state->tx.backlog.empty()) peer.state->tx.rtrs->deferring = false;
}

// Sends them by RTS.
void PutEngine::release_deferred(Peer& peer) {
  peer.state->tx.rtrs->deferring = false;
  (void)events_.pump_backlog(peer);
}

// The first RTR that matches the message.
std::size_t PutEngine::find_rtr(const Peer& peer, bool tagged, std::uint64_t tag) const noexcept {
  if (!peer.state->tx.rtrs) return kNoRtr;
  const auto& open = peer.state->tx.rtrs->open;
  for (std::size_t i = 0; i < open.size(); ++i) {
    if (open[i].accepts(tagged, tag)) return i;
  }
  return kNoRtr;
}

// A message was sent that will consume the receive.
void PutEngine::consume_rtr(Peer& peer, std::size_t at) noexcept {
  if (at == kNoRtr || peer.lost) return;
  peer.state->tx.rtrs->open.erase(peer.state->tx.rtrs->open.begin() +
                                  static_cast<std::ptrdiff_t>(at));
}

// Whether the message can be written to the RTR; otherwise it travels in the stream.
bool PutEngine::may_put(const Peer& peer, const IoVec& iov, const wire::Detail& rtr) {
  return (peer.state->tx.backlog.empty() || defers(peer)) && iov.total <= rtr.length &&
         records_.transfers.ready() && records_.sends.ready();
}

// may_put(). After an error nothing was sent.
Status PutEngine::put(Peer& peer, const SendRequest& request, const IoVec& iov,
                      const wire::Detail& rtr, SendOperation* deferred) {
  wire::Detail message = rtr;  // of this message
  message.tag = request.tag;
  message.data = request.remote_data;
  message.flags = wire::flags_of(request.tagged, request.has_remote_data);
  message.last = std::to_integer<std::uint8_t>(last_of(iov));
  const bool as_announced =
      rtr.polled != 0 && iov.total == rtr.length &&
      iov.total <= context_.settings.rendezvous_segment && iov.count == 1 &&
      message.flags == rtr.flags && (!request.tagged || message.tag == rtr.tag) &&
      (!request.has_remote_data || message.data == rtr.data) && message.last != rtr.last;
  Transfer& transfer = *records_.transfers.take();
  Status status;
  if (deferred != nullptr) {
    SendBacklog::use_registrations(*deferred, &transfer);
  } else {
    status = rdma_.register_iov(transfer, iov, 0);
  }
  if (!status.ok()) {
    rdma_.drop_transfer(transfer);
    return status;
  }
  transfer.kind = Transfer::Kind::put;
  transfer.write = true;
  transfer.peer = &peer;
  // Without the last byte the receiver does not see a complete message; the put completion has it.
  const bool all = as_announced || rtr.polled == 0 || iov.total < rtr.length;
  transfer.total = iov.total - (all ? 0 : 1);
  transfer.remote[0] = {rtr.address, transfer.total, rtr.rkey, 0};
  transfer.where = message;
  transfer.report = request.report;
  transfer.completion.context = request.report.context;
  transfer.completion.length = iov.total;
  transfer.completion.tag = request.tag;
  transfer.completion.flags = kSend | (request.tagged ? kTagged : kMessage);
  if (!as_announced) transfer.announcement = make_put_completion(transfer);
  ++peer.state.ref().tx.rtrs->writing;
  peer.tx.carried.count(iov.total);
  if (context_.traits.uses_feedback)
    context_.feedback.count(peer.tx.sent, peer.id, peer.data_queue);
  ++rendezvous_count_;
  ++puts_;
  if (!as_announced) ++put_completions_;
  rdma_.pump(transfer);
  return {};
}

// A record is free.
SendOperation* PutEngine::make_put_completion(const Transfer& transfer) {
  SendOperation* const completion_message = records_.sends.take();
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

void PutEngine::end_put(Transfer& transfer) {
  Peer& peer = *transfer.peer;
  --peer.state.ref().tx.rtrs->writing;
  MemoryRegistration::release_regions(transfer);
  SendOperation* completion_message = std::exchange(transfer.announcement, nullptr);
  if (peer.lost && completion_message != nullptr) {
    records_.sends.give_back(completion_message);
  } else if (!peer.lost) {
    // The receiver cannot detect a failed write.
    if (completion_message == nullptr && !transfer.status.ok() && records_.sends.ready())
      completion_message = make_put_completion(transfer);
    if (completion_message != nullptr) {
      completion_message->outcome = static_cast<std::uint32_t>(transfer.status.code());
      backlog_.send_before_backlog(*completion_message);
    }
  }
  if (transfer.status.ok()) {
    context_.finish(transfer.report, transfer.completion);
  } else {
    context_.fail(transfer.report, transfer.completion, transfer.status);
  }
  rdma_.drop_transfer(transfer);
}

void PutEngine::on_rtr_cancel(Peer& peer, std::uint64_t number) {
  if (context_.over_datagrams() || context_.closing) return;
  if (!peer.state->tx.rtrs) {  // no RTR was stored, so the reply need not wait
    peer.state.make().tx.rtrs = std::make_unique<PeerRtrs>();
  }
  if (peer.state->tx.rtrs->cancelled.size() == kMostCancels) {
    return events_.protocol_error(
        peer, fmt::format("cancels more than {} RTRs without waiting for an answer", kMostCancels));
  }
  std::erase_if(peer.state->tx.rtrs->open,
                [number](const Rtr& rtr) { return rtr.detail.transfer == number; });
  peer.state->tx.rtrs->cancelled.push_back(number);
  rtr_cancels_.push_back(&peer);
  context_.pending.add(Pending::rtr_cancels);
}

// In the stream, so that it arrives after the writes and put completions.
bool PutEngine::pump_rtr_cancels() {
  bool moved = false;
  remove_done(rtr_cancels_, [&](Peer& peer) {
    while (!peer.lost && !peer.state->tx.rtrs->cancelled.empty() && records_.sends.ready()) {
      SendOperation& answer = *records_.sends.take();
      answer.peer = &peer;
      answer.type = wire::Type::rtr_cancelled;
      answer.tag = peer.state->tx.rtrs->cancelled.back();
      peer.state->tx.rtrs->cancelled.pop_back();
      if (!peer.state->tx.backlog.empty() || !events_.try_operation(answer))
        backlog_.enqueue(answer);
      moved = true;
    }
    return peer.lost || peer.state->tx.rtrs->cancelled.empty();
  });
  return moved;
}

}  // namespace turnout
