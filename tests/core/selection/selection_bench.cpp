// SPDX-License-Identifier: BSD-3-Clause
// selection_bench: what one decision costs with 65,536 known sources, in processor time. No test.
//
//   selection_bench [SHAPE...]   even, zipf, few, steep: how many messages came from whom; none:
//   all
#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>

#include "core/selection/policy.h"
#include "core/selection/turnout_policy.h"
#include "core/selection/windows.h"

namespace turnout::selection {
namespace {

constexpr std::uint32_t kSources = 65'536;
constexpr int kRounds = 31;

// The processor's time of this thread: other programs do not count.
double milliseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

template <class F>
void measure(const std::string& what, F&& f) {
  std::vector<double> rounds;
  for (int r = 0; r < kRounds; ++r) {
    const double begin = milliseconds();
    f();
    rounds.push_back(milliseconds() - begin);
  }
  std::sort(rounds.begin(), rounds.end());
  std::printf("%-60s %7.3f ms median %7.3f ms least %7.3f ms most\n", what.c_str(),
              rounds[kRounds / 2], rounds.front(), rounds.back());
}

std::uint64_t messages(const std::string& shape, std::uint32_t i, std::mt19937_64* random) {
  if (shape == "even") return 9'000 + (*random)() % 2'000;
  if (shape == "zipf") return 1 + 5'000'000 / (1 + i) + (*random)() % 10;
  if (shape == "few") return i % 256 == 0 ? 100'000 + (*random)() % 10'000 : 1;
  const double n = 1e9 * std::pow(0.999, static_cast<double>(i));  // "steep"
  return 1 + static_cast<std::uint64_t>(n) + (*random)() % 10;
}

void decisions(const std::string& shape) {
  std::mt19937_64 random(1);
  std::vector<SourceView> sources;
  for (std::uint32_t i = 0; i < kSources; ++i) {
    sources.push_back(
        {i, ChannelKind::dc_sendrecv, messages(shape, (i * 7919) % kSources, &random)});
  }
  for (const bool dc : {false, true}) {
    for (std::uint32_t i = 0; i < 200; ++i) {
      SourceView& source = sources[i * 13];
      if (i % 8 == 0) {
        source.current = ChannelKind::rc_rdma;
        source.rc_exists = true;
      } else if (dc) {
        source.current = ChannelKind::dc_rdma;
      }
    }
    TurnoutInput turnout;
    turnout.sources = sources;
    turnout.limits = {256, 256, dc, 20u << 20, 64u << 10, 44u << 10};
    measure("select_turnout, " + shape + ", " + (dc ? "with" : "without") + " DC-RDMA", [&] {
      if (select_turnout(turnout).lines.empty()) std::abort();
    });
    Input input;
    input.sources = sources;
    input.limits = {26, 256, dc, 20u << 20, 64u << 10, 44u << 10};
    measure("select_aqps, " + shape + ", " + (dc ? "with" : "without") + " DC-RDMA", [&] {
      if (select_aqps(input).lines.empty()) std::abort();
    });
  }
}

void windows() {
  std::mt19937_64 random(1);
  const auto statistics = make_statistics().value().release();
  std::vector<SourceView> sources;
  for (std::uint32_t i = 0; i < kSources; ++i) sources.push_back({i});
  Time now = 0;
  measure("statistics: an interval of 65,536 sources", [&] {
    if (!statistics->begin_interval({now, now + 1}).ok()) return;
    ++now;
    for (std::uint32_t i = 0; i < kSources; ++i) statistics->count(i, 1 + random() % 10'000, false);
    statistics->end_interval(0);
  });
  WindowInput input;
  input.sources = sources;
  input.limits = {26, 256, true, 20u << 20, 64u << 10, 44u << 10};
  measure("T1-T4: both windows", [&] {
    (void)select_in_windows(*statistics, {TimeWindow{0, now}}, input);
  });
  delete statistics;
}

}  // namespace
}  // namespace turnout::selection

int main(int argc, char** argv) {
  constexpr std::array<std::string_view, 4> kShapes = {"even", "zipf", "few", "steep"};
  for (int i = 1; i < argc; ++i) {
    if (std::find(kShapes.begin(), kShapes.end(), argv[i]) == kShapes.end()) {
      std::fprintf(stderr, "selection_bench: no shape \"%s\": even, zipf, few, steep\n", argv[i]);
      return 2;
    }
    turnout::selection::decisions(argv[i]);
  }
  if (argc > 1) return 0;
  for (const std::string_view shape : kShapes) turnout::selection::decisions(std::string(shape));
  turnout::selection::windows();
}
