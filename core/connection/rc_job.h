// RcJob: an RC queue pair being made, connected, failed, reset or destroyed beside the program, see
// core/background.h. It owns the queue pair until it comes back. What it reads besides, the device,
// the queues and the tuning, outlives it and does not change.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "core/background.h"
#include "core/channel/rc_queue.h"
#include "core/clock.h"

namespace turnout {

struct Peer;

struct RcJob final : Background::Job {
  enum class After : std::uint8_t { use, pool, nothing };  // what becomes of it

  std::unique_ptr<RcQueue> queue;
  Peer* peer = nullptr;  // null: nobody's any more
  After after = After::use;
  Nanoseconds chosen_at = 0;  // after a tear-down that we chose: when
  bool make = false;
  bool fail = false;             // to the error state, so that nothing arrives over it any more
  std::uint32_t connect_to = 0;  // number of the peer's queue pair; 0: stays unconnected
  std::uint16_t lid = 0;
  std::array<std::uint8_t, 16> gid{};
  const verbs::Device* device = nullptr;  // of what is made
  ibv_cq* cq = nullptr;
  ibv_cq* receive_cq = nullptr;
  ibv_srq* srq = nullptr;  // null: a receive queue of its own, of `receives`
  std::uint32_t receives = 0;
  std::uint32_t depth = 0;
  QpTuning tuning;
  Status status;

  void run() override {
    if (make) status = queue->create(*device, cq, receive_cq, srq, receives, depth, tuning);
    if (status.ok() && connect_to != 0) status = queue->connect(connect_to, lid, gid);
    if (fail) status = queue->fail();
    if (after == After::pool) status = queue->reset();
    if (after == After::nothing) queue->destroy();
  }
};

}  // namespace turnout
