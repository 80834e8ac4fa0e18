// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/value.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/sim_files.h"
#include "sim/analysis/sources.h"
#include "sim/experiments/experiment.h"
#include "sim/formats/recording.h"
#include "sim/formats/trace.h"
#include "sim/study/result_writer.h"

namespace turnout::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxReport = std::uintmax_t{64} << 20;

struct PlotSourcesOptions {
  std::vector<std::string> paths;  // recordings, traces or reports, or folders of them
  int rank = 0;
  const CLI::Option* rank_given = nullptr;
  std::uint32_t periods = 100, groups = 100;
  std::string axis;  // empty: the usual one
  std::string title;
  std::string picture = "sources.svg";
  std::string data;  // also keep the data here
};

int fail(const Status& status) {
  return complain("turnout plot", status);
}

// The files given, folders opened, by what they are.
struct Inputs {
  std::vector<std::string> recordings, reports, traces;
};

void add(const fs::path& path, Inputs* inputs) {
  const std::string extension = path.extension().string();
  auto& list = extension == ".recording" ? inputs->recordings
               : extension == ".json"    ? inputs->reports
                                         : inputs->traces;
  list.push_back(path.string());
}

Status add_folder(const fs::path& folder, Inputs* inputs) {
  std::error_code error;
  Inputs found;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with('.') || !(name.ends_with(".recording") || name.ends_with(".json"))) {
      continue;
    }
    add(at->path(), &found);
  }
  if (error) {
    return {Code::system,
            fmt::format("reading a folder failed: {}: {}", folder.string(), error.message()),
            error.value()};
  }
  if (found.recordings.empty() && found.reports.empty()) {
    return invalid("{}: no recordings (TURNOUT_TRACE={}/) or reports (TURNOUT_REPORT={}) found",
                   folder.string(), folder.string(), folder.string());
  }
  // A folder that both were written to: recordings tell more.
  auto& from = found.recordings.empty() ? found.reports : found.recordings;
  auto& to = found.recordings.empty() ? inputs->reports : inputs->recordings;
  to.insert(to.end(), from.begin(), from.end());
  return {};
}

Result<Inputs> sort_out(const std::vector<std::string>& paths) {
  Inputs inputs;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::exists(path, error)) {
      return invalid("opening failed: {}: {}", path, error ? error.message() : "no such file");
    }
    if (!fs::is_directory(path, error)) {
      add(path, &inputs);
    } else if (Status s = add_folder(path, &inputs); !s.ok()) {
      return s;
    }
  }
  const int kinds =
      int{!inputs.recordings.empty()} + int{!inputs.reports.empty()} + int{!inputs.traces.empty()};
  if (kinds != 1 || inputs.traces.size() > 1) {
    return invalid("expected recordings of one job, reports of one job, or one trace");
  }
  return inputs;
}

Result<EndpointReport> read_report(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    return invalid("reading a report failed: {}: not a regular file", path);
  if (fs::file_size(path, error) > kMaxReport)
    return invalid("reading a report failed: {}: larger than {}", path,
                   value::human_bytes(kMaxReport));
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file)
    return invalid("reading a report failed: {}: {}", path, std::generic_category().message(errno));
  Result<EndpointReport> report = report_from_json(text);
  if (!report) return invalid("reading a report failed: {}: {}", path, report.status().text());
  return report;
}

Result<sim::Arrivals> read_arrivals(const PlotSourcesOptions& o) {
  Result<Inputs> inputs = sort_out(o.paths);
  if (!inputs) return inputs.status();
  if (!inputs->reports.empty()) {
    std::vector<EndpointReport> reports;
    for (const std::string& path : inputs->reports) {
      Result<EndpointReport> report = read_report(path);
      if (!report) return report.status();
      reports.push_back(std::move(report).value());
    }
    const bool only = reports.size() == 1 && o.rank_given->count() == 0;
    return sim::arrivals_of_reports(reports, only ? -1 : o.rank);
  }
  const Result<sim::Trace> trace = inputs->traces.empty()
                                       ? sim::read_recordings(inputs->recordings, "recordings")
                                       : sim::open_trace(inputs->traces[0]);
  if (!trace) return trace.status();
  const auto rank = static_cast<std::uint32_t>(o.rank);
  const sim::TraceAxis axis = o.axis == "time"        ? sim::TraceAxis::time
                              : o.axis == "events"    ? sim::TraceAxis::events
                              : o.axis == "computing" ? sim::TraceAxis::computing
                                                      : sim::usual_axis(trace.value(), rank);
  return sim::arrivals_of_trace(trace.value(), rank, axis);
}

int plot_sources(const PlotSourcesOptions& o) {
  const Result<sim::Arrivals> arrivals = read_arrivals(o);
  if (!arrivals) return fail(arrivals.status());
  const Result<sim::SourceGrid> grid = sim::SourceGrid::make(arrivals.value(), o.periods, o.groups);
  if (!grid) return fail(grid.status());
  const std::string title =
      o.title.empty() ? fmt::format("Who sends to rank {}, and how much over time", o.rank)
                      : o.title;
  // Where the data lie while the picture is made: where they were asked for, or beside the picture.
  const TemporaryFile beside(
      o.data.empty() ? new std::string(fmt::format("{}.{}.json", o.picture, ::getpid())) : nullptr);
  const std::string& data = beside ? *beside : o.data;
  if (Status s =
          sim::write_text_file(data, sim::to_plot_json(grid.value(), arrivals.value(), title));
      !s.ok()) {
    return fail(s);
  }
  fmt::print("{:.0f} messages of {} sources in {} periods and {} groups\n", grid.value().total(),
             arrivals.value().sources, grid.value().periods(), grid.value().groups());
  if (!o.data.empty()) fmt::print("{}\n", o.data);
  if (Status s = sim::draw(plot_script(), data, o.picture); !s.ok()) return fail(s);
  fmt::print("{}\n", o.picture);
  return 0;
}

}  // namespace

void add_plot(CLI::App& app) {
  auto* const plot = app.add_subcommand("plot", "plot recordings, traces and reports");
  plot->require_subcommand(1);
  const auto [sources, o] = add_command<PlotSourcesOptions>(
      *plot, "sources", "plot who sends to a rank over time", plot_sources);
  sources
      ->add_option("path", o->paths,
                   "recordings (TURNOUT_TRACE) or reports (TURNOUT_REPORT) of a job, or their "
                   "folder; or a trace, a GOAL schedule (*.goal) or an OTF2 archive (*.otf2)")
      ->required();
  o->rank_given = sources->add_option("-r,--rank", o->rank, "receiving rank")
                      ->capture_default_str()
                      ->check(CLI::NonNegativeNumber);
  const auto cells = CLI::Range(1U, sim::SourceGrid::kMostCells);
  sources->add_option("--periods", o->periods, "columns")->capture_default_str()->check(cells);
  sources->add_option("--groups", o->groups, "maximum number of rows")
      ->capture_default_str()
      ->check(cells);
  sources
      ->add_option("--axis", o->axis,
                   "time axis of recordings and traces: time (default if available), events (the "
                   "rank's events in order) or computing (processor time outside communication)")
      ->check(CLI::IsMember({"time", "events", "computing"}));
  sources->add_option("--title", o->title, "title of the plot");
  sources->add_option("-o,--output", o->picture, "output file, SVG")->capture_default_str();
  sources->add_option("--json", o->data, "save the data of the plot in this file");
}

}  // namespace turnout::cli
