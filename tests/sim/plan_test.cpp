// SPDX-License-Identifier: BSD-3-Clause
// Patterns found in traces of 8, 16 and 32 ranks, at 64; laws; the search for a budget.
#include "sim/plan/plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>

#include "base/value.h"
#include "sim/plan/law.h"
#include "sim/plan/lockstep.h"
#include "sim/study/kept_results.h"
#include "sim/workloads/grid.h"
#include "tests/sim/mock_rank.h"
#include "tests/support/scratch.h"

namespace turnout::sim::plan {
namespace {

using Kind = TraceEvent::Kind;

// Writes one rank's events.
class Writer {
 public:
  explicit Writer(std::vector<TraceEvent>* list) : list_(list) {}
  void send(std::uint32_t to, std::uint64_t bytes) { start(Kind::send, to, bytes); }
  void receive(std::uint32_t from, std::uint64_t bytes) { start(Kind::receive, from, bytes); }
  void wait_all() {
    for (std::uint32_t request = waited_; request < next_; ++request) {
      TraceEvent event;
      event.kind = Kind::wait;
      event.request = request;
      list_->push_back(event);
    }
    waited_ = next_;
  }
  void compute(std::uint64_t nanoseconds) {
    TraceEvent event;
    event.amount = nanoseconds;
    list_->push_back(event);
  }

 private:
  void start(Kind kind, std::uint32_t peer, std::uint64_t bytes) {
    TraceEvent event;
    event.kind = kind;
    event.peer = peer;
    event.amount = bytes;
    event.tag = 7;
    event.request = next_++;
    list_->push_back(event);
  }
  std::vector<TraceEvent>* list_;
  std::uint32_t next_ = 0, waited_ = 0;
};

using RankBody = std::function<void(Writer& out, std::uint32_t rank, std::uint32_t n)>;

Trace trace_of(std::uint32_t n, const RankBody& body) {
  Trace trace;
  trace.name = "made";
  trace.programs.resize(n);
  for (std::uint32_t rank = 0; rank < n; ++rank) {
    Writer out(&trace.programs[rank]);
    body(out, rank, n);
  }
  EXPECT_TRUE(check_trace(trace).ok());
  return trace;
}

std::vector<Trace> traces_of(const RankBody& body, const std::vector<std::uint32_t>& sizes) {
  std::vector<Trace> traces;
  for (const std::uint32_t n : sizes) traces.push_back(trace_of(n, body));
  return traces;
}

// What a rank starts, and between which starts it waits and computes; numbers of requests and tags
// left out.
std::vector<std::array<std::uint64_t, 3>> steps_of(const std::vector<TraceEvent>& program) {
  std::vector<std::array<std::uint64_t, 3>> steps;
  for (const TraceEvent& event : program) {
    if (event.kind == Kind::wait) {
      if (!steps.empty() && steps.back()[0] != 99) steps.push_back({99, 0, 0});
      continue;
    }
    steps.push_back({static_cast<std::uint64_t>(event.kind), event.peer, event.amount});
  }
  return steps;
}

void expect_scales(const RankBody& body, std::uint32_t to = 64,
                   const std::vector<std::uint32_t>& sizes = {8, 16, 32}) {
  const Result<Pattern> pattern = find_pattern(traces_of(body, sizes));
  ASSERT_TRUE(pattern.ok()) << pattern.status().text();
  EXPECT_EQ(pattern.value().sizes, sizes);
  EXPECT_EQ(pattern.value().irregular, 0);
  const auto program = scale(std::make_shared<const Pattern>(pattern.value()), to);
  ASSERT_TRUE(program.ok()) << program.status().text();
  const Result<Trace> scaled = to_trace(*program.value(), 1);
  ASSERT_TRUE(scaled.ok()) << scaled.status().text();
  EXPECT_TRUE(check_trace(scaled.value()).ok());
  const Trace wanted = trace_of(to, body);
  for (std::uint32_t rank = 0; rank < to; ++rank) {
    EXPECT_EQ(steps_of(scaled.value().programs[rank]), steps_of(wanted.programs[rank]))
        << "rank " << rank;
  }
}

TEST(Pattern, RingIsAShift) {
  expect_scales([](Writer& out, std::uint32_t rank, std::uint32_t n) {
    for (int round = 0; round < 7; ++round) {
      out.receive((rank + n - 1) % n, 4096);
      out.send((rank + 1) % n, 4096);
      out.wait_all();
    }
  });
}

TEST(Pattern, RecursiveDoublingGrowsWithTheLogarithm) {
  expect_scales([](Writer& out, std::uint32_t rank, std::uint32_t n) {
    for (int round = 0; round < 4; ++round) {
      for (std::uint32_t bit = 1; bit < n; bit *= 2) {
        out.receive(rank ^ bit, 8);
        out.send(rank ^ bit, 8);
        out.wait_all();
      }
    }
  });
}

TEST(Pattern, RecursiveHalvingHalvesItsMessages) {
  expect_scales([](Writer& out, std::uint32_t rank, std::uint32_t n) {
    std::uint64_t bytes = 1U << 20;
    for (std::uint32_t bit = n / 2; bit > 0; bit /= 2, bytes /= 2) {
      out.receive(rank ^ bit, bytes);
      out.send(rank ^ bit, bytes);
      out.wait_all();
    }
  });
}

TEST(Pattern, BarrierIsADissemination) {
  expect_scales([](Writer& out, std::uint32_t rank, std::uint32_t n) {
    for (std::uint32_t distance = 1; distance < n; distance *= 2) {
      out.receive((rank + n - distance) % n, 1);
      out.send((rank + distance) % n, 1);
      out.wait_all();
    }
  });
}

TEST(Pattern, BinomialTreesOfBothNumberings) {
  expect_scales([](Writer& out, std::uint32_t rank, std::uint32_t n) {
    // A reduction along the lowest bits.
    for (std::uint32_t bit = 1; bit < n; bit *= 2) {
      if ((rank & bit) != 0) {
        out.send(rank - bit, 64);
        out.wait_all();
        break;
      }
      out.receive(rank + bit, 64);
      out.wait_all();
    }
    // And a broadcast that grows from rank 0.
    if (rank != 0) {
      out.receive(rank - std::bit_floor(rank), 512);
      out.wait_all();
    }
    for (std::uint32_t bit = rank == 0 ? 1 : 2 * std::bit_floor(rank); bit < n; bit *= 2) {
      out.send(rank + bit, 512);
      out.wait_all();
    }
  });
}

TEST(Pattern, AllToAllHasAMessageForEachRank) {
  expect_scales(
      [](Writer& out, std::uint32_t rank, std::uint32_t n) {
        for (std::uint32_t k = 1; k < n; ++k) {
          out.receive((rank + n - k) % n, (1U << 20) / n / n);
          out.send((rank + k) % n, (1U << 20) / n / n);
        }
        out.wait_all();
      },
      32, {4, 8, 16});
}

// As the throttle of MPICH; recordings of fewer ranks cannot show it.
TEST(Pattern, AllToAllOfManyRanksWaitsInGroups) {
  expect_scales([](Writer& out, std::uint32_t rank, std::uint32_t n) {
    for (std::uint32_t k = 1; k < n; ++k) {
      out.receive((rank + n - k) % n, 16);
      out.send((rank + k) % n, 16);
      if (k % kAtOnce == 0) out.wait_all();
    }
    out.wait_all();
  });
}

// MPICH's all-to-all exchange of so many bytes in all, divided among the ranks twice.
void exchange_as_mpich(Writer& out, std::uint32_t rank, std::uint32_t n, std::uint64_t all) {
  const std::uint64_t bytes = all / n / n;
  switch (usual_exchange(n, static_cast<double>(bytes))) {
    case Exchange::pairwise:
      for (std::uint32_t k = 1; k < n; ++k) {
        out.receive(rank ^ k, bytes);
        out.send(rank ^ k, bytes);
        out.wait_all();
      }
      break;
    case Exchange::bruck:
      for (std::uint32_t distance = 1; distance < n; distance *= 2) {
        out.receive((rank + n - distance) % n, bytes * n / 2);
        out.send((rank + distance) % n, bytes * n / 2);
        out.wait_all();
      }
      break;
    default:
      for (std::uint32_t first = 0; first < n; first += kAtOnce) {
        const std::uint32_t end = std::min(first + kAtOnce, n);
        for (std::uint32_t k = std::max(first, 1U); k < end; ++k) {
          out.receive((rank + k) % n, bytes);
        }
        for (std::uint32_t k = std::max(first, 1U); k < end; ++k) {
          out.send((rank + n - k) % n, bytes);
        }
        out.wait_all();
      }
  }
}

// 8 ranks exchange in pairs; more than 32 wait after each 32, oneself included; 512 and more take
// Bruck's algorithm.
TEST(Pattern, AllToAllTakesTheAlgorithmOfItsSize) {
  for (const std::uint32_t to : {64U, 128U, 512U}) {
    expect_scales(
        [](Writer& out, std::uint32_t rank, std::uint32_t n) {
          for (int round = 0; round < 3; ++round) {
            exchange_as_mpich(out, rank, n, std::uint64_t{1} << 23);
            exchange_as_mpich(out, rank, n, std::uint64_t{1} << 25);
          }
        },
        to);
  }
}

TEST(Pattern, SaysWhatNoRecordingShows) {
  const Result<Pattern> pattern = find_pattern(
      traces_of([](Writer& out, std::uint32_t rank,
                   std::uint32_t n) { exchange_as_mpich(out, rank, n, std::uint64_t{1} << 23); },
                {8, 16, 32}));
  ASSERT_TRUE(pattern.ok()) << pattern.status().text();
  EXPECT_TRUE(assumptions_at(pattern.value(), 32).empty());
  const auto at_64 = assumptions_at(pattern.value(), 64),
             at_512 = assumptions_at(pattern.value(), 512);
  ASSERT_EQ(at_64.size(), 1U);
  EXPECT_NE(at_64[0].find("MPIR_CVAR_ALLTOALL_THROTTLE"), std::string::npos) << at_64[0];
  ASSERT_EQ(at_512.size(), 1U);
  EXPECT_NE(at_512[0].find("MPIR_CVAR_ALLTOALL_SHORT_MSG_SIZE"), std::string::npos) << at_512[0];
  Pattern as_recorded = pattern.value();
  as_recorded.as_recorded = true;
  EXPECT_TRUE(assumptions_at(as_recorded, 512).empty());
}

// Recordings of more ranks than MPICH has under way at once, of a library that does not wait.
TEST(Pattern, AllToAllOfALibraryThatDoesNotWait) {
  expect_scales(
      [](Writer& out, std::uint32_t rank, std::uint32_t n) {
        for (std::uint32_t k = 1; k < n; ++k) out.receive((rank + k) % n, 1024);
        for (std::uint32_t k = 1; k < n; ++k) out.send((rank + n - k) % n, 1024);
        out.wait_all();
      },
      128, {16, 32, 64});
}

double computed_by(const ScaledProgram& program, std::uint32_t rank) {
  Walk walk(program, rank, 1);
  double computed = 0;
  for (Walk::Step step = walk.next();; step = walk.next()) {
    computed += step.compute;
    if (step.instruction == nullptr) return computed;
  }
}

// Within a tree, who goes on computes for as long whatever the number of ranks.
TEST(Pattern, StepsOfATreeFollowEachOther) {
  const RankBody body = [](Writer& out, std::uint32_t rank, std::uint32_t n) {
    out.compute(6'400'000 / n);
    for (std::uint32_t bit = 1; bit < n; bit *= 2) {
      if (bit > 1) out.compute(5'000);
      if ((rank & bit) != 0) {
        out.send(rank - bit, 64);
        out.wait_all();
        break;
      }
      out.receive(rank + bit, 64);
      out.wait_all();
    }
  };
  const Result<Pattern> pattern = find_pattern(traces_of(body, {8, 16, 32}));
  ASSERT_TRUE(pattern.ok()) << pattern.status().text();
  const auto program = scale(std::make_shared<const Pattern>(pattern.value()), 64);
  ASSERT_TRUE(program.ok()) << program.status().text();
  EXPECT_NEAR(computed_by(*program.value(), 0), 100'000 + 5 * 5'000, 8'000);  // six steps
}

void halo(Writer& out, std::uint32_t rank, std::uint32_t n, std::size_t dimensions, bool periodic,
          std::uint64_t points) {
  const Extents extents = balanced(n, dimensions);
  for (std::size_t d = 0; d < dimensions; ++d) {
    std::uint64_t bytes = 8;
    for (std::size_t other = 0; other < dimensions; ++other) {
      if (other != d) bytes *= points / extents[other];
    }
    for (const int way : {-1, +1}) {
      const auto to = neighbour(extents, rank, d, way, periodic);
      const auto from = neighbour(extents, rank, d, -way, periodic);
      if (from && *from != rank) out.receive(*from, bytes);
      if (to && *to != rank) out.send(*to, bytes);
      out.wait_all();
    }
  }
}

TEST(Pattern, StencilOfTwoDimensionsWithoutEnds) {
  expect_scales([](Writer& out, std::uint32_t rank, std::uint32_t n) {
    for (int round = 0; round < 5; ++round) halo(out, rank, n, 2, false, 1024);
  });
}

// Ranks at an edge compute before another operation than the others; each computes as long.
TEST(Pattern, EdgesOfAStencilComputeAsLongAsItsMiddle) {
  const RankBody body = [](Writer& out, std::uint32_t rank, std::uint32_t n) {
    for (int round = 0; round < 5; ++round) {
      out.compute(6'400'000 / n);
      halo(out, rank, n, 2, false, 1024);
    }
  };
  const Result<Pattern> pattern = find_pattern(traces_of(body, {8, 16, 32}));
  ASSERT_TRUE(pattern.ok()) << pattern.status().text();
  Pattern even = pattern.value();
  even.imbalance = 0;
  const auto program = scale(std::make_shared<const Pattern>(std::move(even)), 64);
  ASSERT_TRUE(program.ok()) << program.status().text();
  for (std::uint32_t rank = 0; rank < 64; ++rank) {
    EXPECT_NEAR(computed_by(*program.value(), rank), 5 * 100'000, 10'000) << rank;
  }
}

TEST(Pattern, StencilOfThreeDimensionsThatIsPeriodic) {
  expect_scales([](Writer& out, std::uint32_t rank, std::uint32_t n) {
    for (int round = 0; round < 5; ++round) halo(out, rank, n, 3, true, 256);
  });
}

TEST(Pattern, GatherAndScatterOfRankZero) {
  expect_scales([](Writer& out, std::uint32_t rank, std::uint32_t n) {
    for (std::uint32_t other = 1; other < n; ++other) {
      if (rank == 0) out.receive(other, 100);
      if (rank == other) out.send(0, 100);
    }
    out.wait_all();
  });
}

TEST(Pattern, ComputationFollowsALaw) {
  const RankBody body = [](Writer& out, std::uint32_t rank, std::uint32_t n) {
    for (int round = 0; round < 5; ++round) {
      out.compute(6'400'000 / n);
      out.receive((rank + n - 1) % n, 64);
      out.send((rank + 1) % n, 64);
      out.wait_all();
    }
  };
  expect_scales(body);
}

// A set-up that each size does in its own way leaves the rest of the program readable.
TEST(Pattern, ReadsOtherSizesAroundWhatTheyDoNotShare) {
  const RankBody body = [](Writer& out, std::uint32_t rank, std::uint32_t n) {
    // With those that are 3, 5 or 7 on, by size: no rule of the number of ranks.
    const std::uint32_t by = n == 8 ? 3 : n == 16 ? 5 : 7;
    for (std::uint64_t bytes = 24 * by; bytes > 24; bytes -= 24) {
      out.receive((rank + n - by) % n, bytes);
      out.send((rank + by) % n, bytes);
      out.wait_all();
    }
    for (int round = 0; round < 40; ++round) {
      out.compute(6'400'000 / n);
      out.receive((rank + n - 1) % n, 6400 / n);
      out.send((rank + 1) % n, 6400 / n);
      out.wait_all();
    }
  };
  const Result<Pattern> pattern = find_pattern(traces_of(body, {8, 16, 32}));
  ASSERT_TRUE(pattern.ok()) << pattern.status().text();
  EXPECT_EQ(pattern.value().sizes, (std::vector<std::uint32_t>{8, 16, 32}));
  const Node& loop = pattern.value().program.back();
  ASSERT_EQ(loop.kind, Node::Kind::loop);
  EXPECT_EQ(loop.count.count_at(64), 40U);
  EXPECT_EQ(loop.body.front().bytes.count_at(64), 100U);
}

// Neighbours drawn by chance: as many of them at another size.
TEST(Pattern, IrregularTrafficKeepsItsDegrees) {
  const auto body = [](Writer& out, std::uint32_t rank, std::uint32_t n) {
    SplitMix64 random(n);
    for (int round = 0; round < 6; ++round) {
      std::vector<std::uint32_t> to(n);
      for (std::uint32_t i = 0; i < n; ++i) to[i] = i;
      for (std::uint32_t i = n - 1; i > 0; --i) std::swap(to[i], to[random.next() % (i + 1)]);
      const auto from =
          static_cast<std::uint32_t>(std::find(to.begin(), to.end(), rank) - to.begin());
      if (from != rank) out.receive(from, 256);
      if (to[rank] != rank) out.send(to[rank], 256);
      out.wait_all();
    }
  };
  const Result<Pattern> pattern = find_pattern(traces_of(body, {16, 32}));
  ASSERT_TRUE(pattern.ok()) << pattern.status().text();
  EXPECT_GT(pattern.value().irregular, 0.5);
  const auto at_64 = scale(std::make_shared<const Pattern>(pattern.value()), 64);
  ASSERT_TRUE(at_64.ok()) << at_64.status().text();
  const auto counts = message_counts(to_trace(*at_64.value(), 1).value());
  const auto small = message_counts(trace_of(32, body));
  // By chance a few of them look like a relation, and grow as that does.
  double sent = 0, recorded = 0;
  for (const auto& [pair, count] : counts) sent += static_cast<double>(count);
  for (const auto& [pair, count] : small) recorded += static_cast<double>(count);
  EXPECT_NEAR(sent / 64, recorded / 32, 0.1 * recorded / 32);
}

TEST(Pattern, RefusesWhatTellsNothing) {
  EXPECT_EQ(find_pattern({}).status().code(), Code::invalid);
  const RankBody ring = [](Writer& out, std::uint32_t rank, std::uint32_t n) {
    out.receive((rank + n - 1) % n, 1);
    out.send((rank + 1) % n, 1);
    out.wait_all();
  };
  EXPECT_EQ(find_pattern(traces_of(ring, {8, 8})).status().code(), Code::invalid);
  const RankBody nothing = [](Writer&, std::uint32_t, std::uint32_t) {};
  EXPECT_EQ(find_pattern(traces_of(nothing, {8})).status().code(), Code::invalid);
  std::vector<Trace> wrong = traces_of(ring, {8});
  wrong.front().programs[3].front().peer = 8;
  EXPECT_EQ(find_pattern(wrong).status().code(), Code::invalid);
}

TEST(Pattern, AMessageWithOneSideIsAnError) {
  const RankBody lost = [](Writer& out, std::uint32_t rank, std::uint32_t n) {
    if (rank == n - 1) out.send(0, 8);
    out.wait_all();
  };
  const Result<Pattern> pattern = find_pattern(traces_of(lost, {8, 16}));
  ASSERT_TRUE(pattern.ok()) << pattern.status().text();
  const auto program = scale(std::make_shared<const Pattern>(pattern.value()), 32);
  EXPECT_EQ(program.status().code(), Code::invalid);
}

// Whatever a program does, its pattern at the recorded size does the same: the messages of each
// pair, in number.
RC_GTEST_PROP(Pattern, KeepsAllMessagesOfItsOwnSize, ()) {
  const auto n = *rc::gen::inRange<std::uint32_t>(2, 13);
  Trace trace;
  trace.programs.resize(n);
  std::vector<std::uint32_t> requests(n, 0);
  const auto messages = *rc::gen::inRange(1, 60);
  for (int i = 0; i < messages; ++i) {
    const auto from = *rc::gen::inRange<std::uint32_t>(0, n);
    const auto to = (from + *rc::gen::inRange<std::uint32_t>(1, n)) % n;
    TraceEvent send, receive;
    send.kind = Kind::send;
    send.peer = to;
    receive.kind = Kind::receive;
    receive.peer = from;
    send.amount = receive.amount = *rc::gen::inRange<std::uint64_t>(0, 4);
    send.request = requests[from]++;
    receive.request = requests[to]++;
    trace.programs[from].push_back(send);
    trace.programs[to].push_back(receive);
    if (*rc::gen::arbitrary<bool>()) {
      TraceEvent wait;
      wait.kind = Kind::wait;
      wait.request = receive.request;
      trace.programs[to].push_back(wait);
    }
  }
  const Result<Pattern> pattern = find_pattern(std::vector<Trace>{trace});
  RC_ASSERT(pattern.ok());
  const auto program = scale(std::make_shared<const Pattern>(pattern.value()), n);
  RC_ASSERT(program.ok());
  const Result<Trace> same = to_trace(*program.value(), 1);
  RC_ASSERT(same.ok());
  RC_ASSERT(check_trace(same.value()).ok());
  RC_ASSERT(message_counts(same.value()) == message_counts(trace));
}

TEST(Law, FindsWhatItWasMadeFrom) {
  const auto law_of = [](const std::function<double(double)>& y) {
    std::vector<std::pair<std::uint32_t, double>> values;
    for (const std::uint32_t n : {8U, 16U, 32U}) values.emplace_back(n, y(n));
    return fit_amount(values, std::array{Law::Of::cut_rows});
  };
  EXPECT_DOUBLE_EQ(law_of([](double) { return 12; }).at(64), 12);
  EXPECT_NEAR(law_of([](double n) { return 1e6 / n; }).at(64), 15625, 1);
  EXPECT_NEAR(law_of([](double n) { return 1e6 / n / n; }).at(64), 244.14, 0.1);
  // 102 points cut among the rows of a grid, rounded up: 51, 26, 26 of 8, 16 and 32 ranks.
  const Law cut = law_of([](double n) {
    return 40 * std::ceil(102.0 / balanced(static_cast<std::uint32_t>(n), 2)[1]);
  });
  EXPECT_DOUBLE_EQ(cut.at(128), 40 * 13);
}

// Columns of 8, 16 and 32 ranks, 4, 4 and 8, say nothing of how 102 points are rounded up; rows,
// which are 2, 4 and 4, tell their number.
TEST(Law, OfOneAxisIsCutAsAnotherOneShows) {
  const std::vector<std::uint32_t> sizes = {8, 16, 32};
  std::vector<std::pair<std::uint32_t, double>> values;
  for (const std::uint32_t n : sizes)
    values.emplace_back(n, 40 * std::ceil(102.0 / balanced(n, 2)[0]));
  const Law alone = fit_amount(values, std::array{Law::Of::cut_columns, Law::Of::inverse_columns});
  EXPECT_DOUBLE_EQ(alone.at(128), 40 * 6.5);
  const std::optional<Law> cut = as_cut(alone, 102, sizes);
  ASSERT_TRUE(cut);
  EXPECT_DOUBLE_EQ(cut->at(128), 40 * 7);
  EXPECT_FALSE(as_cut(alone, 100, sizes)) << "25, 25 and 13";
  EXPECT_FALSE(as_cut(*cut, 102, sizes)) << "cut already";
}

TEST(Law, OfMeasuredTimesIsASumOfTwoParts) {
  const auto law_of = [](const std::function<double(double)>& y) {
    std::vector<std::pair<std::uint32_t, double>> values;
    for (const std::uint32_t n : {8U, 16U, 32U}) values.emplace_back(n, y(n));
    return fit_measured(values);
  };
  EXPECT_NEAR(law_of([](double n) { return 800 / n; }).at(128), 6.25, 0.1);
  EXPECT_NEAR(law_of([](double n) { return 800 / n + 20; }).at(128), 26.25, 0.1);
  EXPECT_NEAR(law_of([](double n) { return 800 / n + 5 * std::log2(n); }).at(128), 41.25, 0.1);
  EXPECT_NEAR(law_of([](double n) { return 100 + 2 * n; }).at(128), 356, 1);
  // Noise of a few percent is no growth with the square of the ranks.
  EXPECT_LT(law_of([](double n) { return n == 32 ? 104 : 100; }).at(128), 125);
}

TEST(Law, CountsAreWhole) {
  bool exact = false;
  const std::vector<std::pair<std::uint32_t, double>> logarithm = {{8, 3}, {16, 4}, {32, 5}};
  EXPECT_EQ(fit_count(logarithm, &exact).count_at(1024), 10U);
  EXPECT_TRUE(exact);
  const std::vector<std::pair<std::uint32_t, double>> none = {{8, 3}, {16, 40}, {32, 5}};
  (void)fit_count(none, &exact);
  EXPECT_FALSE(exact);
}

// A runner whose times follow from the budget.
class SearchTest : public testing::Test {
 protected:
  std::vector<Choice> run(const std::map<std::uint64_t, double>& slowdowns) {
    const Result<KeptResults> kept = KeptResults::open(scratch_.path().string(), "test");
    EXPECT_TRUE(kept.ok());
    PlanOptions options;
    options.kept = &kept.value();
    for (const auto& [budget, slowdown] : slowdowns) options.budgets.push_back(budget);
    const Subject subject{
        "test", fmt::format("{}", slowdowns.size()),
        [](const Place&) -> Result<Instance> {
          return Instance{[](Rank) -> Task { co_return; }, std::make_shared<Phases>()};
        },
        8};
    const Result<std::vector<Choice>> choices =
        search(subject, options, [&](const sim::Options& run, const Program&) -> Result<Outcome> {
          std::uint64_t budget = 0;
          for (const auto& [name, text] : run.settings) {
            if (name == "memory_budget") budget = value::parse_bytes(text).value();
          }
          Outcome outcome;
          outcome.time = 1000;
          const auto found = slowdowns.find(budget);
          if (found != slowdowns.end()) {
            if (found->second > 9) return Status{Code::system, "too small"};
            outcome.time = static_cast<Picoseconds>(1000 * (1 + found->second));
          }
          return outcome;
        });
    EXPECT_TRUE(choices.ok()) << choices.status().text();
    return choices ? choices.value() : std::vector<Choice>{};
  }

 private:
  test::Folder scratch_;
};

TEST_F(SearchTest, StopsAtTheFirstBudgetOutside) {
  const std::vector<Choice> choices = run({{64, 0.01}, {32, 0.04}, {16, 0.2}, {8, 0.0}});
  ASSERT_EQ(choices.size(), 1U);
  EXPECT_EQ(choices[0].runs.size(), 4U);  // 8 is not tried
  EXPECT_EQ(choices[0].best().budget, 32U);
  EXPECT_NE(choices[0].limit.find("20.0 % slower"), std::string::npos) << choices[0].limit;
}

TEST_F(SearchTest, ABudgetThatFailsIsOutside) {
  const std::vector<Choice> choices = run({{64, 0.01}, {32, 10}});
  ASSERT_EQ(choices.size(), 1U);
  EXPECT_EQ(choices[0].best().budget, 64U);
  EXPECT_NE(choices[0].limit.find("too small"), std::string::npos) << choices[0].limit;
}

TEST(BestOf, TakesTheLeastMemoryOfThoseThatAreFast) {
  const auto choice = [](double time, std::uint64_t budget) {
    Choice one;
    plan::Run free, less;
    free.time = less.time = time;
    less.budget = budget;
    one.runs = {free, less};
    one.advised = 1;
    return one;
  };
  const std::vector<Choice> choices = {choice(1000, 64), choice(1020, 16), choice(2000, 4)};
  EXPECT_EQ(best_of(choices, 0.05), 1U);
}

}  // namespace
}  // namespace turnout::sim::plan
