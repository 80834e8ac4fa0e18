// SPDX-License-Identifier: BSD-3-Clause
// The registry, the options, and every pattern on a runtime that checks what programs may not do.
#include "sim/workloads/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "sim/workloads/grid.h"
#include "sim/workloads/permutation.h"
#include "tests/sim/mock_rank.h"

namespace turnout::sim {
namespace {

// Few messages: a test is no experiment.
NamedValues small(const Workload& w) {
  NamedValues values;
  const auto set = [&](const char* name, const char* value) {
    if (w.parameter(name) != nullptr) values.emplace_back(name, value);
  };
  set("messages", w.name == "onetoall" || w.name == "alltoone" ? "3001" : "25");
  set("messages_out", "1500");
  set("messages_in", "1009");
  set("times", "2");
  set("rounds", "5");
  set("tasks", "203");
  set("cells", "16");
  set("class", "1");
  return values;
}

struct Played {
  mock::Outcome outcome;
  std::vector<Phase> phases;
};

Played play(std::string_view name, const NamedValues& values, std::uint32_t ranks,
            bool synchronous = false, std::uint64_t seed = 7) {
  const Result<const Workload*> workload = find_workload(name);
  EXPECT_TRUE(workload.ok()) << workload.status().text();
  const Result<Values> parsed = parse_values(*workload.value(), values);
  EXPECT_TRUE(parsed.ok()) << parsed.status().text();
  const Result<Instance> instance =
      make_instance(*workload.value(), parsed.value(), {ranks, 1, seed});
  EXPECT_TRUE(instance.ok()) << instance.status().text();
  if (!instance.ok()) return {};
  const Instance& i = instance.value();
  return {mock::play({ranks, seed, synchronous}, i.program), i.phases->list()};
}

TEST(Registry, NamesAreSortedAndEverythingIsDescribed) {
  std::string_view former;
  for (const Workload& w : workloads()) {
    EXPECT_LT(former, w.name);
    former = w.name;
    EXPECT_FALSE(w.help.empty());
    std::set<std::string_view> names;
    for (const Parameter& p : w.parameters) {
      EXPECT_TRUE(names.insert(p.name).second) << w.name << " " << p.name;
      EXPECT_FALSE(p.help.empty()) << w.name << " " << p.name;
      EXPECT_LE(p.least, p.default_value) << w.name << " " << p.name;
      EXPECT_GE(p.most, p.default_value) << w.name << " " << p.name;
      // What is printed reads back.
      const Result<Values> again =
          parse_values(w, {{std::string(p.name), p.print(p.default_value)}});
      ASSERT_TRUE(again.ok()) << again.status().text();
      EXPECT_EQ(again.value()[p.name], p.default_value);
    }
  }
  for (const char* name :
       {"onetoall", "alltoone",     "repeat",    "pingpong",  "broadcast", "bowtie",
        "alltoall", "ring",         "stencil2d", "stencil3d", "random",    "steal",
        "trees",    "masterworker", "shifts",    "phases",    "hotspots",  "transfer",
        "nas-is",   "nas-ft",       "nas-cg",    "nas-mg",    "nas-lu",    "nas-sp",
        "nas-bt",   "overlap",      "flood",     "incast",    "nwchem"}) {
    EXPECT_TRUE(find_workload(name).ok()) << name;
  }
}

TEST(Registry, AnswersMistypedNamesWithTheNearest) {
  const auto text = [](std::string_view name) { return find_workload(name).status().text(); };
  EXPECT_NE(text("onetoal").find("did you mean onetoall?"), std::string::npos) << text("onetoal");
  EXPECT_NE(text("pingpnog").find("did you mean pingpong?"), std::string::npos);
  EXPECT_NE(text("stencil").find("did you mean stencil"), std::string::npos);
  EXPECT_EQ(text("xyzzyplugh").find("did you mean"), std::string::npos);
  EXPECT_NE(text("xyzzyplugh").find("Available: alltoall"), std::string::npos);
}

TEST(Options, AreCheckedByNameUnitAndRange) {
  const Workload& w = *find_workload("pingpong").value();
  const auto text = [&](const char* name, const char* value) {
    const Result<Values> parsed = parse_values(w, {{name, value}});
    return parsed.ok() ? std::string() : parsed.status().text();
  };
  EXPECT_EQ(text("bytes", "4KiB"), "");
  EXPECT_NE(text("byte", "1").find("did you mean bytes?"), std::string::npos);
  EXPECT_NE(text("bytes", "12 apples").find("pingpong, bytes = \"12 apples\""), std::string::npos);
  EXPECT_NE(text("rounds", "0").find("expected 1 to"), std::string::npos);
  EXPECT_NE(text("rounds", "-1").find("rounds"), std::string::npos);
  EXPECT_NE(text("rounds", "99999999999999999999999").find("rounds"), std::string::npos);
  const Result<Values> time = parse_values(*find_workload("steal").value(), {{"work", "1.5ms"}});
  ASSERT_TRUE(time.ok());
  EXPECT_EQ(time.value()["work"], 1'500'000U);
  // The later one wins.
  EXPECT_EQ(parse_values(w, {{"rounds", "3"}, {"rounds", "4"}}).value()["rounds"], 4U);
}

TEST(Options, ThatDoNotFitTheRanksAreErrors) {
  const auto refused = [](const char* name, const NamedValues& values, std::uint32_t ranks) {
    const Workload& w = *find_workload(name).value();
    return !make_instance(w, parse_values(w, values).value(), {ranks, 1, 1}).ok();
  };
  EXPECT_TRUE(refused("bowtie", {}, 7));
  EXPECT_TRUE(refused("overlap", {}, 7));
  EXPECT_TRUE(refused("pingpong", {{"pairs", "3"}}, 5));
  EXPECT_TRUE(refused("broadcast", {{"root", "4"}}, 4));
  EXPECT_TRUE(refused("onetoall", {}, 1));
  EXPECT_TRUE(refused("stencil3d", {{"cells", "65536"}, {"cell_bytes", "64KiB"}}, 8));
  EXPECT_FALSE(refused("bowtie", {}, 8));
}

class EveryWorkload : public testing::TestWithParam<std::string_view> {};

TEST_P(EveryWorkload, EndsAndLeavesNothingBehind) {
  const Workload& w = *find_workload(GetParam()).value();
  for (const std::uint32_t ranks : {2U, 4U, 12U, 16U, 64U}) {
    for (const bool synchronous : {false, true}) {
      const Played p = play(w.name, small(w), ranks, synchronous);
      EXPECT_EQ(p.outcome.failure, "") << w.name << ", " << ranks << " ranks, " << synchronous;
      EXPECT_LE(p.outcome.most_requests, 84U) << w.name;
      ASSERT_FALSE(p.phases.empty());
      std::uint64_t counted = 0;
      for (const Phase& phase : p.phases) {
        EXPECT_GE(phase.end, phase.begin);
        counted += phase.messages;
      }
      if (w.name != "steal") {
        EXPECT_EQ(counted, p.outcome.messages) << w.name << " " << ranks;
      }
    }
  }
}

TEST_P(EveryWorkload, IsAFunctionOfTheSeed) {
  const Workload& w = *find_workload(GetParam()).value();
  const Played a = play(w.name, small(w), 12, false, 3), b = play(w.name, small(w), 12, false, 3);
  EXPECT_EQ(a.outcome.hash, b.outcome.hash);
  EXPECT_EQ(a.outcome.time, b.outcome.time);
}

INSTANTIATE_TEST_SUITE_P(All, EveryWorkload, testing::ValuesIn([] {
                           std::vector<std::string_view> names;
                           for (const Workload& w : workloads()) names.push_back(w.name);
                           return names;
                         }()),
                         [](const auto& info) {
                           std::string name(info.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(OneToAll, SendsRoundRobinWithABarrierAfterMoreThan128Receives) {
  const Played p = play("onetoall", {{"messages", "8190"}}, 64);  // 130 series of 63
  EXPECT_EQ(p.outcome.messages, 8190U);
  EXPECT_EQ(p.outcome.barriers, 2U);  // after 129 series, and at the end
  for (std::uint32_t i = 1; i < 64; ++i) {
    EXPECT_EQ(p.outcome.pairs.at({0, i}), 130U);
  }
  // 128 received are not more than 128.
  EXPECT_EQ(play("onetoall", {{"messages", "8064"}}, 64).outcome.barriers, 1U);
  EXPECT_EQ(play("onetoall", {{"messages", "8190"}, {"barrier_after", "0"}}, 64).outcome.barriers,
            1U);
}

TEST(AllToOne, HasABarrierEachTimeRankZeroGotMoreThan128) {
  // 63 a series: after 3 series there are 189.
  const Played p = play("alltoone", {{"messages", "630"}}, 64);
  EXPECT_EQ(p.outcome.messages, 630U);
  EXPECT_EQ(p.outcome.barriers, 4U);
  EXPECT_EQ(play("alltoone", {{"messages", "640"}, {"any_source", "1"}}, 64).outcome.failure, "");
}

TEST(Repeat, TimesEachPart) {
  const Played p = play("repeat", {{"messages_out", "500"}, {"messages_in", "300"}}, 8);
  ASSERT_EQ(p.phases.size(), 10U);
  EXPECT_EQ(p.phases[0].name, "onetoall");
  EXPECT_EQ(p.phases[0].messages, 500U);
  EXPECT_EQ(p.phases[9].name, "alltoone");
  EXPECT_EQ(p.phases[9].begin, p.phases[8].end);
  EXPECT_EQ(p.outcome.messages, 4000U);
}

TEST(Broadcast, SendsOneMessagePerEdgeInLogarithmicTime) {
  for (const std::uint32_t n : {2U, 3U, 8U, 13U, 64U}) {
    const Played p = play("broadcast", {{"root", "1"}}, n);
    EXPECT_EQ(p.outcome.messages, n - 1U);
    std::uint32_t depth = 0;
    while ((1U << depth) < n) ++depth;
    EXPECT_LE(p.outcome.time, depth * hca::kMicrosecond);
  }
}

TEST(AllToAll, ReachesEveryPairOnce) {
  for (const std::uint32_t n : {2U, 6U, 32U}) {
    const Played p = play("alltoall", {}, n);
    EXPECT_EQ(p.outcome.pairs.size(), std::size_t{n} * (n - 1));
    for (const auto& [pair, count] : p.outcome.pairs) EXPECT_EQ(count, 1U);
  }
}

TEST(Shifts, VisitEveryPartner) {
  const Played p = play("shifts", {{"messages", "3"}}, 9);
  EXPECT_EQ(p.outcome.pairs.size(), 72U);
  for (const auto& [pair, count] : p.outcome.pairs) EXPECT_EQ(count, 3U);
}

TEST(Trees, HavePeersAtPowersOfTwo) {
  const Played p = play("trees", {{"rounds", "1"}}, 16);
  for (const auto& [pair, count] : p.outcome.pairs) {
    const std::uint32_t distance = (pair.second + 16 - pair.first) % 16;
    EXPECT_EQ(distance & (distance - 1), 0U);
  }
  EXPECT_EQ(p.outcome.pairs.size(), 64U);
}

TEST(Random, GivesEveryRankAsManyAndNoneItself) {
  const Played p = play("random", {{"messages", "100"}}, 64);
  EXPECT_EQ(p.outcome.messages, 6400U);
  std::map<std::uint32_t, std::uint64_t> out, in;
  for (const auto& [pair, count] : p.outcome.pairs) {
    out[pair.first] += count;
    in[pair.second] += count;
  }
  for (std::uint32_t i = 0; i < 64; ++i) {
    EXPECT_EQ(out[i], 100U);
    EXPECT_EQ(in[i], 100U);
  }
  EXPECT_NE(p.outcome.hash, play("random", {{"messages", "100"}}, 64, false, 8).outcome.hash);
}

TEST(Steal, SpreadsTheWork) {
  const Played one = play("steal", {{"tasks", "2000"}}, 2),
               many = play("steal", {{"tasks", "2000"}}, 32);
  EXPECT_EQ(one.outcome.failure, "");
  EXPECT_EQ(many.outcome.failure, "");
  EXPECT_LT(many.outcome.time, one.outcome.time / 4);
}

TEST(Grid, IsBalancedAndItsNeighboursAreMutual) {
  EXPECT_EQ(balanced(64, 2), (Extents{8, 8, 1}));
  EXPECT_EQ(balanced(64, 3), (Extents{4, 4, 4}));
  EXPECT_EQ(balanced(24, 3), (Extents{4, 3, 2}));
  EXPECT_EQ(balanced(13, 2), (Extents{13, 1, 1}));
  for (const std::uint32_t n : {2U, 12U, 30U, 64U}) {
    for (const bool periodic : {false, true}) {
      const Extents e = balanced(n, 3);
      EXPECT_EQ(e[0] * e[1] * e[2], n);
      std::uint64_t faces = 0;
      for (std::uint32_t r = 0; r < n; ++r) {
        for (std::size_t d = 0; d < 3; ++d) {
          for (const int way : {-1, 1}) {
            const auto other = neighbour(e, r, d, way, periodic);
            if (!other) continue;
            ASSERT_LT(*other, n);
            EXPECT_EQ(neighbour(e, *other, d, -way, periodic), r);
            if (*other != r) ++faces;
          }
        }
      }
      EXPECT_EQ(faces, faces_of(e, periodic));
    }
  }
}

TEST(PermutationTest, IsOneAndKnowsItsInverse) {
  for (const std::uint32_t n : {1U, 2U, 3U, 64U, 1000U}) {
    for (std::uint64_t key = 0; key < 5; ++key) {
      const Permutation p(n, key);
      std::set<std::uint32_t> images;
      for (std::uint32_t i = 0; i < n; ++i) {
        ASSERT_LT(p(i), n);
        images.insert(p(i));
        EXPECT_EQ(p.inverse(p(i)), i);
      }
      EXPECT_EQ(images.size(), n);
    }
  }
}

}  // namespace
}  // namespace turnout::sim
