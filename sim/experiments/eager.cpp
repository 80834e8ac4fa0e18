// SC'06: what receive buffers take by design (spec/eager-channels.md, claims E1 to E6), on NAS-like
// skeletons. Every number is read from the accounts of the real endpoints.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/settings.h"
#include "base/value.h"
#include "core/memory/account.h"
#include "sim/experiments/list.h"
#include "sim/experiments/page.h"
#include "sim/result_writer.h"

namespace turnout::sim {

namespace {

constexpr std::array<std::string_view, 7> kPrograms = {"nas-is", "nas-ft", "nas-cg", "nas-mg",
                                                       "nas-lu", "nas-sp", "nas-bt"};
// The programs do 10 to 400 iterations; queue pairs take milliseconds, and the paper's own
// threshold is not told. So few messages of a peer make it frequent that one of is's ten iterations
// does.
constexpr std::string_view kRounds = "10", kRingThreshold = "8";
constexpr std::uint32_t kOfRatios = 64;  // processes, as in the paper's table of ratios
constexpr double kMillion = 1e6;

struct Run {
  std::string program, design;
  std::uint32_t ranks = 0;
  double time = 0;                          // picoseconds
  std::uint64_t buffers = 0, others = 0;    // bytes of the largest rank, at its peak
  double mean_buffers = 0, mean_rings = 0;  // bytes, and rings that there were, of a rank
  std::uint64_t connections = 0;            // peers of a rank, the most
  std::uint64_t limit_events = 0, growths = 0, rnr_naks = 0;  // of all ranks
};

bool is_buffer(std::string_view kind) {
  return kind == name(MemoryKind::receive_buffers) || kind == name(MemoryKind::rings);
}

Result<Run> measure(const ExperimentOptions& options, std::string_view program,
                    const std::string& design, std::uint32_t ranks, const Runner& runner) {
  StudyOptions study = begin_study(options, ranks, fmt::format("{} ", program));
  study.workload = program;
  study.options = overlaid({{"rounds", std::string(kRounds)}}, options.options);
  const std::string all = fmt::format("{}", ranks);
  // A connection to everyone the program speaks with, as in the paper.
  study.settings = overlaid({{"memory_budget", "64GiB"},
                             {"max_active_rc", all},
                             {"max_channels", all},
                             {"rc_pool", all},
                             {"ring_threshold", std::string(kRingThreshold)}},
                            options.settings);
  study.policies = {design};
  study.check_content = false;
  study.keep_reports = true;
  const Result<Study> result = run_study(study, runner);
  if (!result) return result.status();
  const Outcome& outcome = result.value().results.front().outcome;
  if (outcome.reports.empty()) {
    return Status{Code::internal, "eager: the simulation kept no reports"};
  }
  Run run{std::string(program), design, ranks, timed_phases(result.value().results.front()).time};
  std::uint64_t sum = 0, rings = 0;
  for (const EndpointReport& report : outcome.reports) {
    std::uint64_t buffers = 0, others = 0;
    for (const MemoryLine& line : report.memory) {
      (is_buffer(line.kind) ? buffers : others) += line.peak;
    }
    run.buffers = std::max(run.buffers, buffers);
    run.others = std::max(run.others, others);
    sum += buffers;
    std::uint64_t connections = 0;
    for (const PeerReport& peer : report.peers) {
      const auto& spans = peer.receive.spans;
      connections += spans.empty() ? 0 : 1;
      rings += std::any_of(spans.begin(), spans.end(),
                           [](const ChannelSpan& span) { return over_ring(span.channel); })
                   ? 1
                   : 0;
    }
    run.connections = std::max(run.connections, connections);
    run.limit_events += report.shared_receives.limit_events;
    run.growths += report.shared_receives.growths;
    run.rnr_naks += report.shared_receives.rnr_naks;
  }
  const auto n = static_cast<double>(outcome.reports.size());
  run.mean_buffers = static_cast<double>(sum) / n;
  run.mean_rings = static_cast<double>(rings) / n;
  return run;
}

using Key = std::pair<std::string, std::uint32_t>;  // program, ranks
using Runs = std::map<Key, std::map<std::string, Run>>;

std::string megabytes(double bytes) {
  return fmt::format("{:.2f}", bytes / kMillion);
}

std::string memory_table(const Runs& runs, const std::vector<std::string>& designs) {
  std::vector<std::vector<std::string>> rows = {{"program", "processes", "peers"}};
  for (const std::string& d : designs) rows[0].push_back(d);
  for (const std::string& d : designs) rows[0].push_back(d + ", all memory");
  for (const auto& [key, by_design] : runs) {
    rows.push_back({key.first, fmt::format("{}", key.second),
                    fmt::format("{}", by_design.at(designs.front()).connections)});
    for (const std::string& d : designs) {
      rows.back().push_back(megabytes(static_cast<double>(by_design.at(d).buffers)));
    }
    for (const std::string& d : designs) {
      const Run& run = by_design.at(d);
      rows.back().push_back(megabytes(static_cast<double>(run.buffers + run.others)));
    }
  }
  return markdown_table(rows);
}

std::string time_table(const Runs& runs, const std::vector<std::string>& designs) {
  std::vector<std::vector<std::string>> rows = {{"program", "processes"}};
  for (const std::string& d : designs) rows[0].push_back(d);
  rows[0].emplace_back("srq with the best");
  for (const auto& [key, by_design] : runs) {
    rows.push_back({key.first, fmt::format("{}", key.second)});
    double best = 0;
    for (const std::string& d : designs) {
      const double time = by_design.at(d).time;
      if (best == 0 || time < best) best = time;
      rows.back().push_back(print_time(static_cast<Picoseconds>(time + 0.5)));
    }
    rows.back().push_back(print_percent(change_percent(by_design.at("srq").time, best)));
  }
  return markdown_table(rows);
}

// E3: what the rings take is their number times their size.
std::string ring_table(const Runs& runs, double ring_bytes) {
  std::vector<std::vector<std::string>> rows = {{"program", "processes", "rings of a process, mean",
                                                 "rings x size (MB)", "ardma-srq less srq (MB)",
                                                 "residual"}};
  for (const auto& [key, by_design] : runs) {
    const Run &rings = by_design.at("ardma-srq"), &shared = by_design.at("srq");
    const double predicted = rings.mean_rings * ring_bytes;
    const double measured = rings.mean_buffers - shared.mean_buffers;
    rows.push_back({key.first, fmt::format("{}", key.second),
                    fmt::format("{:.1f}", rings.mean_rings), megabytes(predicted),
                    megabytes(measured),
                    predicted > 0 ? print_percent(change_percent(measured, predicted)) : "-"});
  }
  return markdown_table(rows);
}

std::string event_table(const Runs& runs) {
  std::vector<std::vector<std::string>> rows = {{"program", "processes",
                                                 "low-watermark events of a process", "growths",
                                                 "messages that found no receive"}};
  for (const auto& [key, by_design] : runs) {
    const Run& run = by_design.at("srq");
    const auto each = [&](std::uint64_t n) {
      return fmt::format("{:.2f}", static_cast<double>(n) / static_cast<double>(run.ranks));
    };
    rows.push_back({key.first, fmt::format("{}", key.second), each(run.limit_events),
                    each(run.growths), each(run.rnr_naks)});
  }
  return markdown_table(rows);
}

// The most memory of srq over all programs, by number of processes.
std::string flatness(const Runs& runs) {
  std::map<std::uint32_t, std::pair<double, double>> spread;
  for (const auto& [key, by_design] : runs) {
    const auto bytes = static_cast<double>(by_design.at("srq").buffers);
    auto& [least, most] = spread.try_emplace(key.second, bytes, bytes).first->second;
    least = std::min(least, bytes);
    most = std::max(most, bytes);
  }
  std::vector<std::vector<std::string>> rows = {{"processes", "least (MB)", "most (MB)"}};
  for (const auto& [ranks, bytes] : spread) {
    rows.push_back({fmt::format("{}", ranks), megabytes(bytes.first), megabytes(bytes.second)});
  }
  return markdown_table(rows);
}

std::string ratio_table(const Runs& runs, const std::vector<std::string>& designs) {
  std::vector<std::vector<std::string>> rows = {{"program"}};
  for (const std::string& d : designs) {
    if (d != "srq") rows[0].push_back(d + " / srq");
  }
  for (const auto& [key, by_design] : runs) {
    if (key.second != kOfRatios) continue;
    rows.push_back({key.first});
    for (const std::string& d : designs) {
      if (d == "srq") continue;
      rows.back().push_back(
          fmt::format("{:.2f}", static_cast<double>(by_design.at(d).buffers) /
                                    static_cast<double>(by_design.at("srq").buffers)));
    }
  }
  return markdown_table(rows);
}

Result<ExperimentResult> run(const ExperimentOptions& options, const Runner& runner) {
  std::vector<std::string> usual = {"srq", "ardma-srq"};
  if (std::find(kPolicyNames.begin(), kPolicyNames.end(), "ardma-sr") != kPolicyNames.end()) {
    usual.emplace_back("ardma-sr");
  }
  usual.emplace_back("turnout");
  const Result<std::vector<std::string>> designs = policies_of(options.policies, usual);
  if (!designs) return designs.status();
  std::vector<std::uint32_t> sizes = options.sizes;
  if (sizes.empty()) sizes = {16, 64, 256, 1024};
  Runs runs;
  for (const std::uint32_t ranks : sizes) {
    for (const std::string_view program : kPrograms) {
      for (const std::string& design : designs.value()) {
        Result<Run> one = measure(options, program, design, ranks, runner);
        if (!one) return one.status();
        runs[{std::string(program), ranks}][design] = std::move(one.value());
      }
    }
  }
  const Settings defaults = Settings::defaults();
  const auto ring_bytes = static_cast<double>(defaults.ring_entries * defaults.ring_entry_size);
  std::string page = fmt::format(
      "# eager\n\nWhat receive buffers take by design: shared receive queue only (`srq`), with "
      "rings "
      "for frequent peers\n(`ardma-srq`), and the policy `turnout` [SC'06]. NAS-like skeletons, "
      "class B, ten iterations.\n\n{}\n",
      provenance(options.profile));
  page += fmt::format(
      "## Receive buffers and rings of the largest process (MB)\n\nAnd behind them all that "
      "Turnout "
      "accounts, queue pairs above all, of which the paper does not speak.\n\n{}\n",
      memory_table(runs, designs.value()));
  page += fmt::format(
      "## E1 and E4: srq over all programs\n\nThe paper: below 5 MB, and nearly the same whatever "
      "the "
      "number of processes.\n\n{}\n",
      flatness(runs));
  page += fmt::format(
      "## E2: against srq, {} processes\n\nThe paper: `ardma-sr` 10 times for IS, FT, BT, SP, "
      "twice "
      "for LU, MG, CG, with its receive queues of 2006\n(64 buffers of a connection, 500 KB of an "
      "RDMA connection).\n\n{}\n",
      kOfRatios, ratio_table(runs, designs.value()));
  page +=
      fmt::format("## E3: what rings take\n\nA ring is {} bytes here; 500 KB in the paper.\n\n{}\n",
                  ring_bytes, ring_table(runs, ring_bytes));
  page += fmt::format(
      "## E5: low-watermark events under srq\n\nThe paper: they fall as the number of processes "
      "grows (1.56, 0.06 and 0.12 of a process at 16, 32 and 64).\n\n{}\n",
      event_table(runs));
  page += fmt::format("## Time\n\n{}\n", time_table(runs, designs.value()));
  page += fmt::format("## How it was run\n\n{}",
                      how_it_was_run("eager", options, options.options, options.settings));
  page +=
      "All run with a connection to everyone a process speaks with (`max_active_rc`, "
      "`max_channels`,\n`rc_pool` = the number of processes) and a budget that refuses nothing. "
      "A peer gets a ring\nafter 8 messages over RC (`ring_threshold`): the paper's threshold is "
      "not "
      "told, and ten iterations of IS bring\ntwenty or thirty from each. On `ardma-sr` there is "
      "nothing: it is not built yet.\n";
  return ExperimentResult{std::move(page), {}};
}

}  // namespace

std::vector<Experiment> eager_experiments() {
  return {{"eager", "SC'06: receive buffers by design on NAS-like skeletons (claims E1 to E5)",
           [](const ExperimentOptions& o, const Runner& r) { return run(o, r); }}};
}

}  // namespace turnout::sim
