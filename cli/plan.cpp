// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "base/value.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/plan_page.h"
#include "cli/sim_files.h"
#include "cli/sim_progress.h"
#include "sim/plan/plan.h"
#include "sim/study/kept_results.h"
#include "sim/study/result_writer.h"

namespace turnout::cli {
namespace {

constexpr std::uint32_t kMostRanks = 1U << 20, kMostPerNode = 1024, kMostJobs = 1024;
constexpr std::size_t kMostTraces = 16;

struct PlanCommand {
  std::vector<std::string> traces;
  std::uint32_t ranks = 0;
  std::string per_node = "1", policies = "turnout", budgets, profile = "connect-ib", costs;
  std::vector<std::string> settings;
  double within = 5;
  std::uint64_t seed = 1;
  std::uint32_t jobs = 1, samples = 8;
  double most_messages = 2e6;
  std::string html, json, save;
};

int fail(const Status& status) {
  return complain("turnout plan", status);
}

struct RemoveFolder {
  void operator()(const std::string* path) const {
    std::error_code ignored;
    std::filesystem::remove_all(*path, ignored);
    delete path;
  }
};
using TemporaryFolder = std::unique_ptr<const std::string, RemoveFolder>;

Result<sim::plan::PlanOptions> read_options(const PlanCommand& o) {
  sim::plan::PlanOptions options;
  if (o.ranks < 2 || o.ranks > kMostRanks) {
    return invalid("--ranks {}: expected 2 to {}", o.ranks, kMostRanks);
  }
  if (o.within < 0 || o.within > 1000) {
    return invalid("--within {}: expected 0 to 1000 percent", o.within);
  }
  if (o.jobs == 0 || o.jobs > kMostJobs) {
    return invalid("--jobs {}: expected 1 to {}", o.jobs, kMostJobs);
  }
  if (o.samples > 1000) return invalid("--samples {}: expected 0 to 1000", o.samples);
  if (o.most_messages < 1000)
    return invalid("--messages {}: expected 1000 or more", o.most_messages);
  options.ranks = o.ranks;
  options.ranks_per_node.clear();
  for (const std::string& text : sim::split(o.per_node)) {
    const Result<std::uint64_t> count = value::parse_count(text);
    if (!count || count.value() < 1 || count.value() > kMostPerNode) {
      return invalid("--ranks-per-node {}: expected numbers from 1 to {}, separated by commas",
                     o.per_node, kMostPerNode);
    }
    options.ranks_per_node.push_back(static_cast<std::uint32_t>(count.value()));
  }
  if (options.ranks_per_node.empty()) return invalid("--ranks-per-node: none given");
  options.policies = sim::split(o.policies);
  if (options.policies.empty()) return invalid("--policies: none given");
  for (const std::string& text : sim::split(o.budgets)) {
    const Result<std::uint64_t> bytes = value::parse_bytes(text);
    if (!bytes || bytes.value() == 0 || bytes.value() >= sim::plan::kNoBudget) {
      return invalid("--budgets {}: expected sizes below {}, separated by commas, such as 16MiB",
                     o.budgets, value::print_bytes(sim::plan::kNoBudget));
    }
    options.budgets.push_back(bytes.value());
  }
  Result<sim::ProfileFile> profile = sim::find_profile(o.profile);
  if (!profile) return profile.status();
  options.profile = std::move(profile).value();
  Result<sim::NamedValues> settings = sim::parse_pairs(o.settings, "--set");
  if (!settings) return settings.status();
  options.settings = std::move(settings).value();
  for (const auto& [name, text] : options.settings) {
    if (name == "memory_budget" || name == "node_budget") {
      return invalid("--set {}: --budgets says which budgets are tried", name);
    }
  }
  if (!o.costs.empty()) options.settings.emplace_back("costs", o.costs);
  for (const std::string& policy : options.policies) {
    if (Status s = sim::check_settings(policy, options.settings); !s.ok()) return s;
  }
  options.within = o.within / 100;
  options.seed = o.seed;
  options.jobs = o.jobs;
  options.samples = o.samples;
  options.most_messages = o.most_messages;
  return options;
}

int run_plan(const PlanCommand& o) {
  if (o.traces.size() > kMostTraces) {
    return fail(invalid("{} recordings: expected at most {}", o.traces.size(), kMostTraces));
  }
  Result<sim::plan::PlanOptions> options = read_options(o);
  if (!options) return fail(options.status());
  Progress progress;
  std::vector<sim::Trace> traces;
  for (const std::string& path : o.traces) {
    progress.say(fmt::format("reading {}", path));
    Result<sim::Trace> trace = sim::open_trace(path);
    if (!trace) {
      progress.clear();
      return fail(trace.status());
    }
    if (trace.value().name.empty()) trace.value().name = path;
    traces.push_back(std::move(trace).value());
  }
  TemporaryFolder temporary;
  std::string folder = o.save;
  if (folder.empty()) {
    folder = (std::filesystem::temp_directory_path() / fmt::format("turnout-plan-{}", getpid()))
                 .string();
    temporary.reset(new std::string(folder));
  }
  const Result<sim::KeptResults> kept = sim::KeptResults::open(folder, TURNOUT_VERSION);
  if (!kept) return fail(kept.status());
  options.value().kept = &kept.value();
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  options.value().told = [&](const std::string& line) {
    if (terminal) {
      progress.say(line);
    } else {
      fmt::print(stderr, "{}\n", line);
    }
  };
  const Result<sim::plan::Plan> plan = sim::plan::make_plan(traces, options.value(), sim::run);
  progress.clear();
  if (!plan) return fail(plan.status());
  fmt::print("{}", sim::plan::format_plan(plan.value()));
  int code = 0;
  const auto write = [&](const std::string& path, const std::string& text) {
    if (path.empty()) return;
    if (Status s = sim::write_text_file(path, text); !s.ok()) code = fail(s);
  };
  write(o.json, sim::plan::plan_json(plan.value()));
  write(o.html, plan_page(plan.value()));
  return code;
}

}  // namespace

void add_plan(CLI::App& app) {
  const auto [plan, o] = add_command<PlanCommand>(
      app, "plan", "predict memory, connections and time of a recorded program at other sizes",
      run_plan);
  plan->add_option("trace", o->traces,
                   "recordings of one program at two or three numbers of ranks: each a folder "
                   "(TURNOUT_TRACE), a trace, a GOAL schedule (*.goal) or an OTF2 archive (*.otf2)")
      ->required();
  plan->add_option("-n,--ranks", o->ranks, "number of ranks to plan for")->required();
  plan->add_option("--ranks-per-node", o->per_node,
                   "ranks that share one adapter; several separated by commas")
      ->capture_default_str();
  plan->add_option("-p,--policies", o->policies, "policies to try, separated by commas")
      ->capture_default_str();
  plan->add_option("--budgets", o->budgets,
                   "budgets per process to try, separated by commas [256MiB down to 4MiB]");
  plan->add_option("--profile", o->profile, "cost model: a name, or a TOML file")
      ->capture_default_str();
  plan->add_option("--costs", o->costs,
                   "costs of the device for the policy turnout, a file of `turnout calibrate`");
  plan->add_option("--set", o->settings,
                   "name=value: a setting or tuning parameter of Turnout (turnout info --config)")
      ->allow_extra_args(false);
  plan->add_option("--within", o->within,
                   "percent that a smaller budget may take longer than no limit")
      ->capture_default_str();
  plan->add_option("--samples", o->samples, "runs with varied costs; 0: none")
      ->capture_default_str();
  plan->add_option("--messages", o->most_messages,
                   "messages of one run at most; a longer program is played in part")
      ->capture_default_str();
  plan->add_option("-s,--seed", o->seed, "seed of all random choices")->capture_default_str();
  plan->add_option("--jobs", o->jobs, "parallel runs")->capture_default_str();
  plan->add_option("--save", o->save,
                   "keep the result of each run in this folder, and reuse it the next time. A "
                   "folder is valid for one build only");
  plan->add_option("--json", o->json, "write the results to this file");
  plan->add_option("--html", o->html, "write a page with plots to this file");
}

}  // namespace turnout::cli
