// SPDX-License-Identifier: BSD-3-Clause
// `turnout plot`: plots recordings, traces and reports. Prints to standard output, errors to
// standard error, and returns the process's exit code.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace turnout::cli {

struct PlotSourcesOptions {
  std::vector<std::string> paths;  // recordings, traces or reports, or folders of them
  int rank = 0;
  bool rank_given = false;
  std::uint32_t periods = 100, groups = 100;
  std::string axis;  // empty: the usual one
  std::string title;
  std::string picture = "sources.svg";
  std::string data;  // also keep the data here
};

// The options of the subcommand, which are to live as long as `app`; gives `plot sources`.
CLI::App* add_plot(CLI::App& app, PlotSourcesOptions* options);
int plot_sources(const PlotSourcesOptions& options);

}  // namespace turnout::cli
