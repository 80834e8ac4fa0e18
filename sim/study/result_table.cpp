// SPDX-License-Identifier: BSD-3-Clause
// The table of a study: quantities as lines, policies side by side.

#include <fmt/format.h>

#include <algorithm>

#include "base/value.h"
#include "sim/study/result_writer.h"

namespace turnout::sim {

namespace {

struct Line {
  std::string name;
  std::vector<std::string> cells;
};

class Table {
 public:
  explicit Table(const Study& study) : study_(study) {}

  template <class Cell>
  void line(std::string name, Cell cell) {
    Line line{std::move(name), {}};
    for (const PolicyResult& r : study_.results) line.cells.push_back(cell(r));
    lines_.push_back(std::move(line));
  }

  [[nodiscard]] std::string print() const {
    std::size_t first = 0;
    std::vector<std::size_t> widths(study_.results.size(), 12);
    for (const Line& line : lines_) {
      first = std::max(first, line.name.size());
      for (std::size_t i = 0; i < line.cells.size(); ++i) {
        widths[i] = std::max(widths[i], line.cells[i].size());
      }
    }
    std::string out;
    for (const Line& line : lines_) {
      std::string text = fmt::format("  {:<{}}", line.name, first);
      for (std::size_t i = 0; i < line.cells.size(); ++i) {
        text += fmt::format("  {:>{}}", line.cells[i], widths[i]);
      }
      text.erase(text.find_last_not_of(' ') + 1);
      out += text + "\n";
    }
    return out;
  }

 private:
  const Study& study_;
  std::vector<Line> lines_;
};

// All items of all policies, in the order of their first appearance.
template <class Get>
std::vector<std::string> items(const Study& study, Get get) {
  std::vector<std::string> all;
  for (const PolicyResult& r : study.results) {
    for (const std::string& item : get(r)) {
      if (std::find(all.begin(), all.end(), item) == all.end()) all.push_back(item);
    }
  }
  return all;
}

std::string count(std::uint64_t n) {
  return value::human_count(n);
}

std::string per_second(double n) {
  return n >= 1e6 ? fmt::format("{:.2f} M", n / 1e6) : fmt::format("{:.0f} k", n / 1e3);
}

void add_times(const Study& study, Table& table) {
  table.line("time", [](const PolicyResult& r) { return print_time(r.outcome.time); });
  // Parts of a run by number; those of one name follow each other (repeat: ten of them).
  std::size_t parts = 0;
  for (const PolicyResult& r : study.results) parts = std::max(parts, r.phases.size());
  const bool each = std::any_of(
      study.results.begin(), study.results.end(),
      [](const PolicyResult& r) { return !r.phases.empty() && r.phases.front().messages > 0; });
  for (std::size_t i = 0; each && i < parts; ++i) {
    std::string name;
    for (const PolicyResult& r : study.results) {
      if (i < r.phases.size()) name = r.phases[i].name;
    }
    table.line(fmt::format("  {}: time per message", name), [i](const PolicyResult& r) {
      if (i >= r.phases.size() || r.phases[i].messages == 0) return std::string("-");
      const Phase& p = r.phases[i];
      return print_time((p.end - p.begin) / static_cast<Picoseconds>(p.messages));
    });
  }
  const auto latency = [&](const char* name, Picoseconds Spread::*field) {
    table.line(name, [field](const PolicyResult& r) {
      return r.outcome.latencies.empty() ? std::string("-")
                                         : print_time(spread(r.outcome.latencies).*field);
    });
  };
  latency("latency of a message: least", &Spread::least);
  latency("  median", &Spread::median);
  latency("  99 %", &Spread::p99);
}

void add_messages(const Study& study, Table& table) {
  table.line("messages", [](const PolicyResult& r) { return count(r.outcome.messages); });
  const auto channels = items(study, [](const PolicyResult& r) {
    std::vector<std::string> names;
    for (const Channels& c : r.outcome.channels) names.push_back(c.channel);
    return names;
  });
  for (const std::string& name : channels) {
    table.line("  on " + name, [&](const PolicyResult& r) {
      for (const Channels& c : r.outcome.channels) {
        if (c.channel == name) return count(c.messages);
      }
      return std::string("0");
    });
  }
  table.line("channel changes", [](const PolicyResult& r) { return count(r.outcome.switches); });
  table.line("RC queue pairs, all ranks",
             [](const PolicyResult& r) { return count(r.outcome.rc_connections); });
  table.line("known peers, all ranks",
             [](const PolicyResult& r) { return count(r.outcome.peers); });
  const auto adapter = [&](const char* name, std::uint64_t hca::WorldStatistics::*field) {
    if (std::any_of(study.results.begin(), study.results.end(),
                    [&](const PolicyResult& r) { return r.outcome.world.*field != 0; })) {
      table.line(name, [field](const PolicyResult& r) { return count(r.outcome.world.*field); });
    }
  };
  adapter("DC connects", &hca::WorldStatistics::dc_connects);
  adapter("DC connects refused", &hca::WorldStatistics::dc_nacks);
  adapter("context misses, first level", &hca::WorldStatistics::first_misses);
  adapter("context misses, second level", &hca::WorldStatistics::second_misses);
  adapter("waits for a receive (RNR)", &hca::WorldStatistics::rnr_waits);
  adapter("retransmissions", &hca::WorldStatistics::retransmissions);
  adapter("faults injected", &hca::WorldStatistics::faults);
}

void add_memory(const Study& study, Table& table) {
  table.line("memory of the largest rank", [](const PolicyResult& r) {
    const Outcome& o = r.outcome;
    return o.budget == 0 ? value::human_bytes(o.memory_peak)
                         : fmt::format("{} ({:.1f} %)", value::human_bytes(o.memory_peak),
                                       100.0 * static_cast<double>(o.memory_peak) /
                                           static_cast<double>(o.budget));
  });
  table.line("  budget", [](const PolicyResult& r) {
    return r.outcome.budget == 0 ? std::string("-") : value::human_bytes(r.outcome.budget);
  });
  const auto kinds = items(study, [](const PolicyResult& r) {
    std::vector<std::string> names;
    for (const MemoryByKind& m : r.outcome.memory) names.push_back(m.kind);
    return names;
  });
  for (const std::string& name : kinds) {
    table.line("  " + name, [&](const PolicyResult& r) {
      for (const MemoryByKind& m : r.outcome.memory) {
        if (m.kind == name) return value::human_bytes(m.largest);
      }
      return std::string("-");
    });
  }
}

void add_simulator(Table& table) {
  table.line("events", [](const PolicyResult& r) { return count(r.outcome.world.events); });
  table.line("  per second of real time", [](const PolicyResult& r) {
    return r.outcome.real_seconds <= 0
               ? std::string("-")
               : per_second(static_cast<double>(r.outcome.world.events) / r.outcome.real_seconds);
  });
  table.line("real memory per rank",
             [](const PolicyResult& r) { return value::human_bytes(r.outcome.bytes_per_rank); });
  table.line("hash of all events",
             [](const PolicyResult& r) { return fmt::format("{:016x}", r.outcome.world.hash); });
}

}  // namespace

std::string format_table(const Study& study) {
  std::string options;
  for (const auto& [name, value] : study.options) options += fmt::format(" {}={}", name, value);
  std::string out = fmt::format("{}: {} ranks, {} per node, seed {}\n", study.workload,
                                value::human_count(study.place.ranks), study.place.ranks_per_node,
                                study.place.seed);
  if (!options.empty()) out += fmt::format("  options{}\n", options);
  Table table(study);
  table.line("policy", [](const PolicyResult& r) { return r.policy; });
  add_times(study, table);
  add_messages(study, table);
  add_memory(study, table);
  add_simulator(table);
  out += table.print();
  out += fmt::format(
      "All times are modelled, not measured: profile {}{}. `turnout sim --show-profile {}` prints "
      "the sources of its values.\n",
      study.profile, study.device.empty() ? "" : fmt::format(" ({})", study.device), study.profile);
  return out;
}

}  // namespace turnout::sim
