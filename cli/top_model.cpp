// SPDX-License-Identifier: BSD-3-Clause
#include "cli/top_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "cli/top_text.h"
#include "core/report/job_findings.h"
#include "core/report/job_traffic.h"

namespace turnout::cli {
namespace {

struct Both {
  TopTraffic sent, received;
};

Both sums_of(const EndpointReport& report) {
  Both sums;
  for (const PeerReport& peer : report.peers) {
    sums.sent += sum_of(peer.send);
    sums.received += sum_of(peer.receive);
  }
  return sums;
}

std::optional<TopTraffic> rate_between(const TopTraffic& before, const TopTraffic& now,
                                       std::int64_t elapsed) {
  if (elapsed <= 0 || now.messages < before.messages || now.bytes < before.bytes) return {};
  const double seconds = static_cast<double>(elapsed) / 1e9;
  return TopTraffic{(now.messages - before.messages) / seconds,
                    (now.bytes - before.bytes) / seconds};
}

void add_rate(std::optional<TopTraffic>* sum, const std::optional<TopTraffic>& rate) {
  if (rate) *sum = sum->value_or(TopTraffic{}) += *rate;
}

// Neither number can be trusted to be in order, or positive.
std::int64_t elapsed(const EndpointReport& before, const EndpointReport& now) {
  if (before.lifetime < 0 || now.lifetime < before.lifetime) return 0;
  return now.lifetime - before.lifetime;
}

double seconds_since(std::int64_t time, const Watched& of) {
  const double since = static_cast<double>(of.report.lifetime) - static_cast<double>(time);
  return std::max(since / 1e9, 0.0) + std::max(of.age, 0.0);
}

std::uint64_t added(std::uint64_t a, std::uint64_t b) {
  return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

// By the rate, then by all messages.
std::pair<double, double> activity(const TopPeer& peer) {
  TopTraffic now = peer.sent.value_or(TopTraffic{}), ever = sum_of(peer.report->send);
  now += peer.received.value_or(TopTraffic{});
  ever += sum_of(peer.report->receive);
  return {now.messages, ever.messages};
}

std::string stale_text(const TopJob& job) {
  const TopProcess* longest = nullptr;
  std::size_t count = 0;
  for (const TopProcess& process : job.processes) {
    if (!process.stale()) continue;
    ++count;
    if (longest == nullptr || process.age > longest->age) longest = &process;
  }
  if (longest == nullptr) return {};
  if (count == 1) {
    return fmt::format("{} has not called the library for {}: its numbers are from then.",
                       longest->name, long_age(longest->age));
  }
  return fmt::format(
      "{} processes have not called the library for {:.0f} s or more ({}: {}); their numbers are "
      "from then.",
      count, kStaleAge, longest->name, long_age(longest->age));
}

std::string calm_text(const TopJob& job) {
  const auto busiest = std::max_element(job.processes.begin(), job.processes.end(),
                                        [](const TopProcess& a, const TopProcess& b) {
                                          return a.rate().messages < b.rate().messages;
                                        });
  if (busiest == job.processes.end() || busiest->rate().messages <= 0) return "No warnings.";
  return fmt::format("No warnings. {} is the busiest, with {} messages/s.", busiest->name,
                     short_count(busiest->rate().messages));
}

// The first finding only counts reports, which says nothing while other hosts have theirs.
TopNotice notice_of(const TopJob& job, const std::vector<Finding>& findings) {
  for (std::size_t i = 1; i < findings.size(); ++i) {
    const Finding& finding = findings[i];
    if (finding.level != Finding::Level::warning) continue;
    return {true, finding.advice.empty() ? finding.text : finding.text + " " + finding.advice};
  }
  if (std::string stale = stale_text(job); !stale.empty()) return {true, std::move(stale)};
  return {false, calm_text(job)};
}

}  // namespace

TopMemory& TopMemory::operator+=(const TopMemory& other) {
  used = added(used, other.used);
  peak = added(peak, other.peak);
  budget = added(budget, other.budget);
  return *this;
}

TopTraffic sum_of(const DirectionReport& direction) {
  TopTraffic sum;
  for (const ChannelSpan& span : direction.spans) {
    sum += {static_cast<double>(span.messages), static_cast<double>(span.bytes)};
  }
  return sum;
}

std::optional<ChannelKind> peer_channel(const PeerReport& peer) {
  for (const DirectionReport* direction : {&peer.receive, &peer.send}) {
    if (sum_of(*direction).messages > 0) return direction->spans.back().channel;
  }
  return {};
}

void TopModel::add(std::vector<Watched> reports, std::vector<std::string> problems) {
  keep_earlier(reports);
  reports_ = std::move(reports);
  problems_ = std::move(problems);
  names_.clear();
  std::map<std::string, std::vector<const Watched*>> jobs;
  for (const Watched& one : reports_) {
    names_[one.report.endpoint] = process_name(one.report);
    jobs[one.report.job].push_back(&one);
  }
  jobs_.clear();
  for (auto& [name, members] : jobs) jobs_.push_back(make_job(name, std::move(members)));
}

// A report that was only read again does not replace the one before it.
void TopModel::keep_earlier(const std::vector<Watched>& reports) {
  std::map<std::uint64_t, std::int64_t> lifetimes;
  for (const Watched& one : reports) lifetimes[one.report.endpoint] = one.report.lifetime;
  std::map<std::uint64_t, EndpointReport> kept;
  for (Watched& old : reports_) {
    const std::uint64_t endpoint = old.report.endpoint;
    const auto now = lifetimes.find(endpoint);
    if (now == lifetimes.end()) continue;
    if (old.report.lifetime < now->second) {
      kept[endpoint] = std::move(old.report);
    } else if (const auto before = earlier_.find(endpoint);
               before != earlier_.end() && old.report.lifetime == now->second) {
      kept[endpoint] = std::move(before->second);
    }
  }
  earlier_ = std::move(kept);
}

std::string TopModel::peer_name(const PeerReport& peer) const {
  const auto found = names_.find(peer.endpoint);
  return found != names_.end() ? found->second : fmt::format("pid {}", peer.pid);
}

TopJob TopModel::make_job(const std::string& name, std::vector<const Watched*> reports) const {
  TopJob job;
  job.name = name;
  std::map<std::tuple<unsigned, std::string, std::uint32_t>, std::vector<const Watched*>> processes;
  std::vector<EndpointReport> copies;  // what the findings are made of
  for (const Watched* one : reports) {
    const EndpointReport& report = one->report;
    // An unknown rank, -1, sorts last.
    processes[{static_cast<unsigned>(report.rank), report.host, report.pid}].push_back(one);
    job.hosts.insert(report.host);
    job.policies.insert(report.policy);
    job.ranks = std::max(job.ranks, report.ranks);
    job.so_far += sums_of(report).sent;
    copies.push_back(report);
  }
  for (auto& [key, endpoints] : processes) {
    const TopProcess& process = job.processes.emplace_back(make_process(std::move(endpoints)));
    if (!process.stale()) add_rate(&job.sent, process.sent);
    job.memory += process.memory;
    job.lifetime = std::max(job.lifetime, process.lifetime);
  }
  const JobTraffic traffic = job_traffic(copies);
  for (const JobTraffic::Pair& pair : traffic.pairs) {
    if (pair.messages > 0) ++job.pairs[static_cast<std::size_t>(pair.last_channel())];
  }
  job.notice = notice_of(job, job_findings(copies, traffic));
  return job;
}

TopProcess TopModel::make_process(std::vector<const Watched*> endpoints) const {
  TopProcess process;
  process.endpoints = std::move(endpoints);
  process.name = process_name(process.report());
  process.age = process.endpoints.front()->age;
  for (const Watched* one : process.endpoints) {
    const EndpointReport& report = one->report;
    process.age = std::min(process.age, one->age);
    process.lifetime = std::max(process.lifetime, static_cast<double>(report.lifetime) / 1e9);
    process.memory += {report.used, report.peak, report.budget};
    for (const PeerReport& peer : report.peers) {
      if (const auto channel = peer_channel(peer)) {
        ++process.peers[static_cast<std::size_t>(*channel)];
      }
    }
    if (const EndpointReport* const before = earlier(report)) {
      const Both then = sums_of(*before), now = sums_of(report);
      const std::int64_t time = elapsed(*before, report);
      add_rate(&process.sent, rate_between(then.sent, now.sent, time));
      add_rate(&process.received, rate_between(then.received, now.received, time));
    }
  }
  process.decision = last_decision(process);
  return process;
}

std::optional<TopDecision> TopModel::last_decision(const TopProcess& process) const {
  std::optional<TopDecision> last;
  for (const Watched* one : process.endpoints) {
    if (one->report.decisions.empty()) continue;
    const DecisionReport& decision = one->report.decisions.back();
    const double age = seconds_since(decision.time, *one);
    if (last && last->age <= age) continue;
    const auto peer = std::find_if(one->report.peers.begin(), one->report.peers.end(),
                                   [&](const PeerReport& p) { return p.peer == decision.peer; });
    last = {
        &decision,
        peer != one->report.peers.end() ? peer_name(*peer) : fmt::format("peer {}", decision.peer),
        age};
  }
  return last;
}

std::vector<TopPeer> TopModel::peers(const TopProcess& process) const {
  std::vector<TopPeer> peers;
  for (const Watched* one : process.endpoints) {
    const EndpointReport& report = one->report;
    const EndpointReport* const before = earlier(report);
    std::map<std::uint32_t, const PeerReport*> then;
    if (before != nullptr) {
      for (const PeerReport& peer : before->peers) then[peer.peer] = &peer;
    }
    for (const PeerReport& peer : report.peers) {
      TopPeer& line = peers.emplace_back(TopPeer{peer_name(peer), &peer, {}, {}});
      if (before == nullptr) continue;
      static const PeerReport none;
      const auto found = then.find(peer.peer);
      const PeerReport& old = found != then.end() ? *found->second : none;
      const std::int64_t time = elapsed(*before, report);
      line.sent = rate_between(sum_of(old.send), sum_of(peer.send), time);
      line.received = rate_between(sum_of(old.receive), sum_of(peer.receive), time);
    }
  }
  std::stable_sort(peers.begin(), peers.end(),
                   [](const TopPeer& a, const TopPeer& b) { return activity(a) > activity(b); });
  return peers;
}

std::vector<TopDecision> TopModel::decisions(const TopProcess& process) const {
  std::vector<TopDecision> decisions;
  for (const Watched* one : process.endpoints) {
    std::map<std::uint32_t, std::string> labels;
    for (const PeerReport& peer : one->report.peers) labels[peer.peer] = peer_name(peer);
    for (const DecisionReport& decision : one->report.decisions) {
      const auto label = labels.find(decision.peer);
      decisions.push_back(
          {&decision, label != labels.end() ? label->second : fmt::format("peer {}", decision.peer),
           seconds_since(decision.time, *one)});
    }
  }
  // Of decisions at the same time, the one written last is the latest.
  std::reverse(decisions.begin(), decisions.end());
  std::stable_sort(decisions.begin(), decisions.end(),
                   [](const TopDecision& a, const TopDecision& b) { return a.age < b.age; });
  return decisions;
}

}  // namespace turnout::cli
