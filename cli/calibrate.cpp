// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "cli/calibrate_live.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/sim_progress.h"
#include "core/verbs/device.h"
#include "sim/calibration/calibration.h"
#include "sim/runtime/simulation.h"
#include "sim/study/result_writer.h"

namespace turnout::cli {
namespace {

struct CalibrateOptions {
  std::string device, profile, default_transport, output;
  std::uint32_t rounds = 9;
  std::uint32_t most_queue_pairs = 16384;
  std::uint64_t seed = 1;
};

Result<selection::CostsFile> on_profile(const CalibrateOptions& o) {
  Result<sim::ProfileFile> profile = sim::find_profile(o.profile);
  if (!profile) return profile.status();
  sim::CalibrationOptions options;
  options.most_queue_pairs = o.most_queue_pairs;
  options.profile = std::move(profile).value();
  options.seed = o.seed;
  options.datagrams = o.default_transport == "ud";
  options.rounds = o.rounds;
  Progress progress;
  options.progress = [&](const std::string& benchmark) { progress.show(benchmark, 0, 1, 0, 0); };
  return sim::calibrate(options, sim::run);
}

Result<selection::CostsFile> on_device(const CalibrateOptions& o) {
  Result<Settings> settings = Settings::load();
  if (!settings) return settings.status();
  if (!o.device.empty()) {
    if (Status s = settings->set("device", o.device); !s.ok()) return s;
  }
  if (!o.default_transport.empty()) {
    if (Status s = settings->set("default_transport", o.default_transport); !s.ok()) return s;
  }
  // The endpoints log a failure to open the device, so report it before there are any.
  if (auto opened = verbs::Device::open(settings.value()); !opened) return opened.status();
  std::string device;
  Result<selection::Measurements> measured = measure_live(settings.value(), o.rounds, &device);
  if (!measured) return measured.status();
  return selection::costs_of(
      measured.value(), device,
      fmt::format("measured by turnout calibrate on {}, endpoints of one process", device));
}

int run_calibrate(const CalibrateOptions& o) {
  const Result<selection::CostsFile> costs = o.profile.empty() ? on_device(o) : on_profile(o);
  if (!costs) return complain("turnout calibrate", costs.status());
  const std::string text = selection::print_costs(costs.value());
  if (o.output.empty()) {
    fmt::print("{}", text);
    return 0;
  }
  if (Status s = sim::write_text_file(o.output, text); !s.ok())
    return complain("turnout calibrate", s);
  fmt::print("{}\n", o.output);
  return 0;
}

}  // namespace

void add_calibrate(CLI::App& app) {
  const auto [calibrate, o] = add_command<CalibrateOptions>(
      app, "calibrate", "measure an adapter's costs for TURNOUT_COSTS", run_calibrate);
  calibrate->add_option("-d,--device", o->device, "adapter, as in TURNOUT_DEVICE");
  calibrate
      ->add_option("--profile", o->profile, "modelled adapter to measure instead, in virtual time")
      ->excludes("--device");
  calibrate
      ->add_option("--default-transport", o->default_transport,
                   "as in TURNOUT_DEFAULT_TRANSPORT; ud: as on a device without DC")
      ->check(CLI::IsMember({"auto", "dc", "ud"}));
  calibrate->add_option("-o,--output", o->output, "output file (default: standard output)");
  calibrate->add_option("-n,--rounds", o->rounds, "rounds per benchmark")
      ->capture_default_str()
      ->check(CLI::Range(3, 1000));
  calibrate
      ->add_option("--most-queue-pairs", o->most_queue_pairs,
                   "with --profile: largest number of queue pairs to try when measuring the "
                   "adapter's QP context caches")
      ->capture_default_str()
      ->check(CLI::Range(8, 65536));
  calibrate->add_option("--seed", o->seed, "with --profile: random seed")->capture_default_str();
}

}  // namespace turnout::cli
