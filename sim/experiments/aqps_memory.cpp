// SPDX-License-Identifier: BSD-3-Clause
// AQPS figure 8: memory of one process by number of processes.
//
// Rank 0 hears from everyone (sim/study/programs.h). What it holds is read from the account of its
// real endpoint, in which the profile says how large a queue pair is; the paper's figures stand
// beside.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/settings.h"
#include "base/value.h"
#include "core/memory/account.h"
#include "sim/experiments/page.h"
#include "sim/experiments/paper_memory.h"
#include "sim/experiments/paper_table.h"
#include "sim/study/programs.h"

namespace turnout::sim {
namespace {

constexpr std::uint32_t kLargest = 65536;

// Of rank 0, bytes; the peak of the kind.
struct Holdings {
  std::uint64_t rc_qps = 0;  // most that existed at one time
  std::uint64_t queue_pairs = 0, statistics = 0, rings = 0, receives = 0, decisions = 0, all = 0;
};
using Sizes = std::map<std::uint32_t, Holdings>;
using Measured = std::map<std::string, Sizes>;

Result<Holdings> holdings(const PolicyResult& r) {
  if (r.outcome.reports.empty()) {
    return Status{Code::internal, "the simulation kept no reports"};
  }
  Holdings h;
  h.rc_qps = r.outcome.reports.front().rc_queue_pairs_peak;
  for (const MemoryLine& line : r.outcome.reports.front().memory) {
    h.all += line.peak;
    if (line.kind == name(MemoryKind::queue_pairs)) h.queue_pairs = line.peak;
    if (line.kind == name(MemoryKind::statistics)) h.statistics = line.peak;
    if (line.kind == name(MemoryKind::rings)) h.rings = line.peak;
    if (line.kind == name(MemoryKind::receive_buffers)) h.receives = line.peak;
    if (line.kind == name(MemoryKind::decisions)) h.decisions = line.peak;
  }
  return h;
}

double kilobytes(std::uint64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(paper::kKB);
}

// Queue pairs of figure 8, KB; none: the paper has no such policy.
std::optional<double> paper_queue_pairs(const std::string& policy, std::uint32_t n) {
  if (policy == "dc-rdma-od") return paper::dc_rdma_od();
  if (policy == "rc-rdma-od") return paper::rc_rdma_od(n);
  if (policy == "aqps") return paper::aqps(n, n) - paper::statistics(n);
  return std::nullopt;
}

std::string residual(double kb) {
  return kb == 0 ? "0" : fmt::format("{:+.7g} KB", kb);
}

// `row`: what the table has for one process, KB. Beside itself a source may lack a queue pair
// because the selection gave it a ring over DC.
std::string agreement(double pairs_off, double table_off, double row) {
  const double less = -pairs_off / static_cast<double>(paper::kRcQp);
  if (less < 0 || less != std::floor(less) || (table_off != 0 && table_off != -row)) {
    return "**no**";
  }
  if (less == 0 && table_off == 0) return "exact";
  if (less <= 1) return "exact except for the self-connection";
  return fmt::format("exact except for the self-connection and {} peers without RC", less - 1);
}

// Figure 8: its two parts and their sum, the paper's beside what the account of rank 0 has.
std::string figure_table(const Measured& measured) {
  Rows rows = {{"policy", "processes", "RC queue pairs", "queue pairs: paper", "ours", "residual",
                "statistics: paper", "ours", "residual", "figure 8: paper", "ours", "agrees"}};
  for (const auto& [policy, sizes] : measured) {
    for (const auto& [n, h] : sizes) {
      const std::optional<double> expected = paper_queue_pairs(policy, n);
      if (!expected) continue;
      const double pairs = kilobytes(h.queue_pairs), table = kilobytes(h.statistics);
      const bool counted = policy == "aqps";  // the others keep no statistics
      const double wanted = counted ? paper::statistics(n) : 0;
      const double off = pairs - *expected, table_off = table - wanted;
      rows.push_back({policy, fmt::format("{}", n), fmt::format("{}", h.rc_qps),
                      paper::print(*expected), paper::print(pairs), residual(off),
                      counted ? paper::print(wanted) : "none", paper::print(table),
                      residual(table_off), paper::print(*expected + wanted),
                      paper::print(pairs + table), agreement(off, table_off, wanted / n)});
    }
  }
  return markdown_table(rows);
}

struct Line {
  bool exact = false;        // every size of the policy lies on it
  std::uint64_t base = 0;    // bytes of queue pairs without a connection
  std::uint64_t per_qp = 0;  // bytes of one RC queue pair
};

Line line_of(const Sizes& sizes) {
  Line line;
  if (sizes.size() < 2) return line;
  const Holdings &a = sizes.begin()->second, &b = sizes.rbegin()->second;
  if (b.rc_qps <= a.rc_qps || b.queue_pairs < a.queue_pairs) return line;
  line.per_qp = (b.queue_pairs - a.queue_pairs) / (b.rc_qps - a.rc_qps);
  if (line.per_qp * a.rc_qps > a.queue_pairs) return line;
  line.base = a.queue_pairs - line.per_qp * a.rc_qps;
  line.exact = std::all_of(sizes.begin(), sizes.end(), [&](const auto& entry) {
    return entry.second.queue_pairs == line.base + line.per_qp * entry.second.rc_qps;
  });
  return line;
}

// What the paper says in words of 2^16 processes. Ours is what was run, or lies on the line of what
// was run; which, is said.
class MemoryClaims {
 public:
  explicit MemoryClaims(const Measured& measured) : measured_(measured) {}

  [[nodiscard]] std::vector<Claim> all() {
    dc();
    rc();
    own();
    return std::move(claims_);
  }

 private:
  void add(const char* claim, const char* what, const char* in_paper, const std::string& ours,
           const std::string& how, bool agrees) {
    claims_.push_back({claim, what, in_paper, fmt::format("{} ({})", ours, how), met_if(agrees)});
  }
  [[nodiscard]] const Sizes* of(const char* policy) const {
    const auto found = measured_.find(policy);
    return found == measured_.end() || found->second.empty() ? nullptr : &found->second;
  }

  void dc() {
    const Sizes* const sizes = of("dc-rdma-od");
    if (sizes == nullptr) {
      claims_.push_back(
          {"A4", "dc-rdma-od at any n", "4.27 MB", "-", Verdict::not_run, "no such channel"});
      return;
    }
    const std::uint64_t first = sizes->begin()->second.queue_pairs;
    const bool same = std::all_of(sizes->begin(), sizes->end(), [&](const auto& entry) {
      return entry.second.queue_pairs == first;
    });
    add("A4", "dc-rdma-od at any n", "4.27 MB", paper::print(kilobytes(first)),
        fmt::format("run, {} to {} processes{}", sizes->begin()->first, sizes->rbegin()->first,
                    same ? "" : ", not the same"),
        same && kilobytes(first) == paper::dc_rdma_od());
  }

  void rc() {
    const Sizes* const sizes = of("rc-rdma-od");
    if (sizes == nullptr) return;
    const Line line = line_of(*sizes);
    const bool run = sizes->rbegin()->first == kLargest;
    const double ours = kilobytes(run ? sizes->rbegin()->second.queue_pairs
                                      : line.base + line.per_qp * (kLargest - 1));
    if (!run && !line.exact) {
      claims_.push_back(
          {"A5", "rc-rdma-od at 2^16", "93 GB", "-", Verdict::not_run, "not one straight line"});
      return;
    }
    add("A5", "rc-rdma-od at 2^16", "93 GB", paper::print(ours),
        run ? "run"
            : fmt::format("{} B + {} B x queue pairs at every size run", line.base, line.per_qp),
        std::lround(ours / 1e6) == 93);
  }

  void own() {
    const Sizes* const sizes = of("aqps");
    if (sizes == nullptr) return;
    const auto& [n, h] = *sizes->rbegin();
    const bool full = h.rc_qps == paper::kRcPool;
    const std::string run = n == kLargest ? "run" : fmt::format("run with {} processes", n);
    const double pairs = kilobytes(h.queue_pairs);
    add("A6", "aqps stops after 128 RC queue pairs", "128", fmt::format("{}", h.rc_qps), run,
        n <= paper::kRcPool ? h.rc_qps == n - 1 : full);
    if (!full) return;
    // n sigma(n) entries of 8 bytes: so many an entry and process were accounted.
    const double each = static_cast<double>(h.statistics) / static_cast<double>(paper::sigma(n)) /
                        static_cast<double>(n);
    const double table = n == kLargest ? kilobytes(h.statistics)
                                       : each * static_cast<double>(paper::sigma(kLargest)) *
                                             kLargest / static_cast<double>(paper::kKB);
    const std::string how =
        n == kLargest ? "run" : fmt::format("{:g} B per entry and process, {}", each, run);
    add("A6", "statistics at 2^16", "87 MB", paper::print(table), how,
        std::lround(table / 1000) == 87);
    // The paper's own parts add up to 271.5 MB, with one queue pair more to 272.9.
    const double sum = pairs + table;
    add("A6", "aqps at 2^16 (273 with one queue pair more)", "273 MB", paper::print(sum), how,
        std::lround((sum + static_cast<double>(paper::kRcQp)) / 1000) == 273);
  }

  const Measured& measured_;
  std::vector<Claim> claims_;
};

// A8: what figure 8 leaves out, and figure 9 has.
void add_buffers(const Measured& measured, const Settings& settings, std::vector<Claim>* claims) {
  if (const auto od = measured.find("rc-rdma-od"); od != measured.end()) {
    const Holdings& h = od->second.rbegin()->second;
    const std::uint64_t ring = paper::kRing * paper::kKB;
    const bool whole = h.rc_qps != 0 && h.rings % h.rc_qps == 0;
    claims->push_back({"A8", "one RDMA ring of 16 entries", fmt::format("{} B", ring),
                       whole ? fmt::format("{} B", h.rings / h.rc_qps)
                             : fmt::format("{} B of {} rings", h.rings, h.rc_qps),
                       met_if(whole && h.rings / h.rc_qps == ring)});
  }
  if (!measured.empty()) {
    const std::uint64_t bytes = measured.begin()->second.rbegin()->second.receives;
    const std::uint64_t data = settings.receive_buffers, control = settings.control_buffers;
    const std::uint64_t expected = data * paper::kDataRead + control * paper::kControlRead;
    claims->push_back({"A8", fmt::format("{} posted data and {} control receives", data, control),
                       fmt::format("{} B ({} x 4096 + {} x 256)", expected, data, control),
                       fmt::format("{} B", bytes), met_if(bytes == expected)});
  }
}

std::vector<Claim> claims_of(const Measured& measured, const Settings& settings) {
  std::vector<Claim> claims = MemoryClaims(measured).all();
  for (const paper::Check& c : paper::checks()) {
    claims.push_back(
        {c.claim, c.what, c.paper, fmt::format("{} (from Table 4)", c.ours), met_if(c.agrees)});
  }
  add_buffers(measured, settings, &claims);
  std::stable_sort(claims.begin(), claims.end(),
                   [](const Claim& a, const Claim& b) { return a.id < b.id; });
  return claims;
}

std::string others_table(const Measured& measured) {
  Rows rows = {{"policy", "processes", "queue pairs", "statistics", "decisions", "rings",
                "posted receives", "total peak"}};
  for (const auto& [policy, sizes] : measured) {
    for (const auto& [n, h] : sizes) {
      rows.push_back({policy, fmt::format("{}", n), value::human_bytes(h.queue_pairs),
                      value::human_bytes(h.statistics), value::human_bytes(h.decisions),
                      value::human_bytes(h.rings), value::human_bytes(h.receives),
                      value::human_bytes(h.all)});
    }
  }
  return markdown_table(rows);
}

Plot::Series ours_of(const std::string& policy, const Sizes& sizes) {
  Plot::Series series{policy + ", ours", {}, false};
  for (const auto& [n, h] : sizes) {
    series.points.emplace_back(n, kilobytes(h.queue_pairs + h.statistics));
  }
  return series;
}

Plot make_plot(const Measured& measured) {
  Plot plot;
  plot.title = "Queue pairs and statistics of one process";
  plot.x_label = "processes";
  plot.y_label = "memory (MB = 1000 KB, as in the paper)";
  plot.unit = "KB";
  plot.x_log = plot.y_log = true;
  // From the topmost line to the lowest.
  for (const char* const policy : {"rc-rdma-od", "aqps", "dc-rdma-od"}) {
    Plot::Series series{fmt::format("{}, paper", policy), {}, true};
    for (std::uint32_t n = 8; n <= kLargest; n *= 2) {
      const double table = std::string_view(policy) == "aqps" ? paper::statistics(n) : 0;
      series.points.emplace_back(n, *paper_queue_pairs(policy, n) + table);
    }
    plot.series.push_back(std::move(series));
    if (measured.contains(policy)) plot.series.push_back(ours_of(policy, measured.at(policy)));
  }
  for (const auto& [policy, sizes] : measured) {
    if (!paper_queue_pairs(policy, kLargest)) plot.series.push_back(ours_of(policy, sizes));
  }
  return plot;
}

// What makes a policy the paper's, where the user did not say otherwise.
std::map<std::string, NamedValues> own_settings(const NamedValues& given, std::uint32_t n) {
  std::map<std::string, NamedValues> own = settings_of_paper(given, n);
  const auto add = [&](const char* policy, std::string_view setting, std::string value) {
    if (std::none_of(given.begin(), given.end(),
                     [&](const auto& pair) { return pair.first == setting; })) {
      own[policy].emplace_back(setting, std::move(value));
    }
  };
  add("dc-rdma-od", "data_qps", "28");
  add("dc-rdma-od", "max_channels", fmt::format("{}", n));
  add("aqps", "interval", "1ms");
  add("aqps", kStatisticsEntries, fmt::format("{}", paper::sigma(n)));
  return own;
}

// Waves of sources under a selection, whose channels go from one to the next.
constexpr std::uint32_t kWaves = 6;

Result<Holdings> measure(const ExperimentOptions& options, const NamedValues& settings,
                         const std::string& policy, std::uint32_t ranks, const Runner& runner) {
  StudyOptions study = begin_study(options, ranks);
  study.workload = memory_workload().name;
  if (policy == "aqps") study.options = {{"apart", "100us"}, {"waves", fmt::format("{}", kWaves)}};
  study.settings = settings;
  study.policies = {policy};
  study.own_settings = own_settings(options.settings, ranks);
  study.keep_reports = true;
  const Result<Study> result = run_study(study, with_paper_table(runner));
  if (!result) return result.status();
  return holdings(result.value().results.front());
}

std::string what_was_run(const std::vector<std::uint32_t>& sizes) {
  std::string text = fmt::format(
      "Every process sends to rank 0, which sets up channels according to its policy. Under "
      "`aqps`, waves of 26\nsources (h) then send 1536 messages each and compute. Channels go to "
      "the next wave before the previous one\nhas released its queue pairs, until there are 128 of "
      "them. {} sources are busy in total, more than that\nlimit. Run with up to {} processes{}.\n",
      MemoryProgram().wave * kWaves, *std::max_element(sizes.begin(), sizes.end()),
      *std::max_element(sizes.begin(), sizes.end()) >= kLargest
          ? ""
          : ".\nThe paper's largest number, 65536, is extrapolated: all sizes run lie exactly on "
            "one line. `--sizes 65536`\nruns it, at a cost that grows quadratically");
  text +=
      "The paper counts n connections, including one from the process to itself. Ours has no such "
      "connection, so it\nhas one RC queue pair (1424 KB) less as long as the number of processes "
      "is the limit.\n";
  return text;
}

Result<ExperimentResult> run(const ExperimentOptions& options, const Runner& runner) {
  if (!options.options.empty()) {
    return Status{Code::invalid,
                  fmt::format("aqps-memory: --option {}: this experiment takes no workload options",
                              options.options.front().first)};
  }
  const Result<std::vector<std::string>> policies =
      policies_of(options.policies, {"aqps", "dc-rdma-od", "rc-rdma-od"});
  if (!policies) return policies.status();
  const NamedValues settings =
      overlaid({{"memory_budget", "128GiB"}, {"receive_first", "32768"}}, options.settings);
  const std::vector<std::uint32_t> sizes = sizes_of(options, {8, 16, 32, 64, 128, 256, 1024, 4096});
  for (const std::uint32_t ranks : sizes) {
    if (ranks < 2) return Status{Code::invalid, "aqps-memory: --sizes: at least 2 processes"};
  }
  Measured measured;
  for (const std::uint32_t ranks : sizes) {
    for (const std::string& policy : policies.value()) {
      const Result<Holdings> held = measure(options, settings, policy, ranks, runner);
      if (!held) return held.status();
      measured[policy][ranks] = held.value();
    }
  }
  Settings used = Settings::defaults();
  for (const auto& [name, text] : settings) {
    if (Status s = used.set(name, text); !s.ok()) return s;
  }
  std::string page = fmt::format(
      "# aqps-memory\n\nMemory of one process by number of processes [AQPS 4.2, Table 4, figure "
      "8]. Units are the paper's: KB = 1024\nB, MB = 1000 KB, GB = 10^6 KB (claim A7). Our numbers "
      "are peaks in the memory account of rank 0's endpoint,\nwhich is Turnout's own code. The "
      "size of a queue pair comes from the profile (`memory.*` in\n`turnout sim --show-profile "
      "{}`), the number of queue pairs from the endpoint. Nothing was fitted: these are\nbyte "
      "counts, not times.\n\n",
      options.profile.name);
  page += fmt::format("## Figure 8\n\n{}\n{}\n{{plot}}\n\n", what_was_run(sizes),
                      figure_table(measured));
  page += fmt::format("## The claims\n\n{}\n", claims_table(claims_of(measured, used)));
  page += fmt::format("## Total memory of rank 0\n\nPeaks, in binary units.\n\n{}\n",
                      others_table(measured));
  page += how_it_was_run("aqps-memory", options, options.options, settings);
  page += kSettingsOfPaper;
  page +=
      "`dc-rdma-od` uses 28 DC queue pairs for data; `aqps` decides once per millisecond and keeps "
      "sigma(n) entries of statistics.\n";
  return ExperimentResult{std::move(page), {make_plot(measured)}};
}

}  // namespace

Experiment memory_experiment() {
  return {"aqps-memory", "AQPS figure 8: memory by number of processes (claims A4 to A8)", run};
}

}  // namespace turnout::sim
