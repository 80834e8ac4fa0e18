// SPDX-License-Identifier: BSD-3-Clause
#include "cli/sim.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <optional>

#include "base/value.h"
#include "cli/command_line.h"
#include "cli/plot_script.h"
#include "sim/analysis/victim_bound.h"
#include "sim/calibration/calibration.h"
#include "sim/experiments/experiment.h"
#include "sim/experiments/sentinels.h"
#include "sim/formats/profile_file.h"
#include "sim/formats/timeline.h"
#include "sim/formats/trace.h"
#include "sim/runtime/simulation.h"
#include "sim/study/kept_results.h"
#include "sim/study/result_writer.h"
#include "sim/study/study.h"
#include "sim/workloads/replay.h"

namespace turnout::cli {

namespace {

constexpr std::uint32_t kMostJobs = 1024;
constexpr std::uint32_t kMostSeeds = 1000;
constexpr std::string_view kDefaultProfile = "connect-ib";
constexpr std::uint32_t kDefaultRanks = 64, kMostRanks = 1U << 20;

int complain(const Status& status) {
  fmt::print(stderr, "turnout sim: {}\n", status.text());
  return exit_code(status);
}

Status invalid(std::string text) {
  return {Code::invalid, std::move(text)};
}

// What both kinds of run share.
struct Common {
  sim::ProfileFile profile;
  sim::NamedValues settings, options;
  std::vector<std::string> policies;
};

Result<Common> common(const SimOptions& o, std::string_view usual_profile) {
  Result<sim::ProfileFile> profile =
      sim::find_profile(o.profile.empty() ? std::string(usual_profile) : o.profile);
  if (!profile) return profile.status();
  Result<sim::NamedValues> settings = sim::parse_pairs(o.settings, "--set");
  if (!settings) return settings.status();
  Result<sim::NamedValues> options = sim::parse_pairs(o.options, "--option");
  if (!options) return options.status();
  return Common{std::move(profile).value(), std::move(settings).value(), std::move(options).value(),
                sim::split(o.policies)};
}

// The timelines of the policies, one at a time.
class Timelines {
 public:
  Timelines(std::string path, std::string title, bool several)
      : path_(std::move(path)), title_(std::move(title)), several_(several) {}

  std::function<void(const hca::Trace&)> start(const std::string& policy) {
    if (!end().ok()) return {};
    Result<std::unique_ptr<sim::Timeline>> made =
        sim::Timeline::create(sim::timeline_path(path_, policy, several_), title_ + ", " + policy);
    if (!made) {
      if (status_.ok()) status_ = made.status();
      return {};
    }
    current_ = std::move(made).value();
    return [this](const hca::Trace& trace) { current_->add(trace); };
  }
  Status end() {
    if (current_) {
      if (Status s = current_->finish(); !s.ok() && status_.ok()) status_ = s;
      if (current_->cut()) {
        fmt::print(stderr, "turnout sim: writing the timeline ended early: its file reached {}\n",
                   value::human_bytes(sim::Timeline::kDefaultLimit));
      }
      current_.reset();
    }
    return status_;
  }

 private:
  std::string path_, title_;
  bool several_;
  std::unique_ptr<sim::Timeline> current_;
  Status status_;
};

Status check(const SimOptions& o) {
  if (o.ranks.value_or(1) == 0 || o.ranks.value_or(1) > kMostRanks) {
    return invalid(fmt::format("--ranks {}: expected 1 to {}", *o.ranks, kMostRanks));
  }
  if (o.ranks_per_node == 0 || o.ranks_per_node > 1024) {
    return invalid(fmt::format("--ranks-per-node {}: expected 1 to 1024", o.ranks_per_node));
  }
  const bool replay = o.workload == "replay";
  if (replay != !o.trace.empty()) {
    return invalid(replay ? "replay needs --trace FILE" : "--trace goes with the workload replay");
  }
  return {};
}

Status add_replay(const SimOptions& o, sim::StudyOptions* study) {
  if (!study->options.empty()) return invalid("replay has no options");
  Result<sim::Trace> trace = sim::open_trace(o.trace);
  if (!trace) return trace.status();
  if (!o.ranks) study->place.ranks = trace.value().ranks();
  Result<std::shared_ptr<const sim::Trace>> ready =
      sim::prepare_replay(std::move(trace).value(), study->place.ranks);
  if (!ready) return ready.status();
  study->make = [ready = ready.value()](const sim::Place&) -> Result<sim::Instance> {
    return sim::make_replay(ready);
  };
  return {};
}

// What an option lists, with commas between; `expected` says what it may be.
Result<std::vector<std::uint64_t>> counts_of(std::string_view option, const std::string& list,
                                             std::uint64_t least, std::uint64_t most,
                                             const std::string& expected) {
  std::vector<std::uint64_t> counts;
  for (const std::string& text : sim::split(list)) {
    const Result<std::uint64_t> count = value::parse_count(text);
    if (!count || count.value() < least || count.value() > most) {
      return invalid(
          fmt::format("{} {}: expected {}, separated by commas", option, list, expected));
    }
    counts.push_back(count.value());
  }
  return counts;
}

int run_workload(const SimOptions& o) {
  if (Status s = check(o); !s.ok()) return complain(s);
  const Result<std::vector<std::uint64_t>> limits =
      counts_of("--limits", o.limits, 1, UINT64_MAX, "numbers of connections from 1 on");
  if (!limits) return complain(limits.status());
  Result<Common> shared = common(o, kDefaultProfile);
  if (!shared) return complain(shared.status());
  Progress progress;
  sim::StudyOptions study;
  study.keep_reports = !o.json.empty();  // for the messages of each pair
  study.keep_partners = !o.limits.empty();
  study.workload = o.workload;
  study.options = shared->options;
  study.place = {o.ranks.value_or(kDefaultRanks), o.ranks_per_node, o.seed};
  if (!o.trace.empty()) {
    progress.say(fmt::format("reading {}", o.trace));
    if (Status s = add_replay(o, &study); !s.ok()) return complain(s);
  }
  study.profile = std::move(shared->profile);
  study.settings = shared->settings;
  study.policies = std::move(shared->policies);
  if (study.policies.empty()) study.policies = {"turnout"};
  study.check_content = !o.no_check;
  if (!o.time_limit.empty()) {
    const Result<std::int64_t> limit = value::parse_duration(o.time_limit);
    if (!limit)
      return complain(
          invalid(fmt::format("--time-limit {}: {}", o.time_limit, limit.status().text())));
    if (limit.value() <= 0 || limit.value() > 3'600'000'000'000) {
      return complain(invalid(fmt::format("--time-limit {}: expected 1ns to 1h", o.time_limit)));
    }
    study.time_limit = limit.value() * hca::kNanosecond;
  }
  study.progress = [&](const std::string& policy, std::uint32_t ended, sim::Picoseconds now,
                       std::uint64_t events) {
    progress.show(policy, ended, study.place.ranks, now, events);
  };
  std::optional<Timelines> timelines;
  if (!o.timeline.empty()) {
    timelines.emplace(o.timeline,
                      fmt::format("{} on {} (modelled)", o.workload, study.profile.name),
                      study.policies.size() > 1);
    study.trace = [&](const std::string& policy) { return timelines->start(policy); };
  }
  const Result<sim::Study> result = sim::run_study(study, sim::run);
  progress.clear();
  int code = 0;
  const auto write = [&](const Status& s) {
    if (!s.ok()) code = complain(s);
  };
  // Of a run that failed too: it shows where it stood.
  if (timelines) write(timelines->end());
  if (!result) return complain(result.status());
  fmt::print("{}", sim::format_table(result.value()));
  if (study.keep_partners) fmt::print("{}", sim::format_partners(result.value(), limits.value()));
  if (!o.json.empty()) write(sim::write_text_file(o.json, sim::to_json(result.value())));
  if (!o.csv.empty()) write(sim::write_text_file(o.csv, sim::to_csv(result.value())));
  return code;
}

Status check_experiment(const SimOptions& o, const sim::Experiment& experiment) {
  if (!experiment.several && (!o.experiment_workloads.empty() || !o.budgets.empty())) {
    return invalid(fmt::format("--workloads and --budgets: the experiment {} has one of each",
                               experiment.name));
  }
  if (!o.seeds.empty() && !experiment.repeats) {
    return invalid(fmt::format("--seeds: the experiment {} runs once", experiment.name));
  }
  if (o.jobs == 0 || o.jobs > kMostJobs) {
    return invalid(fmt::format("--jobs {}: expected 1 to {}", o.jobs, kMostJobs));
  }
  if (o.jobs > 1 && o.save.empty()) {
    return invalid("--jobs: several processes need a folder for their results, --save FOLDER");
  }
  return {};
}

// What a user of that device would give the policy `turnout`: written to `file`.
Status write_costs(const sim::ExperimentOptions& options, const std::string& file) {
  sim::CalibrationOptions calibration;
  calibration.profile = options.profile;
  calibration.seed = options.seed;
  const Result<selection::CostsFile> costs = sim::calibrate(calibration, sim::run);
  if (!costs) return costs.status();
  return sim::write_text_file(file, selection::print_costs(costs.value()));
}

// Gone with the program.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string name) : name_(std::move(name)) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    std::error_code ignored;
    std::filesystem::remove(name_, ignored);
  }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  std::string name_;
};

int run_experiment(const SimOptions& o) {
  const Result<const sim::Experiment*> experiment = sim::find_experiment(o.experiment);
  if (!experiment) return complain(experiment.status());
  if (Status s = check_experiment(o, *experiment.value()); !s.ok()) return complain(s);
  Result<Common> shared = common(
      o, experiment.value()->profile.empty() ? kDefaultProfile : experiment.value()->profile);
  if (!shared) return complain(shared.status());
  Progress progress;
  sim::ExperimentOptions options;
  options.profile = std::move(shared->profile);
  options.seed = o.seed;
  options.policies = std::move(shared->policies);
  options.options = std::move(shared->options);
  options.settings = std::move(shared->settings);
  const Result<std::vector<std::uint64_t>> sizes = counts_of(
      "--sizes", o.sizes, 2, kMostRanks, fmt::format("numbers of ranks from 2 to {}", kMostRanks));
  if (!sizes) return complain(sizes.status());
  options.sizes.assign(sizes.value().begin(), sizes.value().end());
  const Result<std::vector<std::uint64_t>> seeds = counts_of(
      "--seeds", o.seeds, 1, kMostSeeds, fmt::format("numbers of seeds from 1 to {}", kMostSeeds));
  if (!seeds) return complain(seeds.status());
  options.seeds.assign(seeds.value().begin(), seeds.value().end());
  options.workloads = sim::split(o.experiment_workloads);
  options.budgets = sim::split(o.budgets);
  options.jobs = o.jobs;
  std::optional<sim::KeptResults> kept;
  if (!o.save.empty()) {
    Result<sim::KeptResults> opened = sim::KeptResults::open(o.save, TURNOUT_VERSION);
    if (!opened) return complain(opened.status());
    options.kept = &kept.emplace(std::move(opened).value());
  }
  options.told = [&](const std::string& line) {
    progress.clear();
    fmt::print(stderr, "{}\n", line);
  };
  options.progress = [&](const std::string& what, std::uint32_t ranks, std::uint32_t ended,
                         sim::Picoseconds now, std::uint64_t events) {
    progress.show(fmt::format("{} at {}", what, ranks), ended, ranks, now, events);
  };
  const bool given = std::any_of(options.settings.begin(), options.settings.end(),
                                 [](const auto& setting) { return setting.first == "costs"; });
  const bool used = options.policies.empty() ||
                    std::find(options.policies.begin(), options.policies.end(), "turnout") !=
                        options.policies.end();
  std::optional<TemporaryFile> costs;
  if (experiment.value()->several && used && !given) {
    costs.emplace(std::filesystem::temp_directory_path() /
                  fmt::format("turnout-costs-{}.toml", getpid()));
    options.told(
        fmt::format("measuring the costs of {} for the policy turnout", options.profile.name));
    if (Status s = write_costs(options, costs->name()); !s.ok()) return complain(s);
    options.costs = costs->name();
  }
  sim::SentinelCollector collector(options.costs);
  if (!o.commit.empty()) {
    options.ended = [&](const sim::StudyOptions& study, const sim::PolicyResult& one) {
      collector.add(study, one);
    };
  }
  const Result<sim::ExperimentResult> result = experiment.value()->run(options, sim::run);
  progress.clear();
  if (!result) return complain(result.status());
  const sim::Sentinels sentinels{o.experiment, o.commit,
                                 sim::choose_sentinels(collector.studies())};
  const Result<sim::Written> written =
      sim::write_experiment(o.folder, o.experiment, result.value(), plot_script(),
                            o.commit.empty() ? nullptr : &sentinels);
  if (!written) return complain(written.status());
  for (const std::string& file : written.value().files) fmt::print("{}\n", file);
  if (!written.value().plot_skipped.empty()) {
    fmt::print(stderr, "turnout sim: drawing the plot failed: {}\n", written.value().plot_skipped);
  }
  return 0;
}

int show_profile(const std::string& name) {
  const Result<sim::ProfileFile> profile = sim::find_profile(name);
  if (!profile) return complain(profile.status());
  const sim::ProfileFile& p = profile.value();
  fmt::print("{}: {}\n", p.name, p.device);
  if (!p.inherits.empty()) fmt::print("inherits {}\n", p.inherits);
  if (!p.note.empty()) fmt::print("{}\n", p.note);
  for (const sim::ProfileValue& v : p.values) {
    fmt::print("{}.{} = {} {}  ({}{}{})\n    {}\n", v.group, v.name, v.value, v.unit, v.provenance,
               v.source.empty() ? "" : " ", v.source, v.help);
  }
  return 0;
}

}  // namespace

CLI::App* add_sim(CLI::App& app, SimOptions* o) {
  auto* const sim = app.add_subcommand(
      "sim", "run a workload or an experiment in virtual time, on a modelled adapter");
  sim->add_option("workload", o->workload, "what the ranks do; --list shows all");
  sim->add_option("-n,--ranks", o->ranks, "number of ranks [64; replay: the trace's]");
  sim->add_option("--ranks-per-node", o->ranks_per_node, "ranks that share one adapter")
      ->capture_default_str();
  sim->add_option("-p,--policy", o->policies, "policies to compare, separated by commas [turnout]");
  sim->add_option("--profile", o->profile,
                  "cost model: a name, or a TOML file [connect-ib, or what an experiment says]");
  sim->add_option("-s,--seed", o->seed, "seed of all random choices")->capture_default_str();
  sim->add_option("--trace", o->trace,
                  "input of `replay`: a trace, a folder of recordings (TURNOUT_TRACE), a GOAL "
                  "schedule (*.goal) or an OTF2 archive (*.otf2)");
  sim->add_option("--set", o->settings,
                  "name=value: a setting or tuning parameter of Turnout (turnout info --config)")
      ->allow_extra_args(false);
  sim->add_option("--option", o->options, "name=value: an option of the workload (--list)")
      ->allow_extra_args(false);
  sim->add_option("--time-limit", o->time_limit, "longest virtual time [10s]");
  sim->add_flag("--no-check", o->no_check, "do not generate and verify message contents");
  sim->add_option("--limits", o->limits,
                  "count each process's partners, and the connections it would create with at most "
                  "this many at a time; numbers separated by commas");
  sim->add_option("--json", o->json, "write the results to this file");
  sim->add_option("--csv", o->csv, "write the results to this file");
  sim->add_option("--timeline", o->timeline,
                  "write a timeline of all ranks for ui.perfetto.dev to this file; with several "
                  "policies one file each");
  sim->add_option("--experiment", o->experiment, "reproduce a figure of a paper; --list shows all");
  sim->add_option("--sizes", o->sizes, "with --experiment: numbers of ranks, separated by commas");
  sim->add_option(
      "--seeds", o->seeds,
      "with --experiment teardown or rendezvous: number of seeds per run, starting at --seed, for "
      "each of --sizes; the page shows medians");
  sim->add_option("--workloads", o->experiment_workloads,
                  "with --experiment policies: only these, by title or name, separated by commas");
  sim->add_option("--budgets", o->budgets,
                  "with --experiment policies: budgets per process, separated by commas");
  sim->add_option("--save", o->save,
                  "with --experiment: keep the result of each run in this folder, and reuse it the "
                  "next time. A folder is valid for one build only");
  sim->add_option("--jobs", o->jobs, "with --experiment and --save: parallel runs")
      ->capture_default_str();
  sim->add_option("--commit", o->commit,
                  "with --experiment: the commit of this build, for the page; cheap runs are "
                  "written beside it as NAME.sentinels.json, which a test makes again");
  sim->add_option("-o,--output", o->folder, "with --experiment: folder for page, data and plot")
      ->capture_default_str();
  sim->add_flag("--list", o->list,
                "list workloads and their options, experiments, policies, profiles");
  sim->add_option("--show-profile", o->show_profile,
                  "print the values of a profile and their sources");
  sim->add_flag("--profiles-page", o->profiles_page, "print the page docs/profiles.md");
  return sim;
}

int run_sim(const SimOptions& o) {
  if (o.list) {
    fmt::print("{}", sim_list());
    return 0;
  }
  if (!o.show_profile.empty()) return show_profile(o.show_profile);
  if (o.profiles_page) {
    const Result<std::string> page = sim::profile_markdown();
    if (!page) return complain(page.status());
    fmt::print("{}", page.value());
    return 0;
  }
  if (o.workload.empty() == o.experiment.empty()) {
    return complain(invalid("expected a workload or --experiment NAME; --list shows both"));
  }
  return o.workload.empty() ? run_experiment(o) : run_workload(o);
}

}  // namespace turnout::cli
