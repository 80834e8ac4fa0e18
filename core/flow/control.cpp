// SPDX-License-Identifier: BSD-3-Clause
// Credit and establishment messages, peer records, keep-alive, and loss of peers.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "core/connection/recovery.h"
#include "core/endpoint/endpoint_core.h"
#include "core/transport/path.h"

namespace turnout {
namespace {

// Minimum number of peers probed in one keep-alive round. With a round every quarter of the
// setting, a process with n peers detects a silent one within keepalive * (1 + n / (4 *
// kProbesPerRound)) + the retries.
constexpr std::size_t kProbesPerRound = 16;

// (i + j) mod n of AQPS 3.1, with ids in place of ranks; ids are random, so the result is uniform.
std::uint8_t choose_queue(std::uint64_t a, std::uint64_t b, std::size_t n) noexcept {
  return static_cast<std::uint8_t>((a % n + b % n) % n);
}

}  // namespace

ibv_ah* EndpointCore::address_handle(const Address& address, Status* status) {
  const auto key = std::make_pair(address.lid, address.gid);
  if (const auto found = handles_.find(key); found != handles_.end()) return found->second.get();
  ibv_ah_attr attr = path_to(*device_, address.lid, address.gid);
  verbs::Ah handle(ibv_create_ah(device_->pd(), &attr));
  if (!handle) {
    *status = verbs::failure("ibv_create_ah", address.to_string(), errno);
    return nullptr;
  }
  return handles_.emplace(key, std::move(handle)).first->second.get();
}

// Checks that settings which must agree in a job do. Logged, because a program gets an error number
// only.
Status EndpointCore::check_peer(const Address& address) {
  Status status;
  const auto service = [](bool datagrams) { return datagrams ? "UD" : "DC"; };
  if (device_->is_virtual() && !device_->is_simulated() && address.gid != address_.gid) {
    status = {Code::unsupported,
              fmt::format("{} is on another virtual fabric; set TURNOUT_FABRIC to the same name "
                          "for the whole job, and run it on one host as one user",
                          address.to_string())};
  } else if (address.datagrams() != over_datagrams()) {
    status = {
        Code::unsupported,
        fmt::format("the default transport of {} is {}, but that of this process is {}; set "
                    "TURNOUT_DEFAULT_TRANSPORT=ud for the whole job",
                    address.to_string(), service(address.datagrams()), service(over_datagrams()))};
  }
  if (!status.ok() && refused_ != address.id) {
    refused_ = address.id;  // programs retry
    TURNOUT_LOG(connection, error, "connecting failed: {}", status.text());
  }
  return status;
}

Peer* EndpointCore::make_peer(const Address& address, Status* status) {
  if (const auto found = by_id_.find(address.id); found != by_id_.end()) {
    return peers_[found->second].get();
  }
  Reservation bytes = Reservation::take(account_, MemoryKind::peers, record_bytes(), 0, 1);
  if (!bytes) {
    *status = Status{Code::over_budget,
                     fmt::format("TURNOUT_MEMORY_BUDGET={} has no room for the record of peer "
                                 "number {}; raise it",
                                 account_.budget(), peers_.size() + 1)};
    return nullptr;
  }
  *status = check_peer(address);
  if (!status->ok()) return nullptr;
  ibv_ah* const ah = address_handle(address, status);
  if (ah == nullptr) return nullptr;
  auto peer = std::make_unique<Peer>();
  peer->send_kind = peer->receive_kind = peer->wanted = default_channel_;
  peer->sent.begin(default_channel_);
  peer->received.begin(default_channel_);
  if (over_datagrams()) peer->link = std::make_unique<UdReliability>();
  peer->id = static_cast<PeerId>(peers_.size());
  peer->eviction.peer = peer->grant.peer = peer->id;
  peer->address = address;
  peer->self = address.id == address_.id;
  peer->ah = ah;
  peer->data_queue = choose_queue(address_.id, address.id, settings_.data_qps);
  peer->credit_queue = choose_queue(address_.id, address.id, settings_.credit_qps);
  peer->establishment_queue = choose_queue(address_.id, address.id, settings_.establishment_qps);
  peer->credits = address.credits();
  peer->eager_size =
      std::min(own_eager_size_, address.receive_size() - (over_datagrams() ? wire::kGrhBytes : 0));
  peer->heard = clock_.now();
  by_id_.emplace(address.id, peer->id);
  peer_bytes_.push_back(std::move(bytes));
  peers_.push_back(std::move(peer));
  return peers_.back().get();
}

Result<PeerId> EndpointCore::peer(const Address& address) {
  auto checked = Address::decode(&address, sizeof address);
  if (!checked) return checked.status();
  Status status;
  Peer* const peer = make_peer(address, &status);
  if (peer == nullptr) return status;
  return peer->id;
}

void EndpointCore::send_control(Peer& peer, Purpose purpose, wire::ControlMessage message,
                                const wire::Detail* detail) {
  // A peer that shut down needs nothing and may be gone; after our own shutdown peers expect
  // nothing.
  if (peer.lost || peer.shut_down) return;
  if (!shutting_down_.empty() && std::find(shutting_down_.begin(), shutting_down_.end(),
                                           peer.address.id) != shutting_down_.end()) [[unlikely]] {
    return;
  }
  if (closing_phase_ == Closing::shutting_down && message.type != wire::Control::shutdown) return;
  message.index = peer.remote_index;
  message.sender = address_.id;
  if (peer.private_sender.credits > 0 && wire::serves_large(message.type) &&
      post_private_control(peer, message, detail)) [[unlikely]] {
    return;
  }
  if (peer.link) {
    send_control_over_ud(peer, purpose, message);
    return;
  }
  PendingControl pending{peer.id, purpose, message, {}};
  if (detail != nullptr) pending.detail = *detail;
  // Establishment messages of a pair are ordered: none overtakes a queued one.
  if (!pending_control_.empty() || !post_control(pending)) pending_control_.push_back(pending);
}

bool EndpointCore::post_control(const PendingControl& pending) {
  Peer& peer = *peers_[pending.peer];
  if (peer.lost) return true;
  return post_control(peer, pending.purpose == Purpose::credit,
                      ControlBytes{nullptr, &pending.message, sizeof pending.message,
                                   has_detail(pending.message.type) ? &pending.detail : nullptr});
}

bool EndpointCore::post_control(Peer& peer, bool credit, const ControlBytes& bytes) {
  const std::uint8_t at = credit ? peer.credit_queue : peer.establishment_queue;
  const unsigned first = peer.address.data_qps() + (credit ? 0 : peer.address.credit_qps());
  const unsigned n = credit ? peer.address.credit_qps() : peer.address.establishment_qps();
  Status status;
  if (!post_control(*pool(credit ? Purpose::credit : Purpose::establishment)[at], peer.id,
                    peer.address, peer.ah, first + at % n, bytes, &status)) {
    return false;
  }
  charge(Work::post, 1);
  if (!status.ok()) lose_peer(peer, status);
  return true;
}

// To the target number `target` of that address. False: no room now.
bool EndpointCore::post_control(MessageQueue& queue, PeerId peer, const Address& address,
                                ibv_ah* ah, unsigned target, const ControlBytes& message,
                                Status* status) {
  if (queue.full()) return false;
  const std::uint32_t buffer = control_send_pool_.take();
  if (buffer == kNoBuffer) return false;
  std::byte* const bytes = control_send_pool_.data(buffer);
  const std::size_t head = message.head != nullptr ? sizeof *message.head : 0;
  if (head > 0) std::memcpy(bytes, message.head, head);
  if (message.length > 0) std::memcpy(bytes + head, message.body, message.length);
  const std::size_t more = message.detail != nullptr ? sizeof *message.detail : 0;
  if (more > 0) std::memcpy(bytes + head + message.length, message.detail, more);
  SendRecord record;
  record.kind = SendRecord::Kind::message;
  record.pool = SendRecord::Pool::control;
  record.peer = peer;
  record.buffer = buffer;
  record.local = reinterpret_cast<std::uint64_t>(bytes);
  record.lkey = control_send_pool_.lkey();
  record.length = static_cast<std::uint32_t>(head + message.length + more);
  record.dct = address.dct_number(target);
  record.ah = ah;
  record.dc_key = address.id;
  record.signalled =
      closing_;  // a peer may exit on our shutdown message, so it must not be sent twice
  *status = queue.post(record);
  profile_.count_sent(Traffic::control, record.length);
  if (!status->ok()) control_send_pool_.give_back(buffer);
  return true;
}

bool EndpointCore::pump_control() {
  bool moved = false;
  while (!pending_control_.empty()) {
    const PendingControl pending = pending_control_.front();
    if (!post_control(pending)) break;
    pending_control_.pop_front();
    moved = true;
  }
  return moved;
}

void EndpointCore::send_credits(Peer& peer) {
  if ((peer.grant.unreported == 0 && peer.unreported_ring == 0) ||
      peer.remote_index == wire::kUnknownIndex)
    return;
  wire::ControlMessage message;
  message.type = wire::Control::credit;
  message.credits = static_cast<std::uint16_t>(peer.grant.unreported);
  message.ring_credits = static_cast<std::uint16_t>(peer.unreported_ring);
  message.request = peer.ring_request;
  peer.grant.unreported = 0;
  peer.unreported_ring = 0;
  ++credit_messages_;
  send_control(peer, Purpose::credit, message);
}

void EndpointCore::return_credit(Peer& peer) {
  if (peer.lost) return;
  if (flow_.returned(peer.grant)) send_credits(peer);
  serve_credit_waiters();
}

// `few`: more credits may not be returned.
void EndpointCore::serve_credit_waiters(bool few) {
  while (flow_.has_waiting()) {
    CreditGrant* const grant = flow_.serve(few);
    if (grant == nullptr) return;
    send_credits(*peers_[grant->peer]);
  }
}

void EndpointCore::sweep_credits(Nanoseconds now) {
  flow_.sweep(peers_.size(), [this](std::size_t i) -> CreditGrant& { return peers_[i]->grant; });
  serve_credit_waiters(true);
  flow_.end_sweep(now);
}

void EndpointCore::send_fin(Peer& peer, std::uint64_t operation, const Status& status) {
  wire::ControlMessage message;
  message.type = wire::Control::fin;
  message.operation = operation;
  message.status = static_cast<std::uint32_t>(status.code());
  send_control(peer, Purpose::credit, message);
}

void EndpointCore::on_control(std::uint32_t buffer, std::uint32_t length) {
  wire::ControlMessage message;
  wire::Detail detail;
  Status status =
      wire::parse_control(control_receive_pool_.data(buffer), length, &message, &detail);
  if (!status.ok()) {
    TURNOUT_LOG(connection, error, "receiving a control message failed: {}; it was dropped",
                status.text());
    return;
  }
  Peer* const peer = find_sender(message.index, message.sender);
  if (peer == nullptr || peer->lost) {
    TURNOUT_LOG(connection, debug, "dropped a control message of {:016x}", message.sender);
    return;
  }
  peer->heard_since_tick = true;
  handle_control(*peer, message, detail);
  // With private receive queues this counts as the peer's first message.
  if (has_private_receives_ && wire::serves_large(message.type) &&
      settings_.test_switch_every == 0 && peer->receive_kind == default_channel_) {
    on_message_counted(*peer);
  }
}

Peer* EndpointCore::find_sender(std::uint32_t index, std::uint64_t id) noexcept {
  if (Peer* const peer = find_peer(index); peer != nullptr && peer->address.id == id) return peer;
  // The sender does not know its index yet, or the index is of an endpoint that is gone.
  const auto found = by_id_.find(id);
  return found != by_id_.end() ? peers_[found->second].get() : nullptr;
}

void EndpointCore::handle_control(Peer& peer, const wire::ControlMessage& message,
                                  const wire::Detail& detail) {
  if (peer.recovery && wire::changes_channel(message.type)) {
    return;  // from before the connection failed: both ends discard changes in progress
  }
  if (peer.xrc && peer.xrc->lost && wire::changes_receiving(message.type)) {
    return;  // the same, see xrc_recovery.cpp
  }
  switch (message.type) {
    case wire::Control::credit:
      if (message.kind == static_cast<std::uint8_t>(ChannelKind::rc_sr)) {
        on_private_credits(peer, message.request, message.credits);
        break;
      }
      peer.credits = std::min(peer.credits + message.credits, wire::kMostCredits);
      if (over_ring(peer.send_kind) && message.request == peer.ring_sender.request) {
        peer.ring_sender.credits =
            std::min(peer.ring_sender.credits + message.ring_credits, peer.ring_sender.entries);
      }
      break;
    case wire::Control::wireup_reply:
      peer.remote_index = message.own_index;
      break;
    case wire::Control::fin:
      on_fin(message, peer);
      break;
    case wire::Control::shutdown:
      peer.shut_down = true;
      note_last(peer, message);
      break;
    case wire::Control::request:
      on_request(peer, message);
      break;
    case wire::Control::accept:
      on_accept(peer, message);
      break;
    case wire::Control::ready:
      on_ready(peer, message);
      break;
    case wire::Control::switched:
      on_switched(peer, message);
      break;
    case wire::Control::refuse:
      on_refuse(peer, message);
      break;
    case wire::Control::feedback:
      on_feedback(peer, message);
      break;
    case wire::Control::closed:
      on_closed(peer);
      break;
    case wire::Control::disconnect:
      on_disconnect(peer, message);
      break;
    case wire::Control::error:
      on_error(peer, message);
      break;
    case wire::Control::replay:
      on_replay(peer, message);
      break;
    case wire::Control::resumed:
      on_resumed(peer, message);
      break;
    case wire::Control::xrc_error:
      on_xrc_error(peer, message);
      break;
    case wire::Control::xrc_replay:
      on_xrc_replay(peer, message);
      break;
    case wire::Control::xrc_resumed:
      on_xrc_resumed(peer, message);
      break;
    case wire::Control::fragment_request:
      on_fragment_request(peer, message);
      break;
    case wire::Control::cts:
      on_cts(peer, message, detail);
      break;
    case wire::Control::written:
      on_written(peer, message);
      break;
    case wire::Control::rtr:
      on_rtr(peer, detail);
      break;
    case wire::Control::rtr_cancel:
      on_rtr_cancel(peer, message.operation);
      break;
    case wire::Control::reject:
      on_rejection(peer, message);
      break;
  }
}

// An initiator's work request failed; the queue pair is in the error state and all later requests
// were flushed. Those are reposted in order, except to a lost peer. The failure is reported only
// then, because its handlers post to this queue pair, too.
void EndpointCore::recover(MessageQueue& queue, const ibv_wc& wc) {
  const std::vector<SendRecord> records = queue.take_all();
  if (Status status = queue.recover(); !status.ok()) {
    TURNOUT_LOG(channel, error, "recovering a queue pair failed: {}", status.text());
  }
  const bool flushed = wc.status == IBV_WC_WR_FLUSH_ERR;
  if (flushed) {
    TURNOUT_LOG(channel, warn,
                "queue pair failed: flushed without an error; reposting its work requests");
  }
  const SendRecord* const failed = flushed || records.empty() ? nullptr : records.data();
  const bool refused =
      failed != nullptr && failed->kind == SendRecord::Kind::transfer && refuses_key(wc.status);
  const PeerId gone = failed != nullptr && !refused ? failed->peer : kAnyPeer;
  std::vector<SendRecord> of_lost;
  for (const SendRecord& record : records) {
    if (&record == failed) continue;
    if (record.peer == kAnyPeer) {
      if (!queue.post(record).ok()) retire(record);
      continue;
    }
    Peer& peer = *peers_[record.peer];
    if (peer.lost || record.peer == gone) {
      of_lost.push_back(record);
      continue;
    }
    // The receiver may have found it by its last byte, so it must not be written again.
    if (record.kind == SendRecord::Kind::transfer && record.transfer->kind == Transfer::Kind::put &&
        record.transfer->announcement == nullptr) {
      fetch_instead(*record.transfer);
      continue;
    }
    if (Status status = queue.post(record); !status.ok()) {
      lose_peer(peer, status);
      end_of_lost(record);
    }
  }
  if (failed != nullptr && failed->peer == kAnyPeer) {  // a sender to be rejected, or ourselves
    retire(*failed);
  } else if (failed != nullptr && refused) {
    on_transfer_done(*failed->transfer, refused_key(*peers_[failed->peer], *failed, wc.status));
  } else if (failed != nullptr) {
    Peer& peer = *peers_[gone];
    lose_peer(peer, Status{Code::peer_lost,
                           fmt::format("{} is not responding: {}", peer.address.to_string(),
                                       ibv_wc_status_str(wc.status)),
                           EHOSTDOWN});
    end_of_lost(*failed);
  }
  for (const SendRecord& record : of_lost) end_of_lost(record);
}

// Ends operations in progress with a lost peer.
void EndpointCore::end_of_lost(const SendRecord& record) {
  if (record.kind == SendRecord::Kind::transfer) {
    on_transfer_done(*record.transfer, peers_[record.peer]->loss);
  } else {
    retire(record);
  }
}

void EndpointCore::lose_peer(Peer& peer, const Status& why) {
  if (peer.lost) return;
  peer.lost = true;
  SrqFlowControl::close(peer.grant);
  peer.loss =
      Status{Code::peer_lost, why.text(), why.sys_errno() != 0 ? why.sys_errno() : EHOSTDOWN};
  if (peer.shut_down || closing_) {
    TURNOUT_LOG(connection, debug, "peer lost: {}", why.text());
  } else {
    TURNOUT_LOG(connection, error, "peer lost: {}; its operations fail, other peers are unaffected",
                why.text());
  }
  if (peer.decision != 0) decided(peer, "peer lost");
  // Messages of a peer that shut down stay in the history: at the end of a job these are all peers.
  // The selection considers live peers only.
  if (statistics_.get() != nullptr && !peer.shut_down) statistics_.get()->forget(peer.id);
  end_atomics(peer);
  while (SendOperation* const operation = peer.backlog.pop_front()) end_send(*operation, peer.loss);
  std::erase_if(rput_sends_,
                [&](const SendOperation* operation) { return operation->peer == &peer; });
  if (peer.rtrs) peer.rtrs->open.clear();
  for (std::size_t slot = 0; slot < awaiting_fin_.size(); ++slot) {
    SendOperation* const operation = awaiting_fin_[slot];
    // One that is being written ends with its transfer.
    if (operation != nullptr && operation->peer == &peer && !operation->writing) {
      end_send(*operation, peer.loss);
    }
  }
  peer.awaiting_fin = 0;
  for (const bool tagged : {true, false}) {
    for (RecvOperation* r = matcher_.posted(tagged).first(); r != nullptr;) {
      RecvOperation* const next = r->next;
      if (r->match.peer == peer.id) {
        unpost(*r);
        --peer.directed_receives;
        Completion completion;
        completion.context = r->report.context;
        completion.tag = r->match.tag;
        completion.flags = kRecv | (tagged ? kTagged : kMessage);
        completion.source = peer.id;
        if (r->multi) completion.flags |= kMultiRecvDone;
        fail(r->report, completion, peer.loss);
        receives_.give_back(r);
      }
      r = next;
    }
  }
  // Transfers with work to post and nothing in flight would never end.
  for (Transfer* t = active_transfers_.first(); t != nullptr;) {
    Transfer* const next = t->next;
    if (t->peer == &peer && t->in_flight == 0) {
      t->status = peer.loss;
      pump(*t);
    }
    t = next;
  }
  end_incoming(&peer);
  if (peer.link) drop_ud(peer);
  if (peer.eviction.waits_for_slot) eviction_.stop_waiting(peer.eviction);
  if (peer.recovery) end_recovery(peer);
  forget_xrc(peer);
  if (peer.has_rc()) discard_rc(peer);
  if (peer.ring) {
    rings_.remove(peer);
    // A ring that still contains messages is kept.
    if (peer.ring->all_returned()) peer.ring.reset();
  }
  while (!peer.reorder_buffer.empty())
    free_out_of_order(take_out_of_order(peer, peer.reorder_buffer.size() - 1));
  flow_.forget(peer.grant);
  serve_credit_waiters();
  if (peer.self || peer.shut_down || closing_ || why.code() == Code::peer_lost) return;
  peer.given_up = why.code();
  reject(peer);
}

// A zero-length RDMA write: the peer's adapter acknowledges it without its CPU.
template <class Queue>
void EndpointCore::post_probe(Peer& peer, Queue& queue) {
  if (queue.full()) return;
  SendRecord record;
  record.kind = SendRecord::Kind::probe;
  record.opcode = IBV_WR_RDMA_WRITE;
  record.peer = peer.id;
  record.dct = peer.address.dct_number(0);
  record.ah = peer.ah;
  record.dc_key = peer.address.id;
  ++peer.probes;
  profile_.count_sent(Traffic::control, 0);
  if (Status status = queue.post(record); !status.ok()) {
    --peer.probes;
    lose_peer(peer, status);
  }
}

// Over UD its process must answer, see datagrams.cpp.
void EndpointCore::probe(Peer& peer, MessageQueue& queue) {
  if (peer.link) {
    send_probe(peer);
  } else {
    post_probe(peer, queue);
  }
}

void EndpointCore::probe_over_rc(Peer& peer) {
  post_probe(peer, *peer.rc);
}

// Probes silent peers from which something is expected or that have an idle connection, so that a
// dead peer does not keep its slot. Returns credits that were too few for a message of their own,
// and ends operations that a peer which shut down will not answer.
void EndpointCore::keep_alive(Nanoseconds now) {
  bool wildcards = false;
  bool awaited_from_any = false;  // a multi-receive does not expect a message
  for (const bool tagged : {true, false}) {
    for (RecvOperation* r = matcher_.posted(tagged).first(); r != nullptr; r = r->next) {
      if (r->match.peer != kAnyPeer) continue;
      wildcards = true;
      awaited_from_any = awaited_from_any || !r->multi;
    }
  }
  look_after_xrc_connections(now);
  std::size_t probed = 0;
  for (std::size_t n = peers_.size(); n > 0; --n) {
    keepalive_at_ = keepalive_at_ + 1 < peers_.size() ? keepalive_at_ + 1 : 0;
    Peer& peer = *peers_[keepalive_at_];
    if (peer.lost) {
      if (peer.loss_unreported) reject(peer);
      continue;
    }
    if (peer.self) {
      look_after_retained(peer, awaited_from_any, now);
      continue;
    }
    if (peer.heard_since_tick) {
      peer.heard = now;
      peer.heard_since_tick = false;
    }
    if (peer.send_state == SendState::flushing) post_flush(peer);
    send_credits(peer);
    if (peer.private_receives.unreported > 0) send_private_credits(peer);
    look_after_retained(peer, awaited_from_any, now);
    if (peer.lost) continue;
    if (peer.shut_down && has_last_message(peer) && has_last_control(peer)) {
      lose_peer(peer,
                Status{Code::peer_lost,
                       fmt::format("{} closed its endpoint", peer.address.to_string()), ESHUTDOWN});
      continue;
    }
    const bool expected = peer.directed_receives > 0 || peer.awaiting_fin > 0 ||
                          peer.incoming_large > 0 || owes_answers(peer) ||
                          (peer.atomics && peer.atomics->listed) || !peer.backlog.empty() ||
                          peer.receive_state != ReceiveState::steady ||
                          peer.send_state != SendState::steady || peer.eviction.disconnecting ||
                          peer.recovery || (wildcards && peer.remote_index != wire::kUnknownIndex);
    const bool idle = !expected && ((peer.rc && peer.rc->connected_to() != 0) || peer.xrc);
    if ((!expected && !idle) || peer.probes > 0 || now - peer.heard < settings_.keepalive) continue;
    if (probed == std::max(kProbesPerRound, peers_.size() / 16)) continue;
    ++probed;
    if (idle && peer.rc && peer.rc->connected_to() != 0) {
      probe_over_rc(peer);
    } else {
      probe(peer, *pool(Purpose::credit)[peer.credit_queue]);
    }
  }
}

}  // namespace turnout
