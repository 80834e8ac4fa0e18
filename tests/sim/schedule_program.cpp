// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/schedule_program.h"

#include <cstddef>
#include <deque>

namespace turnout::sim {
namespace {

struct Open {
  Request request;
  std::uint32_t peer;
};

Task end_of(Rank rank, Open open, std::shared_ptr<const Plan> plan) {
  try {
    co_await rank.wait(open.request);
  } catch (const OperationError&) {
    plan->excuse(open.peer);
  }
}

Task reach(Rank rank, Reach to, std::shared_ptr<const Plan> plan, std::deque<Open>* open) {
  try {
    auto start = to.put ? rank.iput(to.peer, to.bytes) : rank.iget(to.peer, to.bytes);
    const Request request = co_await start;
    open->push_back({request, to.peer});
  } catch (const OperationError&) {
    plan->excuse(to.peer);
  }
}

}  // namespace

Task take_part(Rank rank, std::shared_ptr<const Plan> plan) {
  const auto& sends = plan->sends[rank.id()];
  const auto& receives = plan->receives[rank.id()];
  const bool wild = plan->wild[rank.id()];
  const auto& adds = plan->adds[rank.id()];
  std::size_t sent = 0, posted = 0;
  std::deque<Open> open;
  std::deque<Request> adding;
  std::size_t added = 0;
  const auto end_first_add = [&](const Received& before) {
    (*plan->fetched)[adds[added - adding.size()]].push_back(before.tag);
    adding.pop_front();
  };
  Random among(plan->seed ^ rank.id());
  const auto& reaches = plan->reaches[rank.id()];
  std::deque<Open> reaching;
  std::size_t reached = 0;
  Random far(plan->seed ^ 0x72656163 ^ rank.id());
  Random& random = rank.random();
  while (sent < sends.size() || posted < receives.size()) {
    const bool receive = sent == sends.size() || (posted < receives.size() && random.below(2) == 0);
    const Planned& p = receive ? receives[posted++] : sends[sent++];
    const std::uint32_t peer = receive ? p.from : p.to;
    try {
      if (receive) {
        const Request in =
            wild ? co_await rank.irecv(kAnySource, 80'000, kAnyTag)
                 : co_await rank.irecv(p.from, p.bytes + random.below(2) * 100, p.tag);
        open.push_back({in, peer});
      } else {
        const Request out = co_await rank.isend(p.to, p.bytes, p.tag, p.ends);
        open.push_back({out, peer});
      }
    } catch (const OperationError&) {
      plan->excuse(peer);
    }
    for (; added < adds.size() && among.below(3) == 0; ++added) {
      const Request add = co_await rank.iadd(adds[added]);
      adding.push_back(add);
    }
    while (!adding.empty() && among.below(3) == 0 && rank.test(adding.front())) {
      end_first_add(co_await rank.wait(adding.front()));
    }
    for (; reached < reaches.size() && far.below(3) == 0; ++reached) {
      co_await reach(rank, reaches[reached], plan, &reaching);
    }
    while (!reaching.empty() && far.below(3) == 0 && rank.test(reaching.front().request)) {
      co_await end_of(rank, reaching.front(), plan);
      reaching.pop_front();
    }
    if (random.below(4) == 0) {
      co_await rank.compute(static_cast<Picoseconds>(random.below(2 * plan->pace + 1)));
    }
    // Never wait for the oldest while a receive that others need is not posted: take what is done.
    while (!open.empty() && random.below(3) == 0 && rank.test(open.front().request)) {
      co_await end_of(rank, open.front(), plan);
      open.pop_front();
    }
  }
  while (!open.empty()) {
    co_await end_of(rank, open.front(), plan);
    open.pop_front();
  }
  for (; added < adds.size(); ++added) {
    const Request add = co_await rank.iadd(adds[added]);
    adding.push_back(add);
  }
  while (!adding.empty()) end_first_add(co_await rank.wait(adding.front()));
  for (; reached < reaches.size(); ++reached) {
    co_await reach(rank, reaches[reached], plan, &reaching);
  }
  for (; !reaching.empty(); reaching.pop_front()) co_await end_of(rank, reaching.front(), plan);
  if (plan->deaths) {
    if (!plan->doomed[rank.id()]) --*plan->at_work;
    for (Picoseconds time = hca::kMicrosecond; *plan->at_work > 0; time *= 2) {
      co_await rank.compute_beside_thread(time);
    }
  }
  // A wildcard receive would take the barrier's messages; the dead do not come to it.
  if (!plan->any_wild && !plan->deaths) co_await rank.barrier();
}

}  // namespace turnout::sim
