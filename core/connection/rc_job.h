// SPDX-License-Identifier: BSD-3-Clause
// Background jobs (core/time/background.h). RcJob creates, connects, fails, resets or destroys an
// RC queue pair or XRC initiator; XrcTargetJob creates, opens, fails or closes a handle of an XRC
// target; RingJob registers or deregisters the memory of a ring. A job owns the object it works on
// until it returns. The device, the domain, the queues and the tuning that it reads outlive it and
// do not change.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/time/background.h"
#include "core/time/clock.h"
#include "core/transport/placement.h"
#include "core/transport/rc_queue.h"
#include "core/transport/ring.h"
#include "core/transport/xrc_target.h"

namespace turnout {

struct Peer;
struct XrcConnection;

// What pump_jobs() gets back.
struct SetupJob : Background::Job {
  enum class Of : std::uint8_t { pair, link, target, ring };
  explicit SetupJob(Of what) noexcept : of(what) {}
  const Of of;
  Status status;
};

struct RcJob final : SetupJob {
  RcJob() : SetupJob(Of::pair) {}
  explicit RcJob(XrcConnection* to) : SetupJob(Of::link), link(to) {}

  enum class After : std::uint8_t { use, pool, nothing };  // what becomes of it

  std::unique_ptr<RcQueue> queue;
  Peer* peer = nullptr;           // null: nobody's any more
  XrcConnection* link = nullptr;  // the same, of an XRC initiator
  After after = After::use;
  Nanoseconds chosen_at = 0;  // after a tear-down that we chose: when
  bool make = false;
  bool prepare = false;            // unconnected, so that connect() takes less
  bool fail = false;               // to the error state, so that nothing arrives over it any more
  bool asks = false;               // how what arrives over it is placed
  std::optional<bool> in_order;    // the answer
  std::uint32_t remote_qp_id = 0;  // of the peer's queue pair; 0: stays unconnected
  std::uint16_t lid = 0;
  std::array<std::uint8_t, 16> gid{};
  const verbs::Device* device = nullptr;  // of what is made
  ibv_cq* cq = nullptr;
  ibv_cq* receive_cq = nullptr;
  ibv_srq* srq = nullptr;  // null: a private receive queue, of `receives`
  std::uint32_t receives = 0;
  std::uint32_t depth = 0;
  QpTuning tuning;

  void run() override {
    if (make) {
      status = of == Of::link
                   ? queue->create_initiator(*device, cq, depth, tuning)
                   : queue->create(*device, cq, receive_cq, srq, receives, depth, tuning);
      if (status.ok() && asks) in_order = Placement::ask_rc(*queue, *device);
    }
    if (status.ok() && remote_qp_id != 0) status = queue->connect(remote_qp_id, lid, gid);
    if (fail) status = queue->fail();
    if (after == After::pool && !make) status = queue->reset();
    if (status.ok() && prepare) status = queue->prepare();
    if (after == After::nothing) queue->destroy();
  }
  // What a pair waits for, then what is made for later.
  [[nodiscard]] int rank() const noexcept override {
    return prepare && after != After::use ? 1 : 0;
  }
};

struct XrcTargetJob final : SetupJob {
  enum class Step : std::uint8_t { make, open, fail, close };
  XrcTargetJob(Peer* of, Step what) : SetupJob(Of::target), peer(of), step(what) {}

  XrcTarget target;
  Peer* peer;  // whose initiator it is connected with; null: nobody waits for it
  Step step;
  XrcInitiator initiator;
  std::uint32_t number = 0;  // of what is opened
  const verbs::Device* device = nullptr;
  const XrcDomain* domain = nullptr;
  QpTuning tuning;

  void run() override {
    switch (step) {
      case Step::make:
        status = target.make(*device, *domain, initiator, tuning);
        break;
      case Step::open:
        status = target.open(*device, *domain, number, initiator);
        break;
      case Step::fail:
        status = target.fail();
        target.close();
        break;
      case Step::close:
        target.close();
        break;
    }
    if (!status.ok()) target.close();
  }
};

// Of a ring for any peer; what is reserved for it is released by the endpoint's thread.
struct RingJob final : SetupJob {
  RingJob() : SetupJob(Of::ring) {}

  std::unique_ptr<RingReceiver> ring;  // null: it is made
  Reservation reserved;
  RingShape shape;
  const verbs::Device* device = nullptr;

  void run() override {
    if (ring) return ring->deregister();
    auto made = RingReceiver::create(*device, std::move(reserved), shape);
    if (made) {
      ring = std::make_unique<RingReceiver>(std::move(made).value());
    } else {
      status = made.status();
    }
  }
  [[nodiscard]] int rank() const noexcept override { return -1; }  // microseconds
};

}  // namespace turnout
