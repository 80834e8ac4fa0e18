// SPDX-License-Identifier: BSD-3-Clause
// Rendezvous `rput` (spec/rendezvous.md): RTS, CTS, the sender writes, `written`.
//
// For contiguous receives; otherwise the receiver reads, as under getcqe. Writes use DC: on a
// switch back from RC only the reads and messages in flight are known.
#include "core/operations/rput_engine.h"
#include "base/log.h"

namespace turnout {

bool RputEngine::asks_for_write(const Transfer& transfer, const IoVec& target) const noexcept {
  return context_.rendezvous == Rendezvous::rput && !context_.over_datagrams() &&
         target.count == 1 && transfer.total > 0;
}

// At the receiver.
Status RputEngine::ask_for_write(Transfer& transfer, const IoVec& target) {
  Peer& peer = *transfer.peer;
  Status status = rdma_.register_iov(transfer, target, kPeerWrites);
  if (!status.ok()) return status;
  transfer.kind = Transfer::Kind::rput_recv;
  transfer.incoming.id = fragments_.incoming().add(&transfer);
  ++peer.rx.incoming_large;
  const wire::ControlMessage message{.type = wire::Control::cts,
                                     .operation = transfer.incoming.fin};
  wire::Detail detail{.address = transfer.local[0].address,
                      .length = transfer.total,
                      .transfer = transfer.incoming.id,
                      .rkey = transfer.regions[0].rkey()};
  control_.send_control(peer, Purpose::credit, message, &detail);
  return {};
}

// At the sender.
void RputEngine::on_cts(Peer& peer, const wire::ControlMessage& message,
                        const wire::Detail& detail) {
  if (context_.closing) return;
  SendOperation* const operation = backlog_.find_awaiting(peer, message.operation);
  if (operation == nullptr || !operation->rendezvous || operation->fragment_transfer != 0 ||
      operation->grant.transfer != 0 || detail.transfer == 0 ||
      !SendBacklog::is_registered(*operation)) {
    TURNOUT_LOG(protocol, warn, "ignored an unexpected CTS: {}: operation {:#x} is not waiting",
                peer.address.to_string(), message.operation);
    return;
  }
  if (detail.length > operation->iov.total) {
    return events_.protocol_error(peer, fmt::format("CTS for {} bytes of a message of {}",
                                                    detail.length, operation->iov.total));
  }
  operation->grant = {detail.address, detail.length, detail.transfer, detail.rkey};
  if (rput_sends_.empty() && records_.transfers.ready()) {
    start_rput_send(*operation);
  } else {
    rput_sends_.push_back(operation);
    context_.pending.add(Pending::rput_sends);
  }
}

// A transfer is free.
void RputEngine::start_rput_send(SendOperation& operation) {
  Transfer* const transfer = records_.transfers.take();
  transfer->kind = Transfer::Kind::rput_send;
  transfer->write = true;
  transfer->peer = operation.peer;
  transfer->operation = &operation;
  SendBacklog::use_registrations(operation, transfer);
  transfer->remote[0] = {operation.grant.address, operation.grant.length, operation.grant.rkey, 0};
  transfer->total = operation.grant.length;
  operation.writing = true;
  rdma_.pump(*transfer);
}

bool RputEngine::pump_rput_sends() {
  bool moved = false;
  while (!rput_sends_.empty() && records_.transfers.ready()) {
    SendOperation* const operation = rput_sends_.front();
    rput_sends_.pop_front();
    start_rput_send(*operation);
    moved = true;
  }
  return moved;
}

// The write is complete or failed.
void RputEngine::end_rput_send(Transfer& transfer) {
  Peer& peer = *transfer.peer;
  SendOperation& operation = *transfer.operation;
  control_.send_control(peer, Purpose::credit,
                        {.type = wire::Control::written,
                         .operation = operation.grant.transfer,
                         .status = static_cast<std::uint32_t>(transfer.status.code())});
  if (peer.tx.awaiting_fin > 0) --peer.tx.awaiting_fin;
  backlog_.end_send(operation, transfer.status);
  rdma_.drop_transfer(transfer);
}

// At the receiver.
void RputEngine::on_written(Peer& peer, const wire::ControlMessage& message) {
  Transfer* const transfer =
      fragments_.find_incoming(peer, message.operation, Transfer::Kind::rput_recv);
  if (transfer == nullptr) {
    TURNOUT_LOG(protocol, warn,
                "ignored an unexpected put completion: {}: transfer {:#x} is not waiting",
                peer.address.to_string(), message.operation);
    return;
  }
  transfer->status = SendBacklog::status_reported(peer, message.status, "write");
  fragments_.incoming().remove(transfer->incoming.id);
  --peer.rx.incoming_large;
  rdma_.end_transfer(*transfer);
}

}  // namespace turnout
