// SPDX-License-Identifier: BSD-3-Clause
#include "sim/experiments/experiment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/value.h"
#include "sim/experiments/draw.h"
#include "sim/experiments/list.h"
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

}  // namespace

std::span<const Experiment> experiments() {
  static const std::vector<Experiment> all = [] {
    std::vector<Experiment> list = latency_experiments();
    for (Experiment& one : memory_experiments()) list.push_back(one);
    for (Experiment& one : budget_experiments()) list.push_back(one);
    for (Experiment& one : comparison_experiments()) list.push_back(one);
    for (Experiment& one : clairvoyant_experiments()) list.push_back(one);
    for (Experiment& one : eager_experiments()) list.push_back(one);
    for (Experiment& one : rendezvous_experiments()) list.push_back(one);
    for (Experiment& one : teardown_experiments()) list.push_back(one);
    for (Experiment& one : node_experiments()) list.push_back(one);
    for (Experiment& one : validation_experiments()) list.push_back(one);
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
  const std::string_view near = value::nearest_name(name, names);
  return Status{Code::invalid,
                fmt::format("unknown experiment \"{}\"{} Available: {}", name,
                            near.empty() ? "." : fmt::format("; did you mean {}?", near),
                            fmt::join(names, ", "))};
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

}  // namespace turnout::sim
