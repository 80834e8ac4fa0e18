// SPDX-License-Identifier: BSD-3-Clause
// One rank against all others: onetoall, alltoone and repeat of AQPS 4.3.
//
// "Barriers are performed when a process receives more than 128 messages after a series of N-1
// sends": after each series all ranks know how many messages the busiest receiver got since the
// last barrier, one a series in onetoall, N-1 in alltoone; beyond 128 a barrier follows. Counts
// are of all messages of the pattern, in onetoall those of rank 0, in alltoone those of all
// senders together.

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

// What one side sends or receives: a barrier after each `every` of the first `full` messages.
struct Side {
  std::uint64_t count, full, every;  // every 0: no barriers
};
Side side_of(Rank rank, const Pattern& p, std::uint64_t per_series) {
  const std::uint64_t peers = rank.size() - 1, every = series_of(p, per_series);
  if (rank.id() == 0) return {p.messages, p.messages / peers * peers, every * peers};
  return {share(p.messages, peers, rank.id()), p.messages / peers, every};
}

// Of the i-th message: rank 0, or for rank 0 the others in turn.
std::uint32_t partner(Rank rank, std::uint64_t i) {
  return rank.id() == 0 ? 1 + static_cast<std::uint32_t>(i % (rank.size() - 1)) : 0;
}

Task drain(Rank rank, Window& window) {
  while (!window.empty()) co_await rank.wait(window.pop());
}

Task send(Rank rank, Pattern p, Side side) {
  Window sends(p.window);
  for (std::uint64_t i = 0; i < side.count;) {
    if (sends.full()) co_await rank.wait(sends.pop());
    sends.push(co_await rank.isend(partner(rank, i), p.bytes, kDataTag));
    if (++i <= side.full && side.every != 0 && i % side.every == 0) {
      co_await drain(rank, sends);
      co_await rank.barrier();
    }
  }
  co_await drain(rank, sends);
}

Task receive(Rank rank, Pattern p, Side side) {
  Window receives(p.ahead);
  std::uint64_t posted = 0;
  for (std::uint64_t i = 1; i <= side.count; ++i) {
    for (; posted < side.count && !receives.full(); ++posted) {
      const bool any = p.any_source && rank.id() == 0;
      receives.push(
          co_await rank.irecv(any ? kAnySource : partner(rank, posted), p.bytes, kDataTag));
    }
    co_await rank.wait(receives.pop());
    if (i <= side.full && side.every != 0 && i % side.every == 0) co_await rank.barrier();
  }
}

Task one_to_all(Rank rank, Pattern p) {
  const Side side = side_of(rank, p, 1);
  if (rank.id() == 0) {
    co_await send(rank, p, side);
  } else {
    co_await receive(rank, p, side);
  }
  co_await rank.barrier();
}

Task all_to_one(Rank rank, Pattern p) {
  const Side side = side_of(rank, p, rank.size() - 1);
  if (rank.id() == 0) {
    co_await receive(rank, p, side);
  } else {
    co_await send(rank, p, side);
  }
  co_await rank.barrier();
}

using Body = Task (*)(Rank, Pattern);

Task timed(Rank rank, Body body, Pattern p, std::string_view name, SharedPhases phases) {
  if (rank.id() == 0) phases->begin(name, rank.now());
  co_await body(rank, p);
  if (rank.id() == 0) phases->end(rank.now(), p.messages);
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
