// SPDX-License-Identifier: BSD-3-Clause
#include "core/channels/ring_pool.h"

namespace turnout {
namespace {
// Kept ready while three times as many would find room.
constexpr std::size_t kSpare = 4;
}  // namespace

// Within the budget; frees an idle queue pair for the next one if needed.
Reservation RingPool::reserve(RingShape shape) {
  Reservation reserved =
      RingReceiver::reserve(context_.account, shape, peer_table_.reserved_headroom());
  if (!reserved && context_.traits.uses_feedback) jobs_.free_idle();
  return reserved;
}

Status RingPool::want_ring(Peer& peer) {
  const RingShape shape = peer_table_.ring_shape();
  std::vector<std::unique_ptr<RingReceiver>>& spare = resources_.spare_rings;
  while (!spare.empty()) {
    std::unique_ptr<RingReceiver> ring = std::move(spare.back());
    spare.pop_back();
    if (ring->shape() != shape) continue;
    peer.state.make().rx.ring = std::move(ring);
    fill();
    return {};
  }
  Reservation reserved = reserve(shape);
  if (!reserved) return {Code::over_budget, "no memory within the budget for a ring"};
  if (!context_.traits.prepares) {
    auto ring = RingReceiver::create(*context_.device, std::move(reserved), shape);
    if (!ring) return ring.status();
    peer.state.make().rx.ring = std::make_unique<RingReceiver>(std::move(ring).value());
    return {};
  }
  waiting_.push_back(peer.id);
  make_ring(std::move(reserved), shape);
  fill();
  return {};
}

void RingPool::make_ring(Reservation&& reserved, RingShape shape) {
  auto job = std::make_unique<RingJob>();
  job->reserved = std::move(reserved);
  job->shape = shape;
  job->device = context_.device;
  ++making_;
  jobs_.start(std::move(job));
}

void RingPool::fill() {
  const RingShape shape = peer_table_.ring_shape();
  while (context_.traits.uses_feedback && !context_.closing &&
         resources_.spare_rings.size() + making_ < kSpare + waiting_.size() &&
         peer_table_.room_for_channels() >= 3 * kSpare * shape.bytes()) {
    Reservation reserved =
        RingReceiver::reserve(context_.account, shape, peer_table_.reserved_headroom());
    if (!reserved) return;
    make_ring(std::move(reserved), shape);
  }
}

Peer* RingPool::end_job(RingJob& job) {
  if (job.shape.entries == 0) return nullptr;  // deregistered, and released with the job
  --making_;
  while (!waiting_.empty()) {
    Peer& peer = peer_table_.peers()[waiting_.front()];
    waiting_.pop_front();
    // Meanwhile it may be lost, or have asked again and wait farther behind.
    if (peer.lost || peer.rx.state != ReceiveState::preparing || peer.state->rx.ring) continue;
    if (job.ring) peer.state.make().rx.ring = std::move(job.ring);
    return &peer;
  }
  if (job.ring) resources_.spare_rings.push_back(std::move(job.ring));
  return nullptr;
}

void RingPool::put_away(std::unique_ptr<RingReceiver> ring) {
  if (!context_.traits.prepares || context_.closing) return;
  if (context_.traits.uses_feedback && resources_.spare_rings.size() < kSpare) {
    ring->reset();
    resources_.spare_rings.push_back(std::move(ring));
    return;
  }
  jobs_.deregister(std::move(ring));
}

}  // namespace turnout
