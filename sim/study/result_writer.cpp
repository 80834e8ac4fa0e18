// SPDX-License-Identifier: BSD-3-Clause
#include "sim/study/result_writer.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>

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

}  // namespace turnout::sim
