// SPDX-License-Identifier: BSD-3-Clause
// One rank against all others: onetoall, alltoone and repeat of AQPS 4.3.
//
// "Barriers are performed when a process receives more than 128 messages after a series of N-1
// sends": after each series all ranks know how many messages the busiest receiver got since the
// last barrier, one a series in onetoall, N-1 in alltoone; beyond 128 a barrier follows. Counts
// are of all messages of the pattern, in onetoall those of rank 0, in alltoone those of all
// senders together.

#include <algorithm>

#include "sim/workloads/families.h"
#include "sim/workloads/window.h"

namespace turnout::sim {

namespace {

struct Pattern {
  std::uint64_t messages;
  std::uint64_t bytes;
  std::uint64_t barrier_after;  // 0: none
  std::uint32_t window, ahead;
  bool any_source;
};

// Series between two barriers, when the busiest receiver gets so many messages in each.
std::uint64_t series_of(const Pattern& p, std::uint64_t per_series) {
  return p.barrier_after == 0 ? 0 : p.barrier_after / per_series + 1;
}

// Of the messages dealt round robin to ranks 1..peers, those of `id`.
std::uint64_t share(std::uint64_t messages, std::uint64_t peers, std::uint32_t id) {
  return messages / peers + (id - 1 < messages % peers ? 1 : 0);
}

Task drain(Rank rank, Window& window) {
  while (!window.empty()) co_await rank.wait(window.pop());
}

// `count` messages to or from rank 0, a barrier after each `every` of the first `full` ones.
Task send_to_hot(Rank rank, Pattern p, std::uint64_t count, std::uint64_t full,
                 std::uint64_t every) {
  Window sends(p.window);
  for (std::uint64_t i = 1; i <= count; ++i) {
    if (sends.full()) co_await rank.wait(sends.pop());
    sends.push(co_await rank.isend(0, p.bytes, kDataTag));
    if (every != 0 && i <= full && i % every == 0) {
      co_await drain(rank, sends);
      co_await rank.barrier();
    }
  }
  co_await drain(rank, sends);
}

Task receive_from_hot(Rank rank, Pattern p, std::uint64_t count, std::uint64_t full,
                      std::uint64_t every) {
  Window receives(p.ahead);
  std::uint64_t posted = 0;
  for (std::uint64_t i = 1; i <= count; ++i) {
    for (; posted < count && !receives.full(); ++posted) {
      receives.push(co_await rank.irecv(0, p.bytes, kDataTag));
    }
    co_await rank.wait(receives.pop());
    if (every != 0 && i <= full && i % every == 0) co_await rank.barrier();
  }
}

Task hot_sends(Rank rank, Pattern p, std::uint64_t every) {
  const std::uint32_t peers = rank.size() - 1;
  Window sends(p.window);
  std::uint64_t series = 0;
  std::uint32_t to = 0;
  for (std::uint64_t i = 0; i < p.messages; ++i) {
    if (sends.full()) co_await rank.wait(sends.pop());
    sends.push(co_await rank.isend(1 + to, p.bytes, kDataTag));
    if (++to < peers) continue;
    to = 0;
    if (every != 0 && ++series % every == 0) {
      co_await drain(rank, sends);
      co_await rank.barrier();
    }
  }
  co_await drain(rank, sends);
}

Task hot_receives(Rank rank, Pattern p, std::uint64_t every) {
  const std::uint32_t peers = rank.size() - 1;
  const std::uint64_t per_barrier = every * peers, full = p.messages / peers * peers;
  Window receives(p.ahead);
  std::uint64_t posted = 0;
  for (std::uint64_t i = 1; i <= p.messages; ++i) {
    for (; posted < p.messages && !receives.full(); ++posted) {
      const auto from = p.any_source ? kAnySource : 1 + static_cast<std::uint32_t>(posted % peers);
      receives.push(co_await rank.irecv(from, p.bytes, kDataTag));
    }
    co_await rank.wait(receives.pop());
    if (every != 0 && i <= full && i % per_barrier == 0) co_await rank.barrier();
  }
}

Task one_to_all(Rank rank, Pattern p) {
  const std::uint64_t peers = rank.size() - 1, every = series_of(p, 1);
  if (rank.id() == 0) {
    co_await hot_sends(rank, p, every);
  } else {
    co_await receive_from_hot(rank, p, share(p.messages, peers, rank.id()), p.messages / peers,
                              every);
  }
  co_await rank.barrier();
}

Task all_to_one(Rank rank, Pattern p) {
  const std::uint64_t peers = rank.size() - 1, every = series_of(p, peers);
  if (rank.id() == 0) {
    co_await hot_receives(rank, p, every);
  } else {
    co_await send_to_hot(rank, p, share(p.messages, peers, rank.id()), p.messages / peers, every);
  }
  co_await rank.barrier();
}

using Body = Task (*)(Rank, Pattern);

Task timed(Rank rank, Body body, Pattern p, std::string_view name, SharedPhases phases) {
  const bool times = rank.id() == 0;
  if (times) phases->begin(name, rank.now());
  co_await body(rank, p);
  if (times) phases->end(rank.now(), p.messages);
}

// A first part that is not counted gives the selection time to choose.
Task warmed(Rank rank, Body body, Pattern p, std::uint64_t warmup, std::string_view name,
            SharedPhases phases) {
  if (warmup > 0) {
    Pattern first = p;
    first.messages = warmup;
    co_await timed(rank, body, first, "warmup", phases);
  }
  co_await timed(rank, body, p, name, phases);
}

Task repeated(Rank rank, Pattern one, Pattern all, std::uint64_t warmup, std::uint64_t times,
              SharedPhases phases) {
  for (std::uint64_t i = 0; i < warmup + times; ++i) {
    const bool counts = i >= warmup;
    co_await timed(rank, one_to_all, one, counts ? "onetoall" : "warmup", phases);
    co_await timed(rank, all_to_one, all, counts ? "alltoone" : "warmup", phases);
  }
}

Pattern pattern(const Values& v, std::string_view messages) {
  return {v[messages],       v["bytes"],       v["barrier_after"],
          v.small("window"), v.small("ahead"), v["any_source"] != 0};
}

Result<Program> make_one_to_all(const Values& v, const Place&, const SharedPhases& phases) {
  return Program([p = pattern(v, "messages"), warmup = v["warmup"], phases](Rank rank) {
    return warmed(rank, one_to_all, p, warmup, "onetoall", phases);
  });
}

Result<Program> make_all_to_one(const Values& v, const Place&, const SharedPhases& phases) {
  return Program([p = pattern(v, "messages"), warmup = v["warmup"], phases](Rank rank) {
    return warmed(rank, all_to_one, p, warmup, "alltoone", phases);
  });
}

Result<Program> make_repeat(const Values& v, const Place&, const SharedPhases& phases) {
  return Program([one = pattern(v, "messages_out"), all = pattern(v, "messages_in"),
                  warmup = v["warmup"], times = v["times"],
                  phases](Rank rank) { return repeated(rank, one, all, warmup, times, phases); });
}

constexpr Parameter count_of(std::string_view name, std::uint64_t value, std::string_view help) {
  return parameter::count(name, value, 1, parameter::kMostCount, help);
}
constexpr Parameter kWarmup =
    parameter::count("warmup", 0, 0, parameter::kMostCount, "untimed messages at the start");
constexpr Parameter kBarrierAfter =
    parameter::count("barrier_after", 128, 0, parameter::kMostCount,
                     "barrier when a rank has received more messages than this; 0: none");
constexpr Parameter kAnySourceFlag = parameter::count(
    "any_source", 0, 0, 1, "1: rank 0 receives from any source; 0: from the ranks in turn");

}  // namespace

std::vector<Workload> hot_rank_family() {
  using namespace parameter;
  return {
      {"onetoall",
       "rank 0 sends to all others in turn [AQPS 4.3]",
       {count_of("messages", 320'000, "messages of rank 0 [AQPS: multiples of 320000]"), kWarmup,
        bytes(1), kBarrierAfter, window(16), ahead(16), kAnySourceFlag},
       make_one_to_all},
      {"alltoone",
       "all others send to rank 0 [AQPS 4.3]",
       {count_of("messages", 48'000, "total number of messages [AQPS: multiples of 48000]"),
        kWarmup, bytes(1), kBarrierAfter, window(16), ahead(64), kAnySourceFlag},
       make_all_to_one},
      {"repeat",
       "onetoall, then alltoone, repeated [AQPS 4.3]",
       {count_of("times", 5, "number of repetitions"),
        count("warmup", 0, 0, kMostCount, "untimed repetitions at the start"),
        count_of("messages_out", 320'000, "messages per onetoall"),
        count_of("messages_in", 48'000, "messages per alltoone"), bytes(1), kBarrierAfter,
        window(16), ahead(64), kAnySourceFlag},
       make_repeat},
  };
}

}  // namespace turnout::sim
