// SPDX-License-Identifier: BSD-3-Clause
#include "sim/study/study.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <utility>

#include "base/settings.h"
#include "base/value.h"
#include "sim/study/children.h"
#include "sim/study/kept_results.h"
#include "sim/study/programs.h"
#include "sim/study/result_writer.h"

namespace turnout::sim {
namespace {

Result<Instance> make_from_registry(const StudyOptions& options) {
  const Result<const Workload*> workload = find_program(options.workload);
  if (!workload) return workload.status();
  const Result<Values> values = parse_values(*workload.value(), options.options);
  if (!values) return values.status();
  return make_instance(*workload.value(), values.value(), options.place);
}

Status check_place(const Place& place) {
  if (place.ranks == 0 || place.ranks_per_node == 0) {
    return {Code::invalid, "expected at least one rank, and at least one per node"};
  }
  return {};
}

Result<PolicyResult> play(const StudyOptions& options, const std::string& policy,
                          const Runner& runner) {
  const Result<Instance> instance =
      options.make ? options.make(options.place) : make_from_registry(options);
  if (!instance) return instance.status();
  Options run = options_at(options.place, options.profile);
  run.settings = settings_of(options, policy);
  run.settings.emplace_back("policy", policy);
  run.check_content = options.check_content;
  run.keep_reports = options.keep_reports;
  run.keep_partners = options.keep_partners;
  run.data_servers = options.data_servers;
  run.start_after = options.start_after;
  run.time_limit = options.time_limit;
  if (options.progress) {
    run.progress = [&](std::uint32_t ended, Picoseconds now, std::uint64_t events) {
      options.progress(policy, ended, now, events);
    };
  }
  if (options.trace) run.trace = options.trace(policy);
  Result<Outcome> outcome = runner(run, instance.value().program);
  if (!outcome) {
    const Status s = outcome.status();
    return Status{s.code(), fmt::format("{} under {}: {}", options.workload, policy, s.text()),
                  s.sys_errno()};
  }
  return PolicyResult{policy, std::move(outcome).value(), instance.value().phases->list()};
}

// Read back, or run and kept.
Result<PolicyResult> result_of(const StudyOptions& options, const std::string& policy,
                               const Runner& runner) {
  if (options.kept == nullptr) return play(options, policy, runner);
  const std::string identity = options.kept->identity(options, policy);
  if (std::optional<Result<PolicyResult>> found = options.kept->find(identity)) return *found;
  Result<PolicyResult> result = play(options, policy, runner);
  if (Status s = options.kept->keep(identity, result); !s.ok()) return s;
  return result;
}

struct Run {
  const StudyOptions* study;
  std::string policy, identity;
};

std::string line_of(const Run& run, const Result<Study>& result, double seconds) {
  std::string what = run.study->title.empty() ? run.study->workload : run.study->title;
  const std::string took =
      result ? print_time(result.value().results.front().outcome.time) : result.status().text();
  return fmt::format("{}, {} ranks, {}: {} ({:.1f} s of CPU time)", what, run.study->place.ranks,
                     run.policy, took, seconds);
}

// Not ok: nothing was kept, and the other runs would do no better.
Status make(const Run& run, std::uint32_t all, Finished& finished, const SetOptions& options,
            const Runner& runner) {
  StudyOptions one = *run.study;
  one.policies = {run.policy};
  if (options.jobs > 1) one.progress = {};  // one line cannot show several
  const std::clock_t begun = std::clock();
  const Result<Study> result = run_study(one, runner);
  const double seconds = static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC;
  const std::uint32_t number = ++finished;
  if (options.told) {
    options.told(fmt::format("[{}/{}] {}", number, all, line_of(run, result, seconds)));
  }
  if (run.study->kept->find(run.identity)) return {};
  if (!result) return result.status();
  return {Code::system, fmt::format("saving the result of {} failed: {}", run.study->workload,
                                    run.study->kept->folder())};
}

}  // namespace

std::map<std::string, std::string> printed_options(const StudyOptions& options) {
  std::map<std::string, std::string> all;
  const Result<const Workload*> workload = find_program(options.workload);
  if (options.make || !workload) {
    for (const auto& [name, value] : options.options) all[name] = value;
    return all;
  }
  const Result<Values> values = parse_values(*workload.value(), options.options);
  if (!values) return all;
  for (const Parameter& p : workload.value()->parameters) {
    all[std::string(p.name)] = p.print(values.value()[p.name]);
  }
  return all;
}

NamedValues settings_of(const StudyOptions& options, const std::string& policy) {
  NamedValues settings = options.settings;
  if (const auto own = options.own_settings.find(policy); own != options.own_settings.end()) {
    settings.insert(settings.end(), own->second.begin(), own->second.end());
  }
  return settings;
}

Options options_at(const Place& place, const ProfileFile& profile) {
  Options run;
  run.ranks = place.ranks;
  run.ranks_per_node = place.ranks_per_node;
  run.seed = place.seed;
  run.profile = profile.profile;
  return run;
}

Status check_settings(const std::string& policy, const NamedValues& given) {
  const auto& known = kPolicyNames;
  if (std::find(known.begin(), known.end(), policy) == known.end()) {
    return unknown("unknown policy", policy, known);
  }
  Settings settings = Settings::defaults();
  const std::vector<SettingInfo> table = describe(settings);
  for (const auto& [name, text] : given) {
    if (name == "policy") {
      return {Code::invalid, "use --policy A,B,C to choose policies, not --set"};
    }
    if (name == kStatisticsEntries) continue;
    if (std::none_of(table.begin(), table.end(),
                     [&wanted = name](const SettingInfo& row) { return row.name == wanted; })) {
      const std::string_view near = nearest_setting(name);
      return {Code::invalid, fmt::format("unknown setting \"{}\"{}", name,
                                         near.empty() ? "; see `turnout info --config`"
                                                      : fmt::format("; did you mean {}?", near))};
    }
    if (Status s = settings.set(name, text); !s.ok()) return s;
  }
  if (Status s = settings.set("policy", policy); !s.ok()) return s;
  return settings.validate();
}

std::vector<std::string> split(std::string_view list, char between) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    const auto end = list.find(between);
    if (end != 0) parts.emplace_back(list.substr(0, end));
    if (end == std::string_view::npos) break;
    list.remove_prefix(end + 1);
  }
  return parts;
}

Result<NamedValues> parse_pairs(const std::vector<std::string>& given, std::string_view option) {
  NamedValues pairs;
  for (const std::string& text : given) {
    const auto equals = text.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return Status{Code::invalid, fmt::format("{} {}: expected name=value", option, text)};
    }
    pairs.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return pairs;
}

Result<Study> run_study(const StudyOptions& options, const Runner& runner) {
  if (Status s = check_place(options.place); !s.ok()) return s;
  if (options.policies.empty()) return Status{Code::invalid, "no policy given"};
  for (const std::string& policy : options.policies) {
    if (Status s = check_settings(policy, settings_of(options, policy)); !s.ok()) return s;
  }
  Study study{options.workload,
              printed_options(options),
              options.place,
              options.profile.name,
              options.profile.device,
              options.settings,
              {}};
  for (const std::string& policy : options.policies) {
    Result<PolicyResult> result = result_of(options, policy, runner);
    if (!result) return result.status();
    if (options.ended) options.ended(options, result.value());
    study.results.push_back(std::move(result).value());
  }
  return study;
}

Result<std::vector<Result<Study>>> run_studies(std::span<const StudyOptions> studies,
                                               const SetOptions& options, const Runner& runner) {
  std::vector<Run> missing;
  for (const StudyOptions& study : studies) {
    if (study.kept == nullptr) {
      if (options.jobs > 1) {
        return Status{Code::invalid, "--jobs needs a folder for the results: --save FOLDER"};
      }
      continue;
    }
    for (const std::string& policy : study.policies) {
      std::string identity = study.kept->identity(study, policy);
      if (identity.empty() || study.kept->find(identity)) continue;
      missing.push_back({&study, policy, std::move(identity)});
    }
  }
  const auto all = static_cast<std::uint32_t>(missing.size());
  const auto make_one = [&](std::size_t i, Finished& finished) {
    return make(missing[i], all, finished, options, runner);
  };
  if (Status s = in_children(missing.size(), options.jobs, make_one); !s.ok()) return s;
  std::vector<Result<Study>> results;
  results.reserve(studies.size());
  for (const StudyOptions& study : studies) results.push_back(run_study(study, runner));
  return results;
}

}  // namespace turnout::sim
