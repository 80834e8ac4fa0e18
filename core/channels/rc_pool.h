// SPDX-License-Identifier: BSD-3-Clause
// RcPool: RC queue pairs: how many there may be, those that are made and unconnected, and those
// that are being made, connected or reset by jobs in the background. Source: [AQPS 4.2].
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include <cassert>

#include "core/connection/rc_job.h"
#include "core/messaging/messaging.h"
#include "core/time/background.h"

namespace turnout {

class RcPool : MessagingUser {
 public:
  RcPool(EndpointState& state, Messaging& messaging, std::unique_ptr<Background> background)
      : MessagingUser(state, messaging), background_(std::move(background)) {}

  [[nodiscard]] static wire::Refusal refusal_of(const Peer& peer, const Status& status);
  // The maximum number of queue pairs.
  [[nodiscard]] std::uint64_t connection_slots() const noexcept {
    return std::max(context_.settings.rc_pool, context_.settings.max_active_rc);
  }
  // "It stops creating RC-QPs after creating 128 of them" [AQPS 4.2]: queue pairs that a
  // peer has not released yet count too.
  [[nodiscard]] bool may_make_rc() const noexcept {
    return active_rc_ + resetting_rc_ < connection_slots();
  }
  [[nodiscard]] bool reserve_rc();
  // Frees the memory of an idle queue pair soon, if there is one: destroying it takes long.
  void free_idle();
  // Soon, and then destroys it: that takes the program's processor as long as registering it did.
  void deregister(std::unique_ptr<RingReceiver> ring);
  // Makes queue pairs beforehand, so that the next ones need only be connected.
  void fill_pool();
  void forget_rc(std::unique_ptr<RcQueue> queue);
  [[nodiscard]] static std::unique_ptr<RcJob> job_of(Peer* peer, std::unique_ptr<RcQueue> queue);
  void start_job(std::unique_ptr<RcJob> job);
  // Any job of a set-up: of a pair, a connection to a node, or its target.
  void start(std::unique_ptr<SetupJob> job);
  // The next job that has run; null: none has.
  [[nodiscard]] std::unique_ptr<SetupJob> finished_job();
  [[nodiscard]] Status want_rc(Peer& peer);
  void add_queue(RcJob* job);
  static void connect_with(RcJob* job, const Peer& peer, std::uint32_t qp_id);
  // `chosen_at`: when we chose it for eviction; else 0.
  void put_away(std::unique_ptr<RcQueue> queue, Nanoseconds chosen_at);
  void discard_rc(Peer& peer);
  void drop_rc_if_unused(Peer& peer);
  void wait_after_failure(Peer& peer, Nanoseconds now);
  [[nodiscard]] std::uint32_t active_rc() const noexcept { return active_rc_; }
  [[nodiscard]] std::uint32_t resetting_rc() const noexcept { return resetting_rc_; }
  [[nodiscard]] std::uint32_t jobs() const noexcept { return jobs_; }
  [[nodiscard]] std::uint64_t rc_peak() const noexcept { return rc_peak_; }
  // A queue pair is in use no more, its reset has begun, has ended.
  void count_inactive() noexcept { --active_rc_; }
  void count_reset() noexcept { ++resetting_rc_; }
  void count_reset_end() noexcept {
    assert(resetting_rc_ > 0);
    --resetting_rc_;
  }

 private:
  void free_spare_rings();

  std::vector<std::uint32_t> free_queue_ids_;
  std::vector<std::uint8_t> queue_epochs_;  // first epoch of the next queue pair with an id
  std::uint32_t active_rc_ = 0;
  std::uint32_t resetting_rc_ = 0;          // released by their peers, not in the pool yet
  std::uint32_t jobs_ = 0;                  // in progress
  std::uint64_t rc_peak_ = 0;               // maximum number at one time
  std::uint8_t rc_made_ = 0;                // count, modulo 256: the generation of the QP id
  std::unique_ptr<Background> background_;  // last, so destroyed first: its jobs use the device
};

}  // namespace turnout
