// SPDX-License-Identifier: BSD-3-Clause
// XrcConnection: this process's XRC connection to a node, over which it writes into the rings of
// all processes there (channels/xrc_connections.cpp); and PeerXrc, one peer's part in such
// connections.
//
// Owned by the endpoint: one XrcConnection per node in use, one PeerXrc per peer that takes part;
// one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/connection/recovery.h"
#include "core/memory/account.h"
#include "core/time/clock.h"
#include "core/transport/rc_queue.h"
#include "core/transport/xrc_target.h"

namespace turnout {

struct Peer;
struct RcJob;
struct XrcTargetJob;

// A node is identified by its port: its processes share the adapter.
using NodeKey = std::pair<std::uint16_t, std::array<std::uint8_t, 16>>;  // lid, gid

struct XrcConnection {
  NodeKey node;
  std::unique_ptr<RcQueue> queue;  // the initiator; null while a job has it
  RcJob* job = nullptr;
  std::uint32_t target = 0;  // number of the target at the node; 0: none yet
  Nanoseconds asked_at = 0;  // when `asked` was set
  Peer* asked = nullptr;     // the peer that was asked to create the target
  std::vector<Peer*> users;  // reference count: peers that wait, and peers written to
};

struct PeerXrc {
  Reservation record;  // its bytes

  // us -> peer
  XrcConnection* link = nullptr;   // the connection it uses
  std::uint32_t srq = 0;           // number of its XRC receive queue
  std::unique_ptr<Recovery> lost;  // lost messages, while the failed link is recovered

  // peer -> us
  XrcTarget target;   // our handle; empty while a job has it
  Reservation bytes;  // if we made it
  XrcTargetJob* job = nullptr;
  bool failed = false;         // the peer reported that its connection failed
  bool reported = false;       // our replay request was sent
  bool ring_unlisted = false;  // our ring is not polled

  [[nodiscard]] bool idle() const noexcept {
    return link == nullptr && lost == nullptr && !target && job == nullptr && !failed;
  }
};

}  // namespace turnout
