// SPDX-License-Identifier: BSD-3-Clause
// Records of what a peer's processor carries out, atomic operations and parts of one-sided ones:
// our requests to a peer, and the peer's requests to us.
//
// A peer has at most kAtomicWindow unanswered requests from us, and reserves room for that many
// responses at our first request. So an executed operation can always be recorded, a request never
// waits for a response to be sent, and two endpoints cannot deadlock. Owned by the endpoint; one
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/memory/account.h"
#include "core/protocol/matcher.h"
#include "core/protocol/operation.h"
#include "core/transport/wire.h"

namespace turnout {

// In the peer's backlog, or asked. `iov` is where the result goes; of a put, the program's bytes
// that it takes.
struct AtomicOperation : SendOperation {
  wire::Atomic head;
  // Of a put or a get, where `head` has only address, key and number.
  Transfer* transfer = nullptr;
  std::uint64_t local = 0, length = 0;
  std::array<std::byte, kAtomicLimit> values;  // operands and compare values
};

struct AtomicAnswer {
  std::uint32_t number = 0;  // of the request
  Code code = Code::ok;
  std::uint16_t length = 0;
  bool reads = false;  // a get, carried out when the answer is sent: `fetched` is not used
  std::uint32_t rkey = 0;
  std::uint64_t address = 0;
  std::array<std::byte, kAtomicLimit> fetched;
};

// Made with the first request in either direction.
struct PeerAtomics {
  Reservation bytes;
  // us -> peer
  LinkedList<SendOperation> asked;  // in the order of the answers
  std::uint32_t next_number = 0;
  // peer -> us
  Reservation answer_bytes;
  std::unique_ptr<std::array<AtomicAnswer, kAtomicWindow>> answers;  // a ring
  std::uint32_t first = 0, unsent = 0;
  bool listed = false;  // in the endpoint's list of peers with unsent answers

  [[nodiscard]] AtomicAnswer& answer(std::uint32_t at) noexcept {
    return (*answers)[(first + at) % kAtomicWindow];
  }
};

}  // namespace turnout
