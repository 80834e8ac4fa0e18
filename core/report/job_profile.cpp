// SPDX-License-Identifier: BSD-3-Clause
#include "core/report/job_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>

#include "base/value.h"
#include "core/report/profile_json.h"
#include "core/report/report_text.h"

namespace turnout {

namespace {

// What one process did: its endpoints together.
struct Process {
  std::uint64_t connections = 0, over_rdma = 0, over_rdma_at_end = 0, switches = 0, received = 0;
  std::uint64_t peak = 0;
  std::map<std::string, MemoryLine> memory;
  std::int64_t lifetime = 0;
  std::optional<ProfileReport> profile;
};

bool is_rdma(ChannelKind kind) {
  return kind != ChannelKind::dc_sendrecv && kind != ChannelKind::ud_sendrecv;
}

// A connection is a peer that a message went to or came from; messages to oneself are none.
void add_peer(Process* process, const PeerReport& peer, bool self) {
  bool used = false, rdma = false;
  for (const DirectionReport* direction : {&peer.send, &peer.receive}) {
    for (const ChannelSpan& span : direction->spans) {
      used = used || span.messages > 0;
      rdma = rdma || is_rdma(span.channel);
      if (direction == &peer.receive) process->received += span.messages;
    }
  }
  process->switches += peer.send.switches + peer.receive.switches;
  if (!used || self) return;
  const auto ends_on_rdma = [](const DirectionReport& direction) {
    return !direction.spans.empty() && is_rdma(direction.spans.back().channel);
  };
  ++process->connections;
  process->over_rdma += rdma ? 1 : 0;
  process->over_rdma_at_end += ends_on_rdma(peer.send) || ends_on_rdma(peer.receive) ? 1 : 0;
}

void add_profile(ProfileReport* sum, const ProfileReport& more) {
  sum->counts.add(more.counts);
  if (more.rnr_retries) sum->rnr_retries = sum->rnr_retries.value_or(0) + *more.rnr_retries;
  sum->calls += more.calls;
  sum->calls_measured += more.calls_measured;
  sum->library_time += more.library_time;
  sum->library_time_error += more.library_time_error;  // at most
}

void add(Process* process, const EndpointReport& report) {
  for (const PeerReport& peer : report.peers) {
    add_peer(process, peer, peer.endpoint == report.endpoint);
  }
  process->peak += report.peak;
  process->lifetime = std::max(process->lifetime, report.lifetime);
  for (const MemoryLine& line : report.memory) {
    MemoryLine& sum = process->memory[line.kind];
    sum.peak += line.peak;
    sum.objects_peak += line.objects_peak;
  }
  if (!report.profile) return;
  if (!process->profile) process->profile.emplace();
  add_profile(&*process->profile, *report.profile);
}

std::vector<Process> processes_of(std::span<const EndpointReport> reports) {
  std::map<std::tuple<int, std::string, std::uint32_t>, Process> processes;
  for (const EndpointReport& report : reports) {
    add(&processes[{report.rank, report.host, report.pid}], report);
  }
  std::vector<Process> all;
  for (auto& [key, process] : processes) all.push_back(std::move(process));
  return all;
}

using Unit = JobProfile::Unit;
using Value = std::function<std::optional<double>(const Process&)>;

// A line of what the processes know; none when nobody does.
void line(JobProfile* job, const std::vector<Process>& processes, std::string name, std::string key,
          Unit unit, const Value& value) {
  std::vector<double> values;
  for (const Process& process : processes) {
    if (const std::optional<double> v = value(process)) values.push_back(*v);
  }
  if (values.empty()) return;
  const auto [least, most] = std::ranges::minmax(values);
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  const double mean = sum / static_cast<double>(values.size());
  job->lines.push_back(
      {std::move(name), std::move(key), unit, {least, mean, most, sum}, values.size()});
}

// Of those with a profile for which `known` holds.
template <class Get>
Value of_profile(
    Get get, bool (*known)(const ProfileReport&) = [](const ProfileReport&) { return true; }) {
  return [get, known](const Process& p) -> std::optional<double> {
    if (!p.profile || !known(*p.profile)) return std::nullopt;
    return static_cast<double>(get(*p.profile));
  };
}

std::uint64_t sum_of(const ProfileReport& profile, std::uint64_t SizeCount::*member) {
  SizeCounts all;
  for (const SizeCounts& sizes : profile.counts.sent) all.add(sizes);
  return all.total().*member;
}

std::optional<double> share(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return std::nullopt;
  return static_cast<double>(part) / static_cast<double>(whole);
}

void traffic_lines(JobProfile* job, const std::vector<Process>& processes) {
  line(job, processes, "work requests sent", "sent_messages", Unit::number,
       of_profile([](const ProfileReport& p) { return sum_of(p, &SizeCount::messages); }));
  for (std::size_t kind = 0; kind < kTrafficKinds; ++kind) {
    const std::string_view word = name(static_cast<Traffic>(kind));
    line(job, processes, fmt::format("  {}", word), fmt::format("sent_{}_messages", word),
         Unit::number, of_profile([kind](const ProfileReport& p) {
           return p.counts.sent[kind].total().messages;
         }));
  }
  line(job, processes, "bytes of work requests", "sent_bytes", Unit::bytes,
       of_profile([](const ProfileReport& p) { return sum_of(p, &SizeCount::bytes); }));
  line(job, processes, "unexpected messages", "unexpected_messages", Unit::number,
       of_profile([](const ProfileReport& p) { return p.counts.unexpected.total().messages; }));
  line(job, processes, "  share of messages received", "unexpected_share", Unit::share,
       [](const Process& p) -> std::optional<double> {
         if (!p.profile) return std::nullopt;
         return share(p.profile->counts.unexpected.total().messages, p.received);
       });
  line(job, processes, "low-watermark events", "low_watermark_events", Unit::number,
       of_profile([](const ProfileReport& p) { return p.counts.low_watermark_events; }));
  line(job, processes, "RNR retries", "rnr_retries", Unit::number,
       of_profile([](const ProfileReport& p) { return *p.rnr_retries; },
                  [](const ProfileReport& p) { return p.rnr_retries.has_value(); }));
}

void memory_lines(JobProfile* job, const std::vector<Process>& processes) {
  line(job, processes, "peak memory", "memory_peak", Unit::bytes,
       [](const Process& p) { return std::optional(static_cast<double>(p.peak)); });
  std::vector<std::string> kinds;  // as the first process lists them
  for (const Process& process : processes) {
    for (const auto& [kind, memory] : process.memory) {
      const bool known = std::ranges::find(kinds, kind) != kinds.end();
      if (memory.peak > 0 && !known) kinds.push_back(kind);
    }
  }
  for (const std::string& kind : kinds) {
    const auto of_kind = [&kind](std::uint64_t MemoryLine::*member) -> Value {
      return [&kind, member](const Process& p) -> std::optional<double> {
        const auto found = p.memory.find(kind);
        return found == p.memory.end() ? 0.0 : static_cast<double>(found->second.*member);
      };
    };
    line(job, processes, "  " + kind, "memory_peak of " + kind, Unit::bytes,
         of_kind(&MemoryLine::peak));
    line(job, processes, "    objects", "objects_peak of " + kind, Unit::number,
         of_kind(&MemoryLine::objects_peak));
    if (job->lines.back().spread.most == 0) job->lines.pop_back();
  }
}

void time_lines(JobProfile* job, const std::vector<Process>& processes) {
  const auto measured = [](const ProfileReport& p) { return p.calls_measured > 0; };
  line(job, processes, "time in the library", "library_time_ns", Unit::nanoseconds,
       of_profile([](const ProfileReport& p) { return p.library_time; }, measured));
  line(job, processes, "  standard error", "library_time_error_ns", Unit::nanoseconds,
       of_profile([](const ProfileReport& p) { return p.library_time_error; }, measured));
  line(job, processes, "  share of run time", "library_share", Unit::share,
       [&](const Process& p) -> std::optional<double> {
         if (!p.profile || !measured(*p.profile) || p.lifetime <= 0) return std::nullopt;
         return static_cast<double>(p.profile->library_time) / static_cast<double>(p.lifetime);
       });
}

// In ten columns, as human_* give them, or else by power of ten.
std::string value_text(Unit unit, double v) {
  if (unit == Unit::share) return fmt::format("{:.1f}%", 100 * v);
  if (!(v < 1e15)) return fmt::format("{:.1e}", v);
  const auto whole = static_cast<std::uint64_t>(v + 0.5);
  if (unit == Unit::bytes) return value::human_bytes(whole);
  if (unit == Unit::nanoseconds) return value::human_duration(static_cast<std::int64_t>(whole));
  if (v >= 1e9) return fmt::format("{:.3e}", v);
  return v < 1000 && v != static_cast<double>(whole) ? fmt::format("{:.2f}", v)
                                                     : value::human_count(whole);
}

// "128 B", "2MiB"
std::string below_text(std::size_t bin) {
  const std::uint64_t below = std::uint64_t{1} << bin;
  return below < 1024 ? fmt::format("{} B", below) : value::print_bytes(below);
}

// Of what is below each size the share of messages, of bytes and of unexpected messages.
void size_table(std::string* out, const JobProfile& job) {
  SizeCounts sent;
  for (const SizeCounts& sizes : job.counts.sent) sent.add(sizes);
  const SizeCount all = sent.total();
  if (all.messages == 0) return;
  const std::uint64_t unexpected = job.counts.unexpected.total().messages;
  *out += fmt::format("  {:<24} {:>13} {:>12} {:>12} {:>13}\n", "sizes below", "sent", "% of sent",
                      "% of bytes", "% unexpected");
  SizeCount so_far;
  std::uint64_t unexpected_so_far = 0;
  for (std::size_t bin = 0; bin < kSizeBins; ++bin) {
    so_far.add(sent[bin]);
    unexpected_so_far += job.counts.unexpected[bin].messages;
    if (sent[bin].messages == 0 && job.counts.unexpected[bin].messages == 0) continue;
    const auto percent = [](std::uint64_t part, std::uint64_t whole) {
      return whole == 0 ? std::string("-")
                        : fmt::format("{:.1f}%", 100 * share(part, whole).value_or(0));
    };
    *out += fmt::format("  {:<24} {:>13} {:>12} {:>12} {:>13}\n", below_text(bin),
                        value_text(Unit::number, static_cast<double>(sent[bin].messages)),
                        percent(so_far.messages, all.messages), percent(so_far.bytes, all.bytes),
                        percent(unexpected_so_far, unexpected));
  }
}

}  // namespace

JobProfile job_profile(std::span<const EndpointReport> reports) {
  const std::vector<Process> processes = processes_of(reports);
  JobProfile job;
  job.processes = processes.size();
  for (const Process& process : processes) {
    if (!process.profile) continue;
    ++job.profiled;
    job.counts.add(process.profile->counts);
  }
  const auto number = [&](const char* words, const char* key, std::uint64_t Process::*member) {
    line(&job, processes, words, key, Unit::number,
         [member](const Process& p) { return std::optional(static_cast<double>(p.*member)); });
  };
  number("connections", "connections", &Process::connections);
  number("  on RDMA at any time", "connections_over_rdma", &Process::over_rdma);
  number("  on RDMA at end", "connections_over_rdma_at_end", &Process::over_rdma_at_end);
  number("channel switches, tx and rx", "channel_switches", &Process::switches);
  traffic_lines(&job, processes);
  memory_lines(&job, processes);
  time_lines(&job, processes);
  return job;
}

std::string format_profile(const JobProfile& job) {
  if (job.profiled == 0) return {};
  std::string head = fmt::format("of {} process{}", job.processes, job.processes == 1 ? "" : "es");
  if (job.profiled < job.processes) head += fmt::format(" ({} with a profile)", job.profiled);
  std::string out = fmt::format("Profile {}\n  {:<44} {:>11} {:>11} {:>11} {:>13}\n", head,
                                "per process", "min", "mean", "max", "sum");
  for (const JobProfile::Line& line : job.lines) {
    const Spread& s = line.spread;
    const bool summed = line.unit != Unit::share && line.key != "library_time_error_ns";
    out += fmt::format("  {:<44} {:>11} {:>11} {:>11} {:>13}\n", printable(line.name).substr(0, 44),
                       value_text(line.unit, s.least), value_text(line.unit, s.mean),
                       value_text(line.unit, s.most),
                       summed ? value_text(line.unit, s.sum) : std::string());
  }
  size_table(&out, job);
  return out;
}

std::string jobs_to_json(
    std::span<const std::pair<std::string, std::vector<EndpointReport>>> jobs) {
  Json all = Json::array();
  for (const auto& [name, reports] : jobs) {
    const JobProfile job = job_profile(reports);
    Json lines = Json::object();
    for (const JobProfile::Line& line : job.lines) {
      Json spread = {{"processes", line.processes},
                     {"min", finite(line.spread.least)},
                     {"mean", finite(line.spread.mean)},
                     {"max", finite(line.spread.most)}};
      if (line.unit != Unit::share) spread["sum"] = finite(line.spread.sum);
      lines[line.key] = std::move(spread);
    }
    Json sent = Json::object();
    for (std::size_t kind = 0; kind < kTrafficKinds; ++kind) {
      sent[std::string(turnout::name(static_cast<Traffic>(kind)))] =
          sizes_to_json(job.counts.sent[kind]);
    }
    all.push_back({{"turnout_job", 1},
                   {"job", name},
                   {"processes", job.processes},
                   {"profiled", job.profiled},
                   {"per_process", std::move(lines)},
                   {"sent", std::move(sent)},
                   {"unexpected", sizes_to_json(job.counts.unexpected)}});
  }
  return all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace turnout
