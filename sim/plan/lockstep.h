// SPDX-License-Identifier: BSD-3-Clause
// Lockstep: the programs of all ranks of a trace as one list that each rank goes through, leaving
// out the steps that it takes no part in.
//
// Ranks of an SPMD program do the same in turn, each with peers of its own. The list is found by
// reading all programs side by side: the next step is the known relation (relation.h) that most
// ranks' next operations agree with, and with which none of those that it names disagrees. What
// no relation explains becomes a step with the peers as recorded. Pure; any thread. Untrusted
// traces: check_trace() was called.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/formats/trace.h"
#include "sim/plan/all_to_all.h"
#include "sim/plan/relation.h"

namespace turnout::sim::plan {

// Of values of several ranks and repetitions.
struct Amount {
  double sum = 0, squares = 0, count = 0;
  double least = 0, most = 0;
  void add(double value) noexcept;
  void add(const Amount& other) noexcept;
  [[nodiscard]] double mean() const noexcept { return count > 0 ? sum / count : 0; }
  [[nodiscard]] double spread() const noexcept;  // standard deviation / mean
};

// An operation that a rank starts.
struct Start {
  static constexpr std::uint32_t kNever = 0xffffffff;
  TraceEvent::Kind kind = TraceEvent::Kind::send;
  std::uint32_t peer = 0;
  double bytes = 0;
  std::uint64_t tag = 0;          // 0 unless messages of a pair overtake each other
  double early = 0, compute = 0;  // ns before it: until the first wait before it, and after
  std::uint32_t waited = kNever;  // the last operation that was started before its wait
  std::uint32_t item = 0;         // of Lockstep that it became part of
  AllToAll all_to_all;            // with kEveryPeer
  double inside = 0;              // of these: ns between its first message and its last wait
  bool goes_on = false;           // a further step of a rank in one tree
};
struct RankStarts {
  std::vector<Start> list;
  double end_compute = 0;
};
// By rank, without messages to itself; all-to-all exchanges are one operation each.
[[nodiscard]] std::vector<RankStarts> starts_of(const Trace& trace);

// Of all ranks together.
struct Totals {
  double messages = 0;  // sends and one-sided operations
  double bytes = 0;
  double compute = 0, end_compute = 0;  // ns, of one rank
};
[[nodiscard]] Totals totals_of(const std::vector<RankStarts>& ranks);

struct Item {
  bool is_wait = false;
  TraceEvent::Kind kind = TraceEvent::Kind::send;
  std::uint32_t map = 0;  // into Lockstep::maps; of a wait, that of the operation behind it
  std::uint64_t tag = 0;  // 0 unless messages of a pair overtake each other
  Amount bytes;
  Amount compute;  // ns, directly before it, of those who take part
  AllToAll all_to_all;
  // ns within a collective, of those who take part: between the messages of an all-to-all exchange;
  // before it, where the rank goes on in a tree.
  Amount inside;
  std::uint32_t takers = 0;  // ranks and repetitions
  bool all = false;          // wait: for everything; else for operations so many items back
  std::vector<std::uint32_t> back;
};

struct PeerMap {
  std::vector<std::uint32_t> peers;  // by rank
  std::vector<Relation> relations;   // those that it agrees with; none: irregular
};

struct Lockstep {
  std::uint32_t ranks = 0;
  std::vector<PeerMap> maps;
  std::vector<Item> items;
  std::uint64_t irregular = 0;  // messages without a relation
  // By rank and operation: waits of the list before it.
  std::vector<std::vector<std::uint32_t>> waits_before;
};

[[nodiscard]] Lockstep read_lockstep(std::vector<RankStarts> ranks);

}  // namespace turnout::sim::plan
