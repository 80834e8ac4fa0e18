// SPDX-License-Identifier: BSD-3-Clause
// Experiment: a figure of a paper, reproduced on the model, with the paper's number beside ours.
//
// An experiment gives a page (Markdown) and the data of its plots; write_experiment() makes
// NAME.md and, of an experiment with plots, NAME.json and, where Python has matplotlib, NAME.svg.
// What this build cannot run is said to be missing on the page. sim/experiments/sentinels.h says
// how a page is kept true. One thread. Errors: those of run_study() and of files.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "sim/experiments/scenarios.h"
#include "sim/study/study.h"

namespace turnout::sim {

struct Sentinels;

// tools/plot.py draws it; a series has the colour and marker of its name up to the first comma.
struct Plot {
  // lines: curves. bars: horizontal, a point is (length, row). dots: a point is (value, row); those
  // of a series in one row are joined, and an infinite value is marked as a failed run.
  enum class Kind { lines, bars, dots };
  struct Series {
    std::string name;
    std::vector<std::pair<double, double>> points;
    bool from_paper = false;  // drawn dashed
  };
  struct Limit {  // a line across the bars
    double at = 0;
    std::string text;
  };
  struct Bracket {  // of lines: a difference at one x, in the colour of a series
    std::string series;
    double from = 0, to = 0;
    std::string text;
  };
  std::string title, x_label, y_label;
  bool x_log = false, y_log = false;
  std::vector<Series> series;
  Kind kind = Kind::lines;
  std::vector<std::string> rows{};  // names of bars and dots, the first on top
  std::vector<Limit> limits{};
  std::vector<Bracket> brackets{};
  // How values are written: "B": bytes, in KiB and so on; "KB": the AQPS paper's kilobytes; empty:
  // as they are.
  std::string unit{};
};

struct ExperimentOptions {
  ProfileFile profile;
  std::uint64_t seed = 1;
  std::vector<std::uint32_t> sizes;  // ranks; empty: the paper's
  // Of an experiment that repeats: each run with so many from `seed` on, for each of the sizes, the
  // last for those behind it; empty: one.
  std::vector<std::uint32_t> seeds;
  std::vector<std::string> policies;  // empty: the paper's, as far as this build has them
  NamedValues options;                // of the workload, over the experiment's own
  NamedValues settings;               // of Turnout, over the experiment's own
  std::string costs;                  // file for the policy `turnout` alone; empty: built-in ones
  // Of an experiment with several, the part that is wanted; empty: all. Workloads by title or name.
  std::vector<std::string> workloads, budgets;
  std::vector<Scenario> recordings;   // of programs, in place of the workloads
  const KeptResults* kept = nullptr;  // where results are read from and kept; null: nowhere
  std::uint32_t jobs = 1;             // runs at one time; more than one needs `kept`
  // Told of each run that ended, in a line; may be empty.
  std::function<void(const std::string& line)> told;
  // Told of each run: what runs, and as in Options::progress.
  std::function<void(const std::string& what, std::uint32_t ranks, std::uint32_t ended,
                     Picoseconds now, std::uint64_t events)>
      progress;
  // Of each study: StudyOptions::ended.
  std::function<void(const StudyOptions& study, const PolicyResult& result)> ended;
};

struct ExperimentResult {
  std::string page;  // Markdown; "{plot}" stands where the plot's picture belongs
  std::vector<Plot> plots;
};

struct Experiment {
  std::string_view name;
  std::string_view help;
  Result<ExperimentResult> (*run)(const ExperimentOptions& options, const Runner& runner) = nullptr;
  bool several = false;           // workloads and budgets: takes those of the options
  bool repeats = false;           // its runs with several seeds
  std::string_view profile = {};  // the paper's adapter; empty: the usual one
};

// The experiments of the files, in their names' order.
[[nodiscard]] std::vector<Experiment> latency_experiments();  // AQPS figures 10 to 12
[[nodiscard]] Experiment memory_experiment();                 // AQPS figure 8: aqps-memory
[[nodiscard]] Experiment budget_experiment();       // onetoall within 32 MB for each process
[[nodiscard]] Experiment clairvoyant_experiment();  // all policies against the best maps found
[[nodiscard]] Experiment comparison_experiment();   // policies: all of them on many workloads
[[nodiscard]] Experiment eager_experiment();        // receive buffers by design
[[nodiscard]] Experiment node_experiment();         // one connection for all processes of a node
[[nodiscard]] Experiment rendezvous_experiment();   // the ways of large messages
[[nodiscard]] Experiment teardown_experiment();     // connections that give their places to others
[[nodiscard]] Experiment validation_experiment();   // published figures, predicted

// Sorted by name.
[[nodiscard]] std::span<const Experiment> experiments();
// Errors: invalid, with the nearest name.
[[nodiscard]] Result<const Experiment*> find_experiment(std::string_view name);

[[nodiscard]] std::string to_json(std::span<const Plot> plots);

// Runs tools/plot.py, waits for it and writes an SVG. `script` is its path, empty: it is not there;
// `data` a file of its format. Any thread. Errors: unsupported if Python or matplotlib is missing,
// with the remedy; system if the script failed, with its messages on standard error.
[[nodiscard]] Status draw(const std::string& script, const std::string& data,
                          const std::string& picture);

struct Written {
  std::vector<std::string> files;
  std::string plot_skipped;  // why there is no picture; empty: there is
};
// Makes the folder. `plot_script` is tools/plot.py, empty: no picture. `sentinels`: written beside
// the page, and told of at its end; null: not.
[[nodiscard]] Result<Written> write_experiment(const std::string& folder, std::string_view name,
                                               const ExperimentResult& result,
                                               const std::string& plot_script,
                                               const Sentinels* sentinels = nullptr);

}  // namespace turnout::sim
