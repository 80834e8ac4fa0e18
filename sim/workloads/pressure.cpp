// SPDX-License-Identifier: BSD-3-Clause
// What strains one side: large transfers behind computation, messages before their receives, all to
// one, which bench/mpi has as MPI programs; and master and workers: rank 0 hands out tasks, one at
// a time, to whoever has a result.

#include <algorithm>

#include "sim/workloads/families.h"
#include "sim/workloads/window.h"

namespace turnout::sim {
namespace {

constexpr std::uint64_t kGoTag = kDataTag + 1;

struct Overlap {
  std::uint64_t rounds, bytes;
  Picoseconds compute;
  std::uint64_t slices;
  std::uint32_t peer;
  bool sends;
};

// With a look at the library after each slice but the last.
Task compute_beside(Rank rank, const Overlap& p, Request request) {
  for (std::uint64_t i = 0; i < p.slices; ++i) {
    co_await rank.compute(p.compute / static_cast<Picoseconds>(p.slices));
    if (i + 1 < p.slices) (void)rank.test(request);
  }
}

// The receive stands before the message is sent; whoever computes does so before it waits.
Task transfers(Rank rank, Overlap p, bool computes) {
  for (std::uint64_t i = 0; i < p.rounds; ++i) {
    Request request;
    if (p.sends) {
      co_await rank.recv(p.peer, 1, kGoTag);
      request = co_await rank.isend(p.peer, p.bytes, kDataTag);
    } else {
      request = co_await rank.irecv(p.peer, p.bytes, kDataTag);
      co_await rank.send(p.peer, 1, kGoTag);
    }
    if (computes) co_await compute_beside(rank, p, request);
    co_await rank.wait(request);
  }
}

// Rank 0 times the phases; one ends when all have ended. The words that start the transfers count.
Task overlap(Rank rank, Overlap p, SharedPhases phases) {
  struct Step {
    std::string_view name;
    bool sender, receiver;  // computes
  };
  for (const Step& step :
       {Step{"warm-up", false, false}, Step{"alone", false, false},
        Step{"sender computes", true, false}, Step{"receiver computes", false, true}}) {
    if (rank.id() == 0) phases->begin(step.name, rank.now());
    co_await transfers(rank, p, p.sends ? step.sender : step.receiver);
    co_await rank.barrier();
    if (rank.id() == 0) phases->end(rank.now(), p.rounds * rank.size());
  }
}

struct Many {
  std::uint64_t messages, bytes;
  Picoseconds compute;
  std::uint32_t window, ahead;
  std::uint64_t looks;
};

Task send_all(Rank rank, const Many& p) {
  Window sends(p.window);
  for (std::uint64_t i = 0; i < p.messages; ++i) {
    if (sends.full()) co_await rank.wait(sends.pop());
    sends.push(co_await rank.isend(0, p.bytes, kDataTag));
  }
  while (!sends.empty()) co_await rank.wait(sends.pop());
}

// Rank 0 looks at the library now and then, but receives nothing until it has computed. What it
// looks for comes from rank 1 at the end.
Task flood(Rank rank, Many p, SharedPhases phases) {
  if (rank.id() != 0) {
    co_await send_all(rank, p);
    if (rank.id() == 1) co_await rank.send(0, 1, kGoTag);
    co_return;
  }
  const Request last = co_await rank.irecv(1, 1, kGoTag);
  phases->begin("compute", rank.now());
  for (std::uint64_t i = 0; i < p.looks; ++i) {
    co_await rank.compute(p.compute / static_cast<Picoseconds>(p.looks));
    (void)rank.test(last);
  }
  phases->end(rank.now(), 0);
  phases->begin("take", rank.now());
  for (std::uint64_t i = 0; i < p.messages; ++i) {
    for (std::uint32_t from = 1; from < rank.size(); ++from) {
      co_await rank.recv(from, p.bytes, kDataTag);
    }
  }
  co_await rank.wait(last);
  phases->end(rank.now(), p.messages * (rank.size() - 1) + 1);
}

Task incast(Rank rank, Many p, SharedPhases phases) {
  if (rank.id() != 0) {
    co_await send_all(rank, p);
    co_return;
  }
  phases->begin("incast", rank.now());
  const std::uint64_t all = p.messages * (rank.size() - 1);
  Window receives(p.ahead);
  std::uint64_t posted = 0;
  for (std::uint64_t i = 0; i < all; ++i) {
    for (; posted < all && !receives.full(); ++posted) {
      receives.push(co_await rank.irecv(kAnySource, p.bytes, kDataTag));
    }
    co_await rank.wait(receives.pop());
  }
  phases->end(rank.now(), all);
}

Result<Program> make_overlap(const Values& v, const Place& place, const SharedPhases& phases) {
  if (place.ranks % 2 != 0) {
    return Status{Code::invalid, "overlap needs an even number of ranks"};
  }
  const std::uint32_t half = place.ranks / 2;
  const auto compute = v.time("compute");
  const Overlap p{v["rounds"], v["bytes"], compute, v["slices"], half, false};
  return Program([p, phases](Rank rank) {
    Overlap own = p;
    own.sends = rank.id() < p.peer;
    own.peer = own.sends ? rank.id() + p.peer : rank.id() - p.peer;
    return overlap(rank, own, phases);
  });
}

Many many(const Values& v) {
  return {v["messages"], v["bytes"], 0, v.small("window"), 0, 1};
}

Result<Program> make_flood(const Values& v, const Place&, const SharedPhases& phases) {
  Many p = many(v);
  p.compute = v.time("compute");
  p.looks = v["looks"];
  return Program([p, phases](Rank rank) { return flood(rank, p, phases); });
}

Result<Program> make_incast(const Values& v, const Place&, const SharedPhases& phases) {
  Many p = many(v);
  p.ahead = v.small("ahead");
  return Program([p, phases](Rank rank) { return incast(rank, p, phases); });
}

// A worker's first message asks, each later one carries a result. An empty message from the master
// is the end. The master keeps receives from any source posted ahead.
constexpr std::uint64_t kResultTag = 1, kTaskTag = 2;

struct Tasks {
  std::uint64_t tasks, task_bytes, result_bytes;
  std::uint64_t work;  // mean of a task, ns
  std::uint32_t window, ahead;
};

Task master(Rank rank, Tasks p) {
  const std::uint64_t workers = rank.size() - 1;
  const std::uint64_t answers = p.tasks + workers;  // each task, and the end of each worker
  Window receives(std::min<std::uint64_t>(p.ahead, answers)), sends(p.window);
  std::uint64_t posted = 0;
  for (std::uint64_t i = 0; i < answers; ++i) {
    for (; posted < answers && !receives.full(); ++posted) {
      receives.push(co_await rank.irecv(kAnySource, p.result_bytes, kResultTag));
    }
    const Received result = co_await rank.wait(receives.pop());
    if (sends.full()) co_await rank.wait(sends.pop());
    sends.push(co_await rank.isend(result.source, i < p.tasks ? p.task_bytes : 0, kTaskTag));
  }
  while (!sends.empty()) co_await rank.wait(sends.pop());
}

// Tasks take half to one and a half times the mean.
Picoseconds draw(Random& random, std::uint64_t mean) {
  return static_cast<Picoseconds>(mean / 2 + random.below(mean + 1)) * hca::kNanosecond;
}

Task worker(Rank rank, Tasks p) {
  for (;;) {
    const Request in = co_await rank.irecv(0, p.task_bytes, kTaskTag);
    co_await rank.send(0, p.result_bytes, kResultTag);
    const Received task = co_await rank.wait(in);
    if (task.bytes == 0) co_return;
    co_await rank.compute(draw(rank.random(), p.work));
  }
}

Task master_worker(Rank rank, Tasks p, SharedPhases phases) {
  if (rank.id() != 0) {
    co_await worker(rank, p);
    co_return;
  }
  phases->begin("masterworker", rank.now());
  co_await master(rank, p);
  phases->end(rank.now(), 2 * (p.tasks + rank.size() - 1));
}

Result<Program> make_master_worker(const Values& v, const Place&, const SharedPhases& phases) {
  const Tasks p{v["tasks"], v["task_bytes"],   v["result_bytes"],
                v["work"],  v.small("window"), v.small("ahead")};
  return Program([p, phases](Rank rank) { return master_worker(rank, p, phases); });
}

}  // namespace

std::vector<Workload> pressure_family() {
  using namespace parameter;
  constexpr Parameter messages =
      count("messages", 1000, 1, kMostCount, "of each rank except rank 0");
  return {
      {"overlap",
       "rank i sends to rank i + n/2: alone, while the sender computes, while the receiver "
       "computes; hidden is 1 - (phase - compute) / alone",
       {rounds(20), bytes(std::uint64_t{1} << 20),
        time("compute", 1'000'000, "computation of one side during each transfer"),
        count(
            "slices", 1, 1, 1'000'000,
            "parts of the computation, with a poll between them; many: as with a progress thread")},
       make_overlap},
      {"flood",
       "all send to rank 0, which computes first and then receives the unexpected messages",
       {messages, bytes(8), window(64), time("compute", 10'000'000, "computation of rank 0"),
        count("looks", 1000, 1, 1'000'000, "polls of rank 0 while it computes")},
       make_flood},
      {"incast",
       "all send to rank 0 as fast as they can; it receives from any source",
       {messages, bytes(1024), window(16), ahead(64)},
       make_incast},
      {"masterworker",
       "rank 0 hands out tasks to idle ranks",
       {count("tasks", 10'000, 1, kMostCount, "total number of tasks"),
        {"task_bytes", Parameter::Unit::bytes, 256, 1, kMostBytes, "bytes per task"},
        {"result_bytes", Parameter::Unit::bytes, 64, 0, kMostBytes, "bytes per result"},
        time("work", 10'000, "mean time per task"),
        window(16),
        ahead(16)},
       make_master_worker}};
}

}  // namespace turnout::sim
