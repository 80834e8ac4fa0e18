// SPDX-License-Identifier: BSD-3-Clause
// Wire formats: message headers, establishment and credit messages. Little-endian, fixed sizes. All
// of this arrives from another process: each parser checks lengths and ranges and names the wrong
// field.
//
// Data stream: every message of one direction (source -> destination) carries a sequence number, on
// any channel, and is delivered in that order; so a change of channel cannot reorder (AQPS 3.3, J4
// and J5). On DC-sendrecv the header precedes the payload. In a ring entry the message is
// right-aligned and the header ends it: its last byte is the phase. If data are placed in
// order, one poll of the entry's last byte finds a complete message; otherwise the header also
// carries a checksum (docs/decisions/007).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/read_alone.h"
#include "base/status.h"
#include "core/types/address.h"
#include "core/types/atomic.h"

namespace turnout::wire {

inline constexpr std::uint32_t kUnknownIndex = 0xffffffffu;

enum class Type : std::uint8_t {
  none = 0,
  eager = 1,
  rts = 2,       // rendezvous: payload is Rts
  wireup = 3,    // only carries a wire-up request, when the message itself had no room for it
  rma_data = 4,  // of an RMA that is complete, which moved `tag` bytes: its remote data, and where
                 // the target counts it, the payload is RemoteEvent; at least one of the two
  fragment = 5,  // data is the offset. Of a large message, after a `fragment_request`: tag is the
                 // receiver's transfer; of the latest `eager_first`: tag is 0
  put_completion = 6,  // a large message was written to the buffer of an RTR: payload is
                       // PutCompletion
  rtr_cancelled = 7,   // reply to `rtr_cancel`: nothing more is written to the RTR `tag`
  atomic = 8,          // asks for an atomic operation: payload is Atomic, operands, compare values
  answer = 9,    // what came of the request (atomic, put, get) number `tag`: data is 0 or a Code,
                 // payload what it fetched; in the order of the requests
  control = 10,  // a ControlMessage (and its Detail) into a private receive: no sequence
  put = 11,      // asks for a part of a one-sided write: payload is Segment and the bytes
  get = 12,      // the same of a read: payload is Segment; the answer's payload is what was read
  eager_first = 13,  // the first fragment of an eager message: payload is its length (8 bytes) and
                     // its first bytes; each `fragment` with tag 0 brings the next
  fin = 14,  // the same as the ControlMessage, over a ring: the large message of the operation
             // `tag` has been read, at the time `data`, see ControlMessage; no payload
};
// Carried out by its receiver's processor, and answered.
[[nodiscard]] constexpr bool is_request(Type type) noexcept {
  return type == Type::atomic || type == Type::put || type == Type::get;
}

enum Flag : std::uint8_t {
  kTagged = 1,
  kRemoteData = 2,
  kWireup = 4,       // a WireupRequest follows the header (DC-sendrecv only)
  kAcknowledge = 8,  // the payload begins with the sender's operation (8 bytes): send a fin when
                     // the message has been put into its receive
  kLastCredit = 16,  // the sender has no credit left: it could use more
  kPrivateCredits = 32,  // ring_credits and ring are of the private receive queue (RC-SR)
  kUncredited = 64,      // it took no credit of the receives it came into: it was lost elsewhere
};
inline constexpr std::size_t kOperationBytes = 8;
inline constexpr std::size_t kTotalBytes = 8;                             // of an `eager_first`
inline constexpr std::uint64_t kMostFragmented = std::uint64_t{1} << 30;  // such a message
[[nodiscard]] constexpr std::uint8_t flags_of(bool tagged, bool has_remote_data) noexcept {
  return static_cast<std::uint8_t>((tagged ? kTagged : 0) | (has_remote_data ? kRemoteData : 0));
}
// Its payload is bytes of the application's, or an answer.
[[nodiscard]] constexpr bool carries_bytes(Type type) noexcept {
  return type == Type::eager || type == Type::eager_first || type == Type::fragment ||
         type == Type::answer;
}
// It serves a large message, and travels over no ring where its receiver has receives for it.
[[nodiscard]] constexpr bool serves_large(Type type) noexcept {
  return type == Type::rts || type == Type::put_completion || type == Type::rtr_cancelled ||
         type == Type::control;
}
// Whether it is a message of the application's; others serve or complete one.
[[nodiscard]] constexpr bool is_message(Type type) noexcept {
  return type == Type::eager || type == Type::rts || type == Type::rma_data ||
         type == Type::eager_first;
}

struct Header {
  std::uint64_t tag = 0;
  std::uint64_t data = 0;
  std::uint32_t sequence = 0;
  // Of the sender in the receiver's table. A ring has one sender: in one that is checked, CRC-32C
  // of payload and header, computed with 0 here.
  std::uint32_t index = kUnknownIndex;
  std::uint16_t length = 0;       // payload bytes that follow (precede, in a ring)
  std::uint8_t credits = 0;       // handed back for the other direction: DC-sendrecv
  std::uint8_t ring_credits = 0;  // and its ring
  Type type = Type::none;
  std::uint8_t flags = 0;
  std::uint8_t ring = 0;   // low byte of the request that made the ring of ring_credits
  std::uint8_t phase = 0;  // ring only: 1..255, changes each time round
};
static_assert(sizeof(Header) == 32);
// The same bytes as a copy of it, in stores of words: who reads what was just stored in smaller
// pieces waits until the stores are done.
inline void write_header(const Header& header, std::byte* to) noexcept {
  static_assert(std::endian::native == std::endian::little);
  const auto word = [to](std::size_t at, std::uint64_t value) {
    std::memcpy(to + at, &value, sizeof value);
  };
  word(0, header.tag);
  word(8, header.data);
  word(16, header.sequence | std::uint64_t{header.index} << 32);
  const std::uint64_t phase = read_alone(std::uint64_t{header.phase});
  word(24, header.length | std::uint64_t{header.credits} << 16 |
               std::uint64_t{header.ring_credits} << 24 |
               std::uint64_t{static_cast<std::uint8_t>(header.type)} << 32 |
               std::uint64_t{header.flags} << 40 | std::uint64_t{header.ring} << 48 | phase << 56);
}
// An eager message with nothing to look up or answer; check_header() would accept it.
[[nodiscard]] constexpr bool is_plain_eager(const Header& header) noexcept {
  return header.type == Type::eager && (header.flags & ~(kTagged | kRemoteData | kLastCredit |
                                                         kPrivateCredits | kUncredited)) == 0;
}
// Of the payload, before the bytes of the message: an acknowledged one's operation, a first
// fragment's length of all.
[[nodiscard]] constexpr std::size_t prefix_bytes(Type type, std::uint8_t flags) noexcept {
  return type == Type::eager_first     ? kTotalBytes
         : (flags & kAcknowledge) != 0 ? kOperationBytes
                                       : 0;
}
[[nodiscard]] constexpr std::size_t prefix_bytes(const Header& header) noexcept {
  return prefix_bytes(header.type, header.flags);
}

struct WireupRequest {
  Address address;                      // of the sender
  std::uint32_t index = kUnknownIndex;  // of the receiver in the sender's table
  std::uint32_t reserved = 0;
};
static_assert(sizeof(WireupRequest) == 72);

// A one-sided operation that the target counts.
struct RemoteEvent {
  std::uint32_t rkey = 0;  // of the region
  std::uint8_t read = 0;   // 1: it was a read, else a write
  std::uint8_t reserved[3] = {};
};
static_assert(sizeof(RemoteEvent) == 8);

// Where the data of a large message lies at its sender.
struct RtsSegment {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint32_t rkey = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(RtsSegment) == 24);
inline constexpr std::uint32_t kMaxSegments = 8;

struct Rts {
  std::uint64_t total = 0;
  std::uint64_t operation = 0;  // returned in Fin
  std::uint8_t segments = 0;
  std::uint8_t last = 0;     // the message's last byte
  std::uint8_t has_rtr = 0;  // 1: the RTR that it replaces follows the segments
  std::uint8_t reserved[5] = {};
  RtsSegment segment[kMaxSegments];  // only the first `segments` travel
  std::uint64_t rtr = 0;

  // The sender's buffer has no key: the message can only be asked for in fragments.
  [[nodiscard]] bool is_unregistered() const noexcept { return segments == 0 && total != 0; }
};
inline constexpr std::size_t kRtsBase = 24;
static_assert(sizeof(Rts) == kRtsBase + kMaxSegments * sizeof(RtsSegment) + 8);
inline constexpr std::size_t kMostRtsBytes = sizeof(Rts);

// A large message was written to the buffer of an RTR; the header has tag, remote data and flags.
struct PutCompletion {
  std::uint64_t transfer = 0;  // the receiver's, of the RTR
  std::uint64_t length = 0;
  std::uint32_t status = 0;  // 0, or a Code: it could not be written
  std::uint8_t last = 0;     // its last byte, which may not have been written
  std::uint8_t reserved[3] = {};
};
static_assert(sizeof(PutCompletion) == 24);

// A part of a one-sided operation between processes without a connection.
struct Segment {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t number = 0;  // returned in the answer
  std::uint32_t length = 0;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(Segment) == 24);

// A request for an atomic operation. Operands follow, and then as many compare values, if it is of
// the form that has them.
struct Atomic {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  std::uint32_t number = 0;  // returned in the answer
  std::uint16_t count = 0;   // elements
  AtomicForm form{};
  AtomicOp op{};
  AtomicType type{};
  std::uint8_t reserved[3] = {};
};
static_assert(sizeof(Atomic) == 24);
[[nodiscard]] constexpr std::size_t operand_bytes(const Atomic& atomic) noexcept {
  return has_operands(atomic.op) ? atomic.count * size_of(atomic.type) : 0;
}
[[nodiscard]] constexpr std::size_t compare_bytes(const Atomic& atomic) noexcept {
  return atomic.form == AtomicForm::compare ? atomic.count * size_of(atomic.type) : 0;
}
[[nodiscard]] constexpr std::size_t fetched_bytes(const Atomic& atomic) noexcept {
  return atomic.form == AtomicForm::update ? 0 : atomic.count * size_of(atomic.type);
}

// Control messages (256-byte receives).
enum class Control : std::uint8_t {
  credit = 1,        // returns credits
  wireup_reply = 2,  // to a WireupRequest: own_index is the index assigned to its sender
  fin = 3,           // a rendezvous is complete
  shutdown = 4,      // the endpoint closes; last_sequence ends its stream
  request = 10,      // J1
  accept = 11,       // J2
  ready = 12,        // J3
  switched = 13,     // J4
  refuse = 14,
  closed = 15,  // the ring of a direction is drained and freed
  reject = 16,  // messages of the receiver are not accepted, for the Code `status`; `operation`:
                // the sender's budget; own_index as in wireup_reply, unknown if there is no record
  fragment_request = 17,  // send the large message `operation` in fragments, for the transfer
                          // `ring_address`
  feedback = 18,          // from the sender of a direction to the receiver, which selects: see
                          // `credits`, `ring_credits`, `ring_entries`
  cts = 19,               // rput: write the large message `operation` to where the Detail says
  rtr = 20,               // put, putnr: a receive is posted for a large message; a Detail follows
  written = 21,           // rput: the write is complete; operation is the receiver's transfer
  rtr_cancel = 22,        // do not use the RTR `operation`; the reply is `rtr_cancelled`
  disconnect = 26,        // the connection of the sender's `qp_id` is evicted
  // The pair's connection failed (channels/connection_recovery.cpp):
  error = 27,    // the sender's queue pair carries nothing any more; messages up to last_sequence
                 // arrived or used another channel; own_index as in wireup_reply
  replay = 28,   // resend the messages after last_sequence, and the control messages into private
                 // receives after the first `sequence`
  resumed = 29,  // they were resent; the stream continues on `kind`, after last_sequence
  // The same of the direction sender -> receiver alone, whose XRC connection failed
  // (channels/xrc_recovery.cpp):
  xrc_error = 30,    // it carries nothing any more; own_index as in wireup_reply
  xrc_replay = 31,   // resend the messages after last_sequence
  xrc_resumed = 32,  // they were resent; the stream continues on `kind`
};

[[nodiscard]] constexpr bool exists(Control type) noexcept {
  return (type >= Control::credit && type <= Control::shutdown) ||
         (type >= Control::request && type <= Control::rtr_cancel) ||
         (type >= Control::disconnect && type <= Control::xrc_resumed);
}
// Part of a change of a direction's channel.
[[nodiscard]] constexpr bool changes_channel(Control type) noexcept {
  return (type >= Control::request && type <= Control::closed) || type == Control::disconnect;
}
// Of the direction that its sender receives.
[[nodiscard]] constexpr bool changes_receiving(Control type) noexcept {
  return type == Control::request || type == Control::ready || type == Control::closed;
}

enum class Refusal : std::uint8_t {
  none = 0,
  budget = 1,
  limit = 2,
  busy = 3,
  device = 4,
  disconnecting = 5,
  error = 6,
  other = 7,
  late = 8,
};
[[nodiscard]] std::string_view explain(Refusal refusal) noexcept;

struct ControlMessage {
  Control type{};
  // ChannelKind asked for or switched to; credit: rc_sr if of the private receive queue
  std::uint8_t kind = 0;
  // switched: why not to the kind asked for; feedback: budget if its sender has no room for a queue
  // pair
  Refusal refusal = Refusal::none;
  std::uint8_t reserved = 0;
  std::uint32_t index = kUnknownIndex;  // of the sender in the receiver's table
  std::uint64_t sender = 0;             // Address::id of the sender
  std::uint32_t request = 0;  // number of the request answered; credit: that named what it is for
  // RC, and accept of XRC: the sender's QP id, see qp_id.h. XRC: request: number of the
  // receive queue; ready: of the target, if made.
  // feedback: processes of the receiver's node that its sender sends to, if it has XRC
  std::uint32_t qp_id = 0;
  // fin: when the message had been read, by the clock of the host that both are on; 0: not said
  // accept of RC: with ring_rkey, where to write the ring's credits (credit_words.h); key 0:
  // nowhere
  std::uint64_t ring_address = 0;
  std::uint32_t ring_rkey = 0;
  // credit: ring entries returned so far by credit messages and writes
  // feedback: RC queue pairs its adapter holds for it
  std::uint32_t ring_entries = 0;
  std::uint32_t last_sequence = 0;  // switched, shutdown: last one on the old channel; see error
  // feedback: its time spent on messages, in thousandths; request: receives of the
  // private receive queue
  std::uint16_t credits = 0;
  std::uint16_t ring_credits = 0;  // feedback: its messages that switched a DCI, in thousandths
  std::uint64_t operation =
      0;  // fin; reject; accept of XRC: number of the target to open, 0: make one
  std::uint32_t own_index = kUnknownIndex;  // wireup_reply: of the receiver in the sender's table
  std::uint32_t status = 0;                 // fin, reject: 0 or a Code
  std::uint8_t fallback = 0;                // request: acceptable instead of `kind`; 0: none
  std::uint8_t ring_checked = 0;  // request: what is written into the ring carries checksums
  std::uint16_t entry_units = 0;  // request: bytes of one ring entry / Address::kSizeUnit
  // Over UD: of the control messages to this peer. switched, shutdown, resumed: control messages
  // sent into private receives so far; replay: those that arrived.
  std::uint32_t sequence = 0;
};
static_assert(sizeof(ControlMessage) == 72);
inline constexpr std::uint32_t kControlBuffer = 256;

// Follows a ControlMessage cts or rtr: where to write a large message.
struct Detail {
  std::uint64_t address = 0;
  std::uint64_t length = 0;    // bytes that may be written
  std::uint64_t transfer = 0;  // the receiver's, named when it is done
  // rtr: what the receive matches. A message of this length, remote data and flags, and another
  // last byte, needs no put completion.
  std::uint64_t tag = 0;
  std::uint64_t ignore = 0;
  std::uint64_t data = 0;
  std::uint32_t rkey = 0;
  std::uint32_t sequence = 0;  // rtr: the receiver's next message of the stream when it was sent
  std::uint8_t last = 0;       // rtr: the last byte of the receive's buffer
  std::uint8_t flags = 0;      // Flag: kTagged, kRemoteData
  std::uint8_t polled = 0;     // the receiver looks for the last byte
  std::uint8_t reserved[5] = {};
};
static_assert(sizeof(Detail) == 64);
static_assert(sizeof(ControlMessage) + sizeof(Detail) <= kControlBuffer);
// Those that may consume a private receive: they are handled on arrival.
[[nodiscard]] constexpr bool serves_large(Control type) noexcept {
  return type == Control::fin || type == Control::cts || type == Control::written;
}
inline constexpr std::uint32_t kPrivateReserve = 1;   // credits reserved for those
inline constexpr std::uint32_t kMostCredits = 32768;  // that one source can have
inline constexpr std::uint16_t kWhole = 1000;         // of the shares in feedback
inline constexpr std::uint32_t kMostQueuePairs = std::uint32_t{1} << 24;  // that feedback can name

// Over UD every message is preceded by this (and, in the receive buffer, by 40 bytes of the
// adapter's). It acknowledges what came the other way; what is not sequenced (acks, probes,
// rejects) is never sent again.
enum class DatagramKind : std::uint8_t {
  data = 1,     // Header, WireupRequest, payload: sequenced by the header
  control = 2,  // ControlMessage: by its own
  ack = 3,      // nothing follows
  probe = 4,    // WireupRequest: answered by an ack
  reject = 5,   // ControlMessage, to one that has no record here or is lost
};
inline constexpr std::uint8_t kControlGap =
    1;  // a control message arrived out of order and was dropped
struct Datagram {
  std::uint64_t sender = 0;             // Address::id
  std::uint32_t index = kUnknownIndex;  // of the sender in the receiver's table
  std::uint32_t data_ack = 0;           // all of the receiver's stream before it has been delivered
  std::uint32_t sack = 0;               // bit i: message data_ack + i arrived out of order
  std::uint32_t control_ack = 0;  // all of the receiver's control messages before it were taken
  DatagramKind kind = DatagramKind::ack;
  std::uint8_t flags = 0;
  std::uint8_t reserved[6] = {};
};
static_assert(sizeof(Datagram) == 32);
inline constexpr std::uint32_t kGrhBytes = 40;  // in front of every datagram received
inline constexpr std::uint32_t kDatagramOffset = kGrhBytes + sizeof(Datagram);
// The smallest ring entry, data receive and MTU that are allowed, and the largest of the first two.
inline constexpr std::size_t kLeastMessage = Address::kLeastReceive;
inline constexpr std::size_t kMostMessage = Address::kMostReceive;
static_assert(kDatagramOffset + sizeof(Header) + sizeof(WireupRequest) + sizeof(Atomic) +
                  kAtomicLimit <=
              kLeastMessage);

// A data message as found in a receive buffer.
struct Parsed {
  Header header;
  const WireupRequest* wireup = nullptr;  // unaligned access is fine: copied before use
  const std::byte* payload = nullptr;
};

[[nodiscard]] Status parse_data(const std::byte* bytes, std::size_t length, Parsed* parsed);
// The body that follows is looked at by the others; its length is checked against the kind.
[[nodiscard]] Status parse_datagram(const std::byte* bytes, std::size_t length, Datagram* datagram);
// `detail` is filled for the types that have one.
[[nodiscard]] Status parse_control(const std::byte* bytes, std::size_t length,
                                   ControlMessage* message, Detail* detail);
[[nodiscard]] constexpr bool has_detail(Control type) noexcept {
  return type == Control::cts || type == Control::rtr;
}
[[nodiscard]] Status parse_rts(const std::byte* payload, std::size_t length, Rts* rts);
// Writes the part that travels; returns its length.
std::size_t write_rts(const Rts& rts, std::byte* to) noexcept;
[[nodiscard]] Status parse_remote_event(const std::byte* payload, std::size_t length,
                                        RemoteEvent* event);
[[nodiscard]] Status parse_put_completion(const std::byte* payload, std::size_t length,
                                          PutCompletion* completion);
// What it asks for exists, and its operands and compare values follow it.
[[nodiscard]] Status parse_atomic(const std::byte* payload, std::size_t length, Atomic* atomic);
// Of a put, whose bytes follow it, or a get.
[[nodiscard]] Status parse_segment(Type type, const std::byte* payload, std::size_t length,
                                   Segment* segment);
// Of an `eager_first`: the bytes of the message, which is longer than this fragment. The header was
// checked.
[[nodiscard]] Status parse_total(const Header& header, const std::byte* payload,
                                 std::uint64_t* total);
// Checks of header fields that do not depend on where it was found.
[[nodiscard]] Status check_header(const Header& header);

}  // namespace turnout::wire
