// SPDX-License-Identifier: BSD-3-Clause
// Operations in progress: pending sends, posted receives, unexpected messages, and RDMA transfers
// (the data of large messages, one-sided operations).
//
// All are in slabs of the endpoint and linked into exactly one list at a time. Plain data; the
// protocol code is in the .cpp files of this folder.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "base/read_alone.h"
#include "core/endpoint.h"
#include "core/memory/registration_cache.h"
#include "core/protocol/matcher.h"
#include "core/transport/ring.h"
#include "core/transport/wire.h"

namespace turnout {

struct Peer;

inline constexpr std::size_t kMaxIov = 8;

// The caller's buffer: up to kMaxIov parts.
struct IoVec {
  std::array<iovec, kMaxIov> parts;  // those from `count` on are not set
  std::uint32_t count = 0;
  std::size_t total = 0;

  [[nodiscard]] bool set(std::span<const iovec> from) noexcept {
    if (from.size() == 1) [[likely]] {
      parts[0] = {read_alone(from[0].iov_base), read_alone(from[0].iov_len)};
      count = 1;
      total = from[0].iov_len;
      return true;
    }
    if (from.size() > kMaxIov) return false;
    count = static_cast<std::uint32_t>(from.size());
    total = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      parts[i] = from[i];
      total += from[i].iov_len;
    }
    return true;
  }
  void copy_out(std::byte* to) const noexcept {
    for (std::uint32_t i = 0; i < count; ++i) {
      if (parts[i].iov_len == 0) continue;
      std::memcpy(to, parts[i].iov_base, parts[i].iov_len);
      to += parts[i].iov_len;
    }
  }
  // `length` bytes of them from `offset` on.
  [[nodiscard]] IoVec slice(std::size_t offset, std::size_t length) const noexcept {
    IoVec part;
    for (std::uint32_t i = 0; i < count && part.total < length; ++i) {
      if (offset >= parts[i].iov_len) {
        offset -= parts[i].iov_len;
        continue;
      }
      const std::size_t n = std::min(parts[i].iov_len - offset, length - part.total);
      part.parts[part.count++] = {static_cast<std::byte*>(parts[i].iov_base) + offset, n};
      part.total += n;
      offset = 0;
    }
    return part;
  }
  // Copies into the parts from `offset` on; returns what fitted.
  std::size_t copy_in(std::size_t offset, const std::byte* from,
                      std::size_t length) const noexcept {
    std::size_t done = 0;
    for (std::uint32_t i = 0; i < count && done < length; ++i) {
      if (offset >= parts[i].iov_len) {
        offset -= parts[i].iov_len;
        continue;
      }
      const std::size_t n = std::min(parts[i].iov_len - offset, length - done);
      std::memcpy(static_cast<std::byte*>(parts[i].iov_base) + offset, from + done, n);
      done += n;
      offset = 0;
    }
    return done;
  }
};

// The data of an injected message that waits, if they are few; others are in a block of their size.
struct InjectCopy {
  static constexpr std::size_t kMost = 192;  // what a message posted inline has at most
  std::array<std::byte, kMost> bytes;
};

struct SendOperation {
  SendOperation* next = nullptr;
  SendOperation* previous = nullptr;
  Peer* peer = nullptr;
  wire::Type type = wire::Type::none;
  std::uint8_t flags = 0;  // wire::Flag
  bool rendezvous = false;
  bool acknowledged = false;  // eager, ends with the receiver's fin
  bool confirmed = false;     // eager, ends when the adapter has delivered its requests
  bool has_event = false;     // rma_data: the target counts it
  bool reads = false;         // the same: it was a read
  std::uint64_t tag = 0;
  std::uint64_t data = 0;
  IoVec iov;
  Report report;
  std::uint32_t completion_flags = 0;
  std::uint32_t in_flight = 0;          // parts posted; those of a confirmed one end it
  std::uint64_t id = 0;                 // of one that waits for its Fin
  std::uint64_t fragment_transfer = 0;  // the receiver's, to send fragments to; 0: none
  std::size_t fragment_offset = 0;      // bytes sent in fragments, or of a confirmed one
  struct Grant {
    std::uint64_t address = 0, length = 0;
    std::uint64_t transfer = 0;  // the receiver's; 0: none
    std::uint32_t rkey = 0;
    std::uint8_t last = 0;  // put_completion: the message's last byte
  };
  Grant grant;                // rput: where to write; put_completion, rtr_cancelled: the RTR;
                              // rma_data: the rkey that was used
  bool announced = false;     // its id was sent to the peer
  bool writing = false;       // rput: a transfer has it
  bool counted = false;       // among the messages sent
  std::uint32_t outcome = 0;  // put_completion: a Code
  std::uint64_t rtr = 0;      // RTS: the RTR that it replaces
  std::array<Registration, kMaxIov> regions;
  std::byte* copy = nullptr;  // of an injected message: iov.total bytes of take_copy()
};

struct RecvOperation {
  RecvOperation* next = nullptr;
  RecvOperation* previous = nullptr;
  PostedMatch match;
  IoVec iov;
  Report report;
  bool posted = false;  // linked into the matcher
  bool multi = false;
  bool exhausted = false;  // multi: less than min_free left, no longer posted
  std::size_t used = 0;    // multi: bytes taken
  std::size_t min_free = 0;
  std::uint32_t transfers = 0;     // large messages still arriving into it
  struct Transfer* rtr = nullptr;  // for which an RTR was sent; null: none
  bool cancelled = false;          // as soon as the peer replies to the cancel of its RTR

  // For the next one, which sets match, iov and report itself.
  void reset() noexcept {
    next = previous = nullptr;
    posted = multi = exhausted = cancelled = false;
    used = min_free = 0;
    transfers = 0;
    rtr = nullptr;
  }
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
  bool has_room = false;  // eager_first: `heap` has room for all of the message
  const std::byte* payload = nullptr;
  std::unique_ptr<std::byte[]> heap;
  std::uint32_t arrived = 0;   // eager_first: bytes of the message
  std::uint32_t buffer = 0;    // receive buffer kept back
  std::uint64_t position = 0;  // ring entry kept back
  std::uint64_t total = 0;     // bytes of the message itself; an RTS's payload only describes it
  void* claim = nullptr;       // context of the peek that claimed it
  // A large message that has its receive and waits for a transfer to be free:
  RecvOperation* receive = nullptr;
  Place place;

  // Some of its fragments have not arrived.
  [[nodiscard]] bool partial() const noexcept {
    return header.type == wire::Type::eager_first && arrived < total;
  }
};

// Data moved by RDMA between local and remote parts, cut into segments with a bounded number in
// flight.
struct Transfer {
  enum class Kind : std::uint8_t {
    read,       // a large message that we read, or receive in fragments
    user,       // one-sided operation
    rput_send,  // our large message, written after the receiver's CTS
    put,        // our large message, written to an RTR of the receiver
    rput_recv,  // a large message that the peer writes after our CTS
    rtr_recv,   // a large message that the peer may write to our RTR
  };
  struct Local {
    std::uint64_t address = 0, length = 0;
    std::uint32_t lkey = 0;
  };
  // Where the next segment begins: part, and byte within it.
  struct Cursor {
    std::uint32_t local_at = 0, remote_at = 0;
    std::uint64_t local_offset = 0, remote_offset = 0;
  };
  // A large message being received.
  struct Incoming {
    RecvOperation* receive = nullptr;
    std::uint64_t fin = 0;       // the sender's operation; 0: eager, it waits for nothing
    std::uint64_t id = 0;        // of one that the peer sends in fragments or writes
    std::uint64_t expected = 0;  // bytes of all fragments; `posted` of them arrived
    std::size_t offset = 0;      // in the receive's buffer
    std::size_t overflow = 0;
  };
  // The last byte of a buffer that a peer writes.
  struct WatchedByte {
    std::byte* byte = nullptr;  // polled until it differs from `sentinel`; null: not
    std::byte sentinel{};
    std::byte saved_byte{};  // rtr_recv: its value before
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
  std::uint32_t local_count = 0;
  Cursor cursor;
  std::uint64_t total = 0;
  std::uint64_t posted = 0;
  std::uint32_t in_flight = 0;
  std::array<Registration, kMaxIov> regions;
  std::uint32_t buffer = 0xffffffffu;  // send buffer holding a small write's data
  std::byte* copy = nullptr;           // the same, of an injected one by messages: `total` bytes
  Status status;
  Incoming incoming;
  WatchedByte watched;
  wire::Detail where;                  // put, rtr_recv: the RTR
  SendOperation* operation = nullptr;  // rput_send: our message
  // What is reported:
  Report report;
  Completion completion;
  SendOperation* announcement = nullptr;  // to the target, of a one-sided operation
};

}  // namespace turnout
