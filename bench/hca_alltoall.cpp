// SPDX-License-Identifier: BSD-3-Clause
// hca_alltoall: messages among all of several processes over plain verbs, more of them than
// processors, for bench/run_verbs.py.
//
//   hca_alltoall [--processes 16] [--rounds 5000] [--bytes 64]
//
// An RC queue pair between each two. In each round every process sends one message to each other
// one and polls until it has one from each; who comes first may be a round ahead. Who it is from
// and of which round is checked. Prints one line of JSON: the time of the rounds, and the processor
// time that all processes took in them. It links with the virtual adapter's libibverbs.
#include <infiniband/verbs.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/hca_program.h"

namespace {

using namespace turnout::bench;

constexpr std::uint32_t kMost = 64;  // processes
constexpr std::uint64_t kAhead = 2;  // rounds for which a process has receives posted

struct Options {
  std::uint32_t processes = 16, bytes = 64;
  std::uint64_t rounds = 5000;
};

// What the processes tell each other.
struct Shared {
  std::atomic<std::uint32_t> arrived[4];  // barriers
  std::atomic<std::uint64_t> processor_ns;
  std::uint64_t elapsed_ns;
  std::uint32_t lid;
  std::uint32_t queue[kMost][kMost];  // [a][b]: of a, to b
  void meet(int barrier, std::uint32_t processes) {
    arrived[barrier].fetch_add(1);
    while (arrived[barrier].load() != processes) sched_yield();
  }
};

struct Message {
  std::uint64_t round;
  std::uint32_t from, to;
};

std::uint64_t processor_ns() {
  rusage used{};
  expect(getrusage(RUSAGE_SELF, &used) == 0, "getrusage");
  const auto ns = [](const timeval& t) {
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000 +
           static_cast<std::uint64_t>(t.tv_usec) * 1000;
  };
  return ns(used.ru_utime) + ns(used.ru_stime);
}

class Process {
 public:
  Process(const Options& options, Shared& shared, std::uint32_t rank)
      : options_(options),
        shared_(shared),
        rank_(rank),
        queues_(options.processes),
        sent_(options.processes),
        memory_(std::size_t{options.processes} * (kAhead + 1) * options.bytes) {
    ibv_device** const devices = ibv_get_device_list(nullptr);
    expect(devices != nullptr && devices[0] != nullptr, "no device");
    ibv_context* const context = ibv_open_device(devices[0]);
    ibv_free_device_list(devices);
    expect(context != nullptr, "ibv_open_device");
    ibv_port_attr port{};
    succeed(ibv_query_port(context, 1, &port), "ibv_query_port");
    shared.lid = port.lid;
    ibv_pd* const pd = ibv_alloc_pd(context);
    expect(pd != nullptr, "ibv_alloc_pd");
    const int depth = static_cast<int>(2 * (kAhead + 2) * options.processes);
    cq_ = ibv_create_cq(context, depth, nullptr, nullptr, 0);
    expect(cq_ != nullptr, "ibv_create_cq");
    constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE;
    region_ = ibv_reg_mr(pd, memory_.data(), memory_.size(), kAccess);
    expect(region_ != nullptr, "ibv_reg_mr");
    for (std::uint32_t peer = 0; peer < options.processes; ++peer) {
      if (peer == rank) continue;
      ibv_qp_init_attr wanted{};
      wanted.send_cq = wanted.recv_cq = cq_;
      wanted.cap = {kAhead + 2, kAhead + 2, 1, 1, 0};
      wanted.qp_type = IBV_QPT_RC;
      queues_[peer] = ibv_create_qp(pd, &wanted);
      expect(queues_[peer] != nullptr, "ibv_create_qp");
      shared.queue[rank][peer] = queues_[peer]->qp_num;
    }
  }

  void meet_all() {
    for (std::uint32_t peer = 0; peer < options_.processes; ++peer) {
      if (peer == rank_) continue;
      to_init(queues_[peer], 0);
      for (std::uint64_t slot = 0; slot < kAhead; ++slot) receive(peer, slot);
      connect(queues_[peer], shared_.queue[peer][rank_], shared_.lid, IBV_MTU_4096);
    }
  }

  void round(std::uint64_t number) {
    for (std::uint32_t peer = 0; peer < options_.processes; ++peer) {
      if (peer != rank_) send(peer, number);
    }
    while (got_ + 1 < options_.processes || sends_ != 0) poll(number);
    got_ = next_;
    next_ = 0;
  }

 private:
  std::uint8_t* slot(std::uint32_t peer, std::uint64_t of) {
    return memory_.data() + (peer * (kAhead + 1) + of) * options_.bytes;
  }
  void receive(std::uint32_t peer, std::uint64_t of) {
    ibv_sge part{reinterpret_cast<std::uint64_t>(slot(peer, of)), options_.bytes, region_->lkey};
    ibv_recv_wr request{}, *bad = nullptr;
    request.wr_id = peer << 8 | of;
    request.sg_list = &part;
    request.num_sge = 1;
    succeed(ibv_post_recv(queues_[peer], &request, &bad), "ibv_post_recv");
  }
  void send(std::uint32_t peer, std::uint64_t number) {
    const Message message{number, rank_, peer};
    std::memcpy(slot(peer, kAhead), &message, sizeof message);
    ibv_sge part{reinterpret_cast<std::uint64_t>(slot(peer, kAhead)), options_.bytes,
                 region_->lkey};
    ibv_send_wr request{}, *bad = nullptr;
    request.sg_list = &part;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    succeed(ibv_post_send(queues_[peer], &request, &bad), "ibv_post_send");
    ++sends_;
  }
  void poll(std::uint64_t number) {
    ibv_wc entries[16];
    const int n = ibv_poll_cq(cq_, 16, entries);
    expect(n >= 0, "ibv_poll_cq");
    for (int i = 0; i < n; ++i) {
      const ibv_wc& entry = entries[i];
      if (entry.status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(entry.status), EIO);
      if (entry.opcode == IBV_WC_SEND) {
        --sends_;
        continue;
      }
      const auto peer = static_cast<std::uint32_t>(entry.wr_id >> 8);
      Message message;
      std::memcpy(&message, slot(peer, entry.wr_id & 0xff), sizeof message);
      if (message.from != peer || message.to != rank_ || message.round != sent_[peer]++) {
        fail("a message is not the one that was sent", EIO);
      }
      receive(peer, entry.wr_id & 0xff);
      ++(message.round == number ? got_ : next_);
    }
  }

  const Options& options_;
  Shared& shared_;
  const std::uint32_t rank_;
  std::vector<ibv_qp*> queues_;
  std::vector<std::uint64_t> sent_;  // by peer: the round of its next message
  std::vector<std::uint8_t> memory_;
  ibv_cq* cq_ = nullptr;
  ibv_mr* region_ = nullptr;
  std::uint32_t got_ = 0, next_ = 0;  // messages of this round, and of the next one
  std::uint32_t sends_ = 0;           // not completed
};

[[noreturn]] void run(const Options& options, Shared& shared, std::uint32_t rank) {
  Process process(options, shared, rank);
  shared.meet(0, options.processes);
  process.meet_all();
  shared.meet(1, options.processes);
  const std::uint64_t warm_up = options.rounds / 10 + 1;
  for (std::uint64_t i = 0; i < warm_up; ++i) process.round(i);
  shared.meet(2, options.processes);
  const auto begun = std::chrono::steady_clock::now();
  const std::uint64_t before = processor_ns();
  for (std::uint64_t i = 0; i < options.rounds; ++i) process.round(warm_up + i);
  shared.processor_ns.fetch_add(processor_ns() - before);
  shared.meet(3, options.processes);
  if (rank == 0) {
    shared.elapsed_ns =
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                       std::chrono::steady_clock::now() - begun)
                                       .count());
  }
  std::exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Messages among all of several processes over the virtual adapter");
  app.add_option("--processes", options.processes)->check(CLI::Range(2U, kMost));
  app.add_option("--rounds", options.rounds)->check(CLI::PositiveNumber);
  app.add_option("--bytes", options.bytes)->check(CLI::Range(16, 1 << 20));
  CLI11_PARSE(app, argc, argv);
  void* const p =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  expect(p != MAP_FAILED, "mmap");
  auto& shared = *new (p) Shared{};
  std::vector<pid_t> children;
  for (std::uint32_t rank = 0; rank < options.processes; ++rank) {
    const pid_t child = fork();
    expect(child >= 0, "fork");
    if (child == 0) run(options, shared, rank);
    children.push_back(child);
  }
  bool good = true;
  for (std::uint32_t rank = 0; rank < options.processes; ++rank) {
    int status = -1;
    expect(wait(&status) > 0, "wait");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    if (good) {
      for (const pid_t child : children) kill(child, SIGTERM);  // they would wait for it
    }
    good = false;
  }
  if (!good) return 1;
  const std::uint64_t messages =
      options.rounds * options.processes * (std::uint64_t{options.processes} - 1);
  std::printf(
      "{\"benchmark\": \"hca_alltoall\", \"processes\": %u, \"bytes\": %u, \"messages\": %llu, "
      "\"elapsed_ns\": %llu, \"processor_ns\": %llu}\n",
      options.processes, options.bytes, static_cast<unsigned long long>(messages),
      static_cast<unsigned long long>(shared.elapsed_ns),
      static_cast<unsigned long long>(shared.processor_ns.load()));
  return 0;
}
