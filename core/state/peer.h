// SPDX-License-Identifier: BSD-3-Clause
// Peer: the state of one remote endpoint that sent a message or that the caller named.
//
// One record per such peer, nothing for others. There may be tens of thousands, most of them idle:
// the record has what every message needs (PeerTx, PeerRx), and parts that are made when they are
// first written to. Ring, RC queue pair and history are allocated only while in use. Owned by the
// endpoint; one thread. docs/decisions/026-peer-memory.md says what it takes.
#pragma once

#include <cassert>
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
#include "core/verbs/device.h"

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

// The messages that a direction carried on its current channel.
struct ChannelCount {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;

  void count(std::uint64_t length) noexcept {
    ++messages;
    bytes += length;
  }
};

// The channels that a direction had before its current one, oldest first; merged beyond a limit.
class PastChannels {
 public:
  // The current one ends, which was `kind`: its count begins anew for the next.
  void end(ChannelKind kind, ChannelCount* carried, std::int64_t now);
  [[nodiscard]] DirectionReport report(ChannelKind kind, const ChannelCount& carried) const;
  [[nodiscard]] std::int64_t since() const noexcept { return since_; }  // of the current one

 private:
  std::vector<ChannelSpan> spans_;
  std::int64_t since_ = 0;
  std::uint64_t switches_ = 0;
};

// A part of a peer's record that is made when it is first written to. Until then it reads as a
// default one, which all peers share, and takes a pointer.
template <class T>
class Part {
 public:
  Part() = default;
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() {
    if (made()) delete part_;
  }

  [[nodiscard]] const T& operator*() const noexcept { return *part_; }
  [[nodiscard]] const T* operator->() const noexcept { return part_; }
  [[nodiscard]] bool made() const noexcept { return part_ != &none_; }
  // To write to it, which was made before: what was read of it says so.
  [[nodiscard]] T& ref() noexcept {
    assert(made());
    return *part_;
  }
  // To write to it; made of `of` if it was not made before.
  template <class... Of>
  [[nodiscard]] T& make(const Of&... of) {
    if (!made()) [[unlikely]]
      fill(of...);
    return *part_;
  }

 private:
  template <class... Of>
  [[gnu::noinline]] void fill(const Of&... of) {
    part_ = std::make_unique<T>(of...).release();
  }

  inline static T none_{};
  T* part_ = &none_;
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

// The direction us -> peer, of every peer that was sent to.
struct PeerTx {
  ChannelKind kind = ChannelKind::dc_sendrecv;
  SendState state = SendState::steady;
  bool flush_posted = false;
  bool uses_rc = false;            // from ready until the peer's `closed`
  std::uint32_t sequence = 0;      // of the next message
  std::uint32_t credits = 0;       // messages we may still send on the default transport
  std::uint32_t awaiting_fin = 0;  // our large messages that it has not completed yet
  SentCount sent;                  // for our feedback
  PackedFeedback reported;         // our latest feedback about sending to it
  ChannelCount carried;
};
static_assert(sizeof(PeerTx) == 48);

// The direction peer -> us, of every peer that was heard.
struct PeerRx {
  ChannelKind kind = ChannelKind::dc_sendrecv;
  ReceiveState state = ReceiveState::steady;
  RingPoll ring_poll = RingPoll::none;
  selection::Reason verdict = selection::Reason::too_few_messages;
  bool ring_spoke = false;  // lately
  bool stalled = false;     // no memory to deliver the next message
  bool last_had_data = false;
  bool stall_listed : 1 = false;    // in the endpoint's list of stalled peers
  bool atomic_stalled : 1 = false;  // the message is an atomic request without room for its answer
  std::uint8_t backoff : 5 = 0;     // its account was full so often, and its channel stayed
  std::uint32_t sequence = 0;       // of the next message to deliver
  std::uint32_t retained = 0;       // unexpected messages that retain their receive and credit
  std::uint32_t window = 0;         // messages received in the current interval
  std::uint32_t seen_at_round = 0;  // sequence at the last keep-alive round
  std::uint32_t directed_receives = 0;  // posted for this peer only
  std::uint32_t incoming_large = 0;     // large messages that it sends in fragments or writes
  float rate = -1;    // messages a second in the window of the verdict; below 0: no verdict yet
  CreditGrant grant;  // credits of the default transport
  PackedFeedback feedback;      // its own, about sending to us
  std::uint64_t last_data = 0;  // remote data of its latest message
  ChannelCount carried;
};
static_assert(sizeof(PeerRx) == 96);

// What was answered to the peer's latest request for another channel.
struct ChannelAnswer {
  RingSender ring;  // while PeerTx::state is not steady
  std::uint32_t private_credits = 0;
  std::uint32_t request = 0;
  ChannelKind kind = ChannelKind::dc_sendrecv;      // what the request asked for
  ChannelKind fallback = ChannelKind::dc_sendrecv;  // the acceptable fallback
  bool ready = false;                               // J3 came
};

// How the peer used its ring in the intervals of the selection, the latest weighted most.
struct RingUse {
  float messages = 0;
  float first = 0;  // of the busiest source
  float time = 0;   // ns

  // An interval, or what came up to a decision at a message in it.
  void count(double n, double n_first, double length, bool part) noexcept {
    constexpr float kOfEarlier = 0.25F;
    const float weight = part ? 1 : kOfEarlier;
    messages = messages * weight + static_cast<float>(n);
    first = first * weight + static_cast<float>(n_first);
    time = time * weight + static_cast<float>(length);
  }
};

// The changes of channels: of the direction peer -> us, which we request, and our answers to the
// peer's requests.
struct ChannelChange {
  ChannelKind wanted = ChannelKind::dc_sendrecv;    // target of the change in progress
  ChannelKind fallback = ChannelKind::dc_sendrecv;  // its fallback if the peer refuses
  // If the change in progress is an intermediate step (a ring over DC), the channel to request
  // next; not a ring channel: none.
  ChannelKind final_channel = ChannelKind::dc_sendrecv;
  std::uint8_t forced_step = 0;
  std::uint8_t refusals = 0;       // of ours in succession
  bool predicted = false;          // asked for because of the last run (selection/prediction.h)
  std::uint32_t request = 0;       // number of our latest request
  std::uint32_t last_old = 0;      // J4: last sequence number on the old channel
  std::uint32_t last_control = 0;  // and control messages sent into our private receives
  std::uint32_t since_switch = 0;  // for the setting test_switch_every
  Nanoseconds requested_at = 0;
  Nanoseconds refused_until = 0;
  std::size_t decision = 0;  // index + 1 of the decision being carried out
  double to_repay = 0;       // ns of its latest set-up that are not repaid yet
  RingUse use;
  double predicted_gain = 0;
  std::string reason;  // the last outcome, else the selection's verdict
  ChannelAnswer answer;
};

// The connection, which serves both directions.
struct PeerConnection {
  explicit PeerConnection(PeerId peer = kAnyPeer);
  ~PeerConnection();
  PeerConnection(const PeerConnection&) = delete;
  PeerConnection& operator=(const PeerConnection&) = delete;

  [[nodiscard]] bool has_rc() const noexcept { return rc || rc_job != nullptr; }

  std::unique_ptr<RcQueue> rc;
  RcJob* rc_job = nullptr;         // has the queue pair while creating or connecting it
  std::uint32_t remote_qp_id = 0;  // of the peer's queue pair, to connect to; 0: none
  // The peer's CreditWord, for the ring that it sends to; key 0: none.
  std::uint32_t credits_rkey = 0;
  std::uint64_t credits_at = 0;
  std::uint32_t failures = 0;          // successive connections that failed soon
  std::uint32_t since_failure = 0;     // messages over it, for the setting test_break_every
  std::unique_ptr<PeerXrc> xrc;        // XRC state of the peer (channels/xrc_connections.cpp)
  std::unique_ptr<Recovery> recovery;  // while a failed connection is being recovered
  PeerEviction eviction;
};

// What a direction us -> peer has beyond sending on the default transport.
struct PeerTxState {
  RingSender ring;
  PrivateSender private_queue;
  std::uint32_t flushes = 0;  // flush records in flight
  LinkedList<SendOperation> backlog;
  std::unique_ptr<PeerRtrs> rtrs;  // received from the peer
  bool declines_rtrs = false;      // those sent at `declined_at`: an earlier one could not be used
  std::uint32_t declined_at = 0;
  PastChannels past;
};

// What a direction peer -> us has beyond receiving on the default transport.
struct PeerRxState {
  PrivateReceives private_queue;
  std::unique_ptr<RingReceiver> ring;
  std::uint32_t ring_request = 0;     // of the one that created `ring`: identifies its credits
  std::uint32_t unreported_ring = 0;  // ring entries free again, not reported to the peer yet
  std::uint32_t returned_ring = 0;    // reported by credit messages and writes
  std::vector<OutOfOrderMessage> reorder_buffer;
  std::uint32_t reads_over_rc = 0;  // transfers of ours on the RC queue pair
  std::uint32_t rtrs_sent = 0;      // RTRs that are open at the peer
  // The eager message whose fragments are arriving: the number of its receive's transfer, the
  // latest one if there is none any more; or where it is kept, null: nowhere.
  std::uint64_t fragmented = 0;
  UnexpectedMessage* partial = nullptr;
  SuccessRate rtr_success;
  bool stuck_reported = false;
  Nanoseconds stuck_since = 0;  // expected by a receive but stalled for lack of memory; 0: not
  PastChannels past;
};

// What few peers need at a time.
struct PeerState {
  PeerTxState tx;
  PeerRxState rx;
  std::unique_ptr<PeerAtomics> atomics;
  Status loss;                   // the reason, if lost
  Code given_up = Code::ok;      // the local reason, if lost for one; reported to the peer
  bool loss_unreported = false;  // that report may not have been sent
};

// A port of the fabric that peers are at. The peer table keeps each once.
struct RemotePort {
  std::uint16_t lid = 0;
  std::array<std::uint8_t, 16> gid{};
  verbs::Ah handle;
};

// An Address, without what the processes of its port have in common.
struct PeerAddress {
  std::uint64_t id = 0;
  Address::Numbers dct{};
  std::uint32_t pid = 0;
  std::uint16_t sizes = 0;
  std::uint8_t counts = 0;
  const RemotePort* port = nullptr;

  PeerAddress() = default;
  PeerAddress(const Address& address, const RemotePort& its_port) noexcept
      : id(address.id),
        dct(address.dct),
        pid(address.pid),
        sizes(address.sizes),
        counts(address.counts),
        port(&its_port) {}
  [[nodiscard]] Address whole() const noexcept;  // but for Address::check
  // Bytes of a message that its data receives take.
  [[nodiscard]] std::uint32_t most_received() const noexcept {
    return Address::receive_size(sizes) -
           ((sizes & Address::kDatagrams) != 0 ? wire::kGrhBytes : 0);
  }
  [[nodiscard]] std::string to_string() const { return whole().to_string(); }
};

struct Peer {
  Peer();
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // To write to the connection's state.
  [[nodiscard]] PeerConnection& connect() { return connection.make(id); }
  // That direction is on the channel from now on, a time of EndpointContext::age().
  void send_on(ChannelKind kind, Nanoseconds now);
  void receive_on(ChannelKind kind, Nanoseconds now);

  PeerId id = kAnyPeer;
  std::uint32_t remote_index =
      wire::kUnknownIndex;      // of us in its table; unknown until its wire-up reply
  std::uint8_t data_queue = 0;  // (i + j) mod n of AQPS 3.1: our initiator and its target
  std::uint8_t credit_queue = 0;
  std::uint8_t establishment_queue = 0;
  std::uint8_t data_target = 0;  // of `data_queue`
  std::uint16_t probes = 0;      // in flight
  bool self : 1 = false;
  bool lost : 1 = false;
  bool shut_down : 1 = false;
  bool backlogged : 1 = false;  // in the endpoint's list
  bool takes_less : 1 = false;  // its data receives take less of a message than ours
  bool heard_since_tick = false;
  Nanoseconds heard = 0;  // time of the last message from it (tick resolution)
  PeerTx tx;
  PeerRx rx;
  PeerAddress address;
  Part<PeerState> state;
  Part<ChannelChange> change;
  Part<PeerConnection> connection;
  std::unique_ptr<UdReliability> link;  // if the default transport is UD
};
static_assert(sizeof(Peer) == 248);

// What a record is accounted with: it and all its parts, with what the allocator adds. It is set
// aside when the record is made, as no message may fail later for want of a part.
inline constexpr std::size_t kPeerBytes = 976;
static_assert(sizeof(Peer) + sizeof(PeerState) + sizeof(ChannelChange) + sizeof(PeerConnection) +
                  std::size_t{3} * 16 <=
              kPeerBytes);

// When a direction ends or changes its channel, its sender reports the last message that it sent
// there, and the number of control messages into private receives, which have no sequence numbers.
[[nodiscard]] inline wire::ControlMessage with_last(const Peer& peer,
                                                    wire::ControlMessage message) noexcept {
  message.last_sequence = peer.tx.sequence - 1;
  message.sequence = peer.state->tx.private_queue.controls;
  return message;
}
inline void note_last(Peer& peer, const wire::ControlMessage& message) {
  ChannelChange& change = peer.change.make();
  change.last_old = message.last_sequence;
  change.last_control = peer.link ? 0 : message.sequence;  // over UD it is a sequence number
}
// Whether it has arrived.
[[nodiscard]] inline bool has_last_message(const Peer& peer) noexcept {
  return static_cast<std::int32_t>(peer.rx.sequence - peer.change->last_old) > 0;
}
[[nodiscard]] inline bool has_last_control(const Peer& peer) noexcept {
  return static_cast<std::int32_t>(peer.state->rx.private_queue.controls -
                                   peer.change->last_control) >= 0;
}

}  // namespace turnout
