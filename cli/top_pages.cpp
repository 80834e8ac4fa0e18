// SPDX-License-Identifier: BSD-3-Clause
// The summary of a job, the table of its processes, and the help.
#include "cli/top_pages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/value.h"

namespace turnout::cli {
namespace {

constexpr std::size_t kRate = 7, kBytes = 9, kPercent = 4;      // columns
constexpr std::size_t kBarLeast = 8, kBarMost = 22;             // with the brackets
constexpr std::size_t kDecisionLeast = 17, kDecisionLong = 42;  // of its two forms

std::string processes_text(const TopJob& job) {
  const std::string count =
      job.ranks >= 0              ? fmt::format("{} of {} ranks", job.processes.size(), job.ranks)
      : job.processes.size() == 1 ? std::string("1 process")
                                  : fmt::format("{} processes", job.processes.size());
  std::string hosts = plural(job.hosts.size(), "host");
  if (job.hosts.size() == 1) hosts = fmt::format("host {}", short_word(*job.hosts.begin()));
  std::vector<std::string> policies;
  for (const std::string& policy : job.policies) policies.push_back(short_word(policy));
  return fmt::format("{} on {}, {} {}, running {}", count, hosts,
                     job.policies.size() == 1 ? "policy" : "policies", fmt::join(policies, ", "),
                     long_age(job.lifetime));
}

std::string traffic_text(const TopJob& job) {
  const std::string now =
      job.sent ? fmt::format("{} messages/s, {}/s sent", short_count(job.sent->messages),
                             short_bytes(job.sent->bytes))
               : std::string("- messages/s, - bytes/s sent");
  return fmt::format("{}; so far {} messages, {}", now, short_count(job.so_far.messages),
                     short_bytes(job.so_far.bytes));
}

std::string pairs_text(const TopJob& job) {
  std::vector<std::string> parts;
  for (std::size_t k = 0; k < kChannelKinds; ++k) {
    if (job.pairs[k] == 0) continue;
    parts.push_back(
        fmt::format("{} {}", value::human_count(job.pairs[k]), name(static_cast<ChannelKind>(k))));
  }
  return parts.empty() ? "no messages yet" : fmt::format("{}", fmt::join(parts, ", "));
}

// "rank 3" as "3", where a heading says what it is.
std::string_view without(std::string_view prefix, std::string_view name) {
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  return name;
}

}  // namespace

std::string short_word(std::string_view word) {
  return shortened_to(printable(word), 32);
}

std::string short_name(ChannelKind kind) {
  std::string text(name(kind));
  if (const auto end = text.find("-sendrecv"); end != std::string::npos) text.resize(end);
  return text;
}

Line memory_line(const TopMemory& memory, std::size_t width) {
  Line line;
  line.left("Memory", kLabel, Style::label)
      .add(bar(memory.used, memory.budget, std::clamp<std::size_t>(width / 6, 5, 16)),
           fill_style(memory.used, memory.budget))
      .add(fmt::format(" {} used, {} peak, {} budget", value::human_bytes(memory.used),
                       value::human_bytes(memory.peak), value::human_bytes(memory.budget)));
  line.cut(width);
  return line;
}

Lines job_summary(const TopJob& job, std::size_t width) {
  Lines lines;
  labelled(&lines, "Processes", processes_text(job), width);
  labelled(&lines, "Traffic", traffic_text(job), width);
  lines.push_back(memory_line(job.memory, width));
  labelled(&lines, "Pairs", pairs_text(job), width);
  labelled(&lines, job.notice.warning ? "Warning" : "Status", job.notice.text, width,
           job.notice.warning ? Style::warning : Style::plain);
  return lines;
}

ProcessTable::ProcessTable(const TopJob& job, std::size_t width) : width_(width) {
  std::array<bool, kChannelKinds> used{};
  ranks_ = std::any_of(job.processes.begin(), job.processes.end(),
                       [](const TopProcess& process) { return process.report().rank >= 0; });
  for (const TopProcess& process : job.processes) {
    name_ = std::max(name_, row_name(process).size());
    for (std::size_t k = 0; k < kChannelKinds; ++k) used[k] = used[k] || process.peers[k] > 0;
  }
  for (std::size_t k = 0; k < kChannelKinds; ++k) {
    if (used[k]) channels_.push_back(static_cast<ChannelKind>(k));
  }
  const auto fixed = [this] {
    std::size_t sum = name_ + 1 + kRate + 1 + kPercent + (bytes_ ? 1 + kBytes : 0);
    for (const ChannelKind kind : channels_) {
      sum += 1 + std::max<std::size_t>(short_name(kind).size(), 4);
    }
    return sum;
  };
  if (fixed() > width) bytes_ = false;
  if (fixed() > width) channels_.clear();
  if (fixed() > width) percent_ = false;
  std::size_t rest = width > fixed() ? width - fixed() : 0;
  if (rest >= kDecisionLeast + 2 + kBarLeast + 1) {
    const std::size_t spare = rest - (kDecisionLeast + 2 + kBarLeast + 1);
    bar_ = std::min(kBarLeast + spare / 3, kBarMost);
    rest -= bar_ + 1;
    decision_ = std::min(rest - 2, kDecisionLong + 6);
  } else if (rest >= kBarLeast + 1) {
    bar_ = std::min(rest - 1, kBarMost);
  }
}

std::string_view ProcessTable::row_name(const TopProcess& process) const {
  return without(ranks_ ? "rank " : "pid ", process.name);
}

Line ProcessTable::heading() const {
  Line line;
  line.right(ranks_ ? "rank" : "pid", name_, Style::heading);
  for (const ChannelKind kind : channels_) {
    const std::string text = short_name(kind);
    line.add(" ", Style::heading)
        .right(text, std::max<std::size_t>(text.size(), 4), Style::heading);
  }
  line.add(" ", Style::heading).right("msg/s", kRate, Style::heading);
  if (bytes_) line.add(" ", Style::heading).right("bytes/s", kBytes, Style::heading);
  if (bar_ > 0) {
    line.add(" ", Style::heading).left("memory", bar_, Style::heading);
    line.add(" ", Style::heading).left("", kPercent, Style::heading);
  } else if (percent_) {
    line.add(" ", Style::heading).right("mem", kPercent, Style::heading);
  }
  if (decision_ > 0)
    line.add("  ", Style::heading).left("last decision", decision_, Style::heading);
  line.cut(width_);
  return line;
}

Line ProcessTable::row(const TopProcess& process) const {
  Line line;
  line.right(row_name(process), name_);
  for (const ChannelKind kind : channels_) {
    const std::size_t count = process.peers[static_cast<std::size_t>(kind)];
    line.add(" ").right(count == 0 ? "-" : fmt::format("{}", count),
                        std::max<std::size_t>(short_name(kind).size(), 4));
  }
  rates(process, &line);
  const Style fill = fill_style(process.memory.used, process.memory.budget);
  if (bar_ > 0) line.add(" ").add(bar(process.memory.used, process.memory.budget, bar_), fill);
  if (percent_)
    line.add(" ").right(percent(process.memory.used, process.memory.budget), kPercent, fill);
  if (decision_ > 0) decision(process, &line);
  line.cut(width_);
  return line;
}

// How old the numbers are takes the place of rates that there are none of.
void ProcessTable::rates(const TopProcess& process, Line* line) const {
  if (process.stale()) {
    line->add(" ").right(bytes_ ? fmt::format("no calls for {}", short_age(process.age))
                                : fmt::format("{} old", short_age(process.age)),
                         bytes_ ? kRate + 1 + kBytes : kRate, Style::warning);
    return;
  }
  const bool known = process.sent || process.received;
  const TopTraffic rate = process.rate();
  line->add(" ").right(known ? short_count(rate.messages) : "-", kRate);
  if (bytes_) line->add(" ").right(known ? short_bytes(rate.bytes) : "-", kBytes);
}

void ProcessTable::decision(const TopProcess& process, Line* line) const {
  if (!process.decision) {
    line->add("  ").left("-", decision_);
    return;
  }
  const TopDecision& last = *process.decision;
  const std::string age = short_age(last.age);
  if (decision_ >= kDecisionLong) {
    line->add("  ").left(fmt::format("{} ago, {}: {} -> {}", age, last.peer,
                                     name(last.report->from), name(last.report->to)),
                         decision_);
    return;
  }
  const std::string_view peer = without("rank ", without("pid ", last.peer));
  line->add("  ").left(fmt::format("{} {} {}->{}", age, peer, short_name(last.report->from),
                                   short_name(last.report->to)),
                       decision_);
}

Lines help_page(std::size_t width) {
  Lines lines;
  const auto section = [&](std::string_view title) {
    if (!lines.empty()) lines.emplace_back();
    lines.emplace_back().add(title, Style::heading);
  };
  const auto entry = [&](std::string_view label, std::string_view text) {
    wrap(&lines, fmt::format("  {:<{}} ", label, width < 60 ? 9 : 16), text, width);
  };
  section("Keys");
  entry("Up Down j k", "select a rank; scroll a page");
  entry("PgUp PgDn", "move by a screen; Home and End by all");
  entry("Enter, Right", "open the page of the rank");
  entry("Esc, Left", "go back (Backspace, too)");
  entry("s", "sort by rank, by message rate, by memory used");
  entry("a", "on a page: show all peers and decisions, or the first few");
  entry("n", "show the next job");
  entry("Space", "pause and continue");
  entry("q", "quit");
  section("Columns");
  entry("UD, DC, ...",
        "peers by the channel that their messages come over; of a peer that sends nothing, the "
        "channel to it");
  entry("msg/s, bytes/s", "sent and received by the rank, between its last two reports");
  entry("memory", "used, as a share of the memory budget");
  entry("last decision", "how long ago, for which peer, from which channel to which");
  entry("no calls for",
        "the process does not call the library, so it writes no report; the line shows its last "
        "one");
  return lines;
}

}  // namespace turnout::cli
