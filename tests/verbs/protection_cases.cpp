// SPDX-License-Identifier: BSD-3-Clause
// IBTA 9.7.4.1, 10.6 and 10.7, table 58 (what a responder answers with).
#include <fmt/format.h>

#include "tests/verbs/cases.h"

namespace turnout::conform {
namespace {

Request to(const Pair& pair, ibv_wr_opcode opcode, std::uint64_t address, std::uint32_t rkey,
           std::size_t length = 8) {
  return {.opcode = opcode,
          .pieces = {pair.local.sge(0, length)},
          .remote = address,
          .rkey = rkey,
          .compare_add = 1};
}

// One request that is refused: what it says, and what becomes of both queue pairs.
std::string refused(const Pair& pair, const Request& request) {
  const std::string posted = post(pair.a, request);
  if (posted != "ok") return posted;
  const std::string said = done(pair.a->send_cq);
  return fmt::format("{}; a {}, b {}", said, state_of(pair.a), state_of(pair.b));
}

std::string wrong_key(Bed& bed, ibv_wr_opcode opcode) {
  const Pair pair(bed);
  return refused(pair, to(pair, opcode, pair.remote.at(), pair.remote.mr->rkey ^ 0x100u));
}

std::string one_byte_too_far(Bed& bed, ibv_wr_opcode opcode) {
  const Pair pair(bed);
  return refused(pair,
                 to(pair, opcode, pair.remote.at(pair.remote.size - 7), pair.remote.mr->rkey));
}

std::string one_byte_before(Bed& bed) {
  const Pair pair(bed);
  return refused(pair, to(pair, IBV_WR_RDMA_WRITE, pair.remote.at() - 1, pair.remote.mr->rkey));
}

// The region gives rights to its owner alone.
std::string no_right_of_region(Bed& bed, ibv_wr_opcode opcode) {
  const Pair pair(bed);
  const Memory closed = bed.memory(4096, IBV_ACCESS_LOCAL_WRITE);
  return refused(pair, to(pair, opcode, closed.at(), closed.mr->rkey));
}

std::string no_right_of_queue_pair(Bed& bed, ibv_wr_opcode opcode) {
  Link link;
  link.access = 0;
  const Pair pair(bed, {}, link);
  return refused(pair, to(pair, opcode, pair.remote.at(), pair.remote.mr->rkey));
}

std::string another_domain(Bed& bed) {
  const Pair pair(bed);
  const Memory other = bed.memory(4096, kAllAccess, bed.domain());
  return refused(pair, to(pair, IBV_WR_RDMA_WRITE, other.at(), other.mr->rkey));
}

std::string deregistered(Bed& bed) {
  const Pair pair(bed);
  const Memory gone = bed.memory();
  const std::uint32_t key = gone.mr->rkey;
  bed.forget(gone.mr);
  must(name_of(ibv_dereg_mr(gone.mr)), "ibv_dereg_mr");
  return refused(pair, to(pair, IBV_WR_RDMA_WRITE, gone.at(), key));
}

// At the initiator.
std::string wrong_local_key(Bed& bed) {
  const Pair pair(bed);
  Request request = write_of(pair);
  request.pieces[0].lkey ^= 0x100u;
  return refused(pair, request);
}

std::string local_bounds(Bed& bed) {
  const Pair pair(bed);
  Request request = write_of(pair);
  request.pieces[0] = pair.local.sge(pair.local.size - 4, 8);
  return refused(pair, request);
}

std::string read_into_read_only(Bed& bed) {
  const Pair pair(bed);
  const Memory closed = bed.memory(4096, 0);
  Request request = to(pair, IBV_WR_RDMA_READ, pair.remote.at(), pair.remote.mr->rkey);
  request.pieces = {closed.sge(0, 8)};
  return refused(pair, request);
}

// A send, and what becomes of its receive.
std::string received(const std::vector<ibv_sge>& pieces, const Pair& pair) {
  must(receive(pair.b, pieces), "receive");
  must(post(pair.a, {.pieces = {pair.local.sge(0, 64)}}), "post");
  const std::string said = done(pair.a->send_cq);
  const std::string heard = done(pair.b->recv_cq, 1000);
  return fmt::format("{}, {}; a {}, b {}", said, heard, state_of(pair.a), state_of(pair.b));
}

std::string longer_than_receive(Bed& bed) {
  const Pair pair(bed);
  return received({pair.remote.sge(0, 63)}, pair);
}

std::string shorter_than_receive(Bed& bed) {
  const Pair pair(bed);
  return received({pair.remote.sge(0, 128)}, pair);
}

std::string receive_into_read_only(Bed& bed) {
  const Pair pair(bed);
  const Memory closed = bed.memory(4096, 0);
  return received({closed.sge(0, 64)}, pair);
}

std::string receive_with_wrong_key(Bed& bed) {
  const Pair pair(bed);
  ibv_sge piece = pair.remote.sge(0, 64);
  piece.lkey ^= 0x100u;
  return received({piece}, pair);
}

std::string receive_beyond(Bed& bed) {
  const Pair pair(bed);
  return received({pair.remote.sge(pair.remote.size - 32, 64)}, pair);
}

// What the owner of the target hears.
std::string heard(Bed& bed, std::string (*refuse)(Bed&)) {
  (void)refuse(bed);
  return event(bed);
}

// Rights that must go together (IBTA 10.6.3.1), and memory that is not there.
std::string registered(Bed& bed, void* address, std::size_t length, int access) {
  ibv_mr* const mr = ibv_reg_mr(bed.pd, address, length, static_cast<unsigned>(access));
  if (mr == nullptr) return name_of(errno);
  ibv_dereg_mr(mr);
  return "ok";
}

}  // namespace

std::vector<Case> protection_cases() {
  constexpr ibv_wr_opcode kWrite = IBV_WR_RDMA_WRITE, kRead = IBV_WR_RDMA_READ,
                          kAdd = IBV_WR_ATOMIC_FETCH_AND_ADD;
  return {
      {"protection: write, wrong key", [](Bed& bed) { return wrong_key(bed, kWrite); }},
      {"protection: read, wrong key", [](Bed& bed) { return wrong_key(bed, kRead); }},
      {"protection: add, wrong key", [](Bed& bed) { return wrong_key(bed, kAdd); }},
      {"protection: write one byte past the end",
       [](Bed& bed) { return one_byte_too_far(bed, kWrite); }},
      {"protection: read one byte past the end",
       [](Bed& bed) { return one_byte_too_far(bed, kRead); }},
      {"protection: write one byte before the start", one_byte_before},
      {"protection: write not allowed by the region",
       [](Bed& bed) { return no_right_of_region(bed, kWrite); }},
      {"protection: read not allowed by the region",
       [](Bed& bed) { return no_right_of_region(bed, kRead); }},
      {"protection: add not allowed by the region",
       [](Bed& bed) { return no_right_of_region(bed, kAdd); }},
      {"protection: write not allowed by the queue pair",
       [](Bed& bed) { return no_right_of_queue_pair(bed, kWrite); }},
      {"protection: read not allowed by the queue pair",
       [](Bed& bed) { return no_right_of_queue_pair(bed, kRead); }},
      {"protection: add not allowed by the queue pair",
       [](Bed& bed) { return no_right_of_queue_pair(bed, kAdd); }},
      {"protection: write, another protection domain", another_domain},
      {"protection: write, deregistered region", deregistered},
      {"protection: write, wrong local key", wrong_local_key},
      {"protection: write, beyond the local region", local_bounds},
      {"protection: read into read-only memory", read_into_read_only},
      {"receive: message longer than the receive", longer_than_receive},
      {"receive: message shorter than the receive", shorter_than_receive},
      {"receive: into read-only memory", receive_into_read_only},
      {"receive: wrong key", receive_with_wrong_key},
      {"receive: beyond the region", receive_beyond},
      {"event: write with a wrong key",
       [](Bed& bed) { return heard(bed, [](Bed& b) { return wrong_key(b, kWrite); }); }},
      {"event: write not allowed by the queue pair",
       [](Bed& bed) {
         return heard(bed, [](Bed& b) { return no_right_of_queue_pair(b, kWrite); });
       }},
      {"event: message longer than the receive",
       [](Bed& bed) { return heard(bed, longer_than_receive); }},
      {"event: receive with a wrong key",
       [](Bed& bed) { return heard(bed, receive_with_wrong_key); }},
      {"register: remote write without local write",
       [](Bed& bed) {
         static std::uint8_t bytes[64];
         return registered(bed, bytes, sizeof bytes, IBV_ACCESS_REMOTE_WRITE);
       }},
      {"register: remote atomic without local write",
       [](Bed& bed) {
         static std::uint8_t bytes[64];
         return registered(bed, bytes, sizeof bytes, IBV_ACCESS_REMOTE_ATOMIC);
       }},
      {"register: unmapped memory",
       [](Bed& bed) {
         return registered(bed, reinterpret_cast<void*>(0x1000), 4096, IBV_ACCESS_LOCAL_WRITE);
       }},
      {"register: read-only memory with local write",
       [](Bed& bed) {
         static const std::uint8_t bytes[4096] = {1};
         return registered(bed, const_cast<std::uint8_t*>(bytes), sizeof bytes,
                           IBV_ACCESS_LOCAL_WRITE);
       }},
      {"register: address range that wraps",
       [](Bed& bed) {
         return registered(bed, reinterpret_cast<void*>(~std::uintptr_t{0} - 4095), 8192,
                           IBV_ACCESS_LOCAL_WRITE);
       }},
      {"register: 0 bytes",
       [](Bed& bed) {
         static std::uint8_t bytes[64];
         return registered(bed, bytes, 0, IBV_ACCESS_LOCAL_WRITE);
       }},
  };
}

}  // namespace turnout::conform
