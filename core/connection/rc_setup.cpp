// SPDX-License-Identifier: BSD-3-Clause
// RC queue pairs: creating, connecting and resetting them, all in the background, and which of
// J1-J3 waits for which step. One job of a pair runs at a time.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "core/connection/rc_job.h"
#include "core/endpoint/endpoint_core.h"

namespace turnout {

// Within the budget; frees idle queue pairs if needed.
bool EndpointCore::reserve_rc() {
  while (!account_.reserve(MemoryKind::queue_pairs, rc_bytes_, reserved_headroom(), 1)) {
    if (rc_pool_.empty()) return false;
    forget_rc(std::move(rc_pool_.back()));
    rc_pool_.pop_back();
  }
  return true;
}

// Frees its slot and its bytes.
void EndpointCore::forget_rc(std::unique_ptr<RcQueue> queue) {
  queue->destroy();
  release_private_receives(*queue);
  queues_[queue->id()] = nullptr;
  queue_epochs_[queue->id()] = static_cast<std::uint8_t>(queue->epoch() + 1);
  free_queue_ids_.push_back(queue->id());
  queue.reset();
  account_.release(MemoryKind::queue_pairs, rc_bytes_, 1);
}

std::unique_ptr<RcJob> EndpointCore::job_of(Peer* peer, std::unique_ptr<RcQueue> queue) {
  auto job = std::make_unique<RcJob>();
  job->peer = peer;
  job->queue = std::move(queue);
  return job;
}

void EndpointCore::start_job(std::unique_ptr<RcJob> job) {
  if (job->peer != nullptr) job->peer->rc_job = job.get();
  ++jobs_;
  background_->start(std::move(job));
}

// The pair has a queue pair, or a job creates one: advance_rc() continues with it.
Status EndpointCore::want_rc(Peer& peer) {
  if (peer.has_rc()) return {};
  if (!rc_pool_.empty()) {
    peer.rc = std::move(rc_pool_.back());
    rc_pool_.pop_back();
    ++active_rc_;
    return {};
  }
  if (!may_make_rc()) {
    return {Code::again, "RC queue pair limit reached (rc_pool in TURNOUT_TUNING)"};
  }
  if (!reserve_rc()) return {Code::over_budget, "no memory within the budget for a queue pair"};
  auto job = job_of(&peer, nullptr);
  add_queue(job.get());
  job->receive_cq = receive_cq_.get();
  job->srq = has_private_receives_ ? nullptr : data_srq_.get();
  job->receives = most_private();
  connect_with(job.get(), peer, peer.remote_qp_id);
  start_job(std::move(job));
  return {};
}

// A queue pair made by a job; its bytes are reserved.
void EndpointCore::add_queue(RcJob* job) {
  std::uint32_t id;
  if (free_queue_ids_.empty()) {
    id = static_cast<std::uint32_t>(queues_.size());
    queues_.push_back(nullptr);
  } else {
    id = free_queue_ids_.back();
    free_queue_ids_.pop_back();
  }
  queue_epochs_.resize(queues_.size());
  job->queue = std::make_unique<RcQueue>(id, kQueueDepth, unsignalled_data_, queue_epochs_[id],
                                         ++rc_made_, account_);
  queues_[id] = job->queue.get();
  job->make = true;
  job->device = device_;
  job->cq = send_cq_.get();
  job->depth = kQueueDepth;
  job->tuning = tuning_;
  ++active_rc_;
  rc_peak_ = std::max<std::uint64_t>(rc_peak_, active_rc_ + resetting_rc_ + rc_pool_.size());
}

// `qp_id`: of the peer, or its node; 0: none yet.
void EndpointCore::connect_with(RcJob* job, const Peer& peer, std::uint32_t qp_id) {
  job->remote_qp_id = qp_id;
  job->lid = peer.address.lid;
  job->gid = peer.address.gid;
}

// Takes the next step that the state of its queue pair allows.
void EndpointCore::advance_rc(Peer& peer) {
  if (peer.rc_job != nullptr || peer.lost) return;
  if (peer.receive_state == ReceiveState::preparing) send_request(peer);
  if (!peer.rc) return;  // the request failed
  if (peer.remote_qp_id != 0 && peer.rc->connected_to() != peer.remote_qp_id) {
    // Of an earlier connection: everything has arrived, or the peer would not have released it.
    for (const SendRecord& record : peer.rc->take_all()) retire(record);
    unpost_private_receives(*peer.rc);
    auto job = job_of(&peer, std::move(peer.rc));
    connect_with(job.get(), peer, peer.remote_qp_id);
    start_job(std::move(job));
    return;
  }
  peer.remote_qp_id = 0;
  post_private_receives(peer);
  if (peer.send_state == SendState::preparing) send_accept(peer);
  if (peer.receive_state == ReceiveState::connecting) send_ready(peer);
}

// Creating or connecting it failed.
void EndpointCore::rc_failed(Peer& peer, const Status& status) {
  peer.remote_qp_id = 0;
  if (peer.send_state == SendState::preparing) {
    peer.send_state = SendState::steady;
    answer_refusal(peer, refusal_of(peer, status));
  }
  if (peer.receive_state == ReceiveState::preparing) {
    peer.receive_state = ReceiveState::steady;
    drop_new_ring(peer);
    request_failed(peer, status);
  } else if (peer.receive_state == ReceiveState::connecting) {
    send_closed(peer);
    peer.receive_state = ReceiveState::steady;
    drop_new_ring(peer);
    decided(peer, fmt::format("failed: {}", status.text()));
  }
  drop_rc_if_unused(peer);
}

bool EndpointCore::pump_jobs() {
  bool moved = false;
  while (auto done = background_->done()) {
    moved = true;
    --jobs_;
    auto& job = static_cast<SetupJob&>(*done);
    switch (job.of) {
      case SetupJob::Of::pair:
        end_job(static_cast<RcJob&>(job));
        break;
      case SetupJob::Of::link:
        end_xrc_job(static_cast<RcJob&>(job));
        break;
      case SetupJob::Of::target:
        end_target_job(static_cast<XrcTargetJob&>(job));
        break;
    }
  }
  return moved;
}

void EndpointCore::end_job(RcJob& job) {
  if (job.after != RcJob::After::use) {
    --resetting_rc_;
    if (job.chosen_at != 0) eviction_.freed(job.chosen_at, clock_.now());
    if (job.after == RcJob::After::pool && job.status.ok()) {
      release_private_receives(*job.queue);
      rc_pool_.push_back(std::move(job.queue));
    } else {
      forget_rc(std::move(job.queue));
    }
    serve_slot_waiters();
    return;
  }
  if (job.make && job.queue->qp() != nullptr) placement_.ask_rc(*job.queue, *device_);
  if (job.peer == nullptr) {  // lost meanwhile, see discard_rc()
    --resetting_rc_;
    put_away(std::move(job.queue), 0);
    return;
  }
  Peer& peer = *job.peer;
  peer.rc_job = nullptr;
  if (job.queue->qp() == nullptr) {
    --active_rc_;
    forget_rc(std::move(job.queue));
  } else {
    peer.rc = std::move(job.queue);
  }
  if (!job.status.ok()) {
    TURNOUT_LOG(connection, warn, "RC connection failed: {}: {}; the pair continues without it",
                peer.address.to_string(), job.status.text());
  }
  if (job.fail) {
    on_queue_pair_stopped(peer);
  } else if (job.status.ok()) {
    if (job.remote_qp_id != 0) eviction_.made(peer.eviction, clock_.now());
    advance_rc(peer);
  } else {
    rc_failed(peer, job.status);
  }
}

// Returns it to the pool if it can be RESET and the pool has room.
void EndpointCore::put_away(std::unique_ptr<RcQueue> queue, Nanoseconds chosen_at) {
  if (queue->qp() == nullptr) {
    forget_rc(std::move(queue));
    return;
  }
  auto job = job_of(nullptr, std::move(queue));
  job->chosen_at = chosen_at;
  const bool room = rc_pool_.size() + resetting_rc_ < settings_.rc_pool;
  job->after = room ? RcJob::After::pool : RcJob::After::nothing;
  ++resetting_rc_;
  start_job(std::move(job));
}

// Removes the queue pair from the peer.
void EndpointCore::discard_rc(Peer& peer) {
  --active_rc_;
  peer.remote_qp_id = 0;
  const Nanoseconds chosen_at = eviction_.gone(peer.eviction);
  close_private_receives(peer, peer.rc_job != nullptr ? *peer.rc_job->queue : *peer.rc);
  if (peer.rc_job != nullptr) {  // see end_job()
    peer.rc_job->peer = nullptr;
    peer.rc_job = nullptr;
    ++resetting_rc_;
    return;
  }
  std::unique_ptr<RcQueue> queue = std::move(peer.rc);
  for (const SendRecord& record : queue->take_all()) {
    if (record.kind == SendRecord::Kind::transfer) {
      on_transfer_done(*record.transfer, peer.loss);
    } else {
      retire(record);
    }
  }
  put_away(std::move(queue), chosen_at);
}

void EndpointCore::drop_rc_if_unused(Peer& peer) {
  if (!peer.rc || peer.rc_job != nullptr || over_rc(peer.receive_kind) ||
      peer.receive_state != ReceiveState::steady || peer.send_uses_rc ||
      peer.send_state != SendState::steady || over_rc(peer.send_kind)) {
    return;
  }
  discard_rc(peer);
}

}  // namespace turnout
