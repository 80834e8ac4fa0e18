// SPDX-License-Identifier: BSD-3-Clause
// Recovery: the state of a pair while its failed connection is recovered
// (channels/connection_recovery.cpp).
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
  // Our messages that may not have been delivered, oldest first, and the bytes of inline ones.
  std::vector<SendRecord> records;
  std::shared_ptr<const SentLog> log;  // shared if the connection served several peers
  std::size_t at = 0;                  // index of the next to resend

  bool dead = false;       // our queue pair has stopped, and `error` was sent
  bool peer_dead = false;  // the peer's has stopped too
  bool reported = false;   // our `replay` was sent
  bool asked = false;      // the peer's `replay` arrived: resend all from `from`
  bool flushing = false;   // resent into the peer's ring, writes not complete yet
  bool flushed = false;
  bool sent = false;           // everything was resent, and `resumed` sent
  bool heard = false;          // the peer's `resumed` arrived
  bool ring_unlisted = false;  // our ring is not polled

  std::uint32_t acknowledged = 0;  // the peer knows that earlier messages arrived
  std::uint32_t from = 0;
  std::uint32_t controls = 0;  // leading messages into private receives of `records` that arrived
};

}  // namespace turnout
