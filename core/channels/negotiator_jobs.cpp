// SPDX-License-Identifier: BSD-3-Clause
// Which step of a change of channel (J1-J3) waits for which job of the pool, and what follows when
// a job has run. One job of a pair runs at a time.
#include "base/log.h"
#include "core/channels/channel_negotiator.h"

namespace turnout {

// Takes the next step that the state of its queue pair allows.
void ChannelNegotiator::advance_rc(Peer& peer) {
  if (peer.connection->rc_job != nullptr || peer.lost) return;
  if (peer.rx.state == ReceiveState::preparing) send_request(peer);
  if (!peer.connection->rc) return;  // the request failed
  if (peer.connection->remote_qp_id != 0 &&
      peer.connection->rc->connected_to() != peer.connection->remote_qp_id) {
    if (context_.traits.prepares && peer.tx.state == SendState::preparing) {
      send_accept(peer);
      if (!peer.connection->rc) return;  // the endpoint is closing
    }
    // Of an earlier connection: everything has arrived, or the peer would not have released it.
    sender_.take_written_credits(peer);
    const std::vector<SendRecord> records = peer.connection->rc->take_all();
    for (const SendRecord& record : records) events_.retire(record);
    credits_.repeat_lost(peer, records);
    private_receives_.unpost_private_receives(*peer.connection->rc);
    auto job = RcPool::job_of(&peer, std::move(peer.connect().rc));
    RcPool::connect_with(job.get(), peer, peer.connection->remote_qp_id);
    rc_.start_job(std::move(job));
    return;
  }
  peer.connect().remote_qp_id = 0;
  private_receives_.post_private_receives(peer);
  if (peer.tx.state == SendState::preparing) send_accept(peer);
  if (peer.tx.state == SendState::accepted && !over_xrc(peer.change->answer.kind) &&
      peer.change->answer.ready) {
    begin_sending_over_rc(peer);
  }
  if (peer.rx.state == ReceiveState::connecting) send_ready(peer);
  // The peer may have given up meanwhile what it had accepted.
  if (context_.traits.prepares) rc_.drop_rc_if_unused(peer);
}

// A ring was made.
void ChannelNegotiator::end_ring_job(RingJob& job) {
  Peer* const peer = ring_pool_.end_job(job);
  if (peer == nullptr) return;
  if (job.status.ok()) {
    if (over_rc(peer->change->wanted)) {
      advance_rc(*peer);
    } else {
      send_request(*peer);
    }
    return;
  }
  peer->rx.state = ReceiveState::steady;
  events_.request_failed(*peer, job.status);
  rc_.drop_rc_if_unused(*peer);
}

// Creating or connecting it failed.
void ChannelNegotiator::rc_failed(Peer& peer, const Status& status) {
  peer.connect().remote_qp_id = 0;
  if (peer.tx.state == SendState::preparing) {
    peer.tx.state = SendState::steady;
    answer_refusal(peer, RcPool::refusal_of(peer, status));
  } else if (peer.tx.state == SendState::accepted && !over_xrc(peer.change->answer.kind)) {
    peer.tx.state = SendState::steady;
    refuse(peer, peer.change->answer.request, RcPool::refusal_of(peer, status));
  }
  if (peer.rx.state == ReceiveState::preparing) {
    peer.rx.state = ReceiveState::steady;
    drop_new_ring(peer);
    events_.request_failed(peer, status);
  } else if (peer.rx.state == ReceiveState::connecting) {
    send_closed(peer);
    peer.rx.state = ReceiveState::steady;
    drop_new_ring(peer);
    outcomes_.decided(peer, fmt::format("failed: {}", status.text()));
  }
  rc_.drop_rc_if_unused(peer);
}

bool ChannelNegotiator::pump_jobs() {
  bool moved = false, connects = false;
  while (const auto job = rc_.finished_job()) {
    moved = true;
    switch (job->of) {
      case SetupJob::Of::pair: {
        auto& of_pair = static_cast<RcJob&>(*job);
        connects = of_pair.remote_qp_id == 0 && of_pair.after == RcJob::After::use;
        end_job(of_pair);
        break;
      }
      case SetupJob::Of::link:
        xrc_nodes_.end_xrc_job(static_cast<RcJob&>(*job));
        break;
      case SetupJob::Of::ring:
        end_ring_job(static_cast<RingJob&>(*job));
        break;
      case SetupJob::Of::target:
        xrc_nodes_.end_target_job(static_cast<XrcTargetJob&>(*job));
        break;
    }
  }
  // Not while the latest one waits for its peer's, to be connected at once.
  if (moved && !connects && rc_.jobs() == 0 && rc_.active_rc() > 0) rc_.fill_pool();
  return moved;
}

void ChannelNegotiator::end_job(RcJob& job) {
  if (job.make && job.queue->qp() != nullptr && !context_.placement.rc_in_order()) {
    context_.placement.set_rc(job.in_order ? *job.in_order
                                           : Placement::ask_rc(*job.queue, *context_.device));
  }
  if (job.after != RcJob::After::use) {
    rc_.count_reset_end();
    if (job.chosen_at != 0) eviction_.freed(job.chosen_at, context_.clock.now());
    if (job.after == RcJob::After::pool && job.status.ok()) {
      private_receives_.release_private_receives(*job.queue);
      resources_.rc_pool.push_back(std::move(job.queue));
    } else {
      rc_.forget_rc(std::move(job.queue));
    }
    slots_.serve_slot_waiters();
    return;
  }
  if (job.peer == nullptr) {  // lost meanwhile, see discard_rc()
    rc_.count_reset_end();
    rc_.put_away(std::move(job.queue), 0);
    return;
  }
  Peer& peer = *job.peer;
  peer.connect().rc_job = nullptr;
  if (job.queue->qp() == nullptr) {
    rc_.count_inactive();
    rc_.forget_rc(std::move(job.queue));
  } else {
    peer.connect().rc = std::move(job.queue);
  }
  if (!job.status.ok()) {
    TURNOUT_LOG(connection, warn, "RC connection failed: {}: {}; the pair continues without it",
                peer.address.to_string(), job.status.text());
  }
  if (job.fail) {
    events_.on_queue_pair_stopped(peer);
  } else if (job.status.ok()) {
    if (job.remote_qp_id != 0) eviction_.made(peer.connect().eviction, context_.clock.now());
    advance_rc(peer);
  } else {
    rc_failed(peer, job.status);
  }
}

// No target is available for the accepted request.
void ChannelNegotiator::target_failed(Peer& peer, const Status& status) {
  TURNOUT_LOG(connection, info, "XRC connection failed: {}: {}", peer.address.to_string(),
              status.text());
  send_closed(peer);
  peer.rx.state = ReceiveState::steady;
  drop_new_ring(peer);
  events_.request_failed(peer, status);
  // Another request would fail too, while the two processes see different domains.
  const Nanoseconds now = context_.clock.now();
  rc_.wait_after_failure(peer, now);
  peer.change.make().refused_until =
      std::max(peer.change->refused_until, now + kDecisionsRefused * context_.settings.interval);
  XrcConnections::drop_if_idle(peer);
}

}  // namespace turnout
