// SPDX-License-Identifier: BSD-3-Clause
// IBTA 9.3 to 9.4, ibv_post_send(3).
#include <fmt/format.h>

#include <cstring>

#include "tests/verbs/cases.h"

namespace turnout::conform {
namespace {

struct Operation {
  ibv_wr_opcode opcode;
  const char* name;
};
constexpr Operation kOperations[] = {
    {IBV_WR_SEND, "send"},
    {IBV_WR_SEND_WITH_IMM, "send with immediate"},
    {IBV_WR_RDMA_WRITE, "write"},
    {IBV_WR_RDMA_WRITE_WITH_IMM, "write with immediate"},
    {IBV_WR_RDMA_READ, "read"},
    {IBV_WR_ATOMIC_FETCH_AND_ADD, "fetch and add"},
    {IBV_WR_ATOMIC_CMP_AND_SWP, "compare and swap"},
};
constexpr std::uint32_t kLength = 8;

bool takes_receive(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
         opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

// What an initiator and its target say of one operation, and what is in their memories afterwards.
std::string operate(Bed& bed, ibv_qp_type type, ibv_wr_opcode opcode) {
  QpAsk ask;
  ask.type = type;
  const Pair pair(bed, ask);
  const std::uint64_t mine = 5, theirs = 7, swapped = 11;
  std::memcpy(pair.local.data, &mine, sizeof mine);
  std::memcpy(pair.remote.data, &theirs, sizeof theirs);
  must(receive(pair.b, {pair.remote.sge(64, kLength)}), "receive");
  const std::string posted = post(pair.a, {.opcode = opcode,
                                           .pieces = {pair.local.sge(0, kLength)},
                                           .remote = pair.remote.at(),
                                           .rkey = pair.remote.mr->rkey,
                                           .imm = 99,
                                           .compare_add = theirs,
                                           .swap = swapped});
  if (posted != "ok") return posted;
  std::string text = done(pair.a->send_cq);
  if (takes_receive(opcode)) text += fmt::format(", {}", done(pair.b->recv_cq));
  std::uint64_t here = 0, there = 0, received = 0;
  std::memcpy(&here, pair.local.data, sizeof here);
  std::memcpy(&there, pair.remote.data, sizeof there);
  std::memcpy(&received, pair.remote.data + 64, sizeof received);
  return text + fmt::format("; local {}, remote {}, received {}", here, there, received);
}

std::string inline_data(Bed& bed) {
  QpAsk ask;
  ask.inline_data = 16;
  const Pair pair(bed, ask);
  std::uint64_t value = 5;
  const ibv_sge piece{reinterpret_cast<std::uint64_t>(&value), sizeof value, 0};
  Request write = write_of(pair);
  write.pieces = {piece};
  write.flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
  must(post(pair.a, write), "post");
  value = 6;  // it is the user's again
  const std::string said = done(pair.a->send_cq);
  std::memcpy(&value, pair.remote.data, sizeof value);
  return fmt::format("{}; remote {}", said, value);
}

// Of a message over a connection a header that only datagrams have (IBTA 11.4.2.1).
std::string route_header(Bed& bed) {
  const Pair pair(bed);
  must(receive(pair.b, {pair.remote.sge(0, kLength)}), "receive");
  must(post(pair.a, {.pieces = {pair.local.sge(0, kLength)}}), "post");
  const auto wc = poll(pair.b->recv_cq);
  if (!wc) return "nothing";
  return (wc->wc_flags & IBV_WC_GRH) != 0 ? "GRH" : "no GRH";
}

// No bytes: a key that is wrong does not matter (IBTA 9.7.4.1.1).
std::string no_bytes(Bed& bed, ibv_wr_opcode opcode) {
  const Pair pair(bed);
  must(receive(pair.b, {}), "receive");
  const std::string posted = post(pair.a, {.opcode = opcode, .pieces = {}, .rkey = 0x77});
  if (posted != "ok") return posted;
  std::string text = done(pair.a->send_cq);
  if (takes_receive(opcode)) text += fmt::format(", {}", done(pair.b->recv_cq));
  return text;
}

std::string unsignalled(Bed& bed, bool signal_all) {
  QpAsk ask;
  ask.signal_all = signal_all;
  const Pair pair(bed, ask);
  Request write = write_of(pair);
  write.flags = 0;
  must(post(pair.a, write), "post");
  write.id = 2;
  write.flags = IBV_SEND_SIGNALED;
  must(post(pair.a, write), "post");
  std::string text;
  while (const auto wc = poll(pair.a->send_cq, text.empty() ? 5000 : kNothing)) {
    text += fmt::format("{}{}", text.empty() ? "" : " ", wc->wr_id);
  }
  return text;
}

// An error completes whatever was asked.
std::string unsignalled_failure(Bed& bed) {
  const Pair pair(bed);
  Request write = write_of(pair);
  write.rkey ^= 0x100u;
  write.flags = 0;
  must(post(pair.a, write), "post");
  return done(pair.a->send_cq);
}

std::string pieces(Bed& bed) {
  const Pair pair(bed);
  for (std::uint8_t i = 0; i < 8; ++i) pair.local.data[i * 16] = i;
  must(receive(pair.b, {pair.remote.sge(0, 3), pair.remote.sge(100, 8)}), "receive");
  std::memset(pair.local.data, 1, 4);
  std::memset(pair.local.data + 64, 2, 4);
  must(post(pair.a, {.pieces = {pair.local.sge(0, 4), pair.local.sge(64, 4)}}), "post");
  std::string text = fmt::format("{}, {};", done(pair.a->send_cq), done(pair.b->recv_cq));
  for (const int i : {0, 2, 3, 100, 101, 104, 105}) {
    text += fmt::format(" {}", pair.remote.data[i]);
  }
  return text;
}

// The list ends at the first request that is refused, which is told.
std::string refused_in_a_list(Bed& bed) {
  const Pair pair(bed);
  ibv_sge piece = pair.local.sge(0, 8);
  ibv_send_wr list[3] = {};
  for (int i = 0; i < 3; ++i) {
    list[i].wr_id = static_cast<std::uint64_t>(i);
    list[i].sg_list = &piece;
    list[i].num_sge = i == 1 ? 30 : 1;
    list[i].opcode = IBV_WR_RDMA_WRITE;
    list[i].send_flags = IBV_SEND_SIGNALED;
    list[i].wr.rdma = {pair.remote.at(), pair.remote.mr->rkey};
    list[i].next = i < 2 ? &list[i + 1] : nullptr;
  }
  ibv_send_wr* bad = nullptr;
  const std::string said = name_of(ibv_post_send(pair.a, list, &bad));
  int completed = 0;
  while (poll(pair.a->send_cq, kNothing)) ++completed;
  return fmt::format("{} at {}, {} done", said, bad != nullptr ? bad - list : -1, completed);
}

std::string large(Bed& bed) {
  const Pair pair(bed);
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const Memory from = bed.memory(kBytes), to = bed.memory(kBytes);
  for (std::size_t i = 0; i < kBytes; ++i)
    from.data[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
  must(post(pair.a, {.opcode = IBV_WR_RDMA_WRITE,
                     .pieces = {from.sge(0, kBytes)},
                     .remote = to.at(),
                     .rkey = to.mr->rkey}),
       "post");
  const std::string said = done(pair.a->send_cq, 30000);
  return fmt::format("{}; {}", said,
                     std::memcmp(from.data, to.data, kBytes) == 0 ? "equal" : "different");
}

std::string added_from_two(Bed& bed) {
  const Pair one(bed), other(bed);
  constexpr int kTimes = 200;
  int good = 0;
  for (int i = 0; i < kTimes; ++i) {
    for (const Pair* const pair : {&one, &other}) {
      must(post(pair->a, {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                          .pieces = {pair->local.sge(0, 8)},
                          .remote = one.remote.at(),
                          .rkey = one.remote.mr->rkey,
                          .compare_add = 1}),
           "post");
    }
    for (const Pair* const pair : {&one, &other}) {
      if (done(pair->a->send_cq) == "SUCCESS FETCH_ADD") ++good;
    }
  }
  std::uint64_t sum = 0;
  std::memcpy(&sum, one.remote.data, sizeof sum);
  return fmt::format("{} of {} done, the sum is {}", good, 2 * kTimes, sum);
}

std::string misaligned(Bed& bed) {
  const Pair pair(bed);
  const std::string posted = post(pair.a, {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                                           .pieces = {pair.local.sge(0, 8)},
                                           .remote = pair.remote.at(4),
                                           .rkey = pair.remote.mr->rkey,
                                           .compare_add = 1});
  if (posted != "ok") return posted;
  const std::string said = done(pair.a->send_cq);
  return fmt::format("{}; b {}", said, state_of(pair.b));
}

std::string short_atomic(Bed& bed) {
  const Pair pair(bed);
  const std::string posted = post(pair.a, {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                                           .pieces = {pair.local.sge(0, 4)},
                                           .remote = pair.remote.at(),
                                           .rkey = pair.remote.mr->rkey,
                                           .compare_add = 1});
  return posted != "ok" ? posted : done(pair.a->send_cq);
}

}  // namespace

std::vector<Case> operation_cases() {
  std::vector<Case> all;
  for (const Operation& one : kOperations) {
    all.push_back({fmt::format("operation: RC {}", one.name),
                   [=](Bed& bed) { return operate(bed, IBV_QPT_RC, one.opcode); }});
  }
  for (const Operation& one : kOperations) {
    all.push_back({fmt::format("operation: UC {}", one.name),
                   [=](Bed& bed) { return operate(bed, IBV_QPT_UC, one.opcode); }});
  }
  for (const Operation& one : kOperations) {
    if (one.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || one.opcode == IBV_WR_ATOMIC_CMP_AND_SWP)
      continue;
    all.push_back({fmt::format("operation: {}, 0 bytes", one.name),
                   [=](Bed& bed) { return no_bytes(bed, one.opcode); }});
  }
  all.push_back({"operation: GRH flag of an RC message", route_header});
  all.push_back({"operation: write, inline", inline_data});
  all.push_back({"operation: two SGEs on both sides", pieces});
  all.push_back({"operation: write of 1 MiB", large});
  all.push_back({"operation: completions of request 1 unsignalled, 2 signalled",
                 [](Bed& bed) { return unsignalled(bed, false); }});
  all.push_back(
      {"operation: the same with sq_sig_all", [](Bed& bed) { return unsignalled(bed, true); }});
  all.push_back({"operation: unsignalled failure", unsignalled_failure});
  all.push_back({"operation: list, second request with 30 SGEs", refused_in_a_list});
  all.push_back({"atomic: adds from two queue pairs", added_from_two});
  all.push_back({"atomic: misaligned", misaligned});
  all.push_back({"atomic: 4 bytes", short_atomic});
  return all;
}

}  // namespace turnout::conform
