// SPDX-License-Identifier: BSD-3-Clause
#include "sim/experiments/experiment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/value.h"
#include "sim/experiments/sentinels.h"
#include "sim/study/result_writer.h"

namespace turnout::sim {
namespace {

std::string_view name_of(Plot::Kind kind) {
  switch (kind) {
    case Plot::Kind::bars:
      return "bars";
    case Plot::Kind::dots:
      return "dots";
    case Plot::Kind::lines:
      break;
  }
  return "lines";
}

// What tools/plot.py answers when Python has no matplotlib, and posix_spawn()'s child when there is
// no such program.
constexpr int kNoMatplotlib = 3, kNoProgram = 127;

// The exit status; -1: it was ended by a signal.
Result<int> run(std::array<std::string, 4> words) {
  std::array<char*, words.size() + 1> arguments{};
  for (std::size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ);
  if (error == ENOENT) return kNoProgram;
  if (error != 0) {
    return Status{
        Code::system,
        fmt::format("starting {} failed: {}", words[0], std::generic_category().message(error)),
        error};
  }
  int state = 0;
  while (::waitpid(child, &state, 0) < 0) {
    if (errno == EINTR) continue;
    return Status{
        Code::system,
        fmt::format("waiting for {} failed: {}", words[0], std::generic_category().message(errno)),
        errno};
  }
  return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

}  // namespace

std::span<const Experiment> experiments() {
  static const std::vector<Experiment> all = [] {
    std::vector<Experiment> list = latency_experiments();
    list.insert(list.end(),
                {memory_experiment(), budget_experiment(), clairvoyant_experiment(),
                 comparison_experiment(), eager_experiment(), node_experiment(),
                 rendezvous_experiment(), teardown_experiment(), validation_experiment()});
    std::sort(list.begin(), list.end(),
              [](const Experiment& a, const Experiment& b) { return a.name < b.name; });
    return list;
  }();
  return all;
}

Result<const Experiment*> find_experiment(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Experiment& one : experiments()) {
    if (one.name == name) return &one;
    names.push_back(one.name);
  }
  return unknown("unknown experiment", name, names);
}

std::string to_json(std::span<const Plot> plots) {
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const Plot& plot : plots) {
    Json series = Json::array();
    for (const Plot::Series& s : plot.series) {
      Json x = Json::array(), y = Json::array();
      for (const auto& [at, value] : s.points) {
        x.push_back(at);  // null if infinite
        y.push_back(value);
      }
      series.push_back({{"name", s.name},
                        {"from_paper", s.from_paper},
                        {"x", std::move(x)},
                        {"y", std::move(y)}});
    }
    Json limits = Json::array(), brackets = Json::array();
    for (const Plot::Limit& l : plot.limits) limits.push_back({{"at", l.at}, {"text", l.text}});
    for (const Plot::Bracket& b : plot.brackets) {
      brackets.push_back({{"series", b.series}, {"from", b.from}, {"to", b.to}, {"text", b.text}});
    }
    list.push_back({{"kind", name_of(plot.kind)},
                    {"title", plot.title},
                    {"x_label", plot.x_label},
                    {"y_label", plot.y_label},
                    {"x_log", plot.x_log},
                    {"y_log", plot.y_log},
                    {"unit", plot.unit},
                    {"rows", plot.rows},
                    {"limits", std::move(limits)},
                    {"brackets", std::move(brackets)},
                    {"series", std::move(series)}});
  }
  return Json{{"format", 1}, {"plots", std::move(list)}}.dump(1, ' ', false,
                                                              Json::error_handler_t::replace) +
         "\n";
}

Result<Written> write_experiment(const std::string& folder, std::string_view name,
                                 const ExperimentResult& result, const std::string& plot_script,
                                 const Sentinels* sentinels) {
  if (Status s = make_folder(folder); !s.ok()) return s;
  const std::string base = fmt::format("{}/{}", folder, name);
  Written written;
  std::string picture;
  if (!result.plots.empty()) {
    if (Status s = write_text_file(base + ".json", to_json(result.plots)); !s.ok()) return s;
    written.files.push_back(base + ".json");
    if (const Status drawn = draw(plot_script, base + ".json", base + ".svg"); !drawn.ok()) {
      written.plot_skipped = drawn.text();
    }
    if (written.plot_skipped.empty()) {
      written.files.push_back(base + ".svg");
      picture = fmt::format("![{0}: {1}]({0}.svg)\n", name, result.plots.front().title);
    } else {
      picture = fmt::format(
          "The data of the plot are in {0}.json; `tools/plot.py {0}.json {0}.svg` draws "
          "them with matplotlib\n(Debian: python3-matplotlib).\n",
          name);
    }
  }
  std::string page = result.page;
  constexpr std::string_view kPlace = "{plot}\n";
  if (const auto at = page.find(kPlace); at != std::string::npos) {
    page.replace(at, kPlace.size(), picture);
  }
  if (sentinels != nullptr) {
    const std::string file = base + ".sentinels.json";
    if (Status s = write_text_file(file, to_json(*sentinels)); !s.ok()) return s;
    written.files.push_back(file);
    page += sentinels_section(*sentinels);
  }
  if (Status s = write_text_file(base + ".md", page); !s.ok()) return s;
  written.files.push_back(base + ".md");
  return written;
}

Status draw(const std::string& script, const std::string& data, const std::string& picture) {
  if (script.empty()) return {Code::unsupported, "tools/plot.py not found; it draws the plot"};
  // The first Python of the PATH may be one without the system's packages.
  for (const char* const python : {"python3", "/usr/bin/python3"}) {
    const Result<int> status = run({python, script, data, picture});
    if (!status) return status.status();
    if (status.value() == 0) return {};
    if (status.value() == kNoMatplotlib || status.value() == kNoProgram) continue;
    return {Code::system, fmt::format("{} {} {} {} failed", python, script, data, picture)};
  }
  return {
      Code::unsupported,
      fmt::format("drawing {} failed: no python3 with matplotlib found; install the Debian package "
                  "python3-matplotlib, or run \"python3 -m pip install matplotlib\"",
                  picture)};
}

}  // namespace turnout::sim
