// SPDX-License-Identifier: BSD-3-Clause
// IBTA 9.7.5 to 9.7.8: receivers that are not ready, targets that do not answer, packet sequence.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "tests/verbs/cases.h"

namespace turnout::conform {
namespace {

void pause(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// The receive comes after the message.
std::string late_receive(Bed& bed) {
  const Pair pair(bed);
  must(post(pair.a, {.pieces = {pair.local.sge(0, 8)}}), "post");
  const std::string before = done(pair.a->send_cq, kNothing);
  must(receive(pair.b, {pair.remote.sge(0, 8)}), "receive");
  const std::string after = done(pair.a->send_cq);
  return fmt::format("{}, then {}, {}", before, after, done(pair.b->recv_cq));
}

std::string no_receive(Bed& bed, std::uint8_t retries) {
  Link link;
  link.rnr_retry = retries;
  const Pair pair(bed, {}, link);
  must(post(pair.a, {.pieces = {pair.local.sge(0, 8)}}), "post");
  const std::string said = done(pair.a->send_cq);
  return fmt::format("{}; a {}, b {}", said, state_of(pair.a), state_of(pair.b));
}

// What is posted behind a send that waits for its receive, waits too.
std::string order_behind_rnr(Bed& bed) {
  const Pair pair(bed);
  must(post(pair.a, {.pieces = {pair.local.sge(0, 8)}, .id = 1}), "post");
  Request write = write_of(pair);
  write.id = 2;
  pair.local.data[0] = 9;
  must(post(pair.a, write), "post");
  const std::string before = done(pair.a->send_cq, kNothing);
  const int there = pair.remote.data[0];
  must(receive(pair.b, {pair.remote.sge(64, 8)}), "receive");
  const auto first = poll(pair.a->send_cq);
  const auto second = poll(pair.a->send_cq);
  return fmt::format("{}, remote {}; then {} {}", before, there, first ? first->wr_id : 0,
                     second ? second->wr_id : 0);
}

// To a queue pair that `change` has made deaf.
std::string unanswered(Bed& bed, const std::function<void(const Pair&)>& change) {
  const Pair pair(bed);
  change(pair);
  must(post(pair.a, write_of(pair)), "post");
  must(post(pair.a, write_of(pair)), "post");
  const std::string first = done(pair.a->send_cq);
  const std::string second = done(pair.a->send_cq);
  return fmt::format("{}, {}; a {}", first, second, state_of(pair.a));
}

std::string destroyed(Bed& bed) {
  return unanswered(bed, [](const Pair& pair) {
    pair.bed.forget(pair.b);
    must(name_of(ibv_destroy_qp(pair.b)), "ibv_destroy_qp");
  });
}

std::string connected_elsewhere(Bed& bed) {
  return unanswered(bed, [](const Pair& pair) {
    must(move(pair.b, IBV_QPS_RESET), "to RESET");
    connect(pair.b, pair.bed, pair.bed.where(pair.b));
  });
}

std::string not_ready_yet(Bed& bed) {
  ibv_qp* const a = bed.qp();
  ibv_qp* const b = bed.qp();
  const Memory memory = bed.memory();
  Link patient;
  patient.timeout = 14;
  patient.retry_count = 6;
  connect(a, bed, bed.where(b), patient);
  must(to_init(b), "to INIT");
  memory.data[0] = 3;
  must(post(a, {.opcode = IBV_WR_RDMA_WRITE,
                .pieces = {memory.sge(0, 8)},
                .remote = memory.at(64),
                .rkey = memory.mr->rkey}),
       "post");
  const std::string before = done(a->send_cq, 20);
  must(to_rtr(b, bed, bed.where(a)), "to RTR");
  return fmt::format("{}, then {}, remote {}", before, done(a->send_cq), memory.data[64]);
}

// After one message, ends begin anew with these sequence numbers.
std::string again(Bed& bed, bool a_too, bool b_too, std::uint32_t sends, std::uint32_t expects) {
  const Pair pair(bed);
  must(post(pair.a, write_of(pair)), "post");
  if (done(pair.a->send_cq) != "SUCCESS RDMA_WRITE") throw Cannot("the first message");
  Link link;
  if (a_too) {
    link.sq_psn = sends;
    must(move(pair.a, IBV_QPS_RESET), "to RESET");
    connect(pair.a, bed, bed.where(pair.b), link);
  }
  if (b_too) {
    link.sq_psn = 0;
    link.rq_psn = expects;
    must(move(pair.b, IBV_QPS_RESET), "to RESET");
    connect(pair.b, bed, bed.where(pair.a), link);
  }
  pair.local.data[0] = 7;
  must(post(pair.a, write_of(pair)), "post");
  const std::string said = done(pair.a->send_cq);
  return fmt::format("{}, remote {}", said, pair.remote.data[0]);
}

// What one process tells the other.
struct Told {
  Where where;
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
};

void tell(int fd, const Told& told) {
  if (write(fd, &told, sizeof told) != sizeof told) throw Cannot("write to a pipe");
}
Told hear(int fd) {
  Told told;
  if (read(fd, &told, sizeof told) != sizeof told) throw Cannot("the other process has ended");
  return told;
}

// A process of its own that is written to until it is killed.
[[noreturn]] void victim(const Choice& choice, int from, int to) {
  try {
    Bed bed(choice);
    ibv_qp* const qp = bed.qp();
    const Memory memory = bed.memory();
    const Told peer = hear(from);
    connect(qp, bed, peer.where);
    tell(to, {bed.where(qp), memory.at(), memory.mr->rkey});
    pause(60000);
  } catch (const std::exception&) {
  }
  _exit(1);
}

std::string killed(Bed& bed) {
  int down[2], up[2];
  if (pipe(down) != 0 || pipe(up) != 0) throw Cannot("pipe");
  const pid_t child = fork();
  if (child < 0) throw Cannot("fork");
  if (child == 0) victim(bed.choice, down[0], up[1]);
  close(down[0]);
  close(up[1]);
  std::string text;
  try {
    ibv_qp* const qp = bed.qp();
    const Memory memory = bed.memory();
    tell(down[1], {bed.where(qp), 0, 0});
    const Told peer = hear(up[0]);
    connect(qp, bed, peer.where);
    const Request write{.opcode = IBV_WR_RDMA_WRITE,
                        .pieces = {memory.sge(0, 8)},
                        .remote = peer.address,
                        .rkey = peer.rkey};
    must(receive(qp, {memory.sge(64, 8)}, 5), "receive");
    must(post(qp, write), "post");
    text = done(qp->send_cq);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    pause(kNothing);
    text += fmt::format(", killed: {}", state_of(qp));
    must(post(qp, write), "post");
    std::string said;
    for (int i = 0; i < 2; ++i) {
      const auto wc = poll(qp->send_cq);
      said += fmt::format(" {}", wc ? words(*wc) : "nothing");
    }
    text += fmt::format(", then{}; {}", said, state_of(qp));
  } catch (...) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    throw;
  }
  close(down[1]);
  close(up[0]);
  return text;
}

}  // namespace

std::vector<Case> connection_cases() {
  return {
      {"RNR: late receive", late_receive},
      {"RNR: 2 retries, no receive", [](Bed& bed) { return no_receive(bed, 2); }},
      {"RNR: no retries, no receive", [](Bed& bed) { return no_receive(bed, 0); }},
      {"RNR: order of later requests", order_behind_rnr},
      {"no response: target destroyed", destroyed},
      {"no response: target in RESET",
       [](Bed& bed) {
         return unanswered(bed,
                           [](const Pair& pair) { must(move(pair.b, IBV_QPS_RESET), "to RESET"); });
       }},
      {"no response: target in ERR",
       [](Bed& bed) {
         return unanswered(bed,
                           [](const Pair& pair) { must(move(pair.b, IBV_QPS_ERR), "to ERR"); });
       }},
      {"no response: target connected to another", connected_elsewhere},
      {"no response: target ready later", not_ready_yet},
      {"sequence: both ends reconnect", [](Bed& bed) { return again(bed, true, true, 0, 0); }},
      {"sequence: both ends reconnect with another PSN",
       [](Bed& bed) { return again(bed, true, true, 0xffffff, 0xffffff); }},
      {"sequence: only the target reconnects",
       [](Bed& bed) { return again(bed, false, true, 0, 0); }},
      {"sequence: only the initiator reconnects, earlier PSN",
       [](Bed& bed) { return again(bed, true, false, 0, 0); }},
      {"sequence: only the initiator reconnects, later PSN",
       [](Bed& bed) { return again(bed, true, false, 500, 0); }},
      {"sequence: only the initiator reconnects, expected PSN",
       [](Bed& bed) { return again(bed, true, false, 1, 0); }},
      {"death: target process killed", killed},
  };
}

}  // namespace turnout::conform
