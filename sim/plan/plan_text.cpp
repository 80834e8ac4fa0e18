// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/value.h"
#include "sim/plan/plan.h"
#include "sim/study/result_writer.h"

namespace turnout::sim::plan {
namespace {

using Json = nlohmann::ordered_json;
using Rows = std::vector<std::vector<std::string>>;

std::string time_text(double picoseconds) {
  return print_time(static_cast<Picoseconds>(picoseconds));
}

std::string budget_text(std::uint64_t budget) {
  return budget == kNoBudget ? "no limit" : value::human_bytes(budget);
}

// Columns; the first to the left, the others to the right.
std::string columns(const Rows& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = "  ";
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i == 0 ? fmt::format("{:<{}}", row[i], widths[i])
                     : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

double all_messages(const SizeTraffic& traffic) {
  double sum = 0;
  for (const Traffic& kind : traffic.kinds) sum += kind.messages;
  return std::max(sum, 1.0);
}

std::string traffic_table(const Plan& plan) {
  Rows rows = {{"kind of traffic"}};
  std::vector<std::string> kinds;
  for (const SizeTraffic& size : plan.traffic) {
    rows.front().push_back(fmt::format("{} ranks", value::human_count(size.ranks)));
    for (const Traffic& kind : size.kinds) {
      if (std::find(kinds.begin(), kinds.end(), kind.kind) == kinds.end()) {
        kinds.push_back(kind.kind);
      }
    }
  }
  rows.front().emplace_back("partners");
  for (const std::string& name : kinds) {
    std::vector<std::string> row = {name};
    double partners = 0;
    for (const SizeTraffic& size : plan.traffic) {
      const auto found = std::find_if(size.kinds.begin(), size.kinds.end(),
                                      [&](const Traffic& one) { return one.kind == name; });
      if (found == size.kinds.end()) {
        row.emplace_back("-");
        continue;
      }
      row.push_back(fmt::format("{:.1f} %", 100 * found->messages / all_messages(size)));
      partners = found->partners;
    }
    row.push_back(fmt::format("{:.1f}", partners));
    rows.push_back(std::move(row));
  }
  return columns(rows);
}

std::string runs_table(const Plan& plan) {
  Rows rows = {
      {"policy", "per node", "budget", "time", "", "memory", "RC queue pairs", "connections", ""}};
  for (std::size_t c = 0; c < plan.choices.size(); ++c) {
    const Choice& choice = plan.choices[c];
    for (std::size_t i = 0; i < choice.runs.size(); ++i) {
      const Run& run = choice.runs[i];
      std::vector<std::string> row = {choice.policy, fmt::format("{}", choice.ranks_per_node),
                                      budget_text(run.budget)};
      if (run.ended()) {
        row.push_back(time_text(run.time));
        row.push_back(i == 0 ? "" : fmt::format("{:+.1f} %", 100 * choice.slowdown(run)));
        row.push_back(value::human_bytes(run.memory));
        row.push_back(fmt::format("{}", run.queue_pairs));
        row.push_back(value::human_count(run.connections));
      } else {
        row.insert(row.end(), {"fails", "", "", "", ""});
      }
      row.emplace_back(
          i == choice.advised && i > 0 ? (c == plan.best ? "<- advised" : "<- smallest") : "");
      rows.push_back(std::move(row));
    }
  }
  return columns(rows);
}

double percent(double predicted, double real) {
  return real > 0 ? 100 * (predicted / real - 1) : 0;
}

std::string own_error_text(const Plan& plan) {
  const OwnError& error = plan.own_error;
  if (!error.missing.empty()) return fmt::format("Own error: not known: {}\n", error.missing);
  return fmt::format(
      "Own error: {} ranks predicted from the smaller recordings: time {} instead of {} ({:+.1f} "
      "%), memory {} instead of {} ({:+.1f} %), budget {} instead of {}\n",
      error.ranks, time_text(error.predicted.time), time_text(error.recorded.time),
      percent(error.predicted.time, error.recorded.time),
      value::human_bytes(error.predicted.memory), value::human_bytes(error.recorded.memory),
      percent(static_cast<double>(error.predicted.memory),
              static_cast<double>(error.recorded.memory)),
      error.predicted_budget == 0 ? "none" : value::human_bytes(error.predicted_budget),
      error.recorded_budget == 0 ? "none" : value::human_bytes(error.recorded_budget));
}

std::string advice(const Plan& plan) {
  const Choice& choice = plan.choice();
  const Run& best = choice.best();
  std::string text;
  if (choice.advised > 0) {
    text = fmt::format(
        "Advice for {} ranks, {} per node: policy {} with a budget of {} a process "
        "({} a node): {:+.1f} % of the time without a limit, {} used.\n",
        value::human_count(plan.asked.ranks), choice.ranks_per_node, choice.policy,
        budget_text(best.budget), value::human_bytes(best.budget * choice.ranks_per_node),
        100 * choice.slowdown(best), value::human_bytes(best.memory));
  } else {
    text = fmt::format(
        "Advice for {} ranks, {} per node: policy {} without a smaller budget: none "
        "of those tried stays within {:g} %. It uses {} a process.\n",
        value::human_count(plan.asked.ranks), choice.ranks_per_node, choice.policy,
        100 * plan.asked.within, value::human_bytes(best.memory));
  }
  return text + fmt::format("What limits it: {}\n", choice.limit);
}

Json run_json(const Run& run) {
  Json kinds = Json::object(), channels = Json::object();
  for (const auto& [kind, bytes] : run.kinds) kinds[kind] = bytes;
  for (const auto& [channel, share] : run.channels) channels[channel] = share;
  Json json = {{"budget", run.budget == kNoBudget ? Json(nullptr) : Json(run.budget)}};
  if (!run.ended()) {
    json["failure"] = run.failure;
    return json;
  }
  json.update({{"time_ps", run.time},
               {"memory", run.memory},
               {"memory_by_kind", std::move(kinds)},
               {"rc_queue_pairs", run.queue_pairs},
               {"connections", run.connections},
               {"channel_changes", run.switches},
               {"share_by_channel", std::move(channels)}});
  return json;
}

}  // namespace

std::string format_plan(const Plan& plan) {
  std::string sizes;
  for (const std::uint32_t ranks : plan.pattern.sizes) {
    sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", ranks);
  }
  std::string text =
      fmt::format("Pattern of the recordings at {} ranks; shares of the messages\n{}", sizes,
                  traffic_table(plan));
  text +=
      fmt::format("\nRuns at {} ranks, profile {} (modelled, not measured)\n{}\n",
                  value::human_count(plan.asked.ranks), plan.asked.profile.name, runs_table(plan));
  text += advice(plan);
  const Uncertainty& u = plan.uncertainty;
  if (u.samples > 0) {
    text += fmt::format(
        "Uncertainty: with costs varied by their errors, {} times: time {} to {}, "
        "median {}; the budget stays within {:g} % in {} of {}\n",
        u.samples, time_text(u.least), time_text(u.most), time_text(u.median),
        100 * plan.asked.within, u.within, u.samples);
  }
  if (u.as_recorded > 0) {
    text += fmt::format(
        "Uncertainty: {} if collectives stay as recorded, which the range includes; see the "
        "notes\n",
        time_text(u.as_recorded));
  }
  text += own_error_text(plan);
  for (const std::string& warning : plan.warnings) text += fmt::format("Note: {}\n", warning);
  text += "\nTo paste:\n";
  for (const auto& [name, given] : plan.variables()) {
    text += fmt::format("export {}={}\n", name, given);
  }
  return text + fmt::format("\nThis took {:.1f} s with {} process{}.\n", plan.real_seconds,
                            plan.asked.jobs, plan.asked.jobs == 1 ? "" : "es");
}

std::string plan_json(const Plan& plan) {
  Json traffic = Json::array(), choices = Json::array(), variables = Json::object();
  for (const SizeTraffic& size : plan.traffic) {
    Json kinds = Json::array();
    for (const Traffic& kind : size.kinds) {
      kinds.push_back({{"kind", kind.kind},
                       {"messages", kind.messages},
                       {"bytes", kind.bytes},
                       {"partners", kind.partners}});
    }
    traffic.push_back({{"ranks", size.ranks}, {"kinds", std::move(kinds)}});
  }
  for (const Choice& choice : plan.choices) {
    Json runs = Json::array();
    for (const Run& run : choice.runs) runs.push_back(run_json(run));
    choices.push_back({{"policy", choice.policy},
                       {"ranks_per_node", choice.ranks_per_node},
                       {"runs", std::move(runs)},
                       {"advised", choice.advised},
                       {"limit", choice.limit}});
  }
  for (const auto& [name, given] : plan.variables()) variables[name] = given;
  const OwnError& error = plan.own_error;
  Json own = error.missing.empty() ? Json{{"ranks", error.ranks},
                                          {"predicted", run_json(error.predicted)},
                                          {"recorded", run_json(error.recorded)},
                                          {"predicted_budget", error.predicted_budget},
                                          {"recorded_budget", error.recorded_budget}}
                                   : Json{{"missing", error.missing}};
  const Uncertainty& u = plan.uncertainty;
  const Json all = {{"ranks", plan.asked.ranks},
                    {"profile", plan.asked.profile.name},
                    {"within", plan.asked.within},
                    {"seed", plan.asked.seed},
                    {"sizes", plan.pattern.sizes},
                    {"irregular", plan.pattern.irregular},
                    {"fit_error", plan.pattern.fit_error},
                    {"played", plan.played},
                    {"traffic", std::move(traffic)},
                    {"choices", std::move(choices)},
                    {"best", plan.best},
                    {"variables", std::move(variables)},
                    {"uncertainty",
                     {{"samples", u.samples},
                      {"within", u.within},
                      {"least_ps", u.least},
                      {"median_ps", u.median},
                      {"most_ps", u.most},
                      {"as_recorded_ps", u.as_recorded}}},
                    {"own_error", std::move(own)},
                    {"warnings", plan.warnings},
                    {"real_seconds", plan.real_seconds}};
  return all.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace turnout::sim::plan
