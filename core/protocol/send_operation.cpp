// SPDX-License-Identifier: BSD-3-Clause
// Send operations: eager or rendezvous, sent at once or queued in the backlog, until complete.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/log.h"
#include "core/endpoint/endpoint_core.h"

namespace turnout {

Status EndpointCore::send_now(const SendRequest& request) {
  Peer* const peer = find_peer(request.peer);
  if (peer == nullptr) return {Code::invalid, fmt::format("send: no such peer: {}", request.peer)};
  if (peer->lost) return peer->loss;
  IoVec iov;
  if (!iov.set(request.data)) {
    return {Code::invalid,
            fmt::format("send: {} IOV entries, at most {}", request.data.size(), kMaxIov)};
  }
  if (request.inject && iov.total > kInjectLimit) {
    return {Code::invalid,
            fmt::format("send: {} bytes exceed the inject limit of {}", iov.total, kInjectLimit)};
  }
  const std::uint8_t flags = wire::flags_of(request.tagged, request.has_remote_data);
  const std::uint32_t completion_flags = kSend | (request.tagged ? kTagged : kMessage);
  // An injected message has no completion that could be delayed until delivery.
  const bool acknowledged = request.delivery_complete && !request.inject;
  const bool large = !request.inject && is_large(*peer, iov.total);
  const bool eager = iov.total <= max_payload(*peer) && !large && !acknowledged;
  const std::size_t at = find_rtr(*peer, request.tagged, request.tag);
  if (at != kNoRtr && large) {
    const wire::Detail& rtr = peer->rtrs->open[at].detail;
    if (may_put(*peer, iov, rtr)) {
      Status status = put(*peer, request, iov, rtr);
      if (status.ok()) consume_rtr(*peer, at);
      return status;
    }
  }

  const bool wait = large && at == kNoRtr && may_defer(*peer);
  if (!wait && defers(*peer)) release_deferred(*peer);
  if (eager && peer->backlog.empty() && !is_putting(*peer)) {
    StreamMessage message;
    message.type = wire::Type::eager;
    message.flags = flags;
    message.tag = request.tag;
    message.data = request.remote_data;
    message.iov = &iov;
    message.length = message.counts_as = iov.total;
    if (post_stream(*peer, message)) {
      Completion done;
      done.context = request.report.context;
      done.length = iov.total;
      done.tag = request.tag;
      done.flags = completion_flags;
      finish(request.report, done);
      consume_rtr(*peer, at);
      return {};
    }
  }
  if (sends_.in_use() >= operation_limits_.waiting) return too_many_wait();
  SendOperation* const operation = take_for_caller(sends_);
  if (operation == nullptr) return refusal();
  operation->peer = peer;
  operation->flags = flags;
  operation->tag = request.tag;
  operation->data = request.remote_data;
  operation->iov = iov;
  operation->report = request.report;
  operation->completion_flags = completion_flags;
  operation->rendezvous = large || iov.total > peer->eager_size - stream_overhead_ -
                                                   sizeof(wire::WireupRequest) -
                                                   wire::kOperationBytes;
  operation->acknowledged = acknowledged && !operation->rendezvous;
  if (request.inject) {
    operation->copy = take_for_caller(copies_);
    if (operation->copy == nullptr) {
      sends_.give_back(operation);
      return refusal();
    }
    iov.copy_out(operation->copy->bytes.data());
    operation->iov.parts[0] = {operation->copy->bytes.data(), iov.total};
    operation->iov.count = 1;
    operation->rendezvous = false;
  }
  if (operation->rendezvous) {
    if (Status status = prepare_rendezvous(*operation); !status.ok()) {
      sends_.give_back(operation);
      return status;
    }
  }
  if (wait) {
    defer(*operation);
    return {};
  }
  if (operation->acknowledged) {
    operation->flags |= wire::kAcknowledge;
    await_fin(*operation);
  }
  if (!peer->backlog.empty() || !try_operation(*operation)) enqueue(*operation);
  consume_rtr(*peer, at);
  return {};
}

// The budget for queued operations is used up, because peers receive nothing.
Status EndpointCore::too_many_wait() {
  static const Status status{Code::again, "the budget allows no more pending operations"};
  return status;
}

bool EndpointCore::is_large(const Peer& peer, std::size_t bytes) const noexcept {
  const std::size_t threshold = settings_.rendezvous_threshold;
  return bytes > max_payload(peer) || (threshold != 0 && bytes > threshold);
}

// Assigns the id that the peer's FIN will contain.
void EndpointCore::await_fin(SendOperation& operation) {
  std::uint32_t slot;
  if (free_fin_slots_.empty()) {
    slot = static_cast<std::uint32_t>(awaiting_fin_.size());
    awaiting_fin_.push_back(nullptr);
  } else {
    slot = free_fin_slots_.back();
    free_fin_slots_.pop_back();
  }
  awaiting_fin_[slot] = &operation;
  operation.id = std::uint64_t{fin_generation_++} << 32 | slot;
}

void EndpointCore::forget_awaiting(SendOperation& operation) {
  if (operation.id == 0) return;
  const auto slot = static_cast<std::uint32_t>(operation.id);
  awaiting_fin_[slot] = nullptr;
  free_fin_slots_.push_back(slot);
  operation.id = 0;
}

// Registrations for an RTS also serve a write.
void EndpointCore::use_registrations(SendOperation& operation, Transfer* transfer) {
  for (std::uint32_t i = 0; i < operation.iov.count; ++i) {
    const iovec& part = operation.iov.parts[i];
    if (part.iov_len == 0) continue;
    Registration& region = transfer->regions[transfer->local_count];
    region = std::move(operation.regions[i]);
    transfer->local[transfer->local_count++] = {reinterpret_cast<std::uint64_t>(part.iov_base),
                                                part.iov_len, region.lkey()};
  }
}

Status EndpointCore::prepare_rendezvous(SendOperation& operation) {
  const IoVec& iov = operation.iov;
  for (std::uint32_t i = 0; i < iov.count; ++i) {
    if (iov.parts[i].iov_len == 0) continue;
    Status status = register_buffer(iov.parts[i], IBV_ACCESS_REMOTE_READ, &operation.regions[i]);
    if (!status.ok()) return status;
  }
  await_fin(operation);
  return {};
}

// Sends the operation if channel and credits allow.
bool EndpointCore::try_operation(SendOperation& operation) {
  if (wire::is_request(operation.type)) {
    return try_atomic(static_cast<AtomicOperation&>(operation));
  }
  Peer& peer = *operation.peer;
  // Writes to RTRs must complete first; only their put completions may be sent.
  if (is_putting(peer) && operation.type != wire::Type::put_completion && operation.rtr == 0) {
    return false;
  }
  StreamMessage message;
  message.flags = operation.flags;
  message.tag = operation.tag;
  message.data = operation.data;
  message.counted = operation.counted;
  if (operation.type == wire::Type::put_completion) {
    const wire::PutCompletion completion{operation.grant.transfer,
                                         operation.grant.length,
                                         operation.outcome,
                                         operation.grant.last,
                                         {}};
    message.type = operation.type;
    message.bytes = reinterpret_cast<const std::byte*>(&completion);
    message.length = sizeof completion;
    if (!post_stream(peer, message)) return false;
    end_send(operation, Status{});
    return true;
  }
  if (!operation.rendezvous) {
    message.type = operation.type == wire::Type::none ? wire::Type::eager : operation.type;
    message.iov = &operation.iov;
    message.length = message.counts_as = operation.iov.total;
    message.operation = operation.id;
    const bool acknowledged = operation.acknowledged;
    if (!post_stream(peer, message)) return false;
    if (acknowledged) {  // already ended if the peer was lost meanwhile
      if (peer.lost) return true;
      operation.announced = true;
      ++peer.awaiting_fin;
      return true;
    }
    end_send(operation, Status{});
    return true;
  }
  wire::Rts rts;
  rts.total = operation.iov.total;
  rts.operation = operation.id;
  for (std::uint32_t i = 0; i < operation.iov.count; ++i) {
    const iovec& part = operation.iov.parts[i];
    if (part.iov_len == 0) continue;
    rts.segment[rts.segments++] = {reinterpret_cast<std::uint64_t>(part.iov_base), part.iov_len,
                                   operation.regions[i].rkey(), 0};
    rts.last = static_cast<const std::uint8_t*>(part.iov_base)[part.iov_len - 1];
  }
  if (operation.rtr != 0) {
    rts.has_rtr = 1;
    rts.rtr = operation.rtr;
  }
  std::array<std::byte, wire::kMostRtsBytes> bytes;
  message.type = wire::Type::rts;
  message.bytes = bytes.data();
  message.length = wire::write_rts(rts, bytes.data());
  message.counts_as = rts.total;
  if (!post_stream(peer, message)) return false;
  ++rendezvous_count_;
  if (peer.lost) return true;  // the operation has ended
  operation.announced = true;
  ++peer.awaiting_fin;
  return true;
}

void EndpointCore::enqueue(SendOperation& operation) {
  if (defers(*operation.peer)) operation.peer->rtrs->deferring = false;
  operation.peer->backlog.push_back(&operation);
  list_backlog(*operation.peer);
}

void EndpointCore::list_backlog(Peer& peer) {
  if (std::exchange(peer.backlogged, true)) return;
  backlogged_.push_back(&peer);
}

void EndpointCore::end_send(SendOperation& operation, Status status) {
  if (wire::is_request(operation.type)) {
    end_atomic(static_cast<AtomicOperation&>(operation), std::move(status));
    return;
  }
  forget_awaiting(operation);
  if (operation.fragment_transfer != 0) fragmented_.remove(&operation);
  const bool failed = !status.ok();
  Completion done;
  done.context = operation.report.context;
  done.length = operation.iov.total;
  done.tag = operation.tag;
  done.flags = operation.completion_flags;
  if (status.ok()) {
    finish(operation.report, done);
  } else {
    // An injected message has already completed for its sender, which does not know this context.
    if (operation.copy != nullptr) operation.report.queue = operation.report.errors = nullptr;
    fail(operation.report, done, std::move(status));
  }
  if (failed) {
    for (Registration& region : operation.regions) region.discard();
  }
  if (operation.copy != nullptr) copies_.give_back(operation.copy);
  sends_.give_back(&operation);
}

bool EndpointCore::pump_backlog(Peer& peer) {
  bool moved = false;
  while (SendOperation* const operation = peer.backlog.first()) {
    peer.backlog.remove(operation);
    if (!try_operation(*operation)) {
      peer.backlog.push_front(operation);
      break;
    }
    moved = true;
  }
  return moved;
}

bool EndpointCore::pump_backlogs() {
  bool moved = false;
  for (std::size_t i = 0; i < backlogged_.size();) {
    Peer& peer = *backlogged_[i];
    if (!defers(peer)) moved |= pump_backlog(peer);
    if (peer.backlog.empty()) {
      peer.backlogged = false;
      backlogged_[i] = backlogged_.back();
      backlogged_.pop_back();
    } else {
      ++i;
    }
  }
  return moved;
}

SendOperation* EndpointCore::find_awaiting(const Peer& peer, std::uint64_t id) const noexcept {
  const auto slot = static_cast<std::uint32_t>(id);
  SendOperation* const operation = slot < awaiting_fin_.size() ? awaiting_fin_[slot] : nullptr;
  const bool waits = operation != nullptr && operation->announced && operation->id == id &&
                     operation->peer == &peer;
  return waits ? operation : nullptr;
}

Status EndpointCore::status_reported(const Peer& peer, std::uint32_t code, std::string_view verb) {
  if (code == 0) return {};
  return {Code::peer_lost,
          fmt::format("{} failed to {} the message (peer's status {})", peer.address.to_string(),
                      verb, code),
          EIO};
}

void EndpointCore::on_fin(const wire::ControlMessage& message, Peer& peer) {
  SendOperation* const operation = find_awaiting(peer, message.operation);
  if (operation == nullptr) {
    TURNOUT_LOG(protocol, warn, "ignored an unexpected FIN: {}: operation {:#x} is not waiting",
                peer.address.to_string(), message.operation);
    return;
  }
  if (peer.awaiting_fin > 0) --peer.awaiting_fin;
  end_send(*operation, status_reported(peer, message.status, "fetch"));
}

}  // namespace turnout
