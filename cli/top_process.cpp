// SPDX-License-Identifier: BSD-3-Clause
// The page of one process.
#include <fmt/format.h>

#include <algorithm>

#include "base/value.h"
#include "cli/top_pages.h"

namespace turnout::cli {
namespace {

std::string at(std::int64_t nanoseconds) {
  return fmt::format("@{:.1f}s", static_cast<double>(nanoseconds) / 1e9);
}

// "DC -> RC-RDMA @4.9s"; where there is no room, only the last change and the number of all.
std::string over_time(const DirectionReport& direction, std::size_t width) {
  const auto& spans = direction.spans;
  if (spans.empty()) return "-";
  std::string all = short_name(spans.front().channel);
  for (std::size_t i = 1; i < spans.size() && all.size() <= width; ++i) {
    all += fmt::format(" -> {} {}", short_name(spans[i].channel), at(spans[i].since));
  }
  if (all.size() <= width) return all;
  const std::string last = short_name(spans.back().channel);
  for (const std::string& text :
       {fmt::format("-> {} {}, {}", last, at(spans.back().since),
                    plural(direction.switches, "change")),
        fmt::format("{}, {}", last, plural(direction.switches, "change"))}) {
    if (text.size() <= width) return text;
  }
  return last;
}

// The columns of the table of peers that a width has room for.
struct PeerColumns {
  static constexpr std::size_t kName = 10, kDirection = 2, kRate = 7, kCount = 8, kBytes = 9;

  explicit PeerColumns(std::size_t width) {
    const std::size_t least = kName + 1 + kDirection + 1 + 11 + 1 + kRate;
    const auto left = [&] {
      return width - std::min(width, least + (count ? 1 + kCount : 0) + (bytes ? 1 + kBytes : 0) +
                                         (memory ? 1 + kBytes : 0));
    };
    if (left() == 0) memory = false;
    if (left() == 0) bytes = false;
    if (left() == 0) count = false;
    channel = 11 + std::min<std::size_t>(left(), 60);
  }

  bool count = true, bytes = true, memory = true;
  std::size_t channel = 11;

  [[nodiscard]] Line heading() const {
    Line line;
    const auto column = [&](std::string_view text, std::size_t wide) {
      line.add(" ", Style::heading).right(text, wide, Style::heading);
    };
    line.left("peer", kName + 1, Style::heading).left("", kDirection + 1, Style::heading);
    line.left("channel over time", channel, Style::heading);
    column("msg/s", kRate);
    if (count) column("messages", kCount);
    if (bytes) column("bytes", kBytes);
    if (memory) column("memory", kBytes);
    return line;
  }

  // `first`: with what belongs to the peer, not to a direction.
  [[nodiscard]] Line row(const TopPeer& peer, bool tx, bool first) const {
    const DirectionReport& direction = tx ? peer.report->send : peer.report->receive;
    const std::optional<TopTraffic>& rate = tx ? peer.sent : peer.received;
    const TopTraffic sum = sum_of(direction);
    Line line;
    line.left(first               ? peer.name
              : peer.report->lost ? "LOST"
                                  : "",
              kName, first ? Style::plain : Style::bad);
    line.add(" ").left(tx ? "tx" : "rx", kDirection).add(" ");
    line.left(over_time(direction, channel), channel);
    line.add(" ").right(rate ? short_count(rate->messages) : "-", kRate);
    if (count) line.add(" ").right(short_count(sum.messages), kCount);
    if (bytes) line.add(" ").right(short_bytes(sum.bytes), kBytes);
    if (memory) line.add(" ").right(first ? value::human_bytes(peer.report->bytes) : "", kBytes);
    return line;
  }
};

class Page {
 public:
  Page(const TopModel& model, const TopProcess& process, std::size_t width)
      : model_(model), process_(process), width_(width) {}

  Lines make(const PageLimits& limits) {
    about();
    lines_.push_back(memory_line(process_.memory, width_));
    peers(limits.peers);
    decisions(limits.decisions);
    memory();
    for (Line& line : lines_) line.cut(width_);
    return std::move(lines_);
  }

 private:
  void section(std::string_view title) {
    lines_.emplace_back();
    lines_.emplace_back().add(title, Style::title);
  }

  void about() {
    const EndpointReport& report = process_.report();
    labelled(&lines_, "Process",
             fmt::format("pid {} on host {}, device {}, policy {}, running {}", report.pid,
                         short_word(report.host), short_word(report.device),
                         short_word(report.policy), long_age(process_.lifetime)),
             width_);
    if (process_.stale()) {
      labelled(&lines_, "Stale",
               fmt::format("The process has not called the library for {}: its numbers "
                           "are from then.",
                           long_age(process_.age)),
               width_, Style::warning);
    }
    const auto rate = [](const std::optional<TopTraffic>& r) {
      return r ? fmt::format("{} messages/s, {}/s", short_count(r->messages), short_bytes(r->bytes))
               : std::string("- messages/s");
    };
    labelled(&lines_, "Traffic",
             fmt::format("tx {}; rx {}", rate(process_.sent), rate(process_.received)), width_);
  }

  static std::string counted(std::string_view title, std::size_t shown, std::size_t all,
                             std::string_view order) {
    if (all == 0) return fmt::format("{}: none", title);
    return shown < all ? fmt::format("{}: {} of {}, {}", title, shown, all, order)
                       : fmt::format("{}: {}, {}", title, all, order);
  }

  void peers(std::size_t most) {
    const std::vector<TopPeer> all = model_.peers(process_);
    const std::size_t shown = std::min(most, all.size());
    section(counted("Peers", shown, all.size(), "busiest first"));
    if (shown == 0) return;
    const PeerColumns columns(width_);
    lines_.push_back(columns.heading());
    for (std::size_t i = 0; i < shown; ++i) {
      const PeerReport& report = *all[i].report;
      lines_.push_back(columns.row(all[i], true, true));
      lines_.push_back(columns.row(all[i], false, false));
      if (!report.reason.empty()) wrap(&lines_, "           why: ", report.reason, width_);
      if (report.tear_downs > 0) {
        wrap(&lines_, "           ",
             fmt::format("RC connection disconnected {}", plural(report.tear_downs, "time")),
             width_);
      }
    }
  }

  void decisions(std::size_t most) {
    const std::vector<TopDecision> all = model_.decisions(process_);
    const std::size_t shown = std::min(most, all.size());
    section(counted("Decisions", shown, all.size(), "latest first"));
    for (std::size_t i = 0; i < shown; ++i) {
      const TopDecision& decision = all[i];
      const DecisionReport& report = *decision.report;
      lines_.emplace_back().add(fmt::format("{:>4} ago  {:<{}} {} -> {}", short_age(decision.age),
                                            decision.peer, PeerColumns::kName,
                                            short_name(report.from), short_name(report.to)));
      wrap(&lines_, "           ", fmt::format("{}: {}", report.outcome, report.reason), width_);
    }
  }

  void memory() {
    section("Memory by kind");
    const std::size_t kind = width_ < 60 ? 16 : 32;
    lines_.emplace_back()
        .left("kind", kind, Style::heading)
        .right("now", 10, Style::heading)
        .right("peak", 10, Style::heading)
        .right("objects", 10, Style::heading);
    for (const Watched* one : process_.endpoints) {
      for (const MemoryLine& line : one->report.memory) {
        if (line.peak == 0) continue;
        lines_.emplace_back()
            .left(line.kind, kind)
            .right(value::human_bytes(line.now), 10)
            .right(value::human_bytes(line.peak), 10)
            .right(line.objects_peak > 0 ? short_count(static_cast<double>(line.objects)) : "", 10);
      }
    }
  }

  const TopModel& model_;
  const TopProcess& process_;
  std::size_t width_;
  Lines lines_;
};

}  // namespace

Lines process_page(const TopModel& model, const TopProcess& process, const PageLimits& limits,
                   std::size_t width) {
  return Page(model, process, width).make(limits);
}

}  // namespace turnout::cli
