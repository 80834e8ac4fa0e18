// SPDX-License-Identifier: BSD-3-Clause
#include "core/operations/send_backlog.h"
#include "base/log.h"

namespace turnout {

// Ahead of the backlog, which was sent later.
void SendBacklog::send_before_backlog(SendOperation& operation) {
  if (events_.try_operation(operation)) return;
  if (defers(*operation.peer)) operation.peer->state->tx.rtrs->deferring = false;
  operation.peer->state.make().tx.backlog.push_front(&operation);
  list_backlog(*operation.peer);
}

// Assigns the id that the peer's FIN will contain.
void SendBacklog::await_fin(SendOperation& operation) {
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

void SendBacklog::forget_awaiting(SendOperation& operation) {
  if (operation.id == 0) return;
  const auto slot = static_cast<std::uint32_t>(operation.id);
  awaiting_fin_[slot] = nullptr;
  free_fin_slots_.push_back(slot);
  operation.id = 0;
}

// Registrations for an RTS also serve a write.
void SendBacklog::use_registrations(SendOperation& operation, Transfer* transfer) {
  for (std::uint32_t i = 0; i < operation.iov.count; ++i) {
    const iovec& part = operation.iov.parts[i];
    if (part.iov_len == 0) continue;
    Registration& region = transfer->regions[transfer->local_count];
    region = std::move(operation.regions[i]);
    transfer->local[transfer->local_count++] = {reinterpret_cast<std::uint64_t>(part.iov_base),
                                                part.iov_len, region.lkey()};
  }
}

bool SendBacklog::is_registered(const SendOperation& operation) noexcept {
  for (std::uint32_t i = 0; i < operation.iov.count; ++i) {
    if (operation.iov.parts[i].iov_len != 0 && !operation.regions[i]) return false;
  }
  return true;
}

void SendBacklog::enqueue(SendOperation& operation) {
  if (defers(*operation.peer)) operation.peer->state->tx.rtrs->deferring = false;
  operation.peer->state.make().tx.backlog.push_back(&operation);
  list_backlog(*operation.peer);
}

void SendBacklog::list_backlog(Peer& peer) {
  if (peer.backlogged) return;
  peer.backlogged = true;
  backlogged_.push_back(&peer);
  context_.pending.add(Pending::backlogs);
}

void SendBacklog::end_send(SendOperation& operation, Status status) {
  if (wire::is_request(operation.type))
    return events_.end_atomic(static_cast<AtomicOperation&>(operation), std::move(status));
  forget_awaiting(operation);
  if (operation.fragment_transfer != 0) fragmented_.remove(&operation);
  const bool failed = !status.ok();
  Completion done{.context = operation.report.context,
                  .length = operation.iov.total,
                  .tag = operation.tag,
                  .flags = operation.completion_flags};
  if (status.ok()) {
    context_.finish(operation.report, done);
  } else {
    // An injected message has already completed for its sender, which does not know this context.
    if (operation.copy != nullptr) operation.report.queue = operation.report.errors = nullptr;
    context_.fail(operation.report, done, std::move(status));
  }
  if (failed) {
    for (Registration& region : operation.regions) region.discard();
  }
  if (operation.copy != nullptr) records_.give_back_copy(operation.copy, operation.iov.total);
  records_.sends.give_back(&operation);
}

SendOperation* SendBacklog::find(const Peer& peer, std::uint64_t id) const noexcept {
  const auto slot = static_cast<std::uint32_t>(id);
  SendOperation* const operation = slot < awaiting_fin_.size() ? awaiting_fin_[slot] : nullptr;
  return operation != nullptr && operation->id == id && operation->peer == &peer ? operation
                                                                                 : nullptr;
}

SendOperation* SendBacklog::find_awaiting(const Peer& peer, std::uint64_t id) const noexcept {
  SendOperation* const operation = find(peer, id);
  return operation != nullptr && operation->announced ? operation : nullptr;
}

SendOperation* SendBacklog::find_confirmed(const Peer& peer, std::uint64_t id) const noexcept {
  SendOperation* const operation = find(peer, id);
  return operation != nullptr && operation->confirmed ? operation : nullptr;
}

Status SendBacklog::status_reported(const Peer& peer, std::uint32_t code, std::string_view verb) {
  if (code == 0) return {};
  return {Code::peer_lost,
          fmt::format("{} failed to {} the message (peer's status {})", peer.address.to_string(),
                      verb, code),
          EIO};
}

}  // namespace turnout
