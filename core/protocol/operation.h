// SPDX-License-Identifier: BSD-3-Clause
// Operations in progress: pending sends, posted receives, unexpected messages, and RDMA transfers
// (the data of large messages, one-sided operations).
//
// All are in slabs of the endpoint and linked into exactly one list at a time. Plain data; the
// protocol code is in the .cpp files of this folder.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/endpoint.h"
#include "core/memory/registration_cache.h"
#include "core/protocol/matcher.h"
#include "core/transport/ring.h"
#include "core/transport/wire.h"

namespace turnout {

struct Peer;

inline constexpr std::size_t kMaxIov = 8;

// The caller's buffer: up to kMaxIov pieces.
struct Pieces {
  std::array<iovec, kMaxIov> iov{};
  std::uint32_t count = 0;
  std::size_t total = 0;

  [[nodiscard]] bool set(std::span<const iovec> from) noexcept {
    if (from.size() > kMaxIov) return false;
    count = static_cast<std::uint32_t>(from.size());
    total = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      iov[i] = from[i];
      total += from[i].iov_len;
    }
    return true;
  }
  void copy_out(std::byte* to) const noexcept;
  // `length` bytes of them from `offset` on.
  [[nodiscard]] Pieces slice(std::size_t offset, std::size_t length) const noexcept;
  // Copies into the pieces from `offset` on; returns what fitted.
  std::size_t copy_in(std::size_t offset, const std::byte* from, std::size_t length) const noexcept;
};

// The data of an injected message that waits.
struct InjectCopy {
  std::array<std::byte, kInjectLimit> bytes;
};

struct SendOperation {
  SendOperation* next = nullptr;
  SendOperation* previous = nullptr;
  Peer* peer = nullptr;
  wire::Type type = wire::Type::none;
  std::uint8_t flags = 0;  // wire::Flag
  bool rendezvous = false;
  bool acknowledged = false;  // eager, ends with the receiver's fin (delivery complete)
  std::uint64_t tag = 0;
  std::uint64_t data = 0;
  Pieces pieces;
  Report report;
  std::uint32_t completion_flags = 0;
  std::uint64_t id = 0;    // of one that waits for its Fin
  std::uint64_t pull = 0;  // the receiver's transfer that the message goes to in pieces; 0: none
  std::size_t pulled = 0;  // bytes of it that were sent
  struct Grant {
    std::uint64_t address = 0, length = 0;
    std::uint64_t transfer = 0;  // the receiver's; 0: nothing is granted
    std::uint32_t rkey = 0;
    std::uint8_t last = 0;  // landed: the message's last byte
  };
  Grant grant;                // rput: where to write; landed, revoked: the offer
  bool announced = false;     // the peer was told its id
  bool writing = false;       // rput: a transfer has it
  bool counted = false;       // among the messages sent
  std::uint32_t outcome = 0;  // landed: a Code
  std::uint64_t instead = 0;  // RTS: the offer it was to be written to
  std::array<Registration, kMaxIov> regions;
  InjectCopy* copy = nullptr;  // of an injected message
};

struct RecvOperation {
  RecvOperation* next = nullptr;
  RecvOperation* previous = nullptr;
  PostedMatch match;
  Pieces pieces;
  Report report;
  bool posted = false;  // linked into the matcher
  bool multi = false;
  bool exhausted = false;  // multi: less than min_free left, no longer posted
  std::size_t used = 0;    // multi: bytes taken
  std::size_t min_free = 0;
  std::uint32_t transfers = 0;  // large messages still arriving into it
  struct Transfer* offered =
      nullptr;             // where its message may be written; no record of that message
  bool cancelled = false;  // as soon as the offer is revoked
};

// Where in a receive's buffer a message goes.
struct Place {
  std::size_t offset = 0, length = 0;
};

struct UnexpectedMessage {
  // buffer: of the shared receive queue; private_receive: of the private receive queue
  enum class Storage : std::uint8_t { none, heap, buffer, private_receive, ring };
  UnexpectedMessage* next = nullptr;
  UnexpectedMessage* previous = nullptr;
  PeerId peer = kAnyPeer;
  bool tagged = false;
  std::uint64_t tag = 0;
  wire::Header header;
  Storage storage = Storage::none;
  const std::byte* payload = nullptr;
  std::unique_ptr<std::byte[]> heap;
  std::uint32_t buffer = 0;    // receive buffer kept back
  std::uint64_t position = 0;  // ring entry kept back
  std::uint64_t total = 0;     // bytes of the message itself; an RTS's payload only describes it
  void* claim = nullptr;       // context of the peek that claimed it
  // A large message that has its receive and waits for a transfer to be free:
  RecvOperation* receive = nullptr;
  Place place;
};

// Data moved by RDMA between local and remote pieces, cut into segments with a bounded number in
// flight.
struct Transfer {
  enum class Kind : std::uint8_t {
    read,     // of a large message, by its receiver; also what comes in pieces
    user,     // one-sided operation
    granted,  // our large message, to where its receiver asked for it (rput)
    put,      // our large message, to an offer
    awaited,  // a large message that the peer writes after our CTS (rput)
    offered,  // the same, to our offer, if it does
  };
  struct Local {
    std::uint64_t address = 0, length = 0;
    std::uint32_t lkey = 0;
  };
  Transfer* next = nullptr;
  Transfer* previous = nullptr;
  Peer* peer = nullptr;
  Kind kind = Kind::read;
  bool write = false;
  bool over_rc = false;
  bool by_messages = false;  // the peer's processor moves the bytes
  bool listed = false;       // in the endpoint's list of those with work left to post
  std::array<Local, kMaxIov> local{};
  std::array<wire::RtsSegment, wire::kMaxSegments> remote{};
  std::uint32_t local_count = 0, remote_count = 0;
  std::uint32_t local_at = 0, remote_at = 0;          // cursor: piece
  std::uint64_t local_offset = 0, remote_offset = 0;  // and byte within it
  std::uint64_t total = 0;
  std::uint64_t posted = 0;
  std::uint32_t in_flight = 0;
  std::array<Registration, kMaxIov> regions;
  std::uint32_t buffer = 0xffffffffu;  // send buffer holding a small write's data
  InjectCopy* copy = nullptr;          // the same, of an injected one by messages
  Status status;
  // A large message being received:
  RecvOperation* receive = nullptr;
  std::uint64_t fin = 0;       // the sender's operation
  std::uint64_t pull = 0;      // it comes in pieces, which name it so
  std::uint64_t expected = 0;  // bytes of all pieces; `posted` of them have come
  std::size_t offset = 0;      // in the receive's buffer
  std::size_t overflow = 0;
  std::byte* last = nullptr;           // looked at until its value changes; null: not
  std::byte unlike{};                  // what it is until then
  std::byte former{};                  // offered: what it was before
  wire::Detail where;                  // put, offered: the offer
  SendOperation* operation = nullptr;  // granted: our message
  // What is reported:
  Report report;
  Completion completion;
  SendOperation* announcement = nullptr;  // of a write that tells its target
};

}  // namespace turnout
