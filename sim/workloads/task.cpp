// SPDX-License-Identifier: BSD-3-Clause
// Master and workers: rank 0 hands out tasks, one at a time, to whoever has a result.
//
// A worker's first message asks, each later one carries a result. An empty message from the master
// is the end. The master keeps receives from any source posted ahead.

#include <algorithm>

#include "sim/workloads/families.h"
#include "sim/workloads/window.h"

namespace turnout::sim {

namespace {

constexpr std::uint64_t kResultTag = 1, kTaskTag = 2;

struct Pattern {
  std::uint64_t tasks, task_bytes, result_bytes;
  std::uint64_t work;  // mean of a task, ns
  std::uint32_t window, ahead;
};

Task master(Rank rank, Pattern p) {
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

Task worker(Rank rank, Pattern p) {
  for (;;) {
    const Request in = co_await rank.irecv(0, p.task_bytes, kTaskTag);
    co_await rank.send(0, p.result_bytes, kResultTag);
    const Received task = co_await rank.wait(in);
    if (task.bytes == 0) co_return;
    co_await rank.compute(draw(rank.random(), p.work));
  }
}

Task master_worker(Rank rank, Pattern p, SharedPhases phases) {
  if (rank.id() != 0) {
    co_await worker(rank, p);
    co_return;
  }
  phases->begin("masterworker", rank.now());
  co_await master(rank, p);
  phases->end(rank.now(), 2 * (p.tasks + rank.size() - 1));
}

Result<Program> make(const Values& v, const Place&, const SharedPhases& phases) {
  const Pattern p{v["tasks"], v["task_bytes"],   v["result_bytes"],
                  v["work"],  v.small("window"), v.small("ahead")};
  return Program([p, phases](Rank rank) { return master_worker(rank, p, phases); });
}

}  // namespace

std::vector<Workload> task_family() {
  using namespace parameter;
  return {{"masterworker",
           "rank 0 hands out tasks to idle ranks",
           {count("tasks", 10'000, 1, kMostCount, "total number of tasks"),
            {"task_bytes", Parameter::Unit::bytes, 256, 1, kMostBytes, "bytes per task"},
            {"result_bytes", Parameter::Unit::bytes, 64, 0, kMostBytes, "bytes per result"},
            time("work", 10'000, "mean time per task"),
            window(16),
            ahead(16)},
           make}};
}

}  // namespace turnout::sim
