// SPDX-License-Identifier: BSD-3-Clause
#include "core/report/job_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <string_view>
#include <vector>

#include "base/value.h"
#include "core/report/job_findings.h"
#include "core/report/job_traffic.h"
#include "core/report/report_text.h"

namespace turnout {

namespace {

// What is shown at most of each part, so that all together has kSummaryLines: head and end, these,
// and two headings.
constexpr std::size_t kFindingLines = 9, kChannelLines = 4, kMemoryLines = 2, kPairs = 3;
static_assert(2 + 2 + kFindingLines + kChannelLines + kMemoryLines + 2 * kPairs == kSummaryLines);
constexpr std::size_t kMemoryKinds = 3;

// In one line: its end is left out where it is longer.
std::string line(std::string text) {
  if (text.size() > kSummaryColumns) {
    text.resize(kSummaryColumns - 3);
    text += "...";
  }
  return text + '\n';
}

std::size_t lines_of(std::string_view text) {
  return static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

class Summary {
 public:
  explicit Summary(std::span<const EndpointReport> reports)
      : reports_(reports), traffic_(job_traffic(reports)) {}

  std::string text() {
    head();
    findings();
    channels();
    memory();
    pairs();
    out_ += line(
        "-- all tables: turnout report --full FOLDER; a page: turnout report --html FILE FOLDER");
    return std::move(out_);
  }

 private:
  // What all reports have in common, or how many there are.
  template <class Get>
  std::string common(Get get, std::string_view nouns = "kinds") const {
    std::set<std::string> values;
    for (const EndpointReport& report : reports_) values.insert(std::invoke(get, report));
    return values.size() == 1 ? printable(*values.begin())
                              : fmt::format("{} {}", values.size(), nouns);
  }

  void head() {
    const auto n = std::ranges::count_if(
        traffic_.processes, [](const JobTraffic::Process& one) { return !one.reports.empty(); });
    const std::int64_t time =
        std::ranges::max_element(reports_, {}, &EndpointReport::lifetime)->lifetime;
    out_ += line(fmt::format("-- turnout report: {} process{} on {}, policy {}, adapter {}, {}", n,
                             n == 1 ? "" : "es", common(&EndpointReport::host, "hosts"),
                             common(&EndpointReport::policy), common(&EndpointReport::device),
                             value::human_duration(std::max<std::int64_t>(time, 0))));
  }

  // Whole findings, as many as there is room for.
  void findings() {
    std::size_t used = 0, left_out = 0;
    for (const Finding& finding : job_findings(reports_, traffic_)) {
      const bool warning = finding.level == Finding::Level::warning;
      std::string text = wrap(warning ? "! " : "- ", finding.text, kSummaryColumns);
      if (!finding.advice.empty()) text += wrap("  ", finding.advice, kSummaryColumns);
      if (used + lines_of(text) + 1 > kFindingLines) {
        ++left_out;
        continue;
      }
      used += lines_of(text);
      out_ += text;
    }
    if (left_out > 0) out_ += fmt::format("  ({} more: --full)\n", left_out);
  }

  void channels() {
    struct Sum {
      ChannelKind kind{};
      double pairs = 0, messages = 0, bytes = 0;
    };
    std::array<Sum, kChannelKinds> sums{};
    double messages = 0;
    for (std::size_t k = 0; k < kChannelKinds; ++k) sums[k].kind = static_cast<ChannelKind>(k);
    for (const JobTraffic::Pair& pair : traffic_.pairs) {
      ++sums[static_cast<std::size_t>(pair.last_channel())].pairs;
      for (const ChannelSpan& span : pair.direction().spans) {
        Sum& sum = sums[static_cast<std::size_t>(span.channel)];
        sum.messages += static_cast<double>(span.messages);
        sum.bytes += static_cast<double>(span.bytes);
        messages += static_cast<double>(span.messages);
      }
    }
    std::vector<Sum> used(sums.begin(), sums.end());
    std::erase_if(used, [](const Sum& sum) { return sum.messages + sum.pairs == 0; });
    if (used.empty()) return;
    std::ranges::stable_sort(used, std::greater<>(), &Sum::messages);
    if (used.size() > kChannelLines) used.resize(kChannelLines);
    out_ += fmt::format("{:<14} {:>13} {:>15} {:>7} {:>11}\n", "channel", "pairs at end",
                        "messages", "share", "bytes");
    for (const Sum& sum : used) {
      out_ +=
          line(fmt::format("{:<14} {:>13} {:>15} {:>6.1f}% {:>11}", name(sum.kind),
                           count_text(sum.pairs), count_text(sum.messages),
                           100 * sum.messages / std::max(messages, 1.0), bytes_text(sum.bytes)));
    }
  }

  void memory() {
    const auto fullest = std::ranges::max_element(reports_, {}, &EndpointReport::peak);
    std::vector<MemoryLine> kinds = fullest->memory;
    std::ranges::stable_sort(kinds, std::greater<>(), &MemoryLine::peak);
    std::string most;
    for (std::size_t i = 0; i < std::min(kinds.size(), kMemoryKinds) && kinds[i].peak > 0; ++i) {
      most += fmt::format("{}{} {}", i == 0 ? "  most of it: " : ", ", printable(kinds[i].kind),
                          value::human_bytes(kinds[i].peak));
    }
    out_ += line(fmt::format("memory: peak {} of a budget of {} ({})",
                             value::human_bytes(fullest->peak), value::human_bytes(fullest->budget),
                             process_name(*fullest)));
    if (!most.empty()) out_ += line(most);
  }

  void pairs() {
    std::vector<const JobTraffic::Pair*> busiest;
    for (const JobTraffic::Pair& pair : traffic_.pairs) {
      if (pair.messages > 0) busiest.push_back(&pair);
    }
    if (busiest.empty()) return;
    const std::size_t shown = std::min(busiest.size(), kPairs);
    std::partial_sort(busiest.begin(), busiest.begin() + static_cast<std::ptrdiff_t>(shown),
                      busiest.end(), [](const auto* a, const auto* b) {
                        return std::pair(-a->messages, a) < std::pair(-b->messages, b);
                      });
    out_ += fmt::format("{:<22} {:<{}} {:>15} {:>11}\n",
                        shown == busiest.size() ? "pair" : "busiest pairs", "channel over time",
                        kChannelColumns, "messages", "bytes");
    for (std::size_t i = 0; i < shown; ++i) {
      const JobTraffic::Pair& pair = *busiest[i];
      out_ += line(fmt::format("{:<22} {:<{}} {:>15} {:>11}",
                               fmt::format("{} -> {}", traffic_.processes[pair.from].name,
                                           traffic_.processes[pair.to].name),
                               channels_over_time(pair.direction()), kChannelColumns,
                               count_text(pair.messages), bytes_text(pair.bytes)));
      const std::string reason =
          pair.at_receiver != nullptr ? printable(pair.at_receiver->reason) : std::string{};
      if (!reason.empty()) out_ += line("  why: " + reason);
    }
  }

  std::span<const EndpointReport> reports_;
  JobTraffic traffic_;
  std::string out_;
};

}  // namespace

std::string format_summary(std::span<const EndpointReport> reports) {
  if (reports.empty()) return "no reports\n";
  return Summary(reports).text();
}

}  // namespace turnout
