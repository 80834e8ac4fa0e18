// SPDX-License-Identifier: BSD-3-Clause
#include "core/report/job_findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>

#include "base/value.h"
#include "core/report/report_text.h"

namespace turnout {

namespace {

constexpr double kNearBudget = 0.9;      // of the budget: a warning
constexpr double kLargeShare = 0.5;      // of all bytes, to or from one process
constexpr double kMostOfThem = 0.8;      // of a process's bytes: who sends these is named
constexpr double kManyUnexpected = 0.3;  // of the messages received
constexpr std::uint64_t kManySwitches = 8;

std::string percent(double share) {
  if (share > 0 && share < 0.01) return "less than 1 %";
  return fmt::format("{:.0f} %", 100 * share);
}

template <class Number>
std::string number(Number count) {
  return count_text(static_cast<double>(count));
}

// "1 pair", "2 pairs", "2 processes".
template <class Number>
std::string some(Number count, std::string_view noun) {
  const std::string_view plural = count == 1 ? "" : noun.ends_with('s') ? "es" : "s";
  return fmt::format("{} {}{}", number(count), noun, plural);
}

std::size_t largest_of(const std::vector<double>& values) {
  return static_cast<std::size_t>(std::ranges::max_element(values) - values.begin());
}

class Finder {
 public:
  Finder(std::span<const EndpointReport> reports, const JobTraffic& traffic)
      : reports_(reports), traffic_(traffic) {
    for (const JobTraffic::Pair& pair : traffic.pairs) {
      messages_ += pair.messages;
      bytes_ += pair.bytes;
      if (pair.messages > 0) ++busy_pairs_;
    }
    for (const JobTraffic::Process& process : traffic.processes) {
      if (!process.reports.empty()) ++reporting_;
    }
  }

  std::vector<Finding> find() {
    processes();
    lost_peers();
    failed_connections();
    memory();
    refusals();
    receiver_not_ready();
    flapping();
    if (messages_ > 0) {
      concentration();
      channels();
      unexpected();
    }
    library_time();
    std::stable_sort(findings_.begin() + 1, findings_.end(),
                     [](const Finding& a, const Finding& b) { return a.level > b.level; });
    return std::move(findings_);
  }

 private:
  void warn(std::string text, std::string advice = {}) {
    findings_.push_back({Finding::Level::warning, std::move(text), std::move(advice)});
  }
  void note(std::string text, std::string advice = {}) {
    findings_.push_back({Finding::Level::note, std::move(text), std::move(advice)});
  }
  template <class Get>
  [[nodiscard]] double sum(Get get) const {
    double all = 0;
    for (const EndpointReport& report : reports_) all += static_cast<double>(get(report));
    return all;
  }
  [[nodiscard]] const std::string& name(std::size_t process) const {
    return traffic_.processes[process].name;
  }

  void processes() {
    int ranks = -1;
    std::set<std::string> hosts;
    std::set<int> seen;
    for (const EndpointReport& report : reports_) {
      ranks = std::max(ranks, report.ranks);
      hosts.insert(report.host);
      if (report.rank >= 0) seen.insert(report.rank);
    }
    const std::size_t reported = seen.empty() ? reporting_ : seen.size();
    if (ranks > 0 && reported < static_cast<std::size_t>(ranks)) {
      warn(fmt::format("{} of {} processes left a report.", number(reported), number(ranks)),
           "The others did not use Turnout, were killed, or are still running.");
    } else if (ranks > 0) {
      note(fmt::format("{0} of {0} processes used Turnout.", number(ranks)));
    } else {
      note(fmt::format("{} used Turnout.", some(reported, "process")));
    }
    if (messages_ > 0 ||
        std::max<std::size_t>(reporting_, static_cast<std::size_t>(std::max(ranks, 0))) < 2) {
      return;
    }
    if (hosts.size() == 1) {
      warn(
          "No message used the network adapter: on one host MPI sends all messages through its own "
          "shared memory.",
          "To send them over Turnout, set MPIR_CVAR_NOLOCAL=1 (MPICH), I_MPI_FABRICS=ofi (Intel "
          "MPI) or --mca pml cm (Open MPI).");
    } else {
      warn("No message used the network adapter.", "Does the program communicate?");
    }
  }

  void lost_peers() {
    std::size_t lost = 0;
    std::string example;
    for (const EndpointReport& report : reports_) {
      for (const PeerReport& peer : report.peers) {
        if (!peer.lost) continue;
        if (lost++ == 0) example = process_name(report);
      }
    }
    if (lost == 0) return;
    warn(fmt::format("{} {} lost, first reported by {}.", some(lost, "peer"),
                     lost == 1 ? "was" : "were", example),
         "A lost peer was killed or became unreachable; see its log.");
  }

  void failed_connections() {
    const double failed = sum([](const EndpointReport& one) { return one.connections.failed; });
    if (failed == 0) return;
    warn(fmt::format("{} failed and recovered; lost messages were resent.",
                     some(failed, "RC connection")),
         "On a real adapter, check links and cables.");
  }

  void memory() {
    const auto share = [](const EndpointReport& report) {
      return report.budget == 0
                 ? -1.0
                 : static_cast<double>(report.peak) / static_cast<double>(report.budget);
    };
    const auto fullest = std::ranges::max_element(reports_, {}, share);
    if (share(*fullest) < 0) return;
    const auto near = std::ranges::count_if(
        reports_, [&](const EndpointReport& report) { return share(report) >= kNearBudget; });
    const std::string peak = fmt::format("{} of {}", value::human_bytes(fullest->peak),
                                         value::human_bytes(fullest->budget));
    if (near == 0) {
      note(fmt::format("Memory stayed within the budget: the highest peak was {} of it ({}, {}).",
                       percent(share(*fullest)), peak, process_name(*fullest)));
      return;
    }
    std::string text = fmt::format("The memory of {} peaked at {} of its budget ({})",
                                   process_name(*fullest), percent(share(*fullest)), peak);
    if (near > 1) {
      text += fmt::format("; {} processes came close to it", number(near));
    }
    warn(text + ".", "If channels were refused for busy pairs, raise TURNOUT_MEMORY_BUDGET.");
  }

  void refusals() {
    const double decided = sum([](const EndpointReport& one) { return one.decisions.size(); });
    const double refused = sum([](const EndpointReport& one) {
      return std::ranges::count_if(one.decisions, [](const DecisionReport& decision) {
        return decision.outcome.starts_with("refused");
      });
    });
    if (refused == 0) return;
    warn(fmt::format("{} of {} channel changes were refused.", number(refused), number(decided)),
         "The decisions list the reasons.");
  }

  // Of real adapters the count is that of a whole port, so that a sum would count it several times.
  void receiver_not_ready() {
    const auto retries = [](const EndpointReport& report) {
      return report.profile ? report.profile->rnr_retries.value_or(0) : 0;
    };
    const auto most = std::ranges::max_element(reports_, {}, retries);
    if (retries(*most) == 0) return;
    const auto waited = std::ranges::count_if(
        reports_, [&](const EndpointReport& report) { return retries(report) > 0; });
    const auto count = static_cast<double>(retries(*most));
    std::string text = fmt::format("{} resent {} because the receiver was not ready (RNR)",
                                   process_name(*most), some(count, "message"));
    if (waited > 1) {
      text += fmt::format(", the most of {} processes", number(waited));
    }
    text[0] = static_cast<char>(text[0] == 'r' ? 'R' : text[0] == 'p' ? 'P' : text[0]);
    if (count > 0.01 * messages_) {
      warn(text + ".", "A larger TURNOUT_RECEIVE_BUFFERS posts more receives.");
    } else {
      note(text + ".");
    }
  }

  void flapping() {
    const auto switches = [](const JobTraffic::Pair& pair) { return pair.direction().switches; };
    const auto often = std::ranges::count_if(traffic_.pairs, [&](const JobTraffic::Pair& pair) {
      return switches(pair) > kManySwitches;
    });
    if (often == 0) return;
    const auto worst = std::ranges::max_element(traffic_.pairs, {}, switches);
    note(fmt::format("{} changed channels more than {} times; {} to {} did so {} times.",
                     some(often, "pair"), kManySwitches, name(worst->from), name(worst->to),
                     number(worst->direction().switches)));
  }

  // Whether most bytes went to one process, or came from one.
  void concentration() {
    const std::size_t n = traffic_.processes.size();
    if (n < 3 || bytes_ == 0) return;
    std::vector<double> in(n), out(n);
    for (const JobTraffic::Pair& pair : traffic_.pairs) {
      in[pair.to] += pair.bytes;
      out[pair.from] += pair.bytes;
    }
    const std::size_t to = largest_of(in), from = largest_of(out);
    if (in[to] > kLargeShare * bytes_) {
      concentrated(to, true, in[to]);
    } else if (out[from] > kLargeShare * bytes_) {
      concentrated(from, false, out[from]);
    }
  }

  void concentrated(std::size_t process, bool incoming, double bytes) {
    std::vector<double> others(traffic_.processes.size());
    for (const JobTraffic::Pair& pair : traffic_.pairs) {
      if ((incoming ? pair.to : pair.from) == process) {
        others[incoming ? pair.from : pair.to] += pair.bytes;
      }
    }
    const std::size_t largest = largest_of(others);
    std::ranges::sort(others, std::greater<>());
    std::size_t few = 0;
    double theirs = 0;
    while (few < others.size() && theirs < kMostOfThem * bytes) theirs += others[few++];
    const bool is_few = few <= 3 && few * 2 < traffic_.processes.size();
    if (few == 1 && is_few) {
      note(fmt::format("{} of all bytes went from {} to {}.", percent(theirs / bytes_),
                       name(incoming ? largest : process), name(incoming ? process : largest)));
    } else if (incoming && is_few) {
      note(fmt::format("{} processes sent {} of all bytes to {}.", few == 2 ? "Two" : "Three",
                       percent(theirs / bytes_), name(process)));
    } else if (incoming) {
      note(fmt::format("{} of all bytes went to {}.", percent(bytes / bytes_), name(process)));
    } else if (is_few) {
      note(fmt::format("{} of all bytes went from {} to {} processes.", percent(theirs / bytes_),
                       name(process), few == 2 ? "two" : "three"));
    } else {
      note(fmt::format("{} of all bytes came from {}.", percent(bytes / bytes_), name(process)));
    }
  }

  // Which channels the pairs have at the end, and what these carried while they were in use.
  void channels() {
    std::array<double, kChannelKinds> pairs{}, carried{};
    double all = 0;
    for (const JobTraffic::Pair& pair : traffic_.pairs) {
      if (pair.messages == 0) continue;
      ++pairs[static_cast<std::size_t>(pair.last_channel())];
      for (const ChannelSpan& span : pair.direction().spans) {
        carried[static_cast<std::size_t>(span.channel)] += static_cast<double>(span.messages);
        all += static_cast<double>(span.messages);
      }
    }
    const double busy = static_cast<double>(busy_pairs_);
    for (const ChannelKind kind : {ChannelKind::rc_rdma, ChannelKind::xrc_rdma,
                                   ChannelKind::dc_rdma, ChannelKind::rc_srq, ChannelKind::rc_sr}) {
      const auto k = static_cast<std::size_t>(kind);
      if (pairs[k] == 0) continue;
      note(fmt::format("{} of {} ended on {}, which carried {} of the messages.", number(pairs[k]),
                       some(busy, "pair"), turnout::name(kind),
                       percent(carried[k] / std::max(all, 1.0))));
    }
    for (const ChannelKind kind : {ChannelKind::dc_sendrecv, ChannelKind::ud_sendrecv}) {
      if (pairs[static_cast<std::size_t>(kind)] != busy) continue;
      note(fmt::format("{} ended on {}, the default transport: none kept a faster channel.",
                       busy == 1   ? "The only pair"
                       : busy == 2 ? "Both pairs"
                                   : fmt::format("All {} pairs", number(busy)),
                       turnout::name(kind)));
    }
  }

  void unexpected() {
    const double came = sum([](const EndpointReport& one) { return one.operations.unexpected; });
    double received = 0;
    for (const EndpointReport& report : reports_) {
      for (const PeerReport& peer : report.peers) {
        for (const ChannelSpan& span : peer.receive.spans) {
          received += static_cast<double>(span.messages);
        }
      }
    }
    if (received == 0 || came <= kManyUnexpected * received) return;
    note(fmt::format("{} of the messages were unexpected: they arrived before a matching receive "
                     "was posted.",
                     percent(std::min(came / received, 1.0))),
         "Posting receives earlier saves a copy and memory.");
  }

  void library_time() {
    double least = 2, most = 0;
    for (const EndpointReport& report : reports_) {
      if (!report.profile || report.profile->calls_measured == 0 || report.lifetime <= 0) continue;
      const double share = std::min(
          static_cast<double>(report.profile->library_time) / static_cast<double>(report.lifetime),
          1.0);
      least = std::min(least, share);
      most = std::max(most, share);
    }
    if (most == 0) return;
    const std::string from = percent(least), to = percent(most);
    note(from == to ? fmt::format("Processes spent {} of their time in Turnout.", to)
                    : fmt::format("Processes spent {} to {} of their time in Turnout.", from, to));
  }

  std::span<const EndpointReport> reports_;
  const JobTraffic& traffic_;
  double messages_ = 0, bytes_ = 0;
  std::size_t busy_pairs_ = 0, reporting_ = 0;
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> job_findings(std::span<const EndpointReport> reports,
                                  const JobTraffic& traffic) {
  if (reports.empty()) return {};
  return Finder(reports, traffic).find();
}

}  // namespace turnout
