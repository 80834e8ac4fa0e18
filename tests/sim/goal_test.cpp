// SPDX-License-Identifier: BSD-3-Clause
// GOAL schedules: the grammar, and that the order found can be played.
#include "sim/formats/goal.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <deque>
#include <set>
#include <sstream>

#include <fmt/format.h>

namespace turnout::sim {
namespace {

using Kind = TraceEvent::Kind;

Result<Trace> read(const std::string& text) {
  std::istringstream in(text);
  return read_goal(in, "test", {});
}

// Plays the trace as a rank's program would, sends ending at once: does every rank come to its end?
std::string play(const Trace& trace) {
  struct Rank {
    std::size_t at = 0;
    std::map<std::uint32_t, const TraceEvent*> pending;  // receives
    std::set<std::uint32_t> ended;
  };
  std::vector<Rank> ranks(trace.ranks());
  using Stream = std::tuple<std::uint32_t, std::uint32_t, std::uint64_t>;
  std::map<Stream, std::uint64_t> sent, received;
  bool moved = true;
  while (moved) {
    moved = false;
    for (std::uint32_t r = 0; r < trace.ranks(); ++r) {
      Rank& rank = ranks[r];
      for (; rank.at < trace.programs[r].size(); ++rank.at, moved = true) {
        const TraceEvent& e = trace.programs[r][rank.at];
        if (e.kind == Kind::send) {
          ++sent[{r, e.peer, e.tag}];
          rank.ended.insert(e.request);
        } else if (e.kind == Kind::receive) {
          rank.pending[e.request] = &e;
        } else if (e.kind == Kind::wait && rank.ended.erase(e.request) == 0) {
          const TraceEvent& receive = *rank.pending.at(e.request);
          const Stream stream{receive.peer, r, receive.tag};
          if (sent[stream] == received[stream]) break;
          ++received[stream];
          rank.pending.erase(e.request);
        }
      }
    }
  }
  for (std::uint32_t r = 0; r < trace.ranks(); ++r) {
    if (ranks[r].at != trace.programs[r].size()) return fmt::format("rank {} waits for ever", r);
  }
  return {};
}

TEST(Goal, ReadsASchedule) {
  const Result<Trace> trace = read(
      "num_ranks 2\n"
      "rank 0 {\n"
      "  l1: calc 100 cpu 1\n"
      "  l2: send 8b to 1 tag 7 cpu 0 nic 0  // a comment\n"
      "  l2 requires l1\n"
      "  l3: recv 4b from -1 tag -1\n"
      "  l3 irequires l2\n"
      "  calc 5\n"
      "}\n"
      "/* two\n lines */\n"
      "rank 1 { r: recv 8 b from 0 tag 7; s: send 4b to 0; s requires r }\n");
  ASSERT_TRUE(trace.ok()) << trace.status().text();
  EXPECT_EQ(play(trace.value()), "");
  const auto& first = trace.value().programs[0];
  ASSERT_EQ(first.size(), 6u);  // two computations, send, receive, a wait for each
  EXPECT_EQ(first[0].kind, Kind::compute);
  EXPECT_EQ(first[0].amount, 100u);
  EXPECT_EQ(first[2].kind, Kind::send);
  EXPECT_EQ(first[3].kind, Kind::receive);
  EXPECT_TRUE(first[3].any_source && first[3].any_tag);
  EXPECT_EQ(first[3].peer, 1u);
  EXPECT_EQ(first[3].tag, 0u);
  const auto& second = trace.value().programs[1];
  ASSERT_EQ(second.size(), 4u);
  EXPECT_EQ(second[1].kind, Kind::wait);
  EXPECT_EQ(second[2].kind, Kind::send);
}

// Two chains on each of two ranks: waiting for either one first would wait for ever.
TEST(Goal, ChainsThatWouldBlockOneAnother) {
  const Result<Trace> trace = read(
      "num_ranks 2\n"
      "rank 0 {\n a: recv 1b from 1 tag 1\n b: send 1b to 1 tag 2\n b requires a\n"
      " c: recv 1b from 1 tag 3\n d: send 1b to 1 tag 4\n d requires c\n}\n"
      "rank 1 {\n a: send 1b to 0 tag 3\n b: recv 1b from 0 tag 4\n c: send 1b to 0 tag 1\n"
      " c requires b\n d: recv 1b from 0 tag 2\n}\n");
  ASSERT_TRUE(trace.ok()) << trace.status().text();
  EXPECT_EQ(play(trace.value()), "");
}

std::string dissemination(std::uint32_t ranks) {
  std::string text = fmt::format("num_ranks {}\n\n", ranks);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    text += fmt::format("rank {} {{\n", rank);
    int label = 0;
    for (std::uint32_t distance = 1; distance < ranks; distance *= 2) {
      text += fmt::format("l{}: send 1b to {} tag 0\n", ++label, (rank + distance) % ranks);
      if (label > 1) text += fmt::format("l{} requires l{}\n", label, label - 1);
      text +=
          fmt::format("l{}: recv 1b from {} tag 0\n", label + 1, (rank + ranks - distance) % ranks);
      ++label;
    }
    text += "}\n\n";
  }
  return text;
}

TEST(Goal, Dissemination) {
  const Result<Trace> trace = read(dissemination(16));
  ASSERT_TRUE(trace.ok()) << trace.status().text();
  EXPECT_EQ(play(trace.value()), "");
  for (const auto& program : trace.value().programs) EXPECT_EQ(program.size(), 16u);
  EXPECT_EQ(message_counts(trace.value()).size(), 64u);
  EXPECT_TRUE(repeat_trace(trace.value(), 4).ok());
}

struct Refusal {
  const char* text;
  const char* says;
};

TEST(Goal, WhatIsWrongIsRefusedWithItsLine) {
  const Refusal table[] = {
      {"", "expected \"num_ranks\", found the end"},
      {"rank 0 {\n}\n", "expected \"num_ranks\""},
      {"num_ranks 0\n", "the number of ranks, 1 to"},
      {"num_ranks -1\n", "the number of ranks"},
      {"num_ranks 99999999999999999999\n", "the number of ranks"},
      {"num_ranks 2\nrank 2 {\n}\n", "line 2: expected a rank number, 0 to 1"},
      {"num_ranks 2\nrank 0\n{\n}\n", "expected \"{\""},
      {"num_ranks 2\nrank 0 {\n", "found the end of the file"},
      {"num_ranks 2\nrank 0 {\ncalc 1\n}\nrank 0 {\ncalc 1\n}\n", "rank 0 is described twice"},
      {"num_ranks 2\nrank 0 {\nsend 8b to 2\n}\n", "line 3: expected a rank number"},
      {"num_ranks 2\nrank 0 {\nsend 8b to -1\n}\n", "line 3"},
      {"num_ranks 2\nrank 0 {\nsend 8b from 1\n}\n", "expected \"to\""},
      {"num_ranks 2\nrank 0 {\nsend 8 to 1\n}\n", "expected \"b\""},
      {"num_ranks 2\nrank 0 {\nsend 8kb to 1\n}\n", "expected \"b\""},
      {"num_ranks 2\nrank 0 {\nsend 9999999999999b to 1\n}\n", "a number of bytes"},
      {"num_ranks 2\nrank 0 {\nsend 8b to 1 tag -1\n}\n", "a tag"},
      {"num_ranks 2\nrank 0 {\nsend 8b to 1 tag 4294967296\n}\n", "a tag"},
      {"num_ranks 2\nrank 0 {\nsend 8b to 1 tag 1 tag 1\n}\n", "once each"},
      {"num_ranks 2\nrank 0 {\nsend 8b to 1 cpu 256\n}\n", "a cpu number"},
      {"num_ranks 2\nrank 0 {\ncalc 1 nic 0\n}\n", "cpu, once"},
      {"num_ranks 2\nrank 0 {\ncalc 1 2\n}\n", "expected the end of the line"},
      {"num_ranks 2\nrank 0 {\ncalc 1000000000000001\n}\n", "a number of nanoseconds"},
      {"num_ranks 2\nrank 0 {\na: a: calc 1\n}\n", "expected calc, send or recv"},
      {"num_ranks 2\nrank 0 {\na: calc 1\na: calc 1\n}\n", "line 4: duplicate label a"},
      {"num_ranks 2\nrank 0 {\na: calc 1\na requires b\n}\n", "unknown label b"},
      {"num_ranks 2\nrank 0 {\na: calc 1\na needs a\n}\n", "\"requires\" or \"irequires\""},
      {"num_ranks 2\nrank 0 {\n% 1\n}\n", "unexpected character 0x25"},
      {"num_ranks 2\nrank 0 {\n/* calc 1\n}\n", "unterminated comment"},
      {"num_ranks 2\nrank 0 {\na: calc 1\na requires a\n}\n",
       "line 3 (rank 0): circular dependency"},
      {"num_ranks 2\nrank 0 {\na: calc 1\nb: calc 1\na requires b\nb irequires a\n}\n",
       "circular dependency"},
      {"num_ranks 2\nrank 0 {\nrecv 8b from 1\n}\n", "line 3 (rank 0): no matching send"},
      {"num_ranks 2\nrank 0 {\nsend 8b to 1\n}\n", "line 3 (rank 0): no matching receive"},
      {"num_ranks 2\nrank 0 {\nsend 8b to 1 tag 1\n}\nrank 1 {\nrecv 8b from 0 tag 2\n}\n",
       "no matching send"},
  };
  for (const Refusal& row : table) {
    const Result<Trace> trace = read(row.text);
    ASSERT_FALSE(trace.ok()) << row.text;
    EXPECT_EQ(trace.status().code(), Code::invalid);
    EXPECT_NE(trace.status().text().find(row.says), std::string::npos)
        << row.text << trace.status().text();
  }
  EXPECT_EQ(read_goal_file("/nonexistent/x.goal").status().code(), Code::system);
}

// Random schedules whose operations depend on earlier ones only, each message sent and received:
// an order is found, it can be played, and it keeps every dependency.
RC_GTEST_PROP(GoalProperty, AnOrderIsFoundAndKeepsTheDependencies, ()) {
  const auto n = *rc::gen::inRange<std::uint32_t>(1, 5);
  GoalSchedule schedule;
  schedule.ranks.resize(n);
  // In one global order: what each rank adds at its end may depend on anything before.
  const int steps = *rc::gen::inRange(0, 25);
  const auto add = [&](std::uint32_t rank, GoalOperation op) {
    GoalRank& r = schedule.ranks[rank];
    const auto index = static_cast<std::uint32_t>(r.operations.size());
    op.line = index + 1;
    r.operations.push_back(op);
    const int dependencies = index == 0 ? 0 : *rc::gen::inRange(0, 3);
    for (int i = 0; i < dependencies; ++i) {
      r.dependencies.push_back(
          {index, *rc::gen::inRange<std::uint32_t>(0, index), *rc::gen::arbitrary<bool>()});
    }
  };
  for (int i = 0; i < steps; ++i) {
    GoalOperation op;
    const auto from = *rc::gen::inRange<std::uint32_t>(0, n);
    if (*rc::gen::inRange(0, 3) == 0) {
      op.amount = *rc::gen::inRange<std::uint64_t>(0, 5000);
      add(from, op);
      continue;
    }
    const auto to = *rc::gen::inRange<std::uint32_t>(0, n);
    op.amount = *rc::gen::inRange<std::uint64_t>(0, 100000);
    op.tag = static_cast<std::uint64_t>(i);  // one message a tag: any order of starts matches
    op.kind = Kind::send;
    op.peer = to;
    add(from, op);
    op.kind = Kind::receive;
    op.peer = from;
    add(to, op);
  }
  const Result<Trace> trace = order_goal(schedule, "test");
  RC_ASSERT(trace.ok());
  RC_ASSERT(play(trace.value()).empty());
  for (std::uint32_t rank = 0; rank < n; ++rank) {
    const GoalRank& r = schedule.ranks[rank];
    std::map<std::uint32_t, std::size_t> started, waited;
    const auto& program = trace.value().programs[rank];
    for (std::size_t i = 0; i < program.size(); ++i) {
      if (program[i].kind == Kind::wait) waited[program[i].request] = i;
      if (program[i].kind == Kind::send || program[i].kind == Kind::receive) {
        started[program[i].request] = i;
      }
    }
    for (const GoalDependency& d : r.dependencies) {
      if (!started.contains(d.after) || !started.contains(d.before)) continue;  // computations
      RC_ASSERT(started.at(d.before) < started.at(d.after));
      if (!d.on_start) RC_ASSERT(waited.at(d.before) < started.at(d.after));
    }
  }
}

RC_GTEST_PROP(GoalProperty, AnyWordsAreReadOrRefused, ()) {
  static const std::vector<std::string> kWords = {
      "num_ranks", "2",  "rank", "0",  "{",   "}",  "send",     "recv",      "calc",
      "b",         "to", "from", "-1", "tag", "1",  "requires", "irequires", "l1",
      "l2",        ":",  "\n",   ";",  "cpu", "//", "/*",       "*/"};
  std::string text = "num_ranks 2\nrank 0 {\n";
  for (const std::string& word :
       *rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(kWords))) {
    text += word + " ";
  }
  const Result<Trace> trace = read(text);
  RC_ASSERT(trace.ok() || trace.status().code() == Code::invalid);
}

}  // namespace
}  // namespace turnout::sim
