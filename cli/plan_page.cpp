// SPDX-License-Identifier: BSD-3-Clause
#include "cli/plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/value.h"
#include "cli/html/escape.h"
#include "cli/html/page.h"
#include "sim/study/result_writer.h"

namespace turnout::cli {
namespace {

using sim::plan::Choice;
using sim::plan::kNoBudget;
using sim::plan::Plan;
using sim::plan::Run;
using sim::plan::SizeTraffic;
using sim::plan::Traffic;

// Okabe and Ito's colours; each has a dash or a pattern of its own too.
constexpr std::array kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                 "#e69f00", "#56b4e9", "#999999", "#f0e442"};
constexpr std::array kDashes = {"none", "8 4", "2 3", "10 3 2 3", "5 5", "1 4", "12 6", "3 8"};
constexpr double kWidth = 900, kLeft = 90, kRight = 30;

std::string time_text(double picoseconds) {
  return sim::print_time(static_cast<sim::Picoseconds>(picoseconds));
}

std::string budget_text(std::uint64_t budget) {
  return budget == kNoBudget ? "no limit" : value::human_bytes(budget);
}

std::string svg(double height, std::string_view label, const std::string& inner) {
  return fmt::format(
      "<svg viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" role=\"img\" "
      "aria-label=\"{2}\">{3}</svg>\n",
      kWidth, height, html_text(label), inner);
}

std::string label(double x, double y, std::string_view text, std::string_view anchor = "start") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", x, y, anchor,
                     html_text(text));
}

std::string name_of(const Plan& plan, const Choice& choice) {
  return plan.asked.ranks_per_node.size() > 1
             ? fmt::format("{}, {} per node", choice.policy, choice.ranks_per_node)
             : choice.policy;
}

std::string legend(const std::vector<std::string>& names) {
  std::string out = "<div class=\"legend\">";
  for (std::size_t i = 0; i < names.size(); ++i) {
    out += fmt::format(
        "<span><svg width=\"26\" height=\"12\"><line x1=\"0\" x2=\"26\" y1=\"6\" y2=\"6\" "
        "stroke=\"{}\" stroke-width=\"4\" stroke-dasharray=\"{}\"/></svg>{}</span>",
        kColours[i % kColours.size()], kDashes[i % kDashes.size()], html_text(names[i]));
  }
  return out + "</div>\n";
}

// A curve for each choice over the budgets that were tried, the largest to the left.
class BudgetPlot {
 public:
  explicit BudgetPlot(const Plan& plan) : plan_(plan) {
    for (const Choice& choice : plan.choices) {
      for (const Run& run : choice.runs) budgets_[run.budget] = 0;
    }
    double at = static_cast<double>(budgets_.size());
    for (auto& [budget, place] : budgets_) place = --at;
  }

  std::string draw(std::string_view title, double (*value)(const Choice&, const Run&),
                   std::string (*text)(double), double mark) const {
    double most = mark;
    for (const Choice& choice : plan_.choices) {
      for (const Run& run : choice.runs) {
        if (run.ended()) most = std::max(most, value(choice, run));
      }
    }
    most = most > 0 ? most * 1.1 : 1;
    const auto y = [&](double of) { return kBottom - of / most * (kBottom - kTop); };
    std::string inner;
    for (int i = 0; i <= 4; ++i) {
      const double at = most * i / 4;
      inner += fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" class=\"axis\"/>",
                           kLeft, kWidth - kRight, y(at), y(at));
      inner += label(kLeft - 8, y(at) + 4, text(at), "end");
    }
    for (const auto& [budget, place] : budgets_) {
      inner += label(x(place), kBottom + 18, budget_text(budget), "middle");
    }
    if (mark > 0) {
      inner +=
          fmt::format("<line x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" class=\"budget\"/>",
                      kLeft, kWidth - kRight, y(mark), y(mark));
    }
    for (std::size_t i = 0; i < plan_.choices.size(); ++i) {
      const Choice& choice = plan_.choices[i];
      std::string path;
      std::string points;
      for (std::size_t r = 0; r < choice.runs.size(); ++r) {
        const Run& run = choice.runs[r];
        if (!run.ended()) continue;
        const double px = x(budgets_.at(run.budget)), py = y(value(choice, run));
        path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", px, py);
        points += fmt::format(
            "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"><title>{}: {}: "
            "{}</title></circle>",
            px, py, r == choice.advised && r > 0 ? 7 : 4, kColours[i % kColours.size()],
            html_text(name_of(plan_, choice)), budget_text(run.budget), text(value(choice, run)));
      }
      inner += fmt::format(
          "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\" "
          "stroke-dasharray=\"{}\"/>{}",
          path, kColours[i % kColours.size()], kDashes[i % kDashes.size()], points);
    }
    return fmt::format("<figure><figcaption>{}</figcaption>{}</figure>\n", html_text(title),
                       svg(kBottom + 30, title, inner));
  }

 private:
  static constexpr double kTop = 12, kBottom = 230;
  [[nodiscard]] double x(double place) const {
    const double each = (kWidth - kLeft - kRight) / static_cast<double>(budgets_.size());
    return kLeft + each * (place + 0.5);
  }

  const Plan& plan_;
  std::map<std::uint64_t, double> budgets_;  // to their place from the left
};

// Horizontal bars cut into named parts.
struct Bar {
  std::string name;
  std::vector<std::pair<std::string, double>> parts;
};

std::string bars(std::string_view title, const std::vector<Bar>& list,
                 const std::function<std::string(double)>& text, bool as_shares) {
  constexpr double kNames = 270, kRow = 26;
  std::vector<std::string> names;
  double most = 0;
  for (const Bar& bar : list) {
    double sum = 0;
    for (const auto& [name, value] : bar.parts) {
      sum += value;
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    most = std::max(most, sum);
  }
  std::string inner;
  for (std::size_t row = 0; row < list.size(); ++row) {
    double sum = 0;
    for (const auto& part : list[row].parts) sum += part.second;
    const double scale = (kWidth - kNames - 100) / std::max(as_shares ? sum : most, 1e-12);
    const double y = kRow * static_cast<double>(row);
    inner += label(kNames - 8, y + 16, list[row].name, "end");
    double x = kNames;
    for (const auto& [name, value] : list[row].parts) {
      const auto i =
          static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
      inner += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\" "
          "stroke=\"#000\" stroke-width=\".4\"><title>{}: {}</title></rect>",
          x, y + 3, value * scale, kRow - 8, kColours[i % kColours.size()], html_text(name),
          html_text(text(value)));
      x += value * scale;
    }
    inner += label(x + 6, y + 16, text(sum));
  }
  return fmt::format("<figure><figcaption>{}</figcaption>{}{}</figure>\n", html_text(title),
                     legend(names), svg(kRow * static_cast<double>(list.size()) + 6, title, inner));
}

std::string traffic_bars(const Plan& plan) {
  std::vector<Bar> list;
  for (const SizeTraffic& size : plan.traffic) {
    Bar bar{fmt::format("{} ranks", value::human_count(size.ranks)), {}};
    for (const Traffic& kind : size.kinds) bar.parts.emplace_back(kind.kind, kind.messages);
    list.push_back(std::move(bar));
  }
  return bars(
      "Messages by kind of traffic, as shares", list,
      [](double n) { return value::human_count(static_cast<std::uint64_t>(std::llround(n))); },
      true);
}

std::string memory_bars(const Plan& plan) {
  std::vector<Bar> list;
  for (const Choice& choice : plan.choices) {
    for (const Run* const run : {&choice.free(), &choice.best()}) {
      if (run == &choice.best() && choice.advised == 0) continue;
      Bar bar{fmt::format("{}, {}", name_of(plan, choice), budget_text(run->budget)), {}};
      for (const auto& [kind, bytes] : run->kinds) {
        if (bytes > 0) bar.parts.emplace_back(kind, static_cast<double>(bytes));
      }
      list.push_back(std::move(bar));
    }
  }
  return bars(
      "Memory by kind: peak of each in the process with most of it", list,
      [](double n) { return value::human_bytes(static_cast<std::uint64_t>(n)); }, false);
}

std::string table(const Plan& plan) {
  std::string out =
      "<table><thead><tr><th>policy</th><th>per node</th><th>budget</th><th>time</th><th>against "
      "no limit</th><th>memory</th><th>RC queue pairs</th><th>connections</th><th>channels"
      "</th></tr></thead><tbody>\n";
  for (const Choice& choice : plan.choices) {
    for (std::size_t i = 0; i < choice.runs.size(); ++i) {
      const Run& run = choice.runs[i];
      const bool advised = i > 0 && i == choice.advised;
      out += fmt::format("<tr{}><td>{}</td><td>{}</td><td>{}</td>",
                         advised ? " style=\"font-weight:600\"" : "", html_text(choice.policy),
                         choice.ranks_per_node, budget_text(run.budget));
      if (!run.ended()) {
        out += fmt::format("<td colspan=\"6\">fails: {}</td></tr>\n",
                           html_text(shortened(run.failure, 200)));
        continue;
      }
      std::string channels;
      for (const auto& [channel, share] : run.channels) {
        if (share < 0.005) continue;
        channels +=
            fmt::format("{}{} {:.0f} %", channels.empty() ? "" : ", ", channel, 100 * share);
      }
      out +=
          fmt::format("<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                      time_text(run.time),
                      i == 0 ? std::string() : fmt::format("{:+.1f} %", 100 * choice.slowdown(run)),
                      value::human_bytes(run.memory), run.queue_pairs,
                      value::human_count(run.connections), html_text(channels));
    }
  }
  return out + "</tbody></table>\n";
}

// The text of the command, its sentences as findings.
std::string findings(const Plan& plan) {
  const Choice& choice = plan.choice();
  const Run& best = choice.best();
  std::string out = "<ul class=\"findings\">\n";
  const auto item = [&](std::string_view kind, const std::string& text) {
    out += fmt::format("<li class=\"{0}\"><b>{0}</b> {1}</li>\n", kind, html_text(text));
  };
  item("advice",
       fmt::format("policy {}, {} ranks per node, budget {} a process: time {}, memory {}",
                   choice.policy, choice.ranks_per_node, budget_text(best.budget),
                   time_text(best.time), value::human_bytes(best.memory)));
  item("limit", choice.limit);
  const auto& u = plan.uncertainty;
  if (u.samples > 0) {
    item("costs", fmt::format("varied by their errors {} times: time {} to {}; the budget stays "
                              "within {:g} % in {}",
                              u.samples, time_text(u.least), time_text(u.most),
                              100 * plan.asked.within, u.within));
  }
  const auto& error = plan.own_error;
  if (error.missing.empty()) {
    item("error",
         fmt::format("{} ranks predicted from the smaller recordings: time {} instead of "
                     "{}, memory {} instead of {}",
                     error.ranks, time_text(error.predicted.time), time_text(error.recorded.time),
                     value::human_bytes(error.predicted.memory),
                     value::human_bytes(error.recorded.memory)));
  } else {
    item("error", "not known: " + error.missing);
  }
  for (const std::string& warning : plan.warnings) item("warning", warning);
  out += "</ul>\n<pre>";
  for (const auto& [name, given] : plan.variables()) {
    out += fmt::format("export {}={}\n", html_text(name), html_text(given));
  }
  return out + "</pre>\n";
}

}  // namespace

std::string plan_page(const Plan& plan) {
  std::vector<std::string> names;
  for (const Choice& choice : plan.choices) names.push_back(name_of(plan, choice));
  const BudgetPlot plot(plan);
  const std::string title =
      fmt::format("Turnout plan for {} ranks", value::human_count(plan.asked.ranks));
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'\">\n<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n<p class=\"facts\">"
      "Modelled, not measured: profile {2} ({3}), seed {4}.</p>\n",
      title, kPageStyle, html_text(plan.asked.profile.name), html_text(plan.asked.profile.device),
      plan.asked.seed);
  page += findings(plan);
  page +=
      "<h2>Time and memory by budget of a process</h2>\n<p class=\"hint\">Large points: the "
      "smallest budget that stays within the dashed line.</p>\n" +
      legend(names);
  page += plot.draw(
      "Time against no limit, percent",
      [](const Choice& choice, const Run& run) {
        return std::max(100 * (1 + choice.slowdown(run)), 0.0);
      },
      [](double value) { return fmt::format("{:.0f} %", value); }, 100 * (1 + plan.asked.within));
  page += plot.draw(
      "Memory of the largest process",
      [](const Choice&, const Run& run) { return static_cast<double>(run.memory); },
      [](double bytes) { return value::human_bytes(static_cast<std::uint64_t>(bytes)); }, 0);
  page += memory_bars(plan);
  page += "<h2>Traffic</h2>\n" + traffic_bars(plan);
  page += "<h2>Runs</h2>\n<div class=\"scroll\">" + table(plan) + "</div>\n";
  return page + "</body>\n</html>\n";
}

}  // namespace turnout::cli
