// SPDX-License-Identifier: BSD-3-Clause
#include "core/report/last_run_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <limits>
#include <tuple>
#include <unordered_map>

#include "base/private_folder.h"

namespace turnout {

namespace {

constexpr std::size_t kMostEndpoints = 64;  // of a process

template <class Integer>
std::optional<Integer> number(std::string_view text, int base = 10) {
  Integer value = 0;
  const char* const end = text.data() + text.size();
  const auto [next, error] = std::from_chars(text.data(), end, value, base);
  if (error != std::errc{} || next != end) return std::nullopt;
  return value;
}

// At most what fits; neither is below 0.
template <class Integer>
Integer sum(Integer a, Integer b) {
  const Integer most = std::numeric_limits<Integer>::max();
  return b > most - a ? most : a + b;
}

std::uint64_t received(const PeerReport& peer) {
  std::uint64_t messages = 0;
  for (const ChannelSpan& span : peer.receive.spans) messages = sum(messages, span.messages);
  return messages;
}

std::uint64_t received(const EndpointReport& report) {
  std::uint64_t messages = 0;
  for (const PeerReport& peer : report.peers) messages = sum(messages, received(peer));
  return messages;
}

float share(double value) {
  return value > 0 ? static_cast<float>(std::min(value, 1.0)) : 0;
}

struct Found {
  LastRun::Source source;
  std::uint64_t endpoint = 0;
  std::uint32_t peer = 0;  // in the report
  bool timed = false;
};

// When they sent. Those that the history does not have keep the whole run.
void add_times(std::span<const HistoryInterval> history, std::vector<Found>* found) {
  if (history.empty()) return;
  const std::int64_t begin = history.front().begin;
  std::unordered_map<std::uint32_t, Found*> by_peer;
  for (Found& one : *found) by_peer.emplace(one.peer, &one);
  for (const HistoryInterval& interval : history) {
    if (interval.begin < begin || interval.end <= interval.begin) continue;
    for (const auto& [peer, messages] : interval.sources) {
      const auto known = by_peer.find(peer);
      if (known == by_peer.end() || messages == 0) continue;
      LastRun::Source& source = known->second->source;
      if (!std::exchange(known->second->timed, true)) {
        source.first = interval.begin - begin;
        source.active = 0;
        source.beside = 0;
      }
      source.last = std::max(source.first, interval.end - begin);
      source.active = sum(source.active, interval.end - interval.begin);
      source.beside = sum(source.beside, interval.messages);
    }
  }
}

// Names of the reports of the own rank's latest process.
struct LatestProcess {
  std::tuple<std::int64_t, std::int64_t, std::string> order{-1, 0, ""};  // time, name
  std::vector<std::string> files;

  void offer(const Descriptor& folder, std::string_view file, const ReportName& name) {
    struct stat info {};
    const std::string path(file);
    if (::fstatat(folder.get(), path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return;
    const auto& [seconds, nanoseconds, process] = order;
    std::tuple<std::int64_t, std::int64_t, std::string> of_file{info.st_mtim.tv_sec,
                                                                info.st_mtim.tv_nsec, name.process};
    const bool same = process == name.process;
    if (!same && of_file < order) return;
    if (!same) files.clear();
    order = std::max(order, of_file);
    if (files.size() < kMostEndpoints) files.push_back(path);
  }
};

}  // namespace

std::optional<ReportName> parse_report_name(std::string_view name) {
  constexpr std::string_view kSuffix = ".json", kRank = "rank-";
  constexpr std::size_t kDigits = 16;
  if (!name.ends_with(kSuffix) || name.front() == '.') return std::nullopt;
  name.remove_suffix(kSuffix.size());
  const std::size_t last = name.rfind('.');
  if (last == name.npos || last == 0 || name.size() - last - 1 != kDigits) return std::nullopt;
  const auto endpoint = number<std::uint64_t>(name.substr(last + 1), 16);
  const std::string_view process = name.substr(0, last);
  const std::size_t pid_at = process.rfind('.');
  if (!endpoint || pid_at == process.npos || pid_at == 0 ||
      !number<std::uint32_t>(process.substr(pid_at + 1))) {
    return std::nullopt;
  }
  std::string_view rank_text = process.substr(0, pid_at);
  if (const std::size_t rank_at = rank_text.rfind('.'); rank_at != rank_text.npos) {
    rank_text.remove_prefix(rank_at + 1);
  }
  if (!rank_text.starts_with(kRank)) return std::nullopt;
  rank_text.remove_prefix(kRank.size());
  const auto rank = number<int>(rank_text);
  if (!rank || *rank < 0) return std::nullopt;
  return ReportName{process, *rank, *endpoint};
}

Result<CountedSources> counted_sources(std::span<const EndpointReport> of_process, int rank,
                                       int ranks, const LastRunLimits& limits) {
  const auto most = std::ranges::max_element(
      of_process, {}, [](const EndpointReport& report) { return received(report); });
  if (most == of_process.end()) return Status{Code::invalid, "there is no report"};
  const EndpointReport& of = *most;
  if (of.rank != rank || of.ranks != ranks) {
    return Status{Code::invalid, fmt::format("the last run's is of rank {} of {}, this process is "
                                             "rank {} of {}",
                                             of.rank, of.ranks, rank, ranks)};
  }
  const std::uint64_t all = received(of);
  if (of.lifetime <= 0 || all == 0) return Status{Code::invalid, "the last run received nothing"};
  std::vector<Found> found;
  for (const PeerReport& peer : of.peers) {
    const std::uint64_t messages = received(peer);
    if (messages == 0 || messages < limits.least_messages || peer.endpoint == of.endpoint) continue;
    const SourceReport source = peer.source.value_or(SourceReport{});
    Found& one = found.emplace_back();
    one.endpoint = peer.endpoint;
    one.peer = peer.peer;
    one.source.messages = messages;
    one.source.busy = share(source.busy);
    one.source.switched = share(source.switched);
    one.source.last = one.source.active = of.lifetime;
    one.source.beside = all;
  }
  std::ranges::sort(found, std::greater<>(),
                    [](const Found& one) { return std::pair(one.source.messages, one.endpoint); });
  if (found.size() > limits.most_sources) found.resize(limits.most_sources);
  add_times(of.history, &found);
  std::ranges::stable_sort(found, {}, [](const Found& one) { return one.source.first; });
  CountedSources out;
  if (!of.history.empty()) out.run.start = std::max<std::int64_t>(of.history.front().begin, 0);
  for (const Found& one : found) {
    out.run.sources.push_back(one.source);
    out.endpoints.push_back(one.endpoint);
  }
  return out;
}

Result<LastRun> read_last_run(const std::string& folder, int rank, int ranks,
                              const LastRunLimits& limits) {
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) return Status{Code::system, std::generic_category().message(errno), errno};
  LatestProcess latest;
  for_each_entry(opened, [&](std::string_view file) {
    if (const auto name = parse_report_name(file); name && name->rank == rank)
      latest.offer(opened, file, *name);
  });
  if (latest.files.empty())
    return Status{Code::invalid, fmt::format("there is no report of rank {}", rank)};
  std::vector<EndpointReport> reports;
  for (const std::string& file : latest.files) {
    const Result<std::string> text = read_report_file(opened, file);
    if (!text) return text.status();
    Result<EndpointReport> report = report_from_json(text.value());
    if (!report) {
      return Status{report.status().code(), fmt::format("{}: {}", file, report.status().text())};
    }
    reports.push_back(std::move(report).value());
  }
  Result<CountedSources> counted = counted_sources(reports, rank, ranks, limits);
  if (!counted) return counted.status();
  LastRun run = std::move(counted.value().run);
  std::unordered_map<std::uint64_t, std::optional<std::uint32_t>> rank_of;
  for (const std::uint64_t endpoint : counted.value().endpoints) rank_of[endpoint];
  for_each_entry(opened, [&](std::string_view file) {
    const auto name = parse_report_name(file);
    if (!name || name->rank >= ranks || name->rank == rank) return;
    if (const auto known = rank_of.find(name->endpoint); known != rank_of.end())
      known->second = static_cast<std::uint32_t>(name->rank);
  });
  std::vector<LastRun::Source> known;
  for (std::size_t i = 0; i < run.sources.size(); ++i) {
    const auto its_rank = rank_of[counted.value().endpoints[i]];
    if (!its_rank) continue;  // it left no report
    const bool twice = std::ranges::any_of(
        known, [&](const LastRun::Source& other) { return other.rank == *its_rank; });
    if (twice) continue;  // another endpoint of the same process, which sent more
    known.push_back(run.sources[i]);
    known.back().rank = *its_rank;
  }
  run.sources = std::move(known);
  return run;
}

}  // namespace turnout
