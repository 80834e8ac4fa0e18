// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>

#include "base/settings.h"
#include "base/value.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/sim_files.h"
#include "cli/sim_progress.h"
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
#include "sim/workloads/written_trace.h"

namespace turnout::cli {
namespace {

constexpr std::uint32_t kMostJobs = 1024;
constexpr std::uint32_t kMostSeeds = 1000;
constexpr std::string_view kDefaultProfile = "connect-ib";
constexpr std::uint32_t kDefaultRanks = 64, kMostRanks = 1U << 20;

struct SimOptions {
  std::string workload;
  std::optional<std::uint32_t> ranks;  // not given: 64, of a replay the trace's
  std::uint32_t ranks_per_node = 1;
  std::string policies;
  std::string profile;  // empty: the experiment's, else connect-ib
  std::uint64_t seed = 1;
  std::string trace;  // to replay
  std::vector<std::string> settings, options;
  std::string json, csv, timeline, written_trace;
  std::string experiment, folder = ".", sizes, seeds;
  std::string save, experiment_workloads, budgets;
  std::string commit;
  std::string limits;
  std::uint32_t jobs = 1;
  std::string time_limit, start_after;
  std::string show_profile;
  bool list = false, profiles_page = false, no_check = false;
};

int fail(const Status& status) {
  return complain("turnout sim", status);
}

// What both kinds of run share.
template <class Options>
Status read_common(const SimOptions& o, std::string_view usual_profile, Options* out) {
  Result<sim::ProfileFile> profile =
      sim::find_profile(o.profile.empty() ? std::string(usual_profile) : o.profile);
  if (!profile) return profile.status();
  Result<sim::NamedValues> settings = sim::parse_pairs(o.settings, "--set");
  if (!settings) return settings.status();
  Result<sim::NamedValues> options = sim::parse_pairs(o.options, "--option");
  if (!options) return options.status();
  out->profile = std::move(profile).value();
  out->settings = std::move(settings).value();
  out->options = std::move(options).value();
  out->policies = sim::split(o.policies);
  return {};
}

// The timelines of the policies, one at a time.
class Timelines {
 public:
  std::function<void(const hca::Trace&)> start(const std::string& path, const std::string& title) {
    if (!end().ok()) return {};
    Result<std::unique_ptr<sim::Timeline>> made = sim::Timeline::create(path, title);
    status_ = made.status();
    if (!made) return {};
    current_ = std::move(made).value();
    return [this](const hca::Trace& trace) { current_->add(trace); };
  }
  Status end() {
    if (!current_) return status_;
    if (Status s = current_->finish(); status_.ok()) status_ = s;
    if (current_->cut()) {
      fmt::print(stderr, "turnout sim: writing the timeline ended early: its file reached {}\n",
                 value::human_bytes(sim::Timeline::kDefaultLimit));
    }
    current_.reset();
    return status_;
  }

 private:
  std::unique_ptr<sim::Timeline> current_;
  Status status_;
};

Status check(const SimOptions& o) {
  if (o.ranks.value_or(1) == 0 || o.ranks.value_or(1) > kMostRanks) {
    return invalid("--ranks {}: expected 1 to {}", *o.ranks, kMostRanks);
  }
  if (o.ranks_per_node == 0 || o.ranks_per_node > 1024) {
    return invalid("--ranks-per-node {}: expected 1 to 1024", o.ranks_per_node);
  }
  const bool replay = o.workload == "replay";
  if (replay != !o.trace.empty()) {
    return invalid("{}",
                   replay ? "replay needs --trace FILE" : "--trace goes with the workload replay");
  }
  return {};
}

// The program of a trace, with that many ranks; none: as many as it has.
Result<sim::MakeInstance> read_trace(const std::string& path, std::optional<std::uint32_t> wanted,
                                     std::uint32_t* ranks) {
  Result<sim::Trace> trace = sim::open_trace(path);
  if (!trace) return trace.status();
  *ranks = wanted.value_or(trace.value().ranks());
  Result<std::shared_ptr<const sim::Trace>> ready =
      sim::prepare_replay(std::move(trace).value(), *ranks);
  if (!ready) return ready.status();
  return sim::MakeInstance([ready = ready.value()](const sim::Place&) -> Result<sim::Instance> {
    return sim::make_replay(ready);
  });
}

Status add_replay(const SimOptions& o, sim::StudyOptions* study) {
  if (!study->options.empty()) return invalid("replay has no options");
  Result<sim::MakeInstance> make = read_trace(o.trace, o.ranks, &study->place.ranks);
  if (!make) return make.status();
  study->make = std::move(make).value();
  return {};
}

// An experiment with the recorded program in place of its workloads.
Status add_recording(const SimOptions& o, sim::ExperimentOptions* options) {
  std::uint32_t ranks = 0;
  Result<sim::MakeInstance> make = read_trace(o.trace, std::nullopt, &ranks);
  if (!make) return make.status();
  const std::filesystem::path path = std::filesystem::path(o.trace) / "";
  sim::Scenario recording;
  recording.title = path.parent_path().stem().string();
  recording.workload = "replay";
  recording.about = fmt::format("recorded with {} ranks", ranks);
  recording.make = std::move(make).value();
  options->recordings = {std::move(recording)};
  options->sizes = {ranks};
  return {};
}

// What an option lists, with commas between; `expected` says what it may be.
template <class T>
Status parse_counts(std::string_view option, const std::string& list, T least, T most,
                    const std::string& expected, std::vector<T>* counts) {
  for (const std::string& text : sim::split(list)) {
    const Result<std::uint64_t> count = value::parse_count(text);
    if (!count || count.value() < least || count.value() > most) {
      return invalid("{} {}: expected {}, separated by commas", option, list, expected);
    }
    counts->push_back(static_cast<T>(count.value()));
  }
  return {};
}

Status write_trace(sim::WrittenTrace* written, const std::string& path) {
  const Result<sim::Trace> trace = written->take();
  if (!trace) return trace.status();
  std::ostringstream text;
  if (Status s = sim::write_trace(trace.value(), text); !s.ok()) return s;
  return sim::write_text_file(path, text.str());
}

int run_workload(const SimOptions& o) {
  if (Status s = check(o); !s.ok()) return fail(s);
  std::vector<std::uint64_t> limits;
  if (Status s = parse_counts<std::uint64_t>("--limits", o.limits, 1, UINT64_MAX,
                                             "numbers of connections from 1 on", &limits);
      !s.ok()) {
    return fail(s);
  }
  sim::StudyOptions study;
  if (Status s = read_common(o, kDefaultProfile, &study); !s.ok()) return fail(s);
  Progress progress;
  study.keep_reports = !o.json.empty();  // for the messages of each pair
  study.keep_partners = !o.limits.empty();
  study.workload = o.workload;
  study.place = {o.ranks.value_or(kDefaultRanks), o.ranks_per_node, o.seed};
  if (!o.trace.empty()) {
    progress.say(fmt::format("reading {}", o.trace));
    if (Status s = add_replay(o, &study); !s.ok()) return fail(s);
  }
  if (study.policies.empty()) study.policies = {"turnout"};
  study.check_content = !o.no_check;
  if (!o.time_limit.empty()) {
    const Result<std::int64_t> limit = value::parse_duration(o.time_limit);
    if (!limit) return fail(invalid("--time-limit {}: {}", o.time_limit, limit.status().text()));
    if (limit.value() <= 0 || limit.value() > 3'600'000'000'000) {
      return fail(invalid("--time-limit {}: expected 1ns to 1h", o.time_limit));
    }
    study.time_limit = limit.value() * hca::kNanosecond;
  }
  if (!o.start_after.empty()) {
    const Result<std::int64_t> time = value::parse_duration(o.start_after);
    if (!time) return fail(invalid("--start-after {}: {}", o.start_after, time.status().text()));
    if (time.value() < 0 || time.value() > 60'000'000'000)
      return fail(invalid("--start-after {}: expected 0 to 60s", o.start_after));
    study.start_after = time.value() * hca::kNanosecond;
  }
  study.progress = [&](const std::string& policy, std::uint32_t ended, sim::Picoseconds now,
                       std::uint64_t events) {
    progress.show(policy, ended, study.place.ranks, now, events);
  };
  Timelines timelines;
  if (!o.timeline.empty()) {
    study.trace = [&](const std::string& policy) {
      return timelines.start(
          sim::timeline_path(o.timeline, policy, study.policies.size() > 1),
          fmt::format("{} on {} (modelled), {}", o.workload, study.profile.name, policy));
    };
  }
  if (!o.written_trace.empty() && study.policies.size() != 1) {
    return fail(invalid("--write-trace: expected one policy"));
  }
  sim::WrittenTrace written(o.workload, study.place.ranks);
  const Result<sim::Study> result = sim::run_study(study, [&](const sim::Options& options,
                                                              const sim::Program& program) {
    if (o.written_trace.empty()) return sim::run(options, program);
    sim::Options own = options;
    own.step = [&](std::uint32_t rank, const sim::ProgramStep& step) { written.add(rank, step); };
    return sim::run(own, program);
  });
  progress.clear();
  int code = 0;
  const auto write = [&](const Status& s) {
    if (!s.ok()) code = fail(s);
  };
  // Of a run that failed too: it shows where it stood.
  write(timelines.end());
  if (!result) return fail(result.status());
  fmt::print("{}", sim::format_table(result.value()));
  if (!o.written_trace.empty()) write(write_trace(&written, o.written_trace));
  if (study.keep_partners) fmt::print("{}", sim::format_partners(result.value(), limits));
  if (!o.json.empty()) write(sim::write_text_file(o.json, sim::to_json(result.value())));
  if (!o.csv.empty()) write(sim::write_text_file(o.csv, sim::to_csv(result.value())));
  return code;
}

Status check_experiment(const SimOptions& o, const sim::Experiment& experiment) {
  if (!experiment.several && (!o.experiment_workloads.empty() || !o.budgets.empty())) {
    return invalid("--workloads and --budgets: the experiment {} has one of each", experiment.name);
  }
  if (!o.trace.empty() && !experiment.several) {
    return invalid("--trace: the experiment {} has its own workload", experiment.name);
  }
  if (!o.trace.empty() && !(o.experiment_workloads.empty() && o.sizes.empty())) {
    return invalid(
        "--trace: is the workload, with as many ranks as it has; leave out "
        "--workloads and --sizes");
  }
  if (!o.trace.empty() && !o.commit.empty()) {
    return invalid("--commit: nobody could make the runs of a recording again");
  }
  if (!o.seeds.empty() && !experiment.repeats) {
    return invalid("--seeds: the experiment {} runs once", experiment.name);
  }
  if (o.jobs == 0 || o.jobs > kMostJobs) {
    return invalid("--jobs {}: expected 1 to {}", o.jobs, kMostJobs);
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

int run_experiment(const SimOptions& o) {
  const Result<const sim::Experiment*> experiment = sim::find_experiment(o.experiment);
  if (!experiment) return fail(experiment.status());
  if (Status s = check_experiment(o, *experiment.value()); !s.ok()) return fail(s);
  sim::ExperimentOptions options;
  const std::string_view own = experiment.value()->profile;
  if (Status s = read_common(o, own.empty() ? kDefaultProfile : own, &options); !s.ok()) {
    return fail(s);
  }
  Progress progress;
  options.seed = o.seed;
  Status listed =
      parse_counts("--sizes", o.sizes, 2U, kMostRanks,
                   fmt::format("numbers of ranks from 2 to {}", kMostRanks), &options.sizes);
  if (listed.ok()) {
    listed = parse_counts("--seeds", o.seeds, 1U, kMostSeeds,
                          fmt::format("numbers of seeds from 1 to {}", kMostSeeds), &options.seeds);
  }
  if (!listed.ok()) return fail(listed);
  options.workloads = sim::split(o.experiment_workloads);
  options.budgets = sim::split(o.budgets);
  options.jobs = o.jobs;
  std::optional<sim::KeptResults> kept;
  if (!o.save.empty()) {
    Result<sim::KeptResults> opened = sim::KeptResults::open(o.save, TURNOUT_VERSION);
    if (!opened) return fail(opened.status());
    options.kept = &kept.emplace(std::move(opened).value());
  }
  options.told = [&](const std::string& line) {
    progress.clear();
    fmt::print(stderr, "{}\n", line);
  };
  if (!o.trace.empty()) {
    progress.say(fmt::format("reading {}", o.trace));
    if (Status s = add_recording(o, &options); !s.ok()) return fail(s);
  }
  options.progress = [&](const std::string& what, std::uint32_t ranks, std::uint32_t ended,
                         sim::Picoseconds now, std::uint64_t events) {
    progress.show(fmt::format("{} at {}", what, ranks), ended, ranks, now, events);
  };
  const bool given = std::any_of(options.settings.begin(), options.settings.end(),
                                 [](const auto& setting) { return setting.first == "costs"; });
  const bool used = options.policies.empty() ||
                    std::find(options.policies.begin(), options.policies.end(), "turnout") !=
                        options.policies.end();
  TemporaryFile costs;
  if (experiment.value()->several && used && !given) {
    options.costs =
        std::filesystem::temp_directory_path() / fmt::format("turnout-costs-{}.toml", getpid());
    costs.reset(new std::string(options.costs));
    options.told(
        fmt::format("measuring the costs of {} for the policy turnout", options.profile.name));
    if (Status s = write_costs(options, options.costs); !s.ok()) return fail(s);
  }
  sim::SentinelCollector collector(options.costs);
  if (!o.commit.empty()) {
    options.ended = [&](const sim::StudyOptions& study, const sim::PolicyResult& one) {
      collector.add(study, one);
    };
  }
  const Result<sim::ExperimentResult> result = experiment.value()->run(options, sim::run);
  progress.clear();
  if (!result) return fail(result.status());
  const sim::Sentinels sentinels{o.experiment, o.commit,
                                 sim::choose_sentinels(collector.studies())};
  const Result<sim::Written> written =
      sim::write_experiment(o.folder, o.experiment, result.value(), plot_script(),
                            o.commit.empty() ? nullptr : &sentinels);
  if (!written) return fail(written.status());
  for (const std::string& file : written.value().files) fmt::print("{}\n", file);
  if (!written.value().plot_skipped.empty()) {
    fmt::print(stderr, "turnout sim: drawing the plot failed: {}\n", written.value().plot_skipped);
  }
  return 0;
}

int show_profile(const std::string& name) {
  const Result<sim::ProfileFile> profile = sim::find_profile(name);
  if (!profile) return fail(profile.status());
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

// What there is: workloads with their options, experiments, policies, profiles.
void list_all() {
  fmt::print("workloads (turnout sim NAME --option name=value)\n");
  for (const sim::Workload& w : sim::workloads()) {
    fmt::print("  {:<14} {}\n", w.name, w.help);
    for (const sim::Parameter& p : w.parameters) {
      fmt::print("  {:<14}   {} = {}: {}\n", "", p.name, p.print(p.default_value), p.help);
    }
  }
  fmt::print("  replay         the messages of a trace (--trace FILE)\n");
  fmt::print("experiments (turnout sim --experiment NAME)\n");
  for (const sim::Experiment& e : sim::experiments()) {
    fmt::print("  {:<14} {}\n", e.name, e.help);
  }
  fmt::print("policies: {}\n", fmt::join(kPolicyNames, ", "));
  fmt::print("profiles: {}\n", fmt::join(sim::list_profiles(), ", "));
}

int run_sim(const SimOptions& o) {
  if (o.list) {
    list_all();
    return 0;
  }
  if (!o.show_profile.empty()) return show_profile(o.show_profile);
  if (o.profiles_page) {
    const Result<std::string> page = sim::profile_markdown();
    if (!page) return fail(page.status());
    fmt::print("{}", page.value());
    return 0;
  }
  if (o.workload.empty() == o.experiment.empty()) {
    return fail(invalid("expected a workload or --experiment NAME; --list shows both"));
  }
  return o.workload.empty() ? run_experiment(o) : run_workload(o);
}

}  // namespace

void add_sim(CLI::App& app) {
  const auto [sim, o] = add_command<SimOptions>(
      app, "sim", "run a workload or an experiment in virtual time, on a modelled adapter",
      run_sim);
  sim->add_option("workload", o->workload, "what the ranks do; --list shows all");
  sim->add_option("-n,--ranks", o->ranks, "number of ranks [64; replay: the trace's]");
  sim->add_option("--ranks-per-node", o->ranks_per_node, "ranks that share one adapter")
      ->capture_default_str();
  sim->add_option("-p,--policy", o->policies, "policies to compare, separated by commas [turnout]");
  sim->add_option("--profile", o->profile,
                  "cost model: a name, or a TOML file [connect-ib, or what an experiment says]");
  sim->add_option("-s,--seed", o->seed, "seed of all random choices")->capture_default_str();
  sim->add_option("--trace", o->trace,
                  "input of `replay`, or the workload of --experiment policies or clairvoyant: a "
                  "trace, a folder of recordings (TURNOUT_TRACE), a GOAL "
                  "schedule (*.goal) or an OTF2 archive (*.otf2)");
  sim->add_option("--set", o->settings,
                  "name=value: a setting or tuning parameter of Turnout (turnout info --config)")
      ->allow_extra_args(false);
  sim->add_option("--option", o->options, "name=value: an option of the workload (--list)")
      ->allow_extra_args(false);
  sim->add_option("--start-after", o->start_after,
                  "time from the exchange of addresses to the start of the programs, in which "
                  "processes make progress [0s]");
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
  sim->add_option("--write-trace", o->written_trace,
                  "write the program's messages and computation as a trace to this file");
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
}

}  // namespace turnout::cli
