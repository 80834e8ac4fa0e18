// SPDX-License-Identifier: BSD-3-Clause
// UdReliability: makes a reliable data stream and reliable control messages from datagrams of one
// peer: unacknowledged messages, owed acknowledgements, retransmission timers.
//
// Data use the stream's sequence numbers (wire::Header). The receiver keeps out-of-order messages,
// so acknowledgements are cumulative and selective, and the sender frees the buffers of messages
// kept there. Credits bound the number; each message stays in its send buffer. Control messages
// have separate sequence numbers; out-of-order ones are dropped, so everything from the first
// missing one is sent again. They are copied here, because a buffer pool full of unacknowledged
// messages could block the acknowledgements; at most kControlWindow are in flight.
//
// Times are nanoseconds, passed in. Round-trip estimate and back-off follow RFC 6298. Owner: the
// peer's record; one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "core/memory/buffer_pool.h"
#include "core/time/clock.h"
#include "core/transport/wire.h"
#include "core/types/growing_queue.h"

namespace turnout {

// a comes before b in a sequence that wraps.
[[nodiscard]] constexpr bool before(std::uint32_t a, std::uint32_t b) noexcept {
  return static_cast<std::int32_t>(a - b) < 0;
}

class RoundTrip {
 public:
  void sample(Nanoseconds taken) noexcept {
    taken = std::max<Nanoseconds>(taken, 1);
    if (smooth_ == 0) {
      smooth_ = taken;
      spread_ = taken / 2;
      return;
    }
    spread_ += (std::abs(smooth_ - taken) - spread_) / 4;
    smooth_ += (taken - smooth_) / 8;
  }
  // Time until the retransmission number `backoff`.
  [[nodiscard]] Nanoseconds timeout(unsigned backoff) const noexcept {
    const Nanoseconds once = smooth_ == 0 ? kFirst : std::max(kLeast, smooth_ + 4 * spread_);
    return std::min(kMost, std::min(once, kMost) << std::min(backoff, 10u));
  }

 private:
  // The first guess covers a peer that shares its core with others. The least one is above
  // UdReliability::kAckDelay; the longest bounds how late a peer is that ran out of receives.
  static constexpr Nanoseconds kFirst = 10'000'000, kLeast = 1'000'000, kMost = 200'000'000;
  Nanoseconds smooth_ = 0, spread_ = 0;  // 0: no sample yet
};

struct UdReliability {
  static constexpr std::size_t kControlWindow = 16;
  static constexpr Nanoseconds kAckDelay = 100'000;

  struct Sent {
    std::uint32_t sequence = 0;
    std::uint32_t buffer = kNoBuffer;  // none: the peer has the message
    std::uint32_t length = 0;
  };
  struct Control {
    wire::ControlMessage message;
    bool credit = false;  // on the credit queue pair, else establishment
  };

  // Processes the acknowledgement of our stream, whose next message is `next`; calls
  // release(buffer) for each acknowledged message. True if it acknowledges anything new.
  template <class Release>
  bool take_data_ack(const wire::Datagram& datagram, std::uint32_t next, Release&& release) {
    if (before(next, datagram.data_ack)) return false;  // never sent
    bool moved = false;
    const auto done = [&](Sent& message) {
      if (message.buffer == kNoBuffer) return;
      release(message.buffer);
      message.buffer = kNoBuffer;
      --outstanding;
      moved = true;
    };
    while (!sent.empty() && before(sent[0].sequence, datagram.data_ack)) {
      done(sent[0]);
      sent.pop_front();
    }
    for (std::size_t i = 0; datagram.sack != 0 && i < sent.size(); ++i) {
      const std::uint32_t ahead = sent[i].sequence - datagram.data_ack;
      if (ahead >= 32) break;
      if ((datagram.sack >> ahead & 1u) != 0) done(sent[i]);
    }
    return moved;
  }
  bool take_control_ack(std::uint32_t ack) noexcept {
    bool moved = false;
    while (control_sent > 0 && before(control_first, ack)) {
      control.pop_front();
      --control_sent;
      ++control_first;
      moved = true;
    }
    return moved;
  }
  // A message sent here for the first time; one resent after a failure may have a lower sequence.
  void keep(const Sent& message) {
    sent.push_back(message);
    for (std::size_t i = sent.size() - 1; i > 0 && before(message.sequence, sent[i - 1].sequence);
         --i) {
      std::swap(sent[i], sent[i - 1]);
    }
    ++outstanding;
  }

  // A retransmission is due if no acknowledgement arrives.
  [[nodiscard]] bool waits() const noexcept {
    return outstanding > 0 || control_sent > 0 || probing;
  }
  // The peer has acknowledged everything.
  [[nodiscard]] bool settled() const noexcept { return outstanding == 0 && control.empty(); }

  // us -> peer
  GrowingQueue<Sent> sent;  // in the order of their sequence
  std::size_t outstanding = 0;
  GrowingQueue<Control> control;
  std::size_t control_sent = 0;     // the first of them are in flight
  std::uint32_t control_first = 0;  // sequence of control[0]
  // Already retransmitted because the peer reported later messages.
  bool resent_data = false, resent_control = false;
  std::uint32_t resent_sequence = 0, resent_control_sequence = 0;
  RoundTrip round_trip;
  bool timed = false;  // a round trip is being measured
  std::uint32_t timed_sequence = 0;
  Nanoseconds timed_at = 0;

  // peer -> us
  std::uint32_t control_expected = 0;
  bool replied_to_wireup = false;  // its wire-up request was replied to
  bool owes_ack = false;
  bool control_gap = false;
  Nanoseconds ack_at = 0;

  Nanoseconds due = 0;  // 0: no timer
  Nanoseconds silent_since = 0;
  unsigned backoff = 0;
  bool heard = false;    // since `due` was set
  bool probing = false;  // requests an acknowledgement
  bool listed = false;   // in the endpoint's list
};

}  // namespace turnout
