// SPDX-License-Identifier: BSD-3-Clause
// SC'06: what receive buffers take by design (spec/eager-channels.md, claims E1 to E6), on NAS-like
// skeletons. Every number is read from the accounts of the real endpoints.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/settings.h"
#include "base/value.h"
#include "sim/experiments/eager_runs.h"
#include "sim/experiments/page.h"
#include "sim/study/result_writer.h"

namespace turnout::sim {
namespace {

using namespace eager;

constexpr std::array<std::string_view, 7> kPrograms = {"nas-is", "nas-ft", "nas-cg", "nas-mg",
                                                       "nas-lu", "nas-sp", "nas-bt"};
constexpr const char* kPaperDesigns[] = {"srq", "ardma-srq", "ardma-sr"};
constexpr std::string_view kPingPong = "pingpong";
constexpr std::string_view kOfE2 =
    "IS and FT: 64 receives for each of 63 peers, for their RTS and FIN. All three columns include "
    "the shared\nqueue, which carries the default transport here and which the paper's `ardma-sr` "
    "does not have. SP and BT:\nthe skeletons communicate with 14 peers, so 64 receives for each "
    "are 7 MB at most, and the ratio to `srq` is\nat most 2.7. MG: faces are large messages on "
    "fine grids and small ones on coarse grids, so some peers have\nboth 64 receives and a ring.\n";
constexpr std::string_view kOfSource =
    "The source of a later version than the paper's [mvapich-cce, mpid/ch_gen2/viaparam.c and\n"
    "viacheck.c](https://github.com/grondo/mvapich-cce) has other numbers: 12 receives for each of "
    "the other processes\nfrom the start, 72 from the first message over send/receive on, a ring "
    "of 32 after 10 messages, a shared queue\nof 256 to 512, all buffers of 12 KB. With these:\n";
constexpr std::string_view kOfRest =
    "*As MVAPICH*: without the shared queue, and with the 12 receives of the peers that a process "
    "never speaks to,\nwhich are made on demand here. *With R3*: 64 receives more for each peer, "
    "which the source adds for large\nmessages that are copied. IS and FT are then far above the "
    "paper's 10, and SP and BT reach it only with R3's\nreceives: no one set of these parameters "
    "gives the same factor for a program with 63 peers and for one with 14.\nWhat remains "
    "unexplained is the paper's equal factor: either its trigger for more receives counts messages "
    "of the\nprocess and not of a connection, or its SP and BT have more peers than the "
    "skeletons.\n";
constexpr std::string_view kOfE5 =
    "Averaged over all processes, a burst at one of them counts for less the more processes there "
    "are; these runs\nshow nothing beyond that. SuperLU's pattern is not among our workloads, and "
    "its drop by a factor of 26 from\n16 to 32 processes is not reproduced.\n";
constexpr std::string_view kOfE6 =
    "The paper measured MT25204 adapters of 2006 on first-generation PCI Express; the model is of "
    "a Connect-IB.\nThere an SRQ costs the adapter one receive fetch, and the CPU one completion "
    "entry and one post, together\nfar below 1 us. The sign agrees; the magnitude depends on the "
    "adapter.\n";

std::string megabytes(double bytes) {
  return fmt::format("{:.2f}", bytes / kMillion);
}

std::string memory_table(const Runs& runs, const std::vector<std::string>& designs) {
  Rows rows = {{"program", "processes", "peers"}};
  for (const std::string& d : designs) rows[0].push_back(d);
  for (const std::string& d : designs) rows[0].push_back(d + ", all memory");
  for (const auto& [key, by_design] : runs) {
    rows.push_back({key.first, fmt::format("{}", key.second),
                    fmt::format("{}", by_design.at(designs.front()).receiving.sources)});
    for (const std::string& d : designs) {
      rows.back().push_back(megabytes(static_cast<double>(by_design.at(d).receiving.largest)));
    }
    for (const std::string& d : designs) {
      const Receiving& all = by_design.at(d).receiving;
      rows.back().push_back(megabytes(static_cast<double>(all.largest + all.others)));
    }
  }
  return markdown_table(rows);
}

std::string time_table(const Runs& runs, const std::vector<std::string>& designs) {
  Rows rows = {{"program", "processes"}};
  for (const std::string& d : designs) rows[0].push_back(d);
  rows[0].emplace_back("srq vs best");
  for (const auto& [key, by_design] : runs) {
    rows.push_back({key.first, fmt::format("{}", key.second)});
    double best = 0;
    for (const std::string& d : designs) {
      const double time = by_design.at(d).time;
      if (best == 0 || time < best) best = time;
      rows.back().push_back(print_mean_time(time));
    }
    rows.back().push_back(print_percent(change_percent(by_design.at("srq").time, best)));
  }
  return markdown_table(rows);
}

// E3: what the rings take is their number times their size.
std::string ring_table(const Runs& runs, double ring_bytes) {
  Rows rows = {{"program", "processes", "rings per process, mean", "rings x size (MB)",
                "ardma-srq minus srq (MB)", "residual"}};
  for (const auto& [key, by_design] : runs) {
    const Run &rings = by_design.at("ardma-srq"), &shared = by_design.at("srq");
    const double predicted = rings.mean_rings() * ring_bytes;
    const double measured = rings.mean_buffers() - shared.mean_buffers();
    rows.push_back({key.first, fmt::format("{}", key.second),
                    fmt::format("{:.1f}", rings.mean_rings()), megabytes(predicted),
                    megabytes(measured),
                    predicted > 0 ? print_percent(change_percent(measured, predicted)) : "-"});
  }
  return markdown_table(rows);
}

// Of a process: low-watermark events, growths of the queue, messages that found no receive.
std::vector<std::string> events_of(const Run& run) {
  std::vector<std::string> means;
  for (const std::uint64_t n :
       {run.receiving.limit_events, run.receiving.growths, run.receiving.rnr_naks}) {
    means.push_back(fmt::format("{:.2f}", run.mean(n)));
  }
  return means;
}

std::string event_table(const Runs& runs) {
  Rows rows = {{"program", "processes", "low-watermark events per process", "queue growths",
                "messages that found no receive"}};
  for (const auto& [key, by_design] : runs) {
    const Run& run = by_design.at("srq");
    rows.push_back({key.first, fmt::format("{}", key.second)});
    for (std::string& mean : events_of(run)) rows.back().push_back(std::move(mean));
  }
  return markdown_table(rows);
}

// The most memory of srq over all programs, by number of processes.
std::string flatness(const Runs& runs) {
  std::map<std::uint32_t, std::pair<double, double>> spread;
  for (const auto& [key, by_design] : runs) {
    const auto bytes = static_cast<double>(by_design.at("srq").receiving.largest);
    auto& [least, most] = spread.try_emplace(key.second, bytes, bytes).first->second;
    least = std::min(least, bytes);
    most = std::max(most, bytes);
  }
  Rows rows = {{"processes", "min (MB)", "max (MB)"}};
  for (const auto& [ranks, bytes] : spread) {
    rows.push_back({fmt::format("{}", ranks), megabytes(bytes.first), megabytes(bytes.second)});
  }
  return markdown_table(rows);
}

std::string ratio_table(const Runs& runs, const std::vector<std::string>& designs) {
  Rows rows = {{"program"}};
  for (const std::string& d : designs) {
    if (d != "srq") rows[0].push_back(d + " / srq");
  }
  for (const auto& [key, by_design] : runs) {
    if (key.second != kOfRatios) continue;
    rows.push_back({key.first});
    for (const std::string& d : designs) {
      if (d == "srq") continue;
      rows.back().push_back(
          fmt::format("{:.2f}", static_cast<double>(by_design.at(d).receiving.largest) /
                                    static_cast<double>(by_design.at("srq").receiving.largest)));
    }
  }
  return markdown_table(rows);
}

// E2 with the parameters that the paper tells.
std::string paper_ratios(const Runs& runs, Ratios* ratios) {
  Rows rows = {{"program", "peers", "srq (MB)", "ardma-srq (MB)", "ardma-sr (MB)",
                "rings of ardma-sr, mean", "ardma-srq / srq", "ardma-sr / srq", "paper",
                "residual"}};
  for (const auto& [program, paper] : kPaperRatios) {
    const auto& by_design = runs.at({std::string(program), kOfRatios});
    const double srq = by_design.at("srq").mean_buffers(),
                 srq_rings = by_design.at("ardma-srq").mean_buffers(),
                 own = by_design.at("ardma-sr").mean_buffers();
    (*ratios)[std::string(program)] = own / srq;
    rows.push_back({std::string(program), fmt::format("{}", by_design.at("srq").receiving.sources),
                    megabytes(srq), megabytes(srq_rings), megabytes(own),
                    fmt::format("{:.1f}", by_design.at("ardma-sr").mean_rings()),
                    fmt::format("{:.2f}", srq_rings / srq), fmt::format("{:.2f}", own / srq),
                    fmt::format("about {:.0f}", paper),
                    print_percent(change_percent(own / srq, paper))});
  }
  return markdown_table(rows);
}

// With those of MVAPICH's source, and what only MVAPICH has.
std::string source_ratios(const Runs& runs, Ratios* ratios) {
  Rows rows = {{"program", "peers", "srq (MB)", "ardma-sr (MB)", "ardma-sr / srq", "as MVAPICH",
                "with R3", "paper"}};
  for (const auto& [program, paper] : kPaperRatios) {
    const auto& by_design = runs.at({std::string(program), kOfRatios});
    const Run& own = by_design.at("ardma-sr");
    const double srq = by_design.at("srq").mean_buffers();
    const auto peers = static_cast<double>(own.receiving.sources);
    const double never = (kOfRatios - 1 - peers) * kSourceFirst * kSourceBytes;
    const double as_source = own.mean_buffers() - srq + never;
    const double with_r3 = as_source + peers * kSourceR3 * kSourceBytes;
    (*ratios)[std::string(program)] = as_source / srq;
    rows.push_back({std::string(program), fmt::format("{}", own.receiving.sources), megabytes(srq),
                    megabytes(own.mean_buffers()), fmt::format("{:.2f}", own.mean_buffers() / srq),
                    fmt::format("{:.2f}", as_source / srq), fmt::format("{:.2f}", with_r3 / srq),
                    fmt::format("about {:.0f}", paper)});
  }
  return markdown_table(rows);
}

// E5: the same messages in all, in bursts to everybody, and all of them to one.
std::string burst_table(const Runs& runs, std::vector<double>* flood) {
  Rows rows = {{"program", "processes", "messages per process", "low-watermark events per process",
                "queue growths", "messages that found no receive"}};
  for (const Burst& burst : kBursts) {
    for (const std::uint32_t ranks : kBurstSizes) {
      const Run& run = runs.at({std::string(burst.program), ranks}).at("srq");
      if (burst.program == "flood") flood->push_back(run.mean(run.receiving.limit_events));
      rows.push_back({std::string(burst.program), fmt::format("{}", ranks),
                      fmt::format("{}", burst.messages / ranks)});
      for (std::string& mean : events_of(run)) rows.back().push_back(std::move(mean));
    }
  }
  return markdown_table(rows);
}

// E6: 8 bytes to and fro.
std::string latency_table(const Runs& runs, double* slower) {
  Rows rows = {{"design", "channel", "time per message"}};
  std::map<std::string, double> latency;
  for (const char* design : kPaperDesigns) {
    const Run& run = runs.at({std::string(kPingPong), 2}).at(design);
    latency[design] = run.time / run.messages;
    rows.push_back(
        {design, run.receiving.rings > 0 ? "RC-RDMA" : "RC-SRQ", print_mean_time(latency[design])});
  }
  *slower = latency["srq"] - latency["ardma-srq"];
  return markdown_table(rows) +
         fmt::format("\n`srq` minus `ardma-srq`: {}; the paper: about 1 us.\n",
                     print_mean_time(*slower));
}

// The runs of the page.
struct All {
  Runs usual, paper, source, bursts, latency;
};

// The runs of a table that are to be made, and where they go.
class Asked {
 public:
  explicit Asked(const ExperimentOptions& options) : options_(options) {}
  void add(Runs* into, std::string_view program, const std::string& design, std::uint32_t ranks,
           const Setup& setup) {
    studies_.push_back(study_of(options_, program, design, ranks, setup));
    results_.push_back(&(*into)[{std::string(program), ranks}][design]);
  }
  Status make(const Runner& runner) {
    const Result<std::vector<Study>> made = results_of(studies_, options_, runner);
    if (!made) return made.status();
    for (std::size_t i = 0; i < results_.size(); ++i) {
      *results_[i] = run_of(made.value()[i].results.front());
    }
    return {};
  }

 private:
  const ExperimentOptions& options_;
  std::vector<StudyOptions> studies_;
  std::vector<Run*> results_;
};

Status make_runs(const ExperimentOptions& options, const std::vector<std::uint32_t>& sizes,
                 const std::vector<std::string>& designs, const Runner& runner, All* all) {
  Asked asked(options);
  for (const std::uint32_t ranks : sizes) {
    for (const std::string_view program : kPrograms) {
      for (const std::string& design : designs) {
        asked.add(&all->usual, program, design, ranks, usual_setup(ranks));
      }
    }
  }
  for (const auto& [program, paper] : kPaperRatios) {
    for (const char* const design : kPaperDesigns) {
      asked.add(&all->paper, program, design, kOfRatios, paper_setup());
    }
    for (const char* const design : {"srq", "ardma-sr"}) {
      asked.add(&all->source, program, design, kOfRatios, source_setup());
    }
  }
  for (const Burst& burst : kBursts) {
    for (const std::uint32_t ranks : kBurstSizes) {
      asked.add(&all->bursts, burst.program, "srq", ranks, burst_setup(burst, ranks));
    }
  }
  const Setup to_and_fro = {{{"rounds", "100000"}, {"bytes", "8"}},
                            {{"ring_threshold", std::string(kRingThreshold)}}};
  for (const char* const design : kPaperDesigns) {
    asked.add(&all->latency, kPingPong, design, 2, to_and_fro);
  }
  return asked.make(runner);
}

Result<ExperimentResult> run(const ExperimentOptions& options, const Runner& runner) {
  const std::vector<std::string> usual = {"srq", "ardma-srq", "ardma-sr", "turnout"};
  const Result<std::vector<std::string>> designs = policies_of(options.policies, usual);
  if (!designs) return designs.status();
  const std::vector<std::uint32_t> sizes = sizes_of(options, {16, 64, 256});
  All all;
  if (Status made = make_runs(options, sizes, designs.value(), runner, &all); !made.ok()) {
    return made;
  }
  const Runs& runs = all.usual;
  Measured measured;
  const std::string ratios = paper_ratios(all.paper, &measured.paper);
  const std::string of_source = source_ratios(all.source, &measured.source);
  const std::string bursts = burst_table(all.bursts, &measured.flood);
  const std::string latencies = latency_table(all.latency, &measured.slower);
  const Settings defaults = Settings::defaults();
  const auto ring_bytes = static_cast<double>(defaults.ring_entries * defaults.ring_entry_size);
  std::string page = fmt::format(
      "# eager\n\nReceive-buffer memory by design [SC'06]: a shared receive queue only (`srq`), "
      "the same with rings for\nfrequent peers (`ardma-srq`), private receive queues with rings "
      "(`ardma-sr`), and the policy `turnout`.\nNAS-like skeletons, class B, ten iterations (with "
      "{} or more processes: {}).\n\n{}\n",
      kMany, kRoundsOfMany, provenance(options.profile));
  page += fmt::format("## Against the paper\n\n{}\n",
                      claims_table(claims_of(runs, measured, ring_bytes)));
  page += fmt::format(
      "## Receive buffers and rings of the largest process (MB)\n\n*All memory* is everything in "
      "Turnout's memory account, mostly queue pairs, which the paper does not report.\n\n{}\n",
      memory_table(runs, designs.value()));
  page += fmt::format(
      "## E1 and E4: srq over all programs\n\nThe paper: below 5 MB, and nearly independent of the "
      "number of processes.\n\n{}\n",
      flatness(runs));
  page += fmt::format(
      "## E2: relative to srq, {} processes\n\nThe paper: `ardma-sr` takes about 10 times the "
      "memory of `srq` for IS, FT, BT and SP, and twice for LU, MG\nand CG. The numbers are means "
      "per process, with the paper's parameters where it gives them: a ring of {}\nentries of {} "
      "(the paper: 500 KB per RDMA connection), 3 receives per connection at first and 64 later, "
      "all\nof {}, and a shared queue of {} (the paper: below 5 MB). The thresholds are Turnout's "
      "defaults, since the\npaper does not give its own. Each run has {} iterations with {} of "
      "computation each.\n\n{}\n",
      kOfRatios, kPaperEntries, kPaperEntry, kPaperEntry, kPaperReceives, kPaperRounds,
      kPaperCompute, ratios);
  page += kOfE2;
  page += fmt::format("\n{}\n{}\n{}", kOfSource, of_source, kOfRest);
  page +=
      fmt::format("\nThe largest process with Turnout's default sizes, which are smaller:\n\n{}\n",
                  ratio_table(runs, designs.value()));
  page += fmt::format("## E3: ring memory\n\nA ring is {} bytes here, 500 KB in the paper.\n\n{}\n",
                      ring_bytes, ring_table(runs, ring_bytes));
  page += fmt::format(
      "## E5: low-watermark events under srq\n\nThe paper, for SuperLU with garon2: events become "
      "fewer as the number of processes grows (1.56, 0.06 and\n0.12 per process at 16, 32 and 64). "
      "The skeletons never drain the queue to the watermark:\n\n{}\nNeither does `random`, where "
      "each process sends to 15 others as fast as it can and receives meanwhile.\n`flood` does: "
      "all processes send to one that computes and polls every 100 us. The total number of "
      "messages\nis the same at every size. Credits are not limited by the shared queue, as in the "
      "paper\n(`break_rule=lend-freely`, `credits` = `credits_first` = 128, "
      "`receive_buffers=4096`).\n\n{}\n",
      event_table(runs), bursts);
  page += kOfE5;
  page += fmt::format(
      "\n## E6: latency cost of the shared queue\n\nPing-pong of 8 bytes between two "
      "processes.\n\n{}\n",
      latencies);
  page += kOfE6;
  page += fmt::format("\n## Time\n\n{}\n", time_table(runs, designs.value()));
  page += how_it_was_run("eager", options, options.options, options.settings);
  page +=
      "Every process may connect to all its peers (`max_active_rc`, `max_channels`, `rc_pool` = "
      "the number of\nprocesses), and the budget refuses nothing. Outside E2, E5 and E6 a peer "
      "gets a ring after 8 messages over\nRC (`ring_threshold`): the paper does not give its "
      "threshold, and ten iterations of IS send twenty to thirty\nmessages per peer.\n";
  return ExperimentResult{std::move(page), {}};
}

}  // namespace

Experiment eager_experiment() {
  return {"eager", "SC'06: receive buffers by design on NAS-like skeletons (claims E1 to E6)", run};
}

}  // namespace turnout::sim
