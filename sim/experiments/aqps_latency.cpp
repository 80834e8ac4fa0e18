// SPDX-License-Identifier: BSD-3-Clause
// AQPS 4.3, figures 10 to 12: latency of a send in onetoall and alltoone, time of repeat.
//
// The paper's runs take minutes and decide every second. Ours are shorter, and so is the interval
// of each: messages before those that are timed give the selection time to choose, and rank 0 to
// make 63 queue pairs of more than a millisecond each. A source still brings hundreds of messages
// in a window, where a channel pays from about a hundred on.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "sim/experiments/page.h"
#include "sim/study/result_writer.h"

namespace turnout::sim {
namespace {

struct Compared {
  std::string_view id;
  std::string_view against;  // a policy
  double percent;            // change of aqps against it, at 64 ranks
};

struct Figure {
  std::string_view name, workload, title, figure;
  NamedValues options;
  std::string_view interval;  // shorter than the paper's second: see the page
  std::vector<Compared> claims;
  bool whole;              // time of the whole run instead of one send
  std::string_view cause;  // where a claim is not met
};

constexpr std::uint32_t kRanksOfClaims = 64;
constexpr std::string_view kOfFit =
    "without the values that `connect-ib-aqps` fits, the notes on the adapter give other "
    "differences";

bool is_fitted(const ProfileFile& profile) {
  return std::any_of(profile.values.begin(), profile.values.end(),
                     [](const ProfileValue& v) { return v.provenance == "F"; });
}

// Time of one send, or of all that was timed. Picoseconds.
double measure(const PolicyResult& r, bool whole) {
  const auto [time, messages] = timed_phases(r);
  return whole || messages == 0 ? time : time / messages;
}

using Measured = std::map<std::uint32_t, std::map<std::string, double>>;

std::string results_table(const Measured& measured, const std::vector<std::string>& policies) {
  Rows rows(1, {"processes"});
  for (const std::string& p : policies) rows[0].push_back(p);
  for (const std::string& p : policies) {
    if (p != "aqps") rows[0].push_back("aqps vs " + p);
  }
  for (const auto& [ranks, times] : measured) {
    std::vector<std::string> row = {fmt::format("{}", ranks)};
    for (const std::string& p : policies) row.push_back(print_mean_time(times.at(p)));
    for (const std::string& p : policies) {
      if (p == "aqps") continue;
      const auto ours = times.find("aqps");
      row.push_back(ours == times.end() ? "-"
                                        : print_percent(change_percent(ours->second, times.at(p))));
    }
    rows.push_back(std::move(row));
  }
  return markdown_table(rows);
}

// `fitted`: the profile has values that were; repeat was kept out of every fit.
std::vector<Claim> claims_of(const Figure& figure, const Measured& measured, bool fitted) {
  std::vector<Claim> claims;
  const auto at = measured.find(kRanksOfClaims);
  for (const Compared& compared : figure.claims) {
    Claim claim{std::string(compared.id),
                fmt::format("{}{}: aqps vs {}", figure.workload,
                            fitted && !figure.whole ? " (fitted to)" : "", compared.against),
                print_percent(compared.percent),
                "-",
                Verdict::not_run,
                std::string(figure.cause)};
    if (at != measured.end()) {
      const auto aqps = at->second.find("aqps");
      const auto other = at->second.find(std::string(compared.against));
      if (aqps != at->second.end() && other != at->second.end()) {
        const OfSeeds ours = of_seeds({change_percent(aqps->second, other->second)});
        claim.ours = fmt::format("{}, residual {:+.1f} points", print_percent(ours),
                                 ours.median - compared.percent);
        claim.verdict = of_change(compared.percent, ours);
      }
    }
    claims.push_back(std::move(claim));
  }
  return claims;
}

// What served the timed messages, for the largest run.
std::string channels_table(const Study& study) {
  Rows rows = {{"policy", "channel", "messages", "DC connects", "first-level misses",
                "second-level misses", "RC queue pairs"}};
  for (const PolicyResult& r : study.results) {
    std::string first = r.policy;
    for (const Channels& c : r.outcome.channels) {
      const bool head = !first.empty();
      const hca::WorldStatistics& w = r.outcome.world;
      const auto once = [&](std::uint64_t n) {
        return head ? fmt::format("{}", n) : std::string();
      };
      rows.push_back({first, c.channel, fmt::format("{}", c.messages), once(w.dc_connects),
                      once(w.first_misses), once(w.second_misses), once(r.outcome.rc_connections)});
      first.clear();
    }
  }
  return markdown_table(rows);
}

// Beside our points: how far aqps is below each, and where a policy would be if the paper's
// distance from aqps held.
void add_claims(const Figure& figure, const Measured& measured, double unit, Plot* plot) {
  const auto at = measured.find(kRanksOfClaims);
  if (at == measured.end() || at->first != measured.rbegin()->first) return;
  const auto ours = at->second.find("aqps");
  if (ours == at->second.end()) return;
  const double aqps = ours->second / unit;
  for (const Compared& claim : figure.claims) {
    const auto other = at->second.find(std::string(claim.against));
    if (other == at->second.end()) continue;
    plot->series.push_back(
        {fmt::format("{}, paper (aqps {} % below)", claim.against, -claim.percent),
         {{kRanksOfClaims, aqps / (1 + claim.percent / 100)}},
         true});
    plot->brackets.push_back(
        {std::string(claim.against), aqps, other->second / unit,
         fmt::format("aqps {}\nvs {}\n(paper: {})",
                     print_percent(change_percent(ours->second, other->second)), claim.against,
                     print_percent(claim.percent))});
  }
}

Plot make_plot(const Figure& figure, const Measured& measured,
               const std::vector<std::string>& policies) {
  Plot plot;
  plot.title = fmt::format("{} (modelled)", figure.title);
  plot.x_label = "processes";
  plot.y_label = figure.whole ? "time (ms)" : "time of one send (us)";
  plot.x_log = true;
  const double unit =
      static_cast<double>(figure.whole ? 1000 * hca::kMicrosecond : hca::kMicrosecond);
  for (const std::string& policy : policies) {
    Plot::Series series{policy, {}, false};
    for (const auto& [ranks, times] : measured) {
      series.points.emplace_back(ranks, times.at(policy) / unit);
    }
    plot.series.push_back(std::move(series));
  }
  add_claims(figure, measured, unit, &plot);
  return plot;
}

Result<ExperimentResult> run(const Figure& figure, const ExperimentOptions& options,
                             const Runner& runner) {
  const Result<std::vector<std::string>> policies =
      policies_of(options.policies, {"aqps", "dc-rdma-od", "rc-rdma-od"});
  if (!policies) return policies.status();
  // The paper sets no budget, and a queue pair of its Table 4 takes 1424 KB.
  const NamedValues settings = overlaid(
      {{"interval", std::string(figure.interval)}, {"memory_budget", "1GiB"}}, options.settings);
  const NamedValues workload_options = overlaid(figure.options, options.options);
  const std::vector<std::uint32_t> sizes = sizes_of(options, {8, 16, 32, 64});
  std::vector<StudyOptions> studies;
  for (const std::uint32_t ranks : sizes) {
    StudyOptions study = begin_study(options, ranks);
    study.workload = figure.workload;
    study.options = workload_options;
    study.settings = settings;
    study.policies = policies.value();
    study.own_settings = settings_of_paper(options.settings, ranks);
    studies.push_back(std::move(study));
  }
  const Result<std::vector<Study>> results = results_of(studies, options, runner);
  if (!results) return results.status();
  Measured measured;
  for (const Study& study : results.value()) {
    for (const PolicyResult& r : study.results) {
      measured[study.place.ranks][r.policy] = measure(r, figure.whole);
    }
  }
  const Study& last = results.value().back();
  const std::vector<std::string>& names = policies.value();
  std::string page = fmt::format("# {}\n\n{} [AQPS {}].\n\n{}\n", figure.name, figure.title,
                                 figure.figure, provenance(options.profile));
  page += fmt::format("## Against the paper, {} processes\n\n{}\n", kRanksOfClaims,
                      claims_table(claims_of(figure, measured, is_fitted(options.profile))));
  Plot plot = make_plot(figure, measured, names);
  page += fmt::format("## {}\n\n{}\n{{plot}}\n\n", figure.whole ? "Time" : "Time of one send",
                      results_table(measured, names));
  if (!plot.brackets.empty()) {
    page += fmt::format(
        "The brackets show how far aqps is below the other policies at {} processes. The dashes "
        "show where those\npolicies would be at the paper's distances from our aqps.\n\n",
        kRanksOfClaims);
  }
  page +=
      fmt::format("## Channels used in the largest run ({} processes, including warm-up)\n\n{}\n",
                  last.place.ranks, channels_table(last));
  page += how_it_was_run(figure.name, options, workload_options, settings);
  page += kSettingsOfPaper;
  page +=
      "\nThe paper decides once per second and runs for minutes. The interval is shorter here, so "
      "that channels are\nin place before the timed part begins.\n";
  return ExperimentResult{std::move(page), {std::move(plot)}};
}

constexpr std::string_view kOfRepeat =
    "the claim is outside of A1 and A2, which bound every mix of them [spec/claims.md]";

const std::vector<Figure>& figures() {
  static const std::vector<Figure> all = {{"aqps-onetoall",
                                           "onetoall",
                                           "Rank 0 sends 1-byte messages to all others round robin",
                                           "figure 10",
                                           {{"messages", "320000"}, {"warmup", "3200000"}},
                                           "100ms",
                                           {{"A1", "dc-rdma-od", -19}, {"A1", "rc-rdma-od", -24}},
                                           false,
                                           kOfFit},
                                          {"aqps-alltoone",
                                           "alltoone",
                                           "All others send 1-byte messages to rank 0",
                                           "figure 11",
                                           {{"messages", "240000"}, {"warmup", "1440000"}},
                                           "100ms",
                                           {{"A2", "dc-rdma-od", -13}, {"A2", "rc-rdma-od", -13}},
                                           false,
                                           kOfFit},
                                          {"aqps-repeat",
                                           "repeat",
                                           "onetoall, then alltoone, five times",
                                           "figure 12",
                                           {{"messages_out", "320000"}, {"warmup", "2"}},
                                           "25ms",
                                           {{"A3", "dc-rdma-od", -21}, {"A3", "rc-rdma-od", -24}},
                                           true,
                                           kOfRepeat}};
  return all;
}

template <std::size_t kFigure>
Result<ExperimentResult> run_figure(const ExperimentOptions& options, const Runner& runner) {
  return run(figures()[kFigure], options, runner);
}

}  // namespace

std::vector<Experiment> latency_experiments() {
  return {{"aqps-onetoall", "AQPS figure 10: latency of one send in onetoall (claim A1)",
           run_figure<0>},
          {"aqps-alltoone", "AQPS figure 11: latency of one send in alltoone (claim A2)",
           run_figure<1>},
          {"aqps-repeat", "AQPS figure 12: time of repeat (claim A3, held out of any fit)",
           run_figure<2>}};
}

}  // namespace turnout::sim
