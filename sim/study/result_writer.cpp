// SPDX-License-Identifier: BSD-3-Clause
#include "sim/study/result_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/value.h"

namespace turnout::sim {
namespace {

using Json = nlohmann::ordered_json;

std::string hash_text(std::uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

Json spread_json(const Outcome& o) {
  if (o.latencies.empty()) return nullptr;
  const Spread s = spread(o.latencies);
  return {{"least_ps", s.least}, {"median_ps", s.median}, {"p99_ps", s.p99}, {"most_ps", s.most}};
}

Json result_json(const PolicyResult& r) {
  const Outcome& o = r.outcome;
  Json phases = Json::array(), channels = Json::array(), memory = Json::array();
  for (const Phase& p : r.phases) {
    phases.push_back(
        {{"name", p.name}, {"begin_ps", p.begin}, {"end_ps", p.end}, {"messages", p.messages}});
  }
  for (const Channels& c : o.channels) {
    channels.push_back({{"channel", c.channel}, {"messages", c.messages}, {"bytes", c.bytes}});
  }
  for (const MemoryByKind& m : o.memory) {
    memory.push_back({{"kind", m.kind}, {"largest", m.largest}, {"sum", m.sum}});
  }
  Json pairs = Json::array();  // [source, destination, messages]
  for (const auto& [pair, count] : o.pairs) {
    pairs.push_back({pair.first, pair.second, count});
  }
  const hca::WorldStatistics& w = o.world;
  return {{"policy", r.policy},
          {"pairs", std::move(pairs)},
          {"time_ps", o.time},
          {"messages", o.messages},
          {"bytes", o.bytes},
          {"latency", spread_json(o)},
          {"phases", std::move(phases)},
          {"channels", std::move(channels)},
          {"switches", o.switches},
          {"rc_connections", o.rc_connections},
          {"peers", o.peers},
          {"memory", std::move(memory)},
          {"memory_peak", o.memory_peak},
          {"budget", o.budget},
          {"adapter",
           {{"operations", w.operations},
            {"bytes", w.bytes},
            {"dc_connects", w.dc_connects},
            {"dc_nacks", w.dc_nacks},
            {"first_misses", w.first_misses},
            {"second_misses", w.second_misses},
            {"rnr_waits", w.rnr_waits},
            {"retransmissions", w.retransmissions},
            {"faults", w.faults},
            {"qps_created", w.qps_created}}},
          {"events", w.events},
          {"hash", hash_text(w.hash)},
          {"real_seconds", o.real_seconds},
          {"bytes_per_rank", o.bytes_per_rank}};
}

std::string csv_cell(std::string_view text) {
  if (text.find_first_of(",\"\n\r") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

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

std::string count(std::uint64_t n) {
  return value::human_count(n);
}

std::string per_second(double n) {
  return n >= 1e6 ? fmt::format("{:.2f} M", n / 1e6) : fmt::format("{:.0f} k", n / 1e3);
}

// A line for each part of a name that a policy has, in the order of their first appearance; `none`:
// where another policy has none.
template <class Part, class Print>
void add_parts(const Study& study, Table& table, const char* prefix,
               std::vector<Part> Outcome::*parts, std::string Part::*name, const char* none,
               Print print) {
  std::vector<std::string> names;
  for (const PolicyResult& r : study.results) {
    for (const Part& part : r.outcome.*parts) {
      if (std::find(names.begin(), names.end(), part.*name) == names.end()) {
        names.push_back(part.*name);
      }
    }
  }
  for (const std::string& wanted : names) {
    table.line(prefix + wanted, [&](const PolicyResult& r) {
      for (const Part& part : r.outcome.*parts) {
        if (part.*name == wanted) return print(part);
      }
      return std::string(none);
    });
  }
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
  add_parts(study, table, "  on ", &Outcome::channels, &Channels::channel, "0",
            [](const Channels& c) { return count(c.messages); });
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
  add_parts(study, table, "  ", &Outcome::memory, &MemoryByKind::kind, "-",
            [](const MemoryByKind& m) { return value::human_bytes(m.largest); });
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

Spread spread(std::span<const Picoseconds> sorted) noexcept {
  if (sorted.empty()) return {};
  const std::size_t n = sorted.size();
  const auto rank = [&](std::size_t percent) { return sorted[(n * percent + 99) / 100 - 1]; };
  return {sorted.front(), rank(50), rank(99), sorted.back()};
}

std::string print_mean_time(double picoseconds) {
  return print_time(static_cast<Picoseconds>(picoseconds + 0.5));
}

std::string print_time(Picoseconds time) {
  constexpr std::array<const char*, 5> units = {"ps", "ns", "us", "ms", "s"};
  if (time > -1000 && time < 1000) return fmt::format("{} ps", time);
  auto v = static_cast<double>(time);
  std::size_t unit = 0;
  // 999.95 would print as 1000.
  while ((v >= 999.95 || v <= -999.95) && unit + 1 < units.size()) {
    v /= 1000;
    ++unit;
  }
  const double size = v < 0 ? -v : v;
  const int digits = size < 9.9995 ? 3 : size < 99.995 ? 2 : size < 999.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", v, digits, units[unit]);
}

std::string to_json(const Study& study) {
  Json settings = Json::object(), options = Json::object(), results = Json::array();
  for (const auto& [name, value] : study.settings) settings[name] = value;
  for (const auto& [name, value] : study.options) options[name] = value;
  for (const PolicyResult& r : study.results) results.push_back(result_json(r));
  const Json all = {{"format", 1},
                    {"modelled", true},
                    {"workload", study.workload},
                    {"options", std::move(options)},
                    {"ranks", study.place.ranks},
                    {"ranks_per_node", study.place.ranks_per_node},
                    {"seed", study.place.seed},
                    {"profile", study.profile},
                    {"device", study.device},
                    {"settings", std::move(settings)},
                    {"results", std::move(results)}};
  return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_csv(const Study& study) {
  std::string out = "workload,ranks,profile,seed,policy,quantity,item,value\n";
  for (const PolicyResult& r : study.results) {
    const std::string head =
        fmt::format("{},{},{},{},{},", csv_cell(study.workload), study.place.ranks,
                    csv_cell(study.profile), study.place.seed, csv_cell(r.policy));
    const auto line = [&](std::string_view quantity, std::string_view item, const auto& value) {
      out += fmt::format("{}{},{},{}\n", head, quantity, csv_cell(item), value);
    };
    const Outcome& o = r.outcome;
    line("time_ps", "", o.time);
    line("messages", "", o.messages);
    line("bytes", "", o.bytes);
    if (!o.latencies.empty()) {
      const Spread s = spread(o.latencies);
      line("latency_ps", "least", s.least);
      line("latency_ps", "median", s.median);
      line("latency_ps", "p99", s.p99);
      line("latency_ps", "most", s.most);
    }
    std::size_t number = 0;
    for (const Phase& p : r.phases) {
      const std::string item = fmt::format("{} {}", ++number, p.name);
      line("phase_time_ps", item, p.end - p.begin);
      line("phase_messages", item, p.messages);
    }
    for (const Channels& c : o.channels) line("channel_messages", c.channel, c.messages);
    line("switches", "", o.switches);
    line("rc_connections", "", o.rc_connections);
    line("peers", "", o.peers);
    for (const MemoryByKind& m : o.memory) line("memory_largest", m.kind, m.largest);
    for (const MemoryByKind& m : o.memory) line("memory_sum", m.kind, m.sum);
    line("memory_peak", "", o.memory_peak);
    line("budget", "", o.budget);
    line("dc_connects", "", o.world.dc_connects);
    line("dc_nacks", "", o.world.dc_nacks);
    line("first_misses", "", o.world.first_misses);
    line("second_misses", "", o.world.second_misses);
    line("rnr_waits", "", o.world.rnr_waits);
    line("retransmissions", "", o.world.retransmissions);
    line("faults", "", o.world.faults);
    line("events", "", o.world.events);
    line("hash", "", hash_text(o.world.hash));
    line("real_seconds", "", o.real_seconds);
    line("bytes_per_rank", "", o.bytes_per_rank);
  }
  return out;
}

Status make_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error) return {};
  return {Code::system, fmt::format("creating the folder {} failed: {}", folder, error.message()),
          error.value()};
}

Status write_text_file(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  const auto failed = [&](int error) {
    return Status{
        error == EACCES ? Code::permission : Code::system,
        fmt::format("writing {} failed: {}", path, std::generic_category().message(error)), error};
  };
  std::FILE* const file = std::fopen(fresh.c_str(), "w");
  if (file == nullptr) return failed(errno);
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int error = errno;
  if (std::fclose(file) != 0 || !written) {
    const int reason = written ? errno : error;
    std::remove(fresh.c_str());
    return failed(reason);
  }
  if (std::rename(fresh.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    std::remove(fresh.c_str());
    return failed(reason);
  }
  return {};
}

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
