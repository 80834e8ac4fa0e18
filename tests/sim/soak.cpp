// SPDX-License-Identifier: BSD-3-Clause
// Random schedules without end: `make soak`. Prints the seed and settings of every schedule that
// breaks what must hold, and goes on; the exit code tells whether there was one.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>

#include "base/log.h"
#include "base/settings.h"
#include "tests/sim/schedule.h"

int main(int argc, char** argv) {
  CLI::App app{"plays random schedules in virtual time and checks what must hold"};
  std::uint64_t first =
      static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  std::uint64_t count = 0;
  std::string broken_rule;
  app.add_option("--first", first, "first seed (default: drawn from the clock)");
  app.add_option("--count", count, "schedules to play, 0: without end");
  app.add_option("--break-rule", broken_rule, "setting break_rule of Turnout");
  std::string rendezvous;
  app.add_option("--rendezvous", rendezvous, "larger messages, that travel so")
      ->check(CLI::IsMember(turnout::kRendezvousNames));
  bool datagrams = false, scarce = false;
  app.add_flag("--datagrams", datagrams, "on a device without DC");
  app.add_flag("--scarce", scarce, "with little memory, odd seeds without DC")
      ->excludes("--datagrams");
  bool teardown = false;
  app.add_flag("--teardown", teardown, "few connections, that give their places to others")
      ->excludes("--datagrams")
      ->excludes("--scarce");
  bool deaths = false;
  app.add_flag("--deaths", deaths, "the same, and one or two of the ranks die")
      ->excludes("--datagrams")
      ->excludes("--scarce");
  bool failures = false;
  app.add_flag("--failures", failures, "of connections, in all of these")
      ->excludes("--datagrams")
      ->excludes("--scarce")
      ->excludes("--teardown")
      ->excludes("--deaths");
  bool xrc = false;
  app.add_flag("--xrc", xrc, "over connections of nodes, which fail, and ranks die")
      ->excludes("--datagrams")
      ->excludes("--scarce")
      ->excludes("--teardown")
      ->excludes("--deaths")
      ->excludes("--failures");
  bool predictions = false;
  app.add_flag("--predictions", predictions, "with those of an earlier run, right and wrong ones")
      ->excludes("--datagrams")
      ->excludes("--scarce")
      ->excludes("--teardown")
      ->excludes("--deaths")
      ->excludes("--failures")
      ->excludes("--xrc");
  bool fragments = false;
  app.add_flag("--fragments", fragments, "eager messages of several ring entries among them");
  std::string policy;
  app.add_option("--policy", policy, "instead of the one drawn")
      ->check(CLI::IsMember(turnout::kPolicyNames));
  std::string log = "warn";
  app.add_option("--log", log, "least level shown, as TURNOUT_LOG");
  CLI11_PARSE(app, argc, argv);
  turnout::log::configure(log, "");
  using namespace turnout::sim;
  const auto [play, option] =
      predictions           ? std::pair(&play_predicted_schedule, std::string(" --predictions"))
      : xrc                 ? std::pair(&play_xrc_schedule, std::string(" --xrc"))
      : failures            ? std::pair(&play_failure_schedule, std::string(" --failures"))
      : deaths              ? std::pair(&play_death_schedule, std::string(" --deaths"))
      : teardown            ? std::pair(&play_teardown_schedule, std::string(" --teardown"))
      : scarce              ? std::pair(&play_scarce_schedule, std::string(" --scarce"))
      : datagrams           ? std::pair(&play_datagram_schedule, std::string(" --datagrams"))
      : !rendezvous.empty() ? std::pair(&play_large_schedule, " --rendezvous " + rendezvous)
      : fragments           ? std::pair(&play_large_schedule, std::string())
                            : std::pair(&play_schedule, std::string());
  More more;
  if (!rendezvous.empty()) more.settings.emplace_back("rendezvous", rendezvous);
  if (!policy.empty()) more.settings.emplace_back("policy", policy);
  if (!broken_rule.empty()) more.settings.emplace_back("break_rule", broken_rule);
  std::uint64_t failed = 0;
  ScheduleOutcome sum;
  for (std::uint64_t i = 0; count == 0 || i < count; ++i) {
    More these = more;
    if (fragments) add_eager_sizes(first + i, &these);
    const ScheduleOutcome outcome = play(first + i, these);
    sum.add(outcome);
    if (!outcome.broken.empty()) {
      ++failed;
      fmt::print("{}\n  {}\n  again: sim_soak --first {} --count 1{}{}{}\n", outcome.told,
                 outcome.broken, first + i, policy.empty() ? "" : " --policy " + policy,
                 fragments ? " --fragments" : "", option);
    }
    if ((i + 1) % 1000 == 0 || i + 1 == count) {
      fmt::print("{} schedules from seed {}, {} channel changes, {} faults, {} failed\n", i + 1,
                 first, sum.switches, sum.faults, failed);
      if (sum.rtrs > 0) {
        fmt::print("  {} offers, {} messages put, {} told of\n", sum.rtrs, sum.puts,
                   sum.put_completions);
      }
      if (teardown || deaths || failures || xrc) {
        fmt::print("  {} ends of connections made, {} torn down\n", sum.connections.made,
                   sum.connections.tear_downs);
      }
      if (xrc) fmt::print("  {} of {} messages over XRC\n", sum.over_xrc, sum.messages);
      if (sum.reached > 0) fmt::print("  {} puts and gets\n", sum.reached);
      if (failures || xrc) fmt::print("  {} ends of connections failed\n", sum.connections.failed);
      if (deaths || xrc)
        fmt::print("  {} operations with the dead ended with an error\n", sum.refused);
    }
    std::fflush(stdout);
  }
  return failed == 0 ? 0 : 1;
}
