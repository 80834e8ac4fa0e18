// SPDX-License-Identifier: BSD-3-Clause
// RC queue pairs: creating, connecting and resetting them, all in the background. One job of a pair
// runs at a time.
#include "core/channels/rc_pool.h"
#include "base/log.h"

namespace turnout {
namespace {
// A new connection is requested one set-up time after a failure; twice as long after each
// successive connection that carried fewer messages than this, up to 1,024 times.
constexpr std::uint64_t kServed = 16;
constexpr std::uint32_t kMostDoublings = 10;
constexpr std::size_t kPrepared = 2;  // one is connected while another one is made
}  // namespace

// Within the budget; frees idle queue pairs if needed.
bool RcPool::reserve_rc() {
  while (!context_.account.reserve(MemoryKind::queue_pairs, context_.rc_bytes,
                                   peer_table_.reserved_headroom(), 1)) {
    if (!resources_.spare_rings.empty()) {
      free_spare_rings();
      continue;
    }
    if (resources_.rc_pool.empty()) return false;
    forget_rc(std::move(resources_.rc_pool.back()));
    resources_.rc_pool.pop_back();
  }
  return true;
}

// Jobs of rings run before those of queue pairs, which may have the room now.
void RcPool::free_spare_rings() {
  for (std::unique_ptr<RingReceiver>& ring : resources_.spare_rings) {
    ring->give_back();
    deregister(std::move(ring));
  }
  resources_.spare_rings.clear();
}

void RcPool::deregister(std::unique_ptr<RingReceiver> ring) {
  auto job = std::make_unique<RingJob>();
  job->ring = std::move(ring);
  start(std::move(job));
}

void RcPool::free_idle() {
  if (resources_.rc_pool.empty()) return;
  auto job = job_of(nullptr, std::move(resources_.rc_pool.back()));
  resources_.rc_pool.pop_back();
  job->after = RcJob::After::nothing;
  ++resetting_rc_;
  start_job(std::move(job));
}

// While three times as many would find room.
void RcPool::fill_pool() {
  while (context_.traits.uses_feedback && !context_.traits.has_private_receives &&
         !context_.closing && resources_.rc_pool.size() + resetting_rc_ < kPrepared &&
         active_rc_ + resetting_rc_ + resources_.rc_pool.size() < connection_slots() &&
         peer_table_.room_for_channels() >= 3 * kPrepared * context_.rc_bytes) {
    if (!reserve_rc()) return;
    auto job = job_of(nullptr, nullptr);
    add_queue(job.get());
    --active_rc_;
    ++resetting_rc_;
    job->receive_cq = resources_.receive_cq.get();
    job->srq = resources_.data_srq.get();
    job->after = RcJob::After::pool;
    job->prepare = true;
    start_job(std::move(job));
  }
}

// Frees its slot and its bytes.
void RcPool::forget_rc(std::unique_ptr<RcQueue> queue) {
  queue->destroy();
  private_receives_.release_private_receives(*queue);
  resources_.credit_words.give_back(queue->credit_word);
  resources_.queues[queue->id()] = nullptr;
  queue_epochs_[queue->id()] = static_cast<std::uint8_t>(queue->epoch() + 1);
  free_queue_ids_.push_back(queue->id());
  queue.reset();
  context_.account.release(MemoryKind::queue_pairs, context_.rc_bytes, 1);
}

std::unique_ptr<RcJob> RcPool::job_of(Peer* peer, std::unique_ptr<RcQueue> queue) {
  auto job = std::make_unique<RcJob>();
  job->peer = peer;
  job->queue = std::move(queue);
  return job;
}

void RcPool::start_job(std::unique_ptr<RcJob> job) {
  if (job->peer != nullptr) job->peer->connect().rc_job = job.get();
  start(std::move(job));
}

void RcPool::start(std::unique_ptr<SetupJob> job) {
  ++jobs_;
  context_.pending.add(Pending::setup_jobs);
  background_->start(std::move(job));
}

std::unique_ptr<SetupJob> RcPool::finished_job() {
  std::unique_ptr<Background::Job> done = background_->done();
  if (done != nullptr) --jobs_;
  return std::unique_ptr<SetupJob>(static_cast<SetupJob*>(done.release()));
}

// The pair has a queue pair, or a job creates one: advance_rc() continues with it.
Status RcPool::want_rc(Peer& peer) {
  if (peer.connection->has_rc()) return {};
  if (!resources_.rc_pool.empty()) {
    peer.connect().rc = std::move(resources_.rc_pool.back());
    peer.connect().rc->credit_word.clear();
    resources_.rc_pool.pop_back();
    ++active_rc_;
    return {};
  }
  if (!may_make_rc()) {
    return {Code::again, "RC queue pair limit reached (rc_pool in TURNOUT_TUNING)"};
  }
  if (!reserve_rc()) return {Code::over_budget, "no memory within the budget for a queue pair"};
  auto job = job_of(&peer, nullptr);
  add_queue(job.get());
  job->receive_cq = resources_.receive_cq.get();
  job->srq = context_.traits.has_private_receives ? nullptr : resources_.data_srq.get();
  job->receives = context_.most_private();
  connect_with(job.get(), peer, peer.connection->remote_qp_id);
  job->prepare = context_.traits.prepares && job->remote_qp_id == 0;
  start_job(std::move(job));
  return {};
}

// A queue pair made by a job; its bytes are reserved.
void RcPool::add_queue(RcJob* job) {
  std::uint32_t id;
  if (free_queue_ids_.empty()) {
    id = static_cast<std::uint32_t>(resources_.queues.size());
    resources_.queues.push_back(nullptr);
  } else {
    id = free_queue_ids_.back();
    free_queue_ids_.pop_back();
  }
  queue_epochs_.resize(resources_.queues.size());
  job->queue = std::make_unique<RcQueue>(id, kQueueDepth, resources_.unsignalled_data,
                                         queue_epochs_[id], ++rc_made_, context_.account);
  resources_.queues[id] = job->queue.get();
  if (context_.traits.writes_credits) {
    job->queue->credit_word = resources_.credit_words.take(*context_.device, context_.account,
                                                           peer_table_.reserved_headroom());
  }
  job->make = true;
  job->asks = context_.traits.prepares && !context_.placement.rc_in_order();
  job->device = context_.device;
  job->cq = resources_.send_cq.get();
  job->depth = kQueueDepth;
  job->tuning = context_.tuning;
  ++active_rc_;
  rc_peak_ =
      std::max<std::uint64_t>(rc_peak_, active_rc_ + resetting_rc_ + resources_.rc_pool.size());
}

// `qp_id`: of the peer, or its node; 0: none yet.
void RcPool::connect_with(RcJob* job, const Peer& peer, std::uint32_t qp_id) {
  job->remote_qp_id = qp_id;
  job->lid = peer.address.port->lid;
  job->gid = peer.address.port->gid;
}

// Returns it to the pool if it can be RESET and the pool has room.
void RcPool::put_away(std::unique_ptr<RcQueue> queue, Nanoseconds chosen_at) {
  if (queue->qp() == nullptr) return forget_rc(std::move(queue));
  auto job = job_of(nullptr, std::move(queue));
  job->chosen_at = chosen_at;
  const bool room = resources_.rc_pool.size() + resetting_rc_ < context_.settings.rc_pool;
  job->after = room ? RcJob::After::pool : RcJob::After::nothing;
  job->prepare = room && context_.traits.prepares;
  ++resetting_rc_;
  start_job(std::move(job));
}

// Removes the queue pair from the peer.
void RcPool::discard_rc(Peer& peer) {
  --active_rc_;
  PeerConnection& connection = peer.connect();
  connection.remote_qp_id = 0;
  connection.credits_rkey = 0;
  const Nanoseconds chosen_at = eviction_.gone(connection.eviction);
  private_receives_.close_private_receives(
      peer, connection.rc_job != nullptr ? *connection.rc_job->queue : *connection.rc);
  if (connection.rc_job != nullptr) {  // see end_job()
    connection.rc_job->peer = nullptr;
    connection.rc_job = nullptr;
    ++resetting_rc_;
    return;
  }
  sender_.take_written_credits(peer);  // its word is somebody else's soon
  std::unique_ptr<RcQueue> queue = std::move(peer.connect().rc);
  const std::vector<SendRecord> records = queue->take_all();
  for (const SendRecord& record : records) {
    if (record.kind == SendRecord::Kind::transfer) {
      events_.on_transfer_done(*record.transfer, peer.state->loss);
    } else {
      events_.retire(record);
    }
  }
  put_away(std::move(queue), chosen_at);
  credits_.repeat_lost(peer, records);
}

void RcPool::drop_rc_if_unused(Peer& peer) {
  if (!peer.connection->rc || peer.connection->rc_job != nullptr || over_rc(peer.rx.kind) ||
      peer.rx.state != ReceiveState::steady || peer.tx.uses_rc ||
      peer.tx.state != SendState::steady || over_rc(peer.tx.kind)) {
    return;
  }
  discard_rc(peer);
}

wire::Refusal RcPool::refusal_of(const Peer& peer, const Status& status) {
  if (status.code() == Code::over_budget) return wire::Refusal::budget;
  if (status.code() == Code::again) return wire::Refusal::limit;
  TURNOUT_LOG(connection, warn, "RC connection failed: {}: {}; the peer's request is refused",
              peer.address.to_string(), status.text());
  return wire::Refusal::device;
}

void RcPool::wait_after_failure(Peer& peer, Nanoseconds now) {
  if (over_connection(peer.rx.kind) && peer.rx.carried.messages >= kServed)
    peer.connect().failures = 0;
  peer.change.make().refused_until =
      now + (eviction_.setup_time() << std::min(peer.connection->failures, kMostDoublings));
  ++peer.connect().failures;
}

}  // namespace turnout
