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
  steady,      // on `PeerRx::kind`
  preparing,   // the resources for the request are being created
  requested,   // J1 sent, waiting for accept, switched or refuse
  connecting,  // accepted; our queue pair is being connected
  accepted,    // J3 sent, waiting for the peer's switch
  closing,     // requested the switch back from the RC queue pair, or the ring
  draining,    // switched back; messages or operations are in flight on the old channel
  error,       // the connection failed; until the peer reports the channel that it continues on
};

// The direction us -> peer, which we change when the peer asks (we are the responder).
enum class SendState : std::uint8_t {
  steady,     // on `PeerTx::kind`
  preparing,  // requested; our queue pair is being created and connected
  accepted,   // J2 sent, waiting for ready
  flushing,   // about to switch: earlier messages must consume their receives first
  error,      // the connection failed; until the missing messages were resent
};

// Whether and how the ring is polled (state/polled_rings.h).
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

struct OutOfOrderMessage {  // arrived on the default transport before an earlier message
  std::uint32_t sequence = 0;
  std::uint32_t buffer = 0;  // the receive it is in, if it was not copied
  std::uint32_t length = 0;
  std::unique_ptr<std::byte[]> copy;  // of all of it; receives were scarce
};

// The private receive queue for this peer's messages (messaging/private_receive_queue.cpp).
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

// The direction us -> peer.
struct PeerTx {
  ChannelKind kind = ChannelKind::dc_sendrecv;
  SendState state = SendState::steady;
  bool flush_posted = false;
  bool uses_rc = false;        // from ready until the peer's `closed`
  std::uint32_t sequence = 0;  // of the next message
  std::uint32_t credits = 0;   // messages we may still send on the default transport
  std::uint32_t flushes = 0;   // flush records in flight
  RingSender ring;
  PrivateSender private_queue;
  SentFeedback feedback;  // our feedback about sending to it
  LinkedList<SendOperation> backlog;
  std::unique_ptr<PeerRtrs> rtrs;  // received from the peer
  bool declines_rtrs = false;      // those sent at `declined_at`: an earlier one could not be used
  std::uint32_t declined_at = 0;
  ChannelHistory history;
};

// What we answered to the peer's latest request for another channel.
struct ChannelAnswer {
  RingSender ring;  // while PeerTx::state is not steady
  std::uint32_t private_credits = 0;
  std::uint32_t request = 0;
  ChannelKind kind = ChannelKind::dc_sendrecv;      // what the request asked for
  ChannelKind fallback = ChannelKind::dc_sendrecv;  // the acceptable fallback
};

// The direction peer -> us.
struct PeerRx {
  ChannelKind kind = ChannelKind::dc_sendrecv;
  ReceiveState state = ReceiveState::steady;
  RingPoll ring_poll = RingPoll::none;
  bool ring_spoke = false;      // lately
  bool stalled = false;         // no memory to deliver the next message
  bool stall_listed = false;    // in the endpoint's list of stalled peers
  bool atomic_stalled = false;  // the message is an atomic request without room for its answer
  bool last_had_data = false;
  std::uint32_t sequence = 0;  // of the next message to deliver
  std::uint32_t retained = 0;  // unexpected messages that retain their receive and credit
  CreditGrant grant;           // credits of the default transport
  PrivateReceives private_queue;
  std::unique_ptr<RingReceiver> ring;
  std::uint32_t ring_request = 0;     // of the one that created `ring`: identifies its credits
  std::uint32_t unreported_ring = 0;  // ring entries free again, not reported to the peer yet
  std::vector<OutOfOrderMessage> reorder_buffer;
  std::uint32_t seen_at_round = 0;  // sequence at the last keep-alive round
  std::uint32_t reads_over_rc = 0;  // transfers of ours on the RC queue pair
  Nanoseconds stuck_since = 0;      // expected by a receive but stalled for lack of memory; 0: not
  bool stuck_reported = false;
  std::uint32_t incoming_large = 0;  // large messages that it sends in fragments or writes
  std::uint32_t rtrs_sent = 0;       // RTRs that are open at the peer
  SuccessRate rtr_success;
  std::uint32_t directed_receives = 0;  // posted for this peer only
  std::uint64_t last_data = 0;          // remote data of its latest message
  std::uint64_t window = 0;             // messages received in the current interval
  ChannelHistory history;
};

// The change of the channel of the direction peer -> us, and why it has its channel.
struct ChannelChange {
  ChannelKind wanted = ChannelKind::dc_sendrecv;    // target of the change in progress
  ChannelKind fallback = ChannelKind::dc_sendrecv;  // its fallback if the peer refuses
  // If the change in progress is an intermediate step (a ring over DC), the channel to request
  // next; not a ring channel: none.
  ChannelKind final_channel = ChannelKind::dc_sendrecv;
  std::uint8_t forced_step = 0;
  selection::Reason verdict = selection::Reason::too_few_messages;
  std::uint32_t request = 0;       // number of our latest request
  std::uint32_t last_old = 0;      // J4: last sequence number on the old channel
  std::uint32_t last_control = 0;  // and control messages sent into our private receives
  std::uint32_t since_switch = 0;  // for the setting test_switch_every
  Nanoseconds requested_at = 0;
  Nanoseconds refused_until = 0;
  std::size_t decision = 0;            // index + 1 of the decision being carried out
  selection::SenderFeedback feedback;  // of the peer
  double to_repay = 0;                 // ns of its latest set-up that are not repaid yet
  double predicted_gain = 0;
  float rate = -1;     // messages a second in the window of the verdict; below 0: no verdict yet
  std::string reason;  // the last outcome, else the selection's verdict
};

// The connection, which serves both directions.
struct PeerConnection {
  PeerConnection();
  ~PeerConnection();
  PeerConnection(const PeerConnection&) = delete;
  PeerConnection& operator=(const PeerConnection&) = delete;

  [[nodiscard]] bool has_rc() const noexcept { return rc || rc_job != nullptr; }

  std::unique_ptr<RcQueue> rc;
  RcJob* rc_job = nullptr;             // has the queue pair while creating or connecting it
  std::uint32_t remote_qp_id = 0;      // of the peer's queue pair, to connect to; 0: none
  std::uint32_t failures = 0;          // successive connections that failed soon
  std::uint32_t since_failure = 0;     // messages over it, for the setting test_break_every
  std::unique_ptr<PeerXrc> xrc;        // XRC state of the peer (channels/xrc_connections.cpp)
  std::unique_ptr<Recovery> recovery;  // while a failed connection is being recovered
  PeerEviction eviction;
};

struct Peer {
  Peer();
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  PeerId id = kAnyPeer;
  std::uint32_t remote_index =
      wire::kUnknownIndex;  // of us in its table; unknown until its wire-up reply
  ibv_ah* ah = nullptr;
  std::uint32_t eager_size = 0;  // bytes of a message its data receives take, at most ours
  std::uint8_t data_queue = 0;   // (i + j) mod n of AQPS 3.1: our initiator and its target
  std::uint8_t credit_queue = 0;
  std::uint8_t establishment_queue = 0;
  bool self = false;
  bool lost = false;
  bool shut_down = false;
  bool backlogged = false;  // in the endpoint's list
  bool heard_since_tick = false;
  Nanoseconds heard = 0;           // time of the last message from it (tick resolution)
  std::uint32_t probes = 0;        // in flight
  std::uint32_t awaiting_fin = 0;  // our large messages that it has not completed yet
  PeerTx tx;
  PeerRx rx;
  Address address;
  ChannelAnswer answer;
  ChannelChange change;
  PeerConnection connection;
  std::unique_ptr<PeerAtomics> atomics;
  std::unique_ptr<UdReliability> link;  // if the default transport is UD
  Status loss;                          // the reason, if lost
  Code given_up = Code::ok;             // the local reason, if lost for one; reported to the peer
  bool loss_unreported = false;         // that report may not have been sent
};

// What a peer's record is accounted with. There may be thousands of peers: what is for few of them
// is a pointer.
inline constexpr std::size_t kPeerBytes = 976;
static_assert(sizeof(Peer) <= kPeerBytes);

// When a direction ends or changes its channel, its sender reports the last message that it sent
// there, and the number of control messages into private receives, which have no sequence numbers.
inline void report_last(const Peer& peer, wire::ControlMessage* message) noexcept {
  message->last_sequence = peer.tx.sequence - 1;
  message->sequence = peer.tx.private_queue.controls;
}
inline void note_last(Peer& peer, const wire::ControlMessage& message) noexcept {
  peer.change.last_old = message.last_sequence;
  peer.change.last_control = peer.link ? 0 : message.sequence;  // over UD it is a sequence number
}
// Whether it has arrived.
[[nodiscard]] inline bool has_last_message(const Peer& peer) noexcept {
  return static_cast<std::int32_t>(peer.rx.sequence - peer.change.last_old) > 0;
}
[[nodiscard]] inline bool has_last_control(const Peer& peer) noexcept {
  return static_cast<std::int32_t>(peer.rx.private_queue.controls - peer.change.last_control) >= 0;
}

}  // namespace turnout
