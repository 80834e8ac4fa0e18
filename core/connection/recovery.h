// SPDX-License-Identifier: BSD-3-Clause
// Recovery: the state of a pair while its failed connection is recovered (recovery.cpp).
//
// Attached to the peer's record from the failure until both directions resume; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/transport/send_queue.h"
#include "core/transport/sent_log.h"

namespace turnout {

struct Recovery {
  // Messages of ours that the queue pair was not seen to deliver, oldest first, and the bytes of
  // those that were inline.
  std::vector<SendRecord> records;
  std::shared_ptr<const SentLog> log;  // others' too, of a connection that served several peers
  std::size_t at = 0;                  // the next of them to look at

  bool dead = false;       // our end takes and sends nothing any more: the peer was told
  bool peer_dead = false;  // nor does the peer's
  bool reported = false;   // the peer, what has come here
  bool asked = false;      // by the peer, what it lacks: all from `from`
  bool flushing = false;   // it was sent into the peer's ring, and is not known to lie there yet
  bool flushed = false;
  bool sent = false;           // it was sent, and the peer told so
  bool heard = false;          // the peer said the same
  bool ring_unlisted = false;  // our ring is not looked into

  std::uint32_t acknowledged = 0;  // the peer knows that its messages before this one are here
  std::uint32_t from = 0;
  std::uint32_t controls =
      0;  // of ours in `records`, into its private receives, the next so many came
};

}  // namespace turnout
