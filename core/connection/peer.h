// SPDX-License-Identifier: BSD-3-Clause
// Peer: the state of one remote endpoint that sent a message or that the caller named.
//
// One record per such peer, nothing for others (design.md). Ring, RC queue pair and history are
// allocated only while in use. Owned by the endpoint; one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/connection/eviction.h"
#include "core/connection/feedback_counter.h"
#include "core/flow/srq_flow_control.h"
#include "core/flow/ud_reliability.h"
#include "core/protocol/atomics.h"
#include "core/protocol/operation.h"
#include "core/protocol/rendezvous.h"
#include "core/report/report.h"
#include "core/selection/policy.h"
#include "core/transport/rc_queue.h"
#include "core/transport/ring.h"
#include "core/types/address.h"

namespace turnout {

struct PeerXrc;
struct RcJob;
struct Recovery;

// The direction peer -> us, whose channel we choose (AQPS: we are the initiator).
enum class ReceiveState : std::uint8_t {
  steady,      // on `Peer::receive_kind`
  preparing,   // what the request needs is being made
  requested,   // J1 sent, waiting for accept, switched or refuse
  connecting,  // accepted; our queue pair is being connected
  accepted,    // J3 sent, waiting for the peer's switch
  closing,     // asked the peer to leave the RC queue pair, or the ring
  draining,    // it has; messages or operations are still under way on what it left
  broken,      // the connection failed: until the peer says over what it goes on
};

// The direction us -> peer, which we change when the peer asks (we are the responder).
enum class SendState : std::uint8_t {
  steady,     // on `Peer::send_kind`
  preparing,  // asked; our queue pair is being made and connected
  accepted,   // J2 sent, waiting for ready
  flushing,   // about to switch: what was sent has to be in its receives first
  broken,     // the connection failed: until what the peer lacks was sent again
};

// Whether and how the ring is polled (connection/polled_rings.h).
enum class RingPoll : std::uint8_t { none, speaking, silent };

// How many messages took which channel, oldest first; merged beyond a limit.
class ChannelHistory {
 public:
  void count(std::uint64_t bytes) noexcept {
    ++current_.messages;
    current_.bytes += bytes;
  }
  void begin(ChannelKind kind) noexcept { current_.channel = kind; }
  void change(ChannelKind kind, std::int64_t now);
  [[nodiscard]] DirectionReport report() const;
  [[nodiscard]] std::uint64_t switches() const noexcept { return switches_; }
  [[nodiscard]] std::uint64_t messages() const noexcept { return current_.messages; }

 private:
  std::vector<ChannelSpan> past_;
  ChannelSpan current_;
  std::uint64_t switches_ = 0;
};

struct HeldMessage {  // arrived on the start service before its turn
  std::uint32_t sequence = 0;
  std::uint32_t buffer = 0;  // the receive it is in, if it was not copied
  std::uint32_t length = 0;
  std::unique_ptr<std::byte[]> copy;  // of all of it; receives were scarce
};

// The private receive queue for this peer's messages (receive/private_receives.cpp).
struct PrivateReceives {
  std::uint32_t count = 0;       // buffers; 0: there are none
  std::uint32_t granted = 0;     // credits the peer has, and messages under way
  std::uint32_t unreported = 0;  // receives posted again, not reported to the peer yet
  std::uint32_t request = 0;     // the request of ours that granted them
  std::uint32_t controls = 0;    // control messages received in them, ever
  std::uint64_t eager = 0;       // eager messages received
  std::uint64_t serving = 0;     // rendezvous control messages received: RTS, FIN, CTS and others
  std::uint64_t grow_at = 0;     // value of `serving` at which buffers are added
};

// Our view of the peer's private receive queue for our messages.
struct PrivateSender {
  std::uint32_t credits = 0;
  std::uint32_t request = 0;   // the peer's request that granted them; 0: it has none
  std::uint32_t controls = 0;  // control messages sent into them, ever
};

struct Peer {
  Peer();
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  PeerId id = kAnyPeer;
  std::uint32_t remote_index = wire::kUnknownIndex;  // of us in its table; unknown until welcomed
  Address address;
  bool self = false;
  bool lost = false;
  bool said_bye = false;
  bool backlogged = false;   // in the endpoint's list
  Status loss;               // why it is lost
  Code given_up = Code::ok;  // lost for a reason of ours: which; it is told
  bool untold = false;       // and was not, perhaps
  ibv_ah* ah = nullptr;
  std::uint8_t data_queue = 0;  // (i + j) mod n of AQPS 3.1: our initiator and its target
  std::uint8_t credit_queue = 0;
  std::uint8_t establishment_queue = 0;
  Nanoseconds heard = 0;  // last time anything came from it (tick resolution)
  bool heard_since_tick = false;
  std::uint32_t probes = 0;  // in flight

  // us -> peer
  ChannelKind send_kind = ChannelKind::dc_sendrecv;
  SendState send_state = SendState::steady;
  std::uint32_t send_sequence = 0;  // of the next message
  std::uint32_t credits = 0;        // messages on the start service we may still send
  std::uint32_t eager_size = 0;     // bytes of a message its data receives take, at most ours
  RingSender ring_sender;
  RingSender requested_ring;  // while send_state is not steady
  PrivateSender private_sender;
  std::uint32_t requested_private = 0;  // credits in the request answered last
  std::uint32_t answered_request = 0;
  ChannelKind answered_otherwise = ChannelKind::dc_sendrecv;  // what it may be instead
  SentFeedback feedback_sent;                                 // what we report of our sending to it
  ChannelKind answered_kind = ChannelKind::dc_sendrecv;       // what the request asked for
  bool flush_posted = false;
  std::uint32_t flushes = 0;  // such records in flight
  bool send_uses_rc = false;  // from ready until the peer's `closed`
  LinkedList<SendOperation> backlog;
  ChannelHistory sent;
  std::unique_ptr<Offers> offers;  // of the peer's receives
  bool declines_offers = false;    // those made at `declined_at`: an earlier one was not taken
  std::uint32_t declined_at = 0;

  // peer -> us
  ChannelKind receive_kind = ChannelKind::dc_sendrecv;
  ReceiveState receive_state = ReceiveState::steady;
  ChannelKind wanted = ChannelKind::dc_sendrecv;     // what the change under way leads to
  ChannelKind otherwise = ChannelKind::dc_sendrecv;  // and to what if the peer cannot give that
  std::uint32_t receive_sequence = 0;                // of the next message to deliver
  CreditGrant grant;                                 // credits of the default transport
  PrivateReceives private_receives;
  std::unique_ptr<RingReceiver> ring;
  RingPoll ring_poll = RingPoll::none;
  bool ring_spoke = false;  // lately
  std::vector<HeldMessage> held;
  bool stalled = false;               // no memory to deliver the next message
  bool stall_listed = false;          // in the endpoint's list of such peers
  bool atomic_stalled = false;        // that message is an atomic request: no room for its answer
  std::uint32_t withheld = 0;         // messages nobody waits for that keep their place and credit
  std::uint32_t seen_at_round = 0;    // receive_sequence at the last keep-alive round
  std::uint32_t unreported_ring = 0;  // ring entries free again, not reported to the peer yet
  Nanoseconds stuck_since = 0;        // waited for, yet held back for lack of memory; 0: not
  bool stuck_told = false;
  std::uint32_t request = 0;        // number of our latest request
  std::uint32_t ring_request = 0;   // of the one that made `ring`: marks the credits of its entries
  std::uint32_t last_old = 0;       // J4: last sequence number on the old channel
  std::uint32_t last_control = 0;   // and control messages sent into our private receives
  std::uint32_t reads_over_rc = 0;  // transfers of ours on the RC queue pair
  Nanoseconds requested_at = 0;
  std::size_t decision = 0;            // index + 1 of the decision being carried out
  std::uint64_t window = 0;            // messages received in the current interval
  selection::SenderFeedback feedback;  // of the peer
  double to_repay = 0;             // ns of its latest set-up that its messages have not saved yet
  std::uint32_t since_switch = 0;  // for the setting test_switch_every
  std::uint8_t forced_step = 0;
  // The change under way, to a ring over DC, is a step on the way to this; not over a ring: it is
  // all.
  ChannelKind goes_on_to = ChannelKind::dc_sendrecv;
  Nanoseconds refused_until = 0;
  ChannelHistory received;
  // Why its channel is what it is: words of what was tried last, else the selection's verdict.
  std::string reason;
  selection::Reason verdict = selection::Reason::too_few_messages;
  float rate = -1;  // messages a second in the window of the verdict; below 0: no verdict yet
  double predicted_gain = 0;

  std::unique_ptr<RcQueue> rc;  // serves both directions
  RcJob* rc_job = nullptr;      // has it, while it is being made or connected
  std::uint32_t rc_target = 0;  // the peer's end, to be connected with; 0: nothing to do
  [[nodiscard]] bool has_rc() const noexcept { return rc || rc_job != nullptr; }

  std::unique_ptr<PeerXrc> xrc;  // its part in connections of nodes (connection/xrc_setup.cpp)

  // While a failed connection is being made good (connection/recovery.cpp).
  std::unique_ptr<Recovery> recovery;
  std::uint32_t failures = 0;       // of connections in a row that hardly served
  std::uint32_t since_failure = 0;  // messages over it, for the setting test_break_every

  // Tear-down (connection/tear_down.cpp).
  PeerEviction eviction;
  std::unique_ptr<PeerAtomics> atomics;
  std::unique_ptr<UdReliability> link;  // where the start service is UD
  std::uint32_t pieces = 0;             // large messages that it sends in pieces or writes
  std::uint32_t offered = 0;            // receives it may write to
  OfferSuccess offer_success;
  std::uint64_t last_data = 0;  // remote data of its latest message
  bool last_had_data = false;
  std::uint32_t directed_receives = 0;  // posted for this peer only
  std::uint32_t awaiting_fin = 0;       // our large messages it has not fetched yet
};

// What a peer's record is accounted with. There may be thousands of peers: what is for few of them is
// a pointer.
inline constexpr std::size_t kPeerBytes = 976;
static_assert(sizeof(Peer) <= kPeerBytes);

// Where a direction ends, or leaves a channel, its sender says what it sent there last: messages,
// and control messages into private receives, which have no sequence numbers.
inline void say_last(const Peer& peer, wire::ControlMessage* message) noexcept {
  message->last_sequence = peer.send_sequence - 1;
  message->sequence = peer.private_sender.controls;
}
inline void note_last(Peer& peer, const wire::ControlMessage& message) noexcept {
  peer.last_old = message.last_sequence;
  peer.last_control = peer.link ? 0 : message.sequence;  // of a link it is the link's own number
}
// Whether that has come.
[[nodiscard]] inline bool has_last_message(const Peer& peer) noexcept {
  return static_cast<std::int32_t>(peer.receive_sequence - peer.last_old) > 0;
}
[[nodiscard]] inline bool has_last_control(const Peer& peer) noexcept {
  return static_cast<std::int32_t>(peer.private_receives.controls - peer.last_control) >= 0;
}

}  // namespace turnout
