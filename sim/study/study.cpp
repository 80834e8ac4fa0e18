// SPDX-License-Identifier: BSD-3-Clause
#include "sim/study/study.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/settings.h"
#include "base/value.h"
#include "sim/study/kept_results.h"
#include "sim/study/programs.h"

namespace turnout::sim {

namespace {

Status unknown_policy(std::string_view policy) {
  const auto& known = kPolicyNames;
  const std::string_view near = value::nearest_name(policy, known);
  return {Code::invalid, fmt::format("unknown policy \"{}\"{} Available: {}", policy,
                                     near.empty() ? "." : fmt::format("; did you mean {}?", near),
                                     fmt::join(known, ", "))};
}

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
  if (std::find(known.begin(), known.end(), policy) == known.end()) return unknown_policy(policy);
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

}  // namespace turnout::sim
