// SPDX-License-Identifier: BSD-3-Clause
// The golden table: short runs of every scenario under every policy, with the hash of all events of
// the run. `make golden` writes it, `make test` plays the runs again and compares every line, so
// that no change of a result goes unseen.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>

#include "base/settings.h"
#include "base/text_file.h"
#include "sim/experiments/page.h"
#include "sim/experiments/scenarios.h"
#include "sim/study/result_writer.h"
#include "sim/study/study.h"

namespace turnout::sim {

namespace {

constexpr std::uint32_t kRanks = 16, kRanksPerNode = 2;  // XRC and the loopback need nodes
// How payloads travel, and with how many of the seeds. They are above the threshold of rendezvous,
// control messages and barriers below it.
struct Way {
  std::string_view name;
  std::size_t seeds;
};
constexpr Way kWays[] = {{"get", 2}, {"put", 2}, {"eager", 1}};
constexpr std::size_t kShown = 12;  // differences
constexpr std::uint64_t kLargestTable = std::uint64_t{4} << 20;

// So short that the whole table takes seconds. Where queue pairs and channels cost next to nothing,
// they pay from a few messages on.
constexpr std::int64_t kQuicker = 50;
constexpr std::string_view kCosts = TURNOUT_SOURCE_DIR "/tests/sim/quick_setup.toml";
const std::map<std::string_view, NamedValues>& lengths() {
  static const std::map<std::string_view, NamedValues> all = {
      {"onetoall", {{"messages", "450"}, {"warmup", "300"}}},
      {"alltoone", {{"messages", "450"}, {"warmup", "300"}}},
      {"repeat",
       {{"times", "2"}, {"warmup", "0"}, {"messages_out", "150"}, {"messages_in", "150"}}},
      {"masterworker", {{"tasks", "400"}}},
      {"steal", {{"tasks", "600"}, {"most_tasks", "16"}}},
      {"shifts", {{"shifts", "2"}, {"messages", "25"}}},
      {"stencil3d", {{"rounds", "12"}}},
      {"trees", {{"rounds", "12"}}},
      {"phases", {{"phases", "2"}, {"messages", "25"}}},
      {"hotspots", {{"phases", "2"}, {"messages", "15"}}},
      {"alltoall", {{"rounds", "3"}}},
      {"random", {{"messages", "50"}}}};
  return all;
}

constexpr std::string_view kThreshold = "200", kBytes = "512";

struct Variant {
  std::string name, policy;
  NamedValues settings;
};

std::vector<Variant> variants() {
  std::vector<Variant> all;
  for (const std::string_view policy : kPolicyNames) {
    all.push_back({std::string(policy), std::string(policy), {}});
  }
  all.push_back({"turnout over ud", "turnout", {{"default_transport", "ud"}}});
  all.push_back({"srq with two connections", "srq", {{"max_conn", "2"}}});
  all.push_back({"rc-rdma-od over ud with two connections",
                 "rc-rdma-od",
                 {{"default_transport", "ud"}, {"max_conn", "2"}}});
  return all;
}

// What was asked for on the command line.
struct Asked {
  std::string file, profile = "connect-ib", workload;  // no workload: all
  std::vector<std::string> settings;
  bool write = false;
};

StudyOptions study_of(const Scenario& scenario, const Variant& variant, std::uint64_t seed,
                      std::string_view way, const ProfileFile& profile) {
  StudyOptions study;
  study.workload = scenario.workload;
  study.options = overlaid(options_of(scenario, kRanks), lengths().at(scenario.workload));
  const Workload& workload = *find_workload(scenario.workload).value();
  for (const char* const size : {"bytes", "task_bytes", "result_bytes"}) {
    if (workload.parameter(size) != nullptr) {
      study.options = overlaid(study.options, {{size, std::string(kBytes)}});
    }
  }
  study.place = {kRanks, kRanksPerNode, seed};
  study.profile = profile;
  // Some decisions in a run, a budget that binds, and fewer receives than senders may want, as
  // among hundreds of ranks with the usual number.
  study.settings = {{"interval", "50us"},       {"costs", std::string(kCosts)},
                    {"cost_setup_dc", "100ns"}, {"cost_setup_rc", "100ns"},
                    {"memory_budget", "16MiB"}, {"receive_first", "16"},
                    {"receive_buffers", "64"}};
  if (way != "eager") {
    study.settings.emplace_back("rendezvous", way);
    study.settings.emplace_back("rendezvous_threshold", kThreshold);
  }
  study.settings = overlaid(study.settings, variant.settings);
  study.policies = {variant.policy};
  study.keep_reports = true;
  return study;
}

// Lines of the table by what was run.
using Table = std::map<std::string, std::string>;

constexpr std::string_view kHead =
    "# Written by `make golden`; tests/sim/golden.cpp compares. A commit that changes it says "
    "why.\n"
    "# workload, policy, seed, way of payloads: virtual time (ps), messages, large messages, "
    "changes of "
    "channel, events, hash of all events\n";

// What one workload's runs must have had, or they would not show what they are for.
struct Seen {
  std::uint64_t large = 0, puts = 0;
  std::map<std::string, std::uint64_t> switches;  // by variant
};

Result<std::string> play_one(const StudyOptions& study, const std::string& variant, Seen* seen) {
  const Result<Study> made = run_study(study, run);
  if (!made) return made.status();
  const Outcome& o = made.value().results.front().outcome;
  std::uint64_t large = 0;
  for (const EndpointReport& report : o.reports) {
    large += report.operations.rendezvous;
    seen->puts += report.operations.puts;
  }
  seen->large += large;
  seen->switches[variant] += o.switches;
  return fmt::format("{} {} {} {} {} {:016x}", o.time, o.messages, large, o.switches,
                     o.world.events, o.world.hash);
}

Result<Table> play_all(const ProfileFile& profile, const Asked& asked,
                       const NamedValues& settings) {
  Table table;
  Seen all;
  for (const Scenario& scenario : scenarios()) {
    if (!asked.workload.empty() && scenario.workload != asked.workload) continue;
    all.large = all.puts = 0;
    for (const Variant& variant : variants()) {
      for (const Way& way : kWays) {
        for (std::size_t seed = 1; seed <= way.seeds; ++seed) {
          StudyOptions study = study_of(scenario, variant, seed, way.name, profile);
          study.settings = overlaid(study.settings, settings);
          Result<std::string> line = play_one(study, variant.name, &all);
          if (!line) return line.status();
          table[fmt::format("{}, {}, {}, {}", scenario.workload, variant.name, seed, way.name)] =
              std::move(line).value();
        }
      }
    }
    // In `shifts` both sides begin at once: RTRs and messages cross.
    if (all.large == 0 || (all.puts == 0 && scenario.workload != "shifts")) {
      return Status{Code::internal, fmt::format("{}: {} large messages, {} were put",
                                                scenario.workload, all.large, all.puts)};
    }
  }
  if (table.empty()) return Status{Code::invalid, "no such workload: " + asked.workload};
  for (const auto& [name, count] : all.switches) {
    if (count == 0 && asked.workload.empty() && !name.starts_with("static:")) {
      return Status{Code::internal, fmt::format("no change of channel under {}", name)};
    }
  }
  return table;
}

std::string print(const Table& table) {
  std::string text(kHead);
  for (const auto& [what, line] : table) text += fmt::format("{}: {}\n", what, line);
  return text;
}

Result<Table> read(const std::string& file) {
  const Result<std::string> text = read_text_file(file, file, "golden table", kLargestTable);
  if (!text) return text.status();
  Table table;
  for (const std::string& line : split(text.value(), '\n')) {
    if (line.starts_with('#')) continue;
    const auto end = line.rfind(": ");
    if (end == std::string::npos ||
        !table.emplace(line.substr(0, end), line.substr(end + 2)).second) {
      return Status{Code::invalid, fmt::format("{}: bad or repeated line: {}", file, line)};
    }
  }
  return table;
}

std::size_t compare(const Table& golden, const Table& now, const std::string& workload) {
  std::size_t differ = 0;
  const auto tell = [&](const std::string& what, const std::string& then, const std::string& line) {
    if (++differ > kShown) return;
    fmt::print("{}\n  table: {}\n  now:   {}\n", what, then, line);
  };
  for (const auto& [what, line] : now) {
    const auto then = golden.find(what);
    if (then == golden.end()) {
      tell(what, "-", line);
    } else if (then->second != line) {
      tell(what, then->second, line);
    }
  }
  for (const auto& [what, line] : golden) {
    const bool asked = workload.empty() || what.starts_with(workload + ",");
    if (asked && !now.contains(what)) tell(what, line, "-");
  }
  if (differ > kShown) fmt::print("... and {} more\n", differ - kShown);
  return differ;
}

int play(const Asked& asked) {
  const auto fail = [](const Status& status) {
    fmt::print(stderr, "sim_golden: {}\n", status.text());
    return 2;
  };
  const Result<NamedValues> settings = parse_pairs(asked.settings, "--set");
  if (!settings) return fail(settings.status());
  Result<ProfileFile> profile = find_profile(asked.profile);
  if (!profile) return fail(profile.status());
  hca::Profile& p = profile.value().profile;
  for (auto* const time : {&p.setup_create_qp, &p.setup_modify_qp, &p.setup_destroy_qp}) {
    *time /= kQuicker;
  }
  const Result<Table> now = play_all(profile.value(), asked, settings.value());
  if (!now) return fail(now.status());
  if (asked.write) {
    const Status written = write_text_file(asked.file, print(now.value()));
    return written.ok() ? 0 : fail(written);
  }
  const Result<Table> golden = read(asked.file);
  if (!golden) return fail(golden.status());
  const std::size_t differ = compare(golden.value(), now.value(), asked.workload);
  fmt::print("{} runs, {} differ from {}\n", now.value().size(), differ, asked.file);
  if (differ == 0) return 0;
  fmt::print(
      "  workload, policy, seed, way of payloads: time (ps), messages, large ones, changes of "
      "channel, "
      "events, hash\nIf the change is meant: make golden, and say in the commit why the results "
      "change. Pages whose sentinels fail: make pages.\n");
  return 1;
}

}  // namespace

}  // namespace turnout::sim

int main(int argc, char** argv) {
  CLI::App app{"plays the runs of the golden table and compares them with it"};
  turnout::sim::Asked asked;
  app.add_option("file", asked.file, "the table: tests/sim/golden.tsv")->required();
  app.add_option("--workload", asked.workload, "only this one");
  app.add_option("--profile", asked.profile, "cost model: a name, or a TOML file")
      ->capture_default_str();
  app.add_option("--set", asked.settings, "name=value: a setting of Turnout, in all runs")
      ->allow_extra_args(false);
  app.add_flag("--write", asked.write, "write the table instead")->excludes("--workload");
  CLI11_PARSE(app, argc, argv);
  return turnout::sim::play(asked);
}
