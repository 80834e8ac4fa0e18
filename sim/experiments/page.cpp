// SPDX-License-Identifier: BSD-3-Clause
#include "sim/experiments/page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace turnout::sim {

std::string markdown_table(const Rows& rows) {
  std::string out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    out += fmt::format("| {} |\n", fmt::join(rows[i], " | "));
    if (i != 0) continue;
    out += "|---|";
    for (std::size_t column = 1; column < rows[0].size(); ++column) out += "---:|";
    out += "\n";
  }
  return out;
}

double change_percent(double ours, double other) {
  return other == 0 ? 0 : 100 * (ours - other) / other;
}

std::string print_percent(double percent) {
  return fmt::format("{:+.1f} %", percent);
}

std::string provenance(const ProfileFile& profile) {
  std::string out = fmt::format(
      "All times on this page are **modelled**, not measured: Turnout's messaging core runs on "
      "the virtual\nadapter with the profile `{}`{}.\n\n",
      profile.name, profile.device.empty() ? "" : fmt::format(" ({})", profile.device));
  Rows fitted = {{"parameter", "value", "fitted to"}};
  std::size_t assumed = 0;
  for (const ProfileValue& v : profile.values) {
    if (v.provenance == "F") {
      fitted.push_back({fmt::format("`{}.{}`", v.group, v.name),
                        fmt::format("{} {}", v.value, v.unit), v.source});
    }
    if (v.provenance == "assumed") ++assumed;
  }
  if (fitted.size() == 1) {
    out += "No value of the profile was fitted";
  } else {
    out += fmt::format("Fitted profile values:\n\n{}\n{}\n\nThe other values were not fitted",
                       markdown_table(fitted), profile.note);
  }
  if (assumed > 0) out += fmt::format("; {} are assumed", assumed);
  return out + fmt::format(". `turnout sim --show-profile {}` prints the source of each value.\n",
                           profile.name);
}

std::string how_it_was_run(std::string_view name, const ExperimentOptions& options,
                           const NamedValues& workload_options, const NamedValues& settings,
                           std::string_view before) {
  std::string command = fmt::format("turnout sim --experiment {} --profile {} --seed {}", name,
                                    options.profile.name, options.seed);
  for (const Scenario& recording : options.recordings) {
    command += fmt::format(" --trace '{}'", recording.title);
  }
  if (!options.sizes.empty() && options.recordings.empty())
    command += fmt::format(" --sizes {}", fmt::join(options.sizes, ","));
  if (!options.seeds.empty()) command += fmt::format(" --seeds {}", fmt::join(options.seeds, ","));
  if (!options.policies.empty()) {
    command += fmt::format(" --policy {}", fmt::join(options.policies, ","));
  }
  // A title may have blanks.
  if (!options.workloads.empty()) {
    command += fmt::format(" --workloads '{}'", fmt::join(options.workloads, ","));
  }
  if (!options.budgets.empty()) {
    command += fmt::format(" --budgets {}", fmt::join(options.budgets, ","));
  }
  for (const auto& [key, value] : options.options)
    command += fmt::format(" --option {}={}", key, value);
  for (const auto& [key, value] : options.settings)
    command += fmt::format(" --set {}={}", key, value);
  std::vector<std::string> words;
  for (const auto& [key, value] : workload_options)
    words.push_back(fmt::format("`{}={}`", key, value));
  std::string out = fmt::format("## How it was run\n\n{}```sh\n{}\n```\n\n", before, command);
  if (!words.empty()) out += fmt::format("Workload options: {}.\n", fmt::join(words, ", "));
  words.clear();
  for (const auto& [key, value] : settings) words.push_back(fmt::format("`{}={}`", key, value));
  if (!words.empty()) {
    out += fmt::format("Non-default settings: {}.\n", fmt::join(words, ", "));
  }
  return out;
}

NamedValues overlaid(NamedValues own, const NamedValues& given) {
  for (const auto& [name, value] : given) {
    const auto same = std::find_if(own.begin(), own.end(), [&wanted = name](const auto& pair) {
      return pair.first == wanted;
    });
    if (same != own.end()) {
      same->second = value;
    } else {
      own.emplace_back(name, value);
    }
  }
  return own;
}

bool gives(const NamedValues& given, std::string_view name) {
  return std::any_of(given.begin(), given.end(),
                     [&](const auto& pair) { return pair.first == name; });
}

NamedValues room_for_all(std::uint32_t ranks) {
  const std::string all = fmt::format("{}", ranks);
  return {{"max_active_rc", all}, {"max_channels", all}, {"rc_pool", all}};
}

std::map<std::string, NamedValues> settings_of_paper(const NamedValues& given,
                                                     std::uint32_t ranks) {
  NamedValues unlimited;
  for (const auto& setting : room_for_all(ranks)) {
    if (!gives(given, setting.first)) unlimited.push_back(setting);
  }
  return {{"rc-rdma-od", unlimited}};
}

std::string costs_of_turnout(const ExperimentOptions& options) {
  if (options.costs.empty()) return "`turnout` uses its built-in costs.\n";
  return fmt::format(
      "`turnout` uses the costs measured by `turnout calibrate --profile {} --seed {}`.\n",
      options.profile.name, options.seed);
}

StudyOptions begin_study(const ExperimentOptions& options, std::uint32_t ranks,
                         const std::string& what) {
  StudyOptions study;
  study.title = what.substr(0, what.find_last_not_of(", ") + 1);
  study.place = {ranks, 1, options.seed};
  study.profile = options.profile;
  study.check_content = false;
  study.kept = options.kept;
  study.ended = options.ended;
  if (options.progress) {
    study.progress = [told = options.progress, ranks, what](
                         const std::string& policy, std::uint32_t ended, Picoseconds now,
                         std::uint64_t events) { told(what + policy, ranks, ended, now, events); };
  }
  return study;
}

Timed timed_phases(std::span<const Phase> phases) {
  Timed timed;
  for (const Phase& p : phases) {
    if (p.name == "warmup") continue;
    timed.time += static_cast<double>(p.end - p.begin);
    timed.messages += static_cast<double>(p.messages);
  }
  return timed;
}

std::uint64_t largest_of(const Outcome& outcome, MemoryKind kind) {
  for (const MemoryByKind& line : outcome.memory) {
    if (line.kind == name(kind)) return line.largest;
  }
  return 0;
}

Result<std::vector<std::string>> policies_of(const std::vector<std::string>& asked,
                                             const std::vector<std::string>& usual) {
  for (const std::string& policy : asked) {
    if (Status s = check_settings(policy, {}); !s.ok()) return s;
  }
  return asked.empty() ? usual : asked;
}

std::vector<std::uint32_t> sizes_of(const ExperimentOptions& options,
                                    std::vector<std::uint32_t> usual) {
  return options.sizes.empty() ? usual : options.sizes;
}

Result<std::vector<Study>> results_of(std::span<const StudyOptions> studies,
                                      const ExperimentOptions& options, const Runner& runner) {
  auto results = run_studies(studies, {options.jobs, options.told}, runner);
  if (!results) return results.status();
  std::vector<Study> all;
  for (Result<Study>& result : results.value()) {
    if (!result) return result.status();
    all.push_back(std::move(result).value());
  }
  return all;
}

std::string_view name(Verdict verdict) noexcept {
  constexpr std::string_view kNames[] = {"met", "tendency", "missed", "contradicted", "not run"};
  return kNames[static_cast<std::size_t>(verdict)];
}

OfSeeds of_seeds(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {median, values.front(), values.back()};
}

std::string print_percent(const OfSeeds& percent) {
  const std::string median = print_percent(percent.median);
  if (percent.least == percent.most) return median;
  return fmt::format("{} ({:+.1f} to {:+.1f})", median, percent.least, percent.most);
}

Verdict of_change(double paper, const OfSeeds& ours) noexcept {
  if (std::abs(ours.median - paper) <= kPoints) return Verdict::met;
  if (paper == 0) return Verdict::missed;
  const double sign = paper < 0 ? -1 : 1;
  const double worst = std::min(sign * ours.least, sign * ours.most);
  const double best = std::max(sign * ours.least, sign * ours.most);
  if (worst > 0) return Verdict::tendency;
  return best < 0 ? Verdict::contradicted : Verdict::missed;
}

Verdict of_value(double paper, double ours) noexcept {
  return met_if(std::abs(ours - paper) <= kPart * std::abs(paper));
}

std::string claims_table(const std::vector<Claim>& claims) {
  // tools/claims.py knows the table by its head.
  Rows rows = {{"claim", "what", "paper", "ours", "verdict", "cause"}};
  for (const Claim& claim : claims) {
    const bool met = claim.verdict == Verdict::met;
    rows.push_back({claim.id, claim.what, claim.paper, claim.ours,
                    met ? "met" : fmt::format("**{}**", name(claim.verdict)),
                    met || claim.cause.empty() ? "-" : claim.cause});
  }
  return markdown_table(rows);
}

}  // namespace turnout::sim
