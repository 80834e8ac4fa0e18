// SPDX-License-Identifier: BSD-3-Clause
// EuroMPI 2013: the ways of large messages against each other (spec/rendezvous.md, claims R1 to
// R5), and `auto` against the best of them in every cell of who is early, size and pairs.
//
// 16 pairs run in lock step, and how they interleave follows from when each begins: the seed's
// choice. Numbers are medians of several seeds; differences are of runs with the same seed.
//
// The paper's library sends everything by rendezvous; here the threshold is below the least size.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/settings.h"
#include "sim/experiments/page.h"
#include "sim/study/result_writer.h"

namespace turnout::sim {
namespace {

constexpr std::uint64_t kKiB = 1024;
constexpr std::string_view kThreshold = "1000";                 // below the least message
constexpr std::uint32_t kNasRanks = 64, kNasRanksPerNode = 16;  // of figure 10
constexpr std::string_view kPolicy = "static:dc-sendrecv";
// By how much a receiver is early or late: longer than what goes on before it counts.
constexpr std::string_view kApart = "100us";
constexpr double kApartPicoseconds = 100e6;

constexpr std::string_view kOfR1 =
    "messages are latency-bound here, and `putnr` needs one message more";
constexpr std::string_view kOfR2 =
    "16 pairs run in lock step; how they interleave follows from the seed";
constexpr std::string_view kOfR3 =
    "`get` takes three one-way latencies and `put` two: a third where nothing but latency counts";
constexpr std::string_view kOfR4 =
    "nothing but the number of one-way latencies counts here until the wire is saturated";
constexpr std::string_view kOfR5 =
    "ft loses: `put` registers 31 receives before the program goes on, see the row with free "
    "registration; the others' waiting time has small messages, which all protocols share";
constexpr std::uint32_t kSeeds = 5;
// R5: without what `put` pays in the first rounds only.
constexpr std::string_view kFree = "nas-ft, free registration";

// Picoseconds a message or a round; by way, of each seed.
using Times = std::map<std::string, std::vector<double>>;

double median_of(const Times& times, std::string_view way) {
  return of_seeds(times.at(std::string(way))).median;
}

// Percent, seed by seed.
OfSeeds change_of(const Times& times, std::string_view ours, std::string_view against) {
  const std::vector<double>& a = times.at(std::string(ours));
  const std::vector<double>& b = times.at(std::string(against));
  std::vector<double> changes;
  for (std::size_t i = 0; i < a.size(); ++i) changes.push_back(change_percent(a[i], b[i]));
  return of_seeds(std::move(changes));
}

std::string size_of(std::uint64_t bytes) {
  return bytes >= kKiB * kKiB ? fmt::format("{} MiB", bytes / kKiB / kKiB)
                              : fmt::format("{} KiB", bytes / kKiB);
}

struct Cell {
  std::string pattern;  // "bowtie", "worst", "alltoall", "early", "late", "both", or a workload
  std::uint32_t pairs;
  std::uint64_t bytes;
  bool operator<(const Cell& other) const {
    return std::tie(pattern, pairs, bytes) < std::tie(other.pattern, other.pairs, other.bytes);
  }
};

// Registering memory takes no time. Such a profile has no name: the run is no sentinel.
void register_free(StudyOptions* study) {
  study->profile.profile.setup_register = 0;
  study->profile.profile.setup_register_rate = 0;
  study->ended = {};
  for (ProfileValue& v : study->profile.values) {
    if (v.group == "setup" && v.name.starts_with("register")) v.value = "0";
  }
}

StudyOptions study_of(const ExperimentOptions& options, const Cell& cell, std::string_view way,
                      std::uint32_t nth) {
  StudyOptions study = begin_study(options, 2 * cell.pairs,
                                   fmt::format("{} {} {}", cell.pattern, size_of(cell.bytes), way));
  study.place.ranks_per_node = cell.pairs;
  study.place.seed += nth;
  study.check_content = true;  // the ways that look for last bytes need buffers of their own
  study.policies = {std::string(kPolicy)};
  study.settings = overlaid({{"rendezvous", std::string(way)},
                             {"rendezvous_threshold", std::string(kThreshold)},
                             {"rtr_sentinel", way == "auto" ? "keep" : "set"}},
                            options.settings);
  if (cell.pattern.starts_with("nas-")) {
    study.place = {kNasRanks, kNasRanksPerNode, study.place.seed};
    study.workload = cell.pattern.substr(0, cell.pattern.find(','));
    if (cell.pattern == kFree) register_free(&study);
    study.settings = overlaid(study.settings, {{"rendezvous_threshold", "4047"}});
    study.options = overlaid({{"class", "1"}, {"rounds", "30"}}, options.options);
    return study;
  }
  // As many rounds as make the first one, and what the ways learn in it, small.
  const std::uint64_t rounds = cell.bytes >= kKiB * kKiB ? 20 : cell.bytes > 64 * kKiB ? 100 : 400;
  NamedValues own = {{"bytes", fmt::format("{}", cell.bytes)},
                     {"rounds", fmt::format("{}", rounds)},
                     {"warmup", "20"}};
  if (cell.pattern == "bowtie" || cell.pattern == "worst") {
    study.workload = "bowtie";
    if (cell.pattern == "worst") own.emplace_back("last_byte", "0");
  } else if (cell.pattern == "alltoall") {
    study.workload = "alltoall";
    own[1].second = "20";
    own[2].second = "2";
  } else {
    study.workload = "transfer";
    if (cell.pattern != "both") own.emplace_back(cell.pattern, std::string(kApart));
  }
  study.options = overlaid(std::move(own), options.options);
  return study;
}

double time_of(const Cell& cell, const PolicyResult& result) {
  const auto [time, messages] = timed_phases(result);
  if (cell.pattern.starts_with("nas-")) return time;
  const double n = 2.0 * cell.pairs;
  const double each = cell.pattern == "alltoall" ? n * (n - 1) : n;
  const double rounds = messages / each;
  if (cell.pattern == "early" || cell.pattern == "late") return time / rounds - kApartPicoseconds;
  return time / rounds;
}

std::vector<Cell> cells_of_paper() {
  std::vector<Cell> cells;
  for (const std::uint64_t k : {1u, 2u, 4u, 8u, 16u, 32u}) {
    for (const std::string pattern : {"bowtie", "worst", "alltoall"}) {
      cells.push_back({pattern, 16, k * kKiB});
    }
  }
  return cells;
}

std::vector<Cell> cells_of_nas() {
  std::vector<Cell> cells;
  for (const std::string_view name :
       {std::string_view("nas-cg"), std::string_view("nas-sp"), std::string_view("nas-ft"),
        std::string_view("nas-lu"), std::string_view("nas-bt"), kFree}) {
    cells.push_back({std::string(name), 0, 0});
  }
  return cells;
}

std::vector<Cell> cells_of_auto() {
  std::vector<Cell> cells;
  for (const std::uint32_t pairs : {1u, 16u}) {
    for (const std::string pattern : {"early", "late", "both"}) {
      for (const std::uint64_t k : {1u, 4u, 16u, 64u, 256u, 1024u, 4096u}) {
        cells.push_back({pattern, pairs, k * kKiB});
      }
    }
  }
  return cells;
}

struct Compared {
  std::string_view id, pattern, ours, against;
  double percent;  // the paper's best over the sizes
  std::string_view cause;
};
constexpr std::array<Compared, 6> kCompared = {{{"R1", "worst", "put", "putnr", -24.60, kOfR1},
                                                {"R2", "bowtie", "get", "getcqe", 0, kOfR2},
                                                {"R3", "bowtie", "put", "get", -16.37, kOfR3},
                                                {"R3", "alltoall", "put", "get", -26.13, kOfR3},
                                                {"R4", "bowtie", "put", "rput", -37.84, kOfR4},
                                                {"R4", "bowtie", "get", "rput", -25.67, kOfR4}}};
constexpr double kR5 = -41.72;  // of the waiting time, in the program with the largest difference

// Over all sizes, the medians' best.
Claim claim_of(const Compared& compared, const std::map<Cell, Times>& measured) {
  OfSeeds best;
  std::string at;
  for (const auto& [cell, times] : measured) {
    if (cell.pattern != compared.pattern) continue;
    const OfSeeds change = change_of(times, compared.ours, compared.against);
    // Of a claim that two are equal, the size at which they differ most.
    const bool better = compared.percent == 0 ? std::abs(change.median) > std::abs(best.median)
                                              : change.median < best.median;
    if (!at.empty() && !better) continue;
    best = change;
    at = size_of(cell.bytes);
  }
  return {std::string(compared.id),
          fmt::format("{}: {} vs {}, largest difference over the sizes", compared.pattern,
                      compared.ours, compared.against),
          compared.percent == 0 ? "about equal" : fmt::format("{:+.2f} %", compared.percent),
          fmt::format("{} at {}", print_percent(best), at),
          of_change(compared.percent, best),
          std::string(compared.cause)};
}

std::vector<Claim> claims_of(const std::map<Cell, Times>& measured,
                             const std::map<Cell, Times>& nas) {
  std::vector<Claim> claims;
  for (const Compared& compared : kCompared) claims.push_back(claim_of(compared, measured));
  OfSeeds best;
  std::string in;
  for (const auto& [cell, times] : nas) {
    if (cell.pattern == kFree) continue;
    const OfSeeds change = change_of(times, "put", "get");
    if (!in.empty() && change.median >= best.median) continue;
    best = change;
    in = cell.pattern;
  }
  claims.push_back({"R5", "NAS class W: put vs get, waiting time, largest difference",
                    fmt::format("{:+.2f} %", kR5), fmt::format("{} in {}", print_percent(best), in),
                    of_change(kR5, best), std::string(kOfR5)});
  claims.push_back({"R5", "the same, run time", "-11.14 %", "-", Verdict::not_run,
                    "the skeletons do not compute: their time is waiting time"});
  return claims;
}

// R3 by size: the paper says where there is a difference, and where almost none.
std::string sizes_table(const std::map<Cell, Times>& measured) {
  Rows rows = {{"size", "bowtie: put vs get", "get vs getcqe", "alltoall: put vs get"}};
  for (const auto& [cell, times] : measured) {
    if (cell.pattern != "bowtie") continue;
    const Times& alltoall = measured.at({"alltoall", cell.pairs, cell.bytes});
    rows.push_back({size_of(cell.bytes), print_percent(change_of(times, "put", "get")),
                    print_percent(change_of(times, "get", "getcqe")),
                    print_percent(change_of(alltoall, "put", "get"))});
  }
  return markdown_table(rows);
}

std::vector<std::string> head(std::initializer_list<std::string> first) {
  std::vector<std::string> row(first);
  for (const std::string_view way : kRendezvousNames) row.emplace_back(way);
  return row;
}

void add_times(const Times& times, std::vector<std::string>* row) {
  for (const std::string_view way : kRendezvousNames) {
    row->push_back(print_mean_time(median_of(times, way)));
  }
}

std::string times_table(const std::map<Cell, Times>& measured, std::string_view pattern) {
  Rows rows = {head({"size"})};
  for (const auto& [cell, times] : measured) {
    if (cell.pattern != pattern) continue;
    rows.push_back({size_of(cell.bytes)});
    add_times(times, &rows.back());
  }
  return markdown_table(rows);
}

std::string nas_table(const std::map<Cell, Times>& measured) {
  Rows rows = {head({"program"})};
  rows[0].emplace_back("put vs get");
  for (const auto& [cell, times] : measured) {
    rows.push_back({cell.pattern});
    add_times(times, &rows.back());
    rows.back().push_back(print_percent(change_of(times, "put", "get")));
  }
  return markdown_table(rows);
}

struct AutoTable {
  std::string table;
  double worst = 0;
  int within = 0, cells = 0;
};

AutoTable auto_table(const std::map<Cell, Times>& measured) {
  AutoTable result;
  Rows rows = {head({"receiver", "pairs", "size"})};
  rows[0].emplace_back("auto / best");
  for (const auto& [cell, times] : measured) {
    double best = 0;
    for (const auto& [way, all] : times) {
      const double time = median_of(times, way);
      if (way != "auto" && (best == 0 || time < best)) best = time;
    }
    const double ratio = median_of(times, "auto") / best;
    result.worst = std::max(result.worst, ratio);
    result.within += ratio <= 1.02 ? 1 : 0;
    ++result.cells;
    rows.push_back({cell.pattern == "both" ? "together" : cell.pattern,
                    fmt::format("{}", cell.pairs), size_of(cell.bytes)});
    add_times(times, &rows.back());
    rows.back().push_back(fmt::format("{:.3f}", ratio));
  }
  result.table = markdown_table(rows);
  return result;
}

// Some lie within a percent of each other, so times are divided by that of the fastest.
Plot plot_of(const std::map<Cell, Times>& measured, std::string_view pattern,
             std::string_view title) {
  Plot plot;
  plot.kind = Plot::Kind::dots;
  plot.title = fmt::format("{}: time of a round / fastest (modelled)", title);
  plot.x_label = "time / fastest, log scale";
  plot.y_label = "message";
  plot.x_log = true;
  for (const std::string_view way : kRendezvousNames) {
    plot.series.push_back({std::string(way), {}, false});
  }
  for (const auto& [cell, times] : measured) {
    if (cell.pattern != pattern) continue;
    double fastest = 0;
    for (const auto& [way, all] : times) {
      const double time = median_of(times, way);
      if (fastest == 0 || time < fastest) fastest = time;
    }
    const auto row = static_cast<double>(plot.rows.size());
    for (Plot::Series& series : plot.series) {
      series.points.emplace_back(median_of(times, series.name) / fastest, row);
    }
    plot.rows.push_back(size_of(cell.bytes));
  }
  return plot;
}

Result<std::map<Cell, Times>> measure(const std::vector<Cell>& cells, std::uint32_t seeds,
                                      const ExperimentOptions& options, const Runner& runner) {
  std::vector<StudyOptions> studies;
  for (const Cell& cell : cells) {
    for (const std::string_view way : kRendezvousNames) {
      for (std::uint32_t nth = 0; nth < seeds; ++nth) {
        studies.push_back(study_of(options, cell, way, nth));
      }
    }
  }
  const Result<std::vector<Study>> results = results_of(studies, options, runner);
  if (!results) return results.status();
  std::map<Cell, Times> measured;
  std::size_t i = 0;
  for (const Cell& cell : cells) {
    for (const std::string_view way : kRendezvousNames) {
      for (std::uint32_t nth = 0; nth < seeds; ++nth) {
        const PolicyResult& result = results.value()[i++].results.front();
        measured[cell][std::string(way)].push_back(time_of(cell, result));
      }
    }
  }
  return measured;
}

Result<ExperimentResult> run(const ExperimentOptions& options, const Runner& runner) {
  const std::uint32_t seeds = options.seeds.empty() ? kSeeds : options.seeds.front();
  const Result<std::map<Cell, Times>> paper = measure(cells_of_paper(), seeds, options, runner);
  if (!paper) return paper.status();
  const Result<std::map<Cell, Times>> cells = measure(cells_of_auto(), 1, options, runner);
  if (!cells) return cells.status();
  const Result<std::map<Cell, Times>> nas = measure(cells_of_nas(), seeds, options, runner);
  if (!nas) return nas.status();
  const AutoTable ours = auto_table(cells.value());
  std::string page = fmt::format(
      "# rendezvous\n\nThe rendezvous protocols compared with each other [EuroMPI'13, figures 6 to "
      "9 and 11], and `auto` compared\nwith the best of them.\n\n{}\n",
      provenance(options.profile));
  page += fmt::format(
      "## Against the paper\n\n32 processes on two nodes. The paper gives the largest difference "
      "over sizes from 1 to 32 KB. *worst* is\nbowtie with messages whose last byte always equals "
      "the sentinel that `putnr` writes into the receive buffer.\nHere `put` and `putnr` write a "
      "sentinel, as in the paper (`rtr_sentinel=set`); `auto` does not. Medians of {}\nseeds, in "
      "parentheses the least and the most; differences are of runs with the same seed. Nothing was "
      "fitted to\nthese claims.\n\n{}\n",
      seeds, claims_table(claims_of(paper.value(), nas.value())));
  page += fmt::format(
      "## By size\n\nThe paper: with `put`, bowtie is faster at 1, 2, 16 and 32 KB and about the "
      "same at 4 and 8 KB.\n\n{}\n",
      sizes_table(paper.value()));
  page += fmt::format("## bowtie, 16 pairs: time of a round\n\n{}\n{{plot}}\n\n",
                      times_table(paper.value(), "bowtie"));
  page += fmt::format("## bowtie, the worst case of putnr: time of a round\n\n{}\n",
                      times_table(paper.value(), "worst"));
  page += fmt::format("## alltoall, groups of 4: time of a round\n\n{}\n",
                      times_table(paper.value(), "alltoall"));
  page += fmt::format(
      "## NAS-like programs, class W, 64 processes on four nodes (claim R5)\n\nThirty iterations "
      "of the skeletons. Messages above 4047 bytes use rendezvous, as in the paper. The skeletons\n"
      "do not compute, so their time is waiting time, including that of small messages. `dt` is "
      "not among the\nskeletons. `put` registers each receive before the program continues, which "
      "delays ft's alltoall with 31\npartners at once; with registrations that take no time "
      "(second row of ft) it does not. `auto` sends one RTR at\na time until the buffers are "
      "registered.\n\n{}\n",
      nas_table(nas.value()));
  page += fmt::format(
      "## `auto` against the best\n\nTime of a transfer to a receiver that is {} early or late, or "
      "starts together with its sender (the wait is\nsubtracted). `auto` is within 2 % of the best "
      "other protocol in {} of {} cells, and {:.3f} times the best at worst.\n\n{}\n",
      kApart, ours.within, ours.cells, ours.worst, ours.table);
  page += how_it_was_run(
      "rendezvous", options, options.options,
      overlaid({{"rendezvous_threshold", std::string(kThreshold)}}, options.settings));
  return ExperimentResult{std::move(page),
                          {plot_of(paper.value(), "bowtie", "bowtie, 16 pairs, two adapters")}};
}

}  // namespace

Experiment rendezvous_experiment() {
  return {
      "rendezvous", "EuroMPI'13: rendezvous protocols (claims R1 to R5), and auto against the best",
      run,          false,
      true,         "connectx-3"};
}

}  // namespace turnout::sim
