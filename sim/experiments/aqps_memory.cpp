// AQPS figure 8: memory of one process by number of processes.
//
// Rank 0 of alltoone hears from everyone. What it holds is read from the account of the real
// endpoints: queue pairs, rings, posted receives, statistics. The paper's sizes of these objects
// differ from ours, so the page has both: the number of real objects with the paper's sizes, and
// with ours.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/settings.h"
#include "base/value.h"
#include "core/memory/account.h"
#include "sim/experiments/list.h"
#include "sim/experiments/page.h"
#include "sim/experiments/paper_memory.h"

namespace turnout::sim {

namespace {

// Of rank 0, from its report.
struct Holdings {
  std::uint64_t rc_qps = 0;  // its ends of RC connections; one serves both ways
  std::uint64_t ring_count = 0;
  std::uint64_t queue_pairs = 0, rings = 0, receives = 0, statistics = 0, all = 0;  // bytes
};

Result<Holdings> holdings(const PolicyResult& r) {
  if (r.outcome.reports.empty()) {
    return Status{Code::internal, "the simulation kept no reports"};
  }
  Holdings h;
  const EndpointReport& report = r.outcome.reports.front();
  const auto over_rc = [](const DirectionReport& way) {
    return !way.spans.empty() && way.spans.back().channel == ChannelKind::rc_rdma;
  };
  for (const PeerReport& peer : report.peers) {
    if (over_rc(peer.receive)) ++h.ring_count;
    if (over_rc(peer.receive) || over_rc(peer.send)) ++h.rc_qps;
  }
  for (const MemoryLine& line : report.memory) {
    h.all += line.peak;
    if (line.kind == name(MemoryKind::queue_pairs)) h.queue_pairs = line.peak;
    if (line.kind == name(MemoryKind::rings)) h.rings = line.peak;
    if (line.kind == name(MemoryKind::receive_buffers)) h.receives = line.peak;
    if (line.kind == name(MemoryKind::decisions)) h.statistics = line.peak;
  }
  return h;
}

using Measured = std::map<std::string, std::map<std::uint32_t, Holdings>>;

std::string objects_table(const Measured& measured) {
  std::vector<std::vector<std::string>> rows = {{"policy", "processes", "RC queue pairs",
                                                 "queue pairs", "rings", "posted receives",
                                                 "statistics, decisions", "peak of all kinds"}};
  for (const auto& [policy, sizes] : measured) {
    for (const auto& [ranks, h] : sizes) {
      rows.push_back({policy, fmt::format("{}", ranks), fmt::format("{}", h.rc_qps),
                      value::human_bytes(h.queue_pairs), value::human_bytes(h.rings),
                      value::human_bytes(h.receives), value::human_bytes(h.statistics),
                      value::human_bytes(h.all)});
    }
  }
  return markdown_table(rows);
}

// The same objects, each as large as in Table 4.
std::string paper_sizes_table(const Measured& measured) {
  std::vector<std::vector<std::string>> rows = {
      {"policy", "processes", "RC queue pairs", "with the paper's sizes", "paper's formula"}};
  for (const auto& [policy, sizes] : measured) {
    for (const auto& [ranks, h] : sizes) {
      const bool own = policy == "aqps";
      // The paper counts n connections, to oneself too.
      const double formula =
          own ? paper::aqps(ranks, std::min<std::uint64_t>(ranks, 26)) : paper::rc_rdma_od(ranks);
      const double ours = own ? paper::aqps(ranks, h.rc_qps) : paper::rc_rdma_od(h.rc_qps);
      if (policy != "aqps" && policy != "rc-rdma-od") continue;
      rows.push_back({policy, fmt::format("{}", ranks), fmt::format("{}", h.rc_qps),
                      paper::print(ours), paper::print(formula)});
    }
  }
  return markdown_table(rows);
}

struct Growth {
  bool exact = false;        // every size of the policy lies on one line
  std::uint64_t base = 0;    // bytes of queue pairs without a connection
  std::uint64_t per_qp = 0;  // bytes of one RC queue pair
};

Growth growth(const std::map<std::uint32_t, Holdings>& sizes) {
  Growth g;
  if (sizes.size() < 2) return g;
  const Holdings &a = sizes.begin()->second, &b = sizes.rbegin()->second;
  if (b.rc_qps <= a.rc_qps || b.queue_pairs < a.queue_pairs) return g;
  g.per_qp = (b.queue_pairs - a.queue_pairs) / (b.rc_qps - a.rc_qps);
  if (g.per_qp * a.rc_qps > a.queue_pairs) return g;
  g.base = a.queue_pairs - g.per_qp * a.rc_qps;
  g.exact = std::all_of(sizes.begin(), sizes.end(), [&](const auto& entry) {
    return entry.second.queue_pairs == g.base + g.per_qp * entry.second.rc_qps;
  });
  return g;
}

std::string checks_table() {
  std::vector<std::vector<std::string>> rows = {
      {"claim", "what", "paper", "from Table 4", "agrees"}};
  for (const paper::Check& c : paper::checks()) {
    rows.push_back({c.claim, c.what, c.paper, c.ours, c.agrees ? "yes" : "**no**"});
  }
  return markdown_table(rows);
}

// A8 and the objects of our endpoints, from their account.
std::string units_table(const Measured& measured, const Settings& settings) {
  std::vector<std::vector<std::string>> rows = {{"claim", "object", "paper", "ours", "agrees"}};
  const auto add = [&](std::string claim, std::string what, std::uint64_t in_paper,
                       std::string ours, bool agrees) {
    rows.push_back({std::move(claim), std::move(what), fmt::format("{} B", in_paper),
                    std::move(ours), agrees ? "yes" : "no"});
  };
  for (const auto& [policy, sizes] : measured) {
    const Holdings& h = sizes.rbegin()->second;
    if (policy != "rc-rdma-od" || h.ring_count == 0) continue;
    const std::uint64_t ring = h.rings / h.ring_count;
    const bool whole = h.rings % h.ring_count == 0;
    add("A8", "one RDMA ring of 16 entries", paper::kRing * paper::kKB,
        whole ? fmt::format("{} B", ring) : fmt::format("{} B of {} rings", h.rings, h.ring_count),
        whole && ring == paper::kRing * paper::kKB);
  }
  if (!measured.empty()) {
    const std::uint64_t bytes = measured.begin()->second.rbegin()->second.receives;
    const std::uint64_t data = settings.receive_buffers, control = settings.control_buffers;
    const std::uint64_t expected = data * paper::kDataRead + control * paper::kControlRead;
    rows.push_back({"A8", fmt::format("{} posted data and {} control receives", data, control),
                    fmt::format("{} B ({} x 4096 + {} x 256)", expected, data, control),
                    fmt::format("{} B", bytes), bytes == expected ? "yes" : "no"});
  }
  return markdown_table(rows);
}

Plot make_plot(const Measured& measured) {
  Plot plot;
  plot.title = "Queue pairs and statistics of one process";
  plot.x_label = "processes";
  plot.y_label = "KB";
  plot.x_log = plot.y_log = true;
  Plot::Series dc{"dc-rdma-od, paper", {}, true}, rc{"rc-rdma-od, paper", {}, true},
      own{"aqps, paper", {}, true};
  for (std::uint64_t n = 8; n <= 65536; n *= 2) {
    const auto x = static_cast<double>(n);
    dc.points.emplace_back(x, paper::dc_rdma_od());
    rc.points.emplace_back(x, paper::rc_rdma_od(n));
    own.points.emplace_back(x, paper::aqps(n, n));
  }
  plot.series = {dc, rc, own};
  for (const auto& [policy, sizes] : measured) {
    Plot::Series series{policy + ", ours", {}, false};
    for (const auto& [ranks, h] : sizes) {
      series.points.emplace_back(ranks, static_cast<double>(h.queue_pairs + h.statistics) /
                                            static_cast<double>(paper::kKB));
    }
    plot.series.push_back(std::move(series));
  }
  return plot;
}

std::string extrapolation(const Measured& measured) {
  const auto od = measured.find("rc-rdma-od");
  if (od == measured.end()) return {};
  const Growth g = growth(od->second);
  if (!g.exact) {
    return "Queue-pair memory of `rc-rdma-od` is not one straight line over these sizes, so "
           "nothing "
           "is said\nabout larger ones.\n";
  }
  constexpr std::uint64_t kLargest = 65535;
  return fmt::format(
      "At every size queue pairs of `rc-rdma-od` take {} B + {} B x RC queue pairs, exactly. By "
      "that line\n65,536 processes would make it {} of queue pairs in one process{}.\n",
      g.base, g.per_qp, value::human_bytes(g.base + g.per_qp * kLargest),
      od->second.rbegin()->first >= 65536 ? ", as was run" : " (extrapolated, not run)");
}

// The selection needs hundreds of messages of a source in an interval, and time to make its queue
// pairs; the others have all they will have after the first messages.
std::string messages_of(const std::string& policy, std::uint32_t ranks) {
  return fmt::format("{}", policy == "aqps" ? 768'000 : std::uint64_t{ranks} * 400);
}

Result<ExperimentResult> run(const ExperimentOptions& options, const Runner& runner) {
  const Result<Available> policies =
      available(options.policies, {"aqps", "dc-rdma-od", "rc-rdma-od", "static:dc-sendrecv"});
  if (!policies) return policies.status();
  const NamedValues own_settings = overlaid({{"interval", "10ms"}}, options.settings);
  std::vector<std::uint32_t> sizes = options.sizes;
  if (sizes.empty()) sizes = {8, 16, 32, 64, 128, 256};
  Measured measured;
  for (const std::uint32_t ranks : sizes) {
    for (const std::string& policy : policies.value().policies) {
      StudyOptions study;
      study.workload = "alltoone";
      study.options = overlaid({{"messages", messages_of(policy, ranks)}}, options.options);
      study.place = {ranks, 1, options.seed};
      study.profile = options.profile;
      study.settings = own_settings;
      study.policies = {policy};
      study.own_settings = settings_of_paper(options.settings, ranks);
      study.check_content = false;
      study.keep_reports = true;
      if (options.progress) {
        study.progress = [&](const std::string& what, std::uint32_t ended, Picoseconds now,
                             std::uint64_t events) {
          options.progress(what, ranks, ended, now, events);
        };
      }
      const Result<Study> result = run_study(study, runner);
      if (!result) return result.status();
      const Result<Holdings> held = holdings(result.value().results.front());
      if (!held) return held.status();
      measured[policy][ranks] = held.value();
    }
  }
  Settings settings = Settings::defaults();
  for (const auto& [name, text] : own_settings) {
    if (Status s = settings.set(name, text); !s.ok()) return s;
  }
  std::string page = fmt::format(
      "# aqps-memory\n\nMemory of one process by number of processes [AQPS 4.2, Table 4, figure "
      "8].\nThe paper's units: KB = 1024 B, MB = 1000 KB, GB = 10^6 KB (claim A7); ours: powers of "
      "two with an i.\nNothing was fitted: these are counts of bytes, not times.\n\n");
  if (!policies.value().missing.empty()) page += policies.value().missing + "\n";
  page += fmt::format("## The paper's numbers from its own table\n\n{}\n", checks_table());
  page += fmt::format("## Sizes of our objects\n\n{}\n{}\n", units_table(measured, settings),
                      extrapolation(measured));
  page += fmt::format(
      "## What rank 0 of alltoone holds\n\nFrom the account of the real endpoints, peak by "
      "kind.\n\n{}\n{{plot}}\n\n",
      objects_table(measured));
  page += fmt::format(
      "## The same objects in the paper's sizes\n\nOur connections, each counted with the 1424 KB "
      "(and so on) of Table 4: a process has no connection\nto itself, so there is one less than "
      "the paper's n; `aqps` keeps h = 26 active, and\ntakes fewer where a source brings too few "
      "messages in an interval to pay for one.\n\n{}\n",
      paper_sizes_table(measured));
  if (options.options.empty()) {
    page += "Messages: 768,000 under `aqps`, 400 of each process under the others.\n\n";
  }
  page += fmt::format("## How it was run\n\n{}",
                      how_it_was_run("aqps-memory", options, options.options, own_settings));
  page += kSettingsOfPaper;
  return ExperimentResult{std::move(page), {make_plot(measured)}};
}

}  // namespace

std::vector<Experiment> memory_experiments() {
  return {{"aqps-memory", "AQPS figure 8: memory by number of processes (claims A4 to A8)", run}};
}

}  // namespace turnout::sim
