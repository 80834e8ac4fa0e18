// SPDX-License-Identifier: BSD-3-Clause
// EndpointReports as tables for people: format_reports().

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "base/value.h"
#include "core/report/job_findings.h"
#include "core/report/job_profile.h"
#include "core/report/job_traffic.h"
#include "core/report/report.h"
#include "core/report/report_text.h"

namespace turnout {

namespace {

using value::human_bytes;
using value::human_count;

constexpr std::size_t kWidth = 110;

using Names = std::map<std::uint64_t, std::string>;  // endpoint -> "rank 3"

// `text` after `lead`, in lines of kWidth.
std::string in_table(const std::string& lead, std::string_view text) {
  return wrap(lead, text, kWidth);
}

template <class... Args>
void line(std::string* out, fmt::format_string<Args...> format, Args&&... args) {
  *out += in_table("  ", fmt::format(format, std::forward<Args>(args)...));
}

std::string duration(std::uint64_t ns) {
  return value::human_duration(static_cast<std::int64_t>(std::min<std::uint64_t>(ns, INT64_MAX)));
}

// In 13 columns.
std::string messages_text(std::uint64_t count) {
  return count <= 9'999'999'999 ? human_count(count)
                                : fmt::format("{:.3e}", static_cast<double>(count));
}

// Nanoseconds per message, in 7 columns.
std::string gain_text(double nanoseconds) {
  const std::string text = fmt::format("{:.0f} ns", nanoseconds);
  return text.size() <= 7 ? text : fmt::format("{:.0e}", nanoseconds);
}

// What a message received costs, by channel: where the gains observed come from.
void costs_line(std::string* out, std::span<const ReceiveCostLine> costs) {
  if (costs.empty()) return;
  std::string text = "CPU time per received message:";
  for (const ReceiveCostLine& line : costs) {
    text += fmt::format("{} {} {:.0f} ns ({} measured)", &line == &costs.front() ? "" : ",",
                        name(line.channel), line.mean, human_count(line.messages));
  }
  *out += in_table("  ", text);
}

void registrations_line(std::string* out, const RegistrationReport& report) {
  if (!report.off.empty()) {
    line(out, "registration cache off: {}", printable(report.off));
  } else if (report.hits + report.misses > 0) {
    line(out,
         "registration cache: {} hits, {} misses, {} evictions, {} invalidations; peak {}, at end "
         "{}",
         human_count(report.hits), human_count(report.misses), human_count(report.evictions),
         human_count(report.invalidations), human_bytes(report.bytes_peak),
         human_bytes(report.bytes));
  }
}

void receives_line(std::string* out, const SharedReceivesReport& receives) {
  if (receives.limit_events + receives.growths + receives.credit_waits + receives.rnr_naks == 0) {
    return;
  }
  line(out,
       "shared receive queue: {} low-watermark events, grown {} times, shrunk {} times; {} peers "
       "ran out of credits; {} RNR retries",
       human_count(receives.limit_events), human_count(receives.growths),
       human_count(receives.shrinks), human_count(receives.credit_waits),
       human_count(receives.rnr_naks));
  *out += '\n';
}

void private_receives_line(std::string* out, const PrivateReceivesReport& receives) {
  if (receives.buffers_peak == 0) return;
  line(out,
       "private receive queues: peak {} receives, grown for {} peers, refused {} times; {} "
       "rendezvous control messages received",
       human_count(receives.buffers_peak), human_count(receives.growths),
       human_count(receives.refused), human_count(receives.controls));
  *out += '\n';
}

void connections_line(std::string* out, const ConnectionsReport& connections) {
  if (connections.failed > 0) {
    line(out, "RC connections: {} failed and recovered", human_count(connections.failed));
    *out += '\n';
  }
  if (connections.tear_downs + connections.tear_downs_by_peers + connections.waited == 0) return;
  line(out,
       "RC connections: {} created, {} evicted here and {} by peers; {} peers waited for a "
       "connection slot, {} gave up; time to free a slot: mean {}, longest {}",
       human_count(connections.made), human_count(connections.tear_downs),
       human_count(connections.tear_downs_by_peers), human_count(connections.waited),
       human_count(connections.gave_up),
       duration(connections.freed > 0 ? connections.time / connections.freed : 0),
       duration(connections.time_most));
  *out += '\n';
}

SizeCount total(const DirectionReport& direction) {
  SizeCount sum;
  for (const ChannelSpan& span : direction.spans) sum.add({span.messages, span.bytes});
  return sum;
}

std::string label_of(const PeerReport& peer, const Names& names) {
  const auto found = names.find(peer.endpoint);
  return found != names.end() ? found->second : fmt::format("pid {}", peer.pid);
}

bool ever_on(const DirectionReport& direction, ChannelKind kind) {
  return std::ranges::any_of(direction.spans,
                             [kind](const ChannelSpan& span) { return span.channel == kind; });
}

void peers_table(std::string* out, const EndpointReport& report, const Names& names,
                 std::size_t most) {
  if (report.peers.empty()) {
    *out += "  no peers (see the findings)\n";
    return;
  }
  std::vector<const PeerReport*> order;
  for (const PeerReport& peer : report.peers) order.push_back(&peer);
  std::ranges::stable_sort(order, std::greater<>(), [](const PeerReport* p) {
    return total(p->send).messages + total(p->receive).messages;
  });
  *out += fmt::format("  {:<11} {:<4} {:<{}} {:>13} {:>9} {:>9} {:>7} {:>7}\n", "peer", "dir",
                      "channel over time", kChannelColumns, "messages", "bytes", "memory",
                      "predict", "observe");
  for (std::size_t i = 0; i < order.size() && i < most; ++i) {
    const PeerReport& peer = *order[i];
    const SizeCount sent = total(peer.send), received = total(peer.receive);
    *out += fmt::format("  {:<11} {:<4} {:<{}} {:>13} {:>9}\n", label_of(peer, names), "tx",
                        channels_over_time(peer.send), kChannelColumns,
                        messages_text(sent.messages), human_bytes(sent.bytes));
    const std::string predicted =
        peer.predicted_gain != 0 ? gain_text(peer.predicted_gain) : std::string("-");
    const std::string observed =
        peer.observed_gain ? gain_text(*peer.observed_gain) : std::string("-");
    *out += fmt::format("  {:<11} {:<4} {:<{}} {:>13} {:>9} {:>9} {:>7} {:>7}\n",
                        peer.lost ? "LOST" : "", "rx", channels_over_time(peer.receive),
                        kChannelColumns, messages_text(received.messages),
                        human_bytes(received.bytes), human_bytes(peer.bytes), predicted, observed);
    if (!peer.reason.empty()) *out += in_table("                   why: ", printable(peer.reason));
    if (peer.tear_downs > 0) {
      *out += fmt::format("                   its connection was evicted {} times\n",
                          human_count(peer.tear_downs));
    }
  }
  if (order.size() > most) {
    *out += fmt::format("  and {} peers with fewer messages\n", order.size() - most);
  }
}

void decisions_table(std::string* out, const EndpointReport& report, const Names& names,
                     std::size_t most) {
  if (report.decisions.empty() && report.decisions_dropped == 0) {
    *out += "  no channel change was requested by this process\n";
    return;
  }
  std::map<std::uint32_t, std::string> labels;
  for (const PeerReport& peer : report.peers) labels[peer.peer] = label_of(peer, names);
  const std::size_t count = report.decisions.size();
  const std::size_t first = count > most ? count - most : 0;
  *out += "  decisions";
  if (first > 0 || report.decisions_dropped > 0) {
    *out += fmt::format(" (the last {} of {})", count - first, count + report.decisions_dropped);
  }
  *out += '\n';
  for (std::size_t i = first; i < count; ++i) {
    const DecisionReport& decision = report.decisions[i];
    const auto label = labels.find(decision.peer);
    const std::string lead =
        fmt::format("  {:>8} {:<11} {:<26} ", seconds_text(decision.time),
                    label != labels.end() ? label->second : fmt::format("peer {}", decision.peer),
                    fmt::format("{} -> {}", name(decision.from), name(decision.to)));
    *out += in_table(
        lead, fmt::format("{}: {}", printable(decision.outcome), printable(decision.reason)));
  }
}

void memory_table(std::string* out, const EndpointReport& report) {
  *out += fmt::format("  {:<32} {:>9} {:>9} {:>11}\n", "memory", "now", "peak", "objects");
  for (const MemoryLine& line : report.memory) {
    if (line.peak == 0) continue;
    *out += fmt::format("  {:<32} {:>9} {:>9} {:>11}\n", printable(line.kind),
                        human_bytes(line.now), human_bytes(line.peak),
                        line.objects_peak > 0 ? messages_text(line.objects_peak) : "");
  }
  *out += fmt::format("  {:<32} {:>9} {:>9}  of a budget of {}\n", "all", human_bytes(report.used),
                      human_bytes(report.peak), human_bytes(report.budget));
}

// Where its time went, and what the network saw of it.
void profile_line(std::string* out, const EndpointReport& report) {
  if (!report.profile) return;
  const ProfileReport& profile = *report.profile;
  std::string text = "work requests posted:";
  for (std::size_t kind = 0; kind < kTrafficKinds; ++kind) {
    const SizeCount sum = profile.counts.sent[kind].total();
    text += fmt::format("{} {} {} ({})", kind == 0 ? "" : ",", messages_text(sum.messages),
                        name(static_cast<Traffic>(kind)), human_bytes(sum.bytes));
  }
  *out += in_table("  ", text);
  if (profile.calls_measured == 0) return;
  line(out, "time in the library: {}, standard error {}, of {} ({} calls, {} measured)",
       duration(profile.library_time), duration(profile.library_time_error),
       value::human_duration(report.lifetime), human_count(profile.calls),
       human_count(profile.calls_measured));
}

void rank_tables(std::string* out, const EndpointReport& report, const Names& names,
                 const TableLimits& limits) {
  std::string head = process_name(report);
  if (report.ranks >= 0) head += fmt::format(" of {}", report.ranks);
  if (report.rank >= 0) head += fmt::format(", pid {}", report.pid);
  *out +=
      in_table("", fmt::format("{}, host {}, device {}, policy {}, {}", head,
                               printable(report.host), printable(report.device),
                               printable(report.policy), value::human_duration(report.lifetime)));
  peers_table(out, report, names, limits.peers);
  decisions_table(out, report, names, limits.decisions);
  memory_table(out, report);
  costs_line(out, report.receive_costs);
  profile_line(out, report);
  const OperationCounts& counts = report.operations;
  line(out,
       "{} unexpected messages, {} rendezvous messages, {} credit messages, {} requests refused",
       human_count(counts.unexpected), human_count(counts.rendezvous),
       human_count(counts.credit_messages), human_count(counts.refusals));
  if (counts.measured_limit != 0) {
    line(out, "messages above {} use rendezvous, by the time that both took",
         value::human_bytes(counts.measured_limit));
  }
  registrations_line(out, report.registrations);
  *out += '\n';
  receives_line(out, report.shared_receives);
  private_receives_line(out, report.private_receives);
  connections_line(out, report.connections);
  if (counts.rtrs + counts.puts == 0) return;
  line(out, "{} RTRs sent; {} messages written to RTRs, {} of them with a completion message",
       human_count(counts.rtrs), human_count(counts.puts), human_count(counts.put_completions));
  *out += '\n';
}

// Over all processes, each message of a sample with the same weight.
std::vector<ReceiveCostLine> mean_costs(std::span<const EndpointReport> reports) {
  std::array<ReceiveCostLine, kChannelKinds> by_channel{};
  for (const EndpointReport& report : reports) {
    for (const ReceiveCostLine& line : report.receive_costs) {
      ReceiveCostLine& sum = by_channel[static_cast<std::size_t>(line.channel)];
      sum.channel = line.channel;
      sum.mean += line.mean * static_cast<double>(line.messages);  // divided below
      sum.messages += line.messages;
    }
  }
  std::vector<ReceiveCostLine> lines(by_channel.begin(), by_channel.end());
  std::erase_if(lines, [](const ReceiveCostLine& line) { return line.messages == 0; });
  for (ReceiveCostLine& line : lines) line.mean /= static_cast<double>(line.messages);
  return lines;
}

void sums(std::string* out, std::span<const EndpointReport> reports) {
  std::array<SizeCount, kChannelKinds> by_channel{};
  SizeCount all;
  std::uint64_t receiving_peers = 0, rc_now = 0, rc_ever = 0, switches = 0, decided = 0, lost = 0;
  ConnectionsReport connections;
  for (const EndpointReport& report : reports) {
    decided += report.decisions.size() + report.decisions_dropped;
    connections.add(report.connections);
    for (const PeerReport& peer : report.peers) {
      for (const ChannelSpan& span : peer.send.spans) {
        by_channel[static_cast<std::size_t>(span.channel)].add({span.messages, span.bytes});
      }
      all.add(total(peer.send));
      switches += peer.receive.switches;
      lost += peer.lost ? 1 : 0;
      if (peer.receive.spans.empty()) continue;
      ++receiving_peers;
      if (peer.receive.spans.back().channel == ChannelKind::rc_rdma) ++rc_now;
      if (ever_on(peer.receive, ChannelKind::rc_rdma)) ++rc_ever;
    }
  }
  *out += fmt::format("All processes: {}\n", reports.size());
  *out +=
      fmt::format("  {:<32} {:>13} {:>9} {:>7}\n", "sent by channel", "messages", "bytes", "share");
  for (std::size_t k = 0; k < kChannelKinds; ++k) {
    if (by_channel[k].messages == 0) continue;
    *out += fmt::format(
        "  {:<32} {:>13} {:>9} {:>6.1f}%\n", name(static_cast<ChannelKind>(k)),
        messages_text(by_channel[k].messages), human_bytes(by_channel[k].bytes),
        100.0 * static_cast<double>(by_channel[k].messages) / static_cast<double>(all.messages));
  }
  *out += fmt::format("  {:<32} {:>13} {:>9}\n", "all", messages_text(all.messages),
                      human_bytes(all.bytes));
  *out += fmt::format("  incoming directions on RC-RDMA: {} of {} at end, {} at any time\n", rc_now,
                      receiving_peers, rc_ever);
  costs_line(out, mean_costs(reports));
  *out += fmt::format("  channel changes: {} requested, {} completed\n", human_count(decided),
                      human_count(switches));
  if (connections.tear_downs > 0) {
    *out += fmt::format("  RC connections: {} ends created, {} evicted\n",
                        human_count(connections.made), human_count(connections.tear_downs));
  }
  const auto largest = std::ranges::max_element(reports, {}, &EndpointReport::peak);
  *out +=
      fmt::format("  highest memory of one process: {} of a budget of {} ({})\n",
                  human_bytes(largest->peak), human_bytes(largest->budget), process_name(*largest));
  if (lost > 0) *out += fmt::format("  peers lost: {}\n", lost);
}

void findings(std::string* out, std::span<const EndpointReport> reports) {
  *out += "Findings\n";
  for (const Finding& finding : job_findings(reports, job_traffic(reports))) {
    *out += in_table(finding.level == Finding::Level::warning ? "  ! " : "  - ", finding.text);
    if (!finding.advice.empty()) *out += in_table("    ", finding.advice);
  }
}

}  // namespace

std::string format_reports(std::span<const EndpointReport> reports, const TableLimits& limits) {
  if (reports.empty()) return "no reports\n";
  std::vector<const EndpointReport*> order;
  Names names;
  for (const EndpointReport& report : reports) {
    order.push_back(&report);
    names[report.endpoint] = process_name(report);
  }
  std::ranges::stable_sort(
      order, {}, [](const EndpointReport* report) { return std::pair(report->rank, report->pid); });
  const std::string rule = fmt::format("{:-<{}}\n", "-- turnout report ", kWidth);
  std::string out = rule;
  for (const EndpointReport* report : order) rank_tables(&out, *report, names, limits);
  sums(&out, reports);
  out += format_profile(job_profile(reports));
  if (limits.findings) findings(&out, reports);
  out += fmt::format("{:-<{}}\n", "", kWidth);
  return out;
}

}  // namespace turnout
