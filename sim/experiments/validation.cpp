// SPDX-License-Identifier: BSD-3-Clause
// validation: figures that others have published and that no profile was fitted to, predicted by
// the model. At the verbs level where the figure is, by the messaging core where it is MPI's.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "sim/calibration/verbs_bench.h"
#include "sim/experiments/page.h"
#include "sim/experiments/published.h"
#include "sim/workloads/window.h"

namespace turnout::sim {
namespace {

constexpr std::uint64_t kTag = 1, kAckTag = 2;
constexpr std::uint32_t kWarmup = 200, kTrips = 1000;  // of a ping-pong
constexpr std::uint32_t kWindow = 64;                  // osu_mbw_mr's
constexpr std::uint32_t kWarmupWindows = 4, kWindows = 20;
constexpr std::uint32_t kProcesses = 64;  // of the collectives: the source does not say how many
constexpr Picoseconds kLongest = 1000 * hca::kSecond;
// A direct cable of half a metre in place of a switch: 5 ns a metre.
constexpr Picoseconds kCable = 2'500;

// Verdicts: the residual of a time, rate or bandwidth in percent of the published value, that of a
// difference in percentage points.
constexpr double kMet = 10, kNear = 25;
constexpr double kMetPoints = 5, kNearPoints = 10;

Task ping_pong(Rank rank, std::uint64_t bytes, SharedPhases phases) {
  for (std::uint32_t i = 0; i < kWarmup + kTrips; ++i) {
    if (rank.id() == 0) {
      if (i == 0) phases->begin("warmup", rank.now());
      if (i == kWarmup) {
        phases->end(rank.now(), 0);
        phases->begin("ping-pong", rank.now());
      }
      co_await rank.send(1, bytes, kTag);
    }
    co_await rank.recv(1 - rank.id(), bytes, kTag);
    if (rank.id() == 1) co_await rank.send(0, bytes, kTag);
  }
  if (rank.id() == 0) phases->end(rank.now(), 2 * std::uint64_t{kTrips});
}

// Ranks below `pairs` send windows of messages to the others; each window is acknowledged.
Task windows(Rank rank, std::uint32_t pairs, std::uint64_t bytes, SharedPhases phases) {
  const bool sends = rank.id() < pairs;
  const std::uint32_t peer = sends ? rank.id() + pairs : rank.id() - pairs;
  for (std::uint32_t i = 0; i < kWarmupWindows + kWindows; ++i) {
    if (i == 0 && rank.id() == 0) phases->begin("warmup", rank.now());
    if (i == kWarmupWindows) {
      co_await rank.barrier();
      if (rank.id() == 0) {
        phases->end(rank.now(), 0);
        phases->begin("windows", rank.now());
      }
    }
    Window requests(kWindow);
    while (!requests.full()) {
      const Request one =
          sends ? co_await rank.isend(peer, bytes, kTag) : co_await rank.irecv(peer, bytes, kTag);
      requests.push(one);
    }
    while (!requests.empty()) co_await rank.wait(requests.pop());
    if (sends) {
      co_await rank.recv(peer, 4, kAckTag);
    } else {
      co_await rank.send(peer, 4, kAckTag);
    }
  }
  co_await rank.barrier();
  if (rank.id() == 0) phases->end(rank.now(), std::uint64_t{kWindows} * kWindow * pairs);
}

class Predictor {
 public:
  Predictor(const ExperimentOptions& options, const Runner& runner)
      : options_(options), runner_(runner) {}

  Result<double> predict(const Figure& figure) {
    const Result<ProfileFile> file = find_profile(std::string(figure.profile));
    if (!file) return file.status();
    options_.profile = file.value();
    hca::Profile p = options_.profile.profile;
    if (figure.cable) p.wire_hop = kCable;
    switch (figure.benchmark) {
      case Benchmark::send_rc:
        return us(send_latency(p, VerbsTransport::rc, figure.bytes, figure.inlined));
      case Benchmark::send_ud:
        return us(send_latency(p, VerbsTransport::ud, figure.bytes, figure.inlined));
      case Benchmark::write:
        return us(write_latency(p, figure.bytes, figure.inlined));
      case Benchmark::read:
        return us(read_latency(p, figure.bytes));
      case Benchmark::write_rate:
        return rate(p, figure.bytes);
      case Benchmark::dc_switch:
        return dc_switch(p);
      case Benchmark::mpi_latency:
        return mpi_latency(figure.bytes);
      case Benchmark::mpi_bandwidth:
        return mpi_bandwidth(figure.bytes);
      case Benchmark::one_to_all:
        return difference("onetoall", {{"messages", "64000"}, {"warmup", "128000"}}, figure);
      case Benchmark::all_to_one:
        return difference("alltoone", {{"messages", "12600"}, {"warmup", "12600"}}, figure);
      case Benchmark::all_to_all:
        return difference("alltoall", {{"rounds", "20"}, {"warmup", "100"}}, figure);
      case Benchmark::crossing:
        return crossing();
    }
    return Status{Code::internal, "unknown benchmark"};
  }

 private:
  static Result<double> us(const Result<double>& ns) {
    if (!ns) return ns;
    return ns.value() / 1e3;
  }
  static Result<double> rate(const hca::Profile& profile, std::uint32_t bytes) {
    WriteStreams streams;
    streams.bytes = bytes;
    const Result<std::vector<double>> times = write_times(profile, streams);
    if (!times) return times.status();
    return 1e3 / times.value().back();
  }
  static Result<double> dc_switch(const hca::Profile& profile) {
    const Result<double> two = dc_read_latency(profile, 2);
    if (!two) return two;
    const Result<double> one = dc_read_latency(profile, 1);
    if (!one) return one;
    return (two.value() - one.value()) / 1e3;
  }

  // Time of one message, ns.
  Result<double> each(StudyOptions study) {
    study.check_content = false;
    study.time_limit = kLongest;
    const Result<Study> result = run_study(study, runner_);
    if (!result) return result.status();
    const Timed timed = timed_phases(result.value().results.front());
    return timed.time / static_cast<double>(hca::kNanosecond) / timed.messages;
  }

  StudyOptions between_nodes(const std::string& what, std::uint32_t per_node,
                             std::function<Task(Rank, SharedPhases)> program) {
    StudyOptions study = begin_study(options_, 2 * per_node, what);
    study.place.ranks_per_node = per_node;
    study.workload = what;
    study.make = [program = std::move(program)](const Place&) -> Result<Instance> {
      const auto phases = std::make_shared<Phases>();
      return Instance{[program, phases](Rank rank) { return program(rank, phases); }, phases};
    };
    // As UCX: messages over RC into a shared receive queue.
    study.policies = {"srq"};
    study.settings = overlaid({{"setup_thread", "0"}}, options_.settings);
    study.kept = nullptr;
    return study;
  }
  Result<double> mpi_latency(std::uint64_t bytes) {
    return us(each(between_nodes("ping-pong", 1, [bytes](Rank rank, SharedPhases p) {
      return ping_pong(rank, bytes, std::move(p));
    })));
  }
  // Of two pairs, GB/s.
  Result<double> mpi_bandwidth(std::uint64_t bytes) {
    constexpr std::uint32_t kPairs = 2;
    const Result<double> ns =
        each(between_nodes("windows", kPairs, [bytes](Rank rank, SharedPhases p) {
          return windows(rank, kPairs, bytes, std::move(p));
        }));
    if (!ns) return ns;
    return static_cast<double>(bytes) / ns.value();
  }

  Result<double> each_under(const std::string& workload, const NamedValues& options,
                            const std::string& policy, std::uint32_t ranks) {
    StudyOptions study = begin_study(options_, ranks, workload);
    study.workload = workload;
    study.options = options;
    study.policies = {policy};
    study.settings = overlaid(room_for_all(ranks), options_.settings);
    // Connections stand before the warm-up ends: they are made one after the other.
    study.settings = overlaid({{"memory_budget", "4GiB"}, {"setup_thread", "0"}}, study.settings);
    return each(std::move(study));
  }
  // By how much DC is below (-) or above another transport, percent.
  Result<double> difference(const std::string& workload, NamedValues options,
                            const Figure& figure) {
    options.emplace_back("bytes", fmt::format("{}", figure.bytes));
    const Result<double> dc = each_under(workload, options, "dc-rdma-od", kProcesses);
    if (!dc) return dc;
    const Result<double> other =
        each_under(workload, options, std::string(figure.against), kProcesses);
    if (!other) return other;
    return change_percent(dc.value(), other.value());
  }
  // The fewest peers of those tried with which DC takes no longer than RC; infinite: none.
  Result<double> crossing() {
    for (const std::uint32_t ranks : {33U, 65U, 129U, 193U, 257U}) {
      const NamedValues options = {{"messages", fmt::format("{}", 200 * ranks)},
                                   {"warmup", fmt::format("{}", 2000 * ranks)},
                                   {"bytes", "8"}};
      const Result<double> dc = each_under("onetoall", options, "dc-rdma-od", ranks);
      if (!dc) return dc;
      const Result<double> rc = each_under("onetoall", options, "rc-rdma-od", ranks);
      if (!rc) return rc;
      if (dc.value() <= rc.value()) return static_cast<double>(ranks - 1);
    }
    return HUGE_VAL;
  }

  ExperimentOptions options_;
  const Runner& runner_;
};

struct Judged {
  std::string published, modelled, residual;
  std::string_view verdict;
};

std::string_view verdict_of(double residual, double met, double close) {
  const double size = std::abs(residual);
  return size <= met ? "met" : size <= close ? "near" : "missed";
}

Judged judge(const Figure& figure, double ours) {
  if (figure.unit == "%") {
    const double points = ours - figure.published;
    return {print_percent(figure.published), print_percent(ours),
            fmt::format("{:+.1f} points", points), verdict_of(points, kMetPoints, kNearPoints)};
  }
  const auto print = [&](double value) {
    return std::isinf(value) ? std::string("none") : fmt::format("{:.4g} {}", value, figure.unit);
  };
  const std::string residual =
      std::isinf(ours) ? "-" : print_percent(change_percent(ours, figure.published));
  if (figure.bound) {
    return {fmt::format("below {}", print(figure.published)), print(ours), residual,
            ours < figure.published ? "met" : "missed"};
  }
  return {print(figure.published), print(ours), residual,
          std::isinf(ours) ? "missed"
                           : verdict_of(change_percent(ours, figure.published), kMet, kNear)};
}

Result<ExperimentResult> run(const ExperimentOptions& options, const Runner& runner) {
  std::string sections;
  std::array<std::size_t, 3> count{};
  Predictor predictor(options, runner);
  for (const Source& source : published_sources()) {
    Rows table = {{"figure", "profile", "published", "modelled", "residual", "verdict"}};
    for (const Figure& figure : source.figures) {
      const Result<double> ours = predictor.predict(figure);
      if (!ours) return ours.status();
      const Judged j = judge(figure, ours.value());
      table.push_back({std::string(figure.what), fmt::format("`{}`", figure.profile), j.published,
                       j.modelled, j.residual, std::string(j.verdict)});
      ++count[j.verdict == "met" ? 0 : j.verdict == "near" ? 1 : 2];
    }
    sections += fmt::format(
        "## {}\n\n[{}]({})\n\nAdapter: {}\n\n{}\n- Predicted by: {}\n- Depends on: {}\n- Held out: "
        "{}\n- Cause of the residuals: {}\n\n",
        source.title, source.what, source.address, source.adapter, markdown_table(table),
        source.method, source.parameters, source.held_out, source.cause);
  }
  std::string page = fmt::format(
      "# validation\n\nFigures that others have published, beside what the model predicts. No "
      "profile was fitted to any of them, and\nno value was changed after the comparison. The "
      "predictions are **modelled**, with seed {}.\n\nOf {} figures {} are met, {} are near and {} "
      "are missed. Met: the residual is at most {:.0f} % of the published\nvalue, or {:.0f} "
      "percentage points where a difference in percent is published. Near: at most {:.0f} %, or "
      "{:.0f} points.\n\n",
      options.seed, count[0] + count[1] + count[2], count[0], count[1], count[2], kMet, kMetPoints,
      kNear, kNearPoints);
  page += sections;
  page += fmt::format("## Not compared\n\n{}\n", kNotCompared);
  page += how_it_was_run("validation", options, options.options, options.settings,
                         "The profiles are those of the tables.\n\n");
  return ExperimentResult{std::move(page), {}};
}

}  // namespace

Experiment validation_experiment() {
  return {"validation", "published figures that no profile was fitted to, predicted", run};
}

}  // namespace turnout::sim
