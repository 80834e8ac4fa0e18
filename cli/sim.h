// SPDX-License-Identifier: BSD-3-Clause
// `turnout sim`: workloads and experiments on the virtual clock.
//
// add_sim() declares the options; run_sim() does what they ask and returns the exit code: 0, or 1
// with the reason on standard error.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace turnout::cli {

struct SimOptions {
  std::string workload;
  std::optional<std::uint32_t> ranks;  // not given: 64, of a replay the trace's
  std::uint32_t ranks_per_node = 1;
  std::string policies;
  std::string profile;  // empty: the experiment's, else connect-ib
  std::uint64_t seed = 1;
  std::string trace;  // to replay
  std::vector<std::string> settings, options;
  std::string json, csv, timeline;
  std::string experiment, folder = ".", sizes, seeds;
  std::string save, experiment_workloads, budgets;
  std::string commit;
  std::string limits;
  std::uint32_t jobs = 1;
  std::string time_limit;
  std::string show_profile;
  bool list = false, profiles_page = false, no_check = false;
};

CLI::App* add_sim(CLI::App& app, SimOptions* options);
int run_sim(const SimOptions& options);

// What there is: workloads with their options, experiments, policies, profiles.
[[nodiscard]] std::string sim_list();

// One line on a terminal, drawn anew at most ten times a second; elsewhere a line after ten seconds
// and then every minute.
class Progress {
 public:
  Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // clears the line
  void show(const std::string& what, std::uint32_t ended, std::uint32_t ranks,
            std::int64_t picoseconds, std::uint64_t events);
  void say(const std::string& what);  // on a terminal, until show()
  void clear();

 private:
  bool terminal_;
  bool drawn_ = false;
  std::int64_t last_ = 0;  // ns of the steady clock
  std::string last_what_;
  std::int64_t began_ = 0;  // the run under way
};

}  // namespace turnout::cli
