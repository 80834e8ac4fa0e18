// SPDX-License-Identifier: BSD-3-Clause
#include <unistd.h>

#include "base/launcher.h"
#include "core/endpoint/endpoint_reporter.h"

namespace turnout {

EndpointReport EndpointReporter::report() const {
  EndpointReport report;
  report.endpoint = context_.address.id;
  report.pid = context_.address.pid;
  report.rank = context_.simulation.rank;
  report.ranks = context_.simulation.ranks;
  if (report.rank < 0) {
    const LauncherIdentity launcher = launcher_identity();
    report.rank = launcher.rank;
    report.ranks = launcher.ranks;
  }
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) == 0) report.host = host.data();
  report.device = context_.device ? context_.device->name() : "none";
  report.policy = context_.settings.policy;
  report.lifetime = context_.clock.now() - context_.born;
  report.started = context_.started_at;
  for (Peer& peer : peer_table_.peers()) {
    PeerReport line{.peer = peer.id,
                    .endpoint = peer.address.id,
                    .pid = peer.address.pid,
                    .send = peer.state->tx.past.report(peer.tx.kind, peer.tx.carried),
                    .receive = peer.state->rx.past.report(peer.rx.kind, peer.rx.carried),
                    .reason = peer.change->reason,
                    .predicted_gain = peer.change->predicted_gain,
                    .observed_gain = context_.receive_cost.gain(peer.rx.kind)};
    if (line.reason.empty() && peer.rx.rate >= 0) {
      line.reason =
          fmt::format("{} ({:.0f} messages/s)", selection::explain(peer.rx.verdict), peer.rx.rate);
    } else if (line.reason.empty()) {
      line.reason = context_.settings.policy == "aqps" || context_.traits.uses_feedback
                        ? "no decision yet"
                        : selection::explain(selection::Reason::forced);
    }
    line.bytes =
        kPeerBytes + (peer.connection->has_rc() ? context_.rc_bytes : 0) +
        (peer.connection->xrc ? sizeof(PeerXrc) + peer.connection->xrc->bytes.bytes() : 0) +
        (peer.state->rx.ring
             ? std::uint64_t{peer.state->rx.ring->entries()} * peer.state->rx.ring->entry_size()
             : 0) +
        std::uint64_t{peer.state->rx.private_queue.count} * resources_.receive_pool.size();
    line.lost = peer.lost && !peer.shut_down;
    line.tear_downs = peer.connection->eviction.torn_down;
    line.source = source_report(peer);
    report.peers.push_back(std::move(line));
  }
  report.receive_costs = context_.receive_cost.lines();
  report_history(&report);
  report.decisions.assign(context_.decisions.kept().begin(), context_.decisions.kept().end());
  report.decisions_dropped = context_.decisions.dropped();
  report_memory(&report);
  report_selection(&report);
  report.operations.unexpected = operations_.unexpected.unexpected_count();
  report.operations.rendezvous = operations_.put.rendezvous_count();
  report.operations.measured_limit = operations_.send_engine.measured_limit();
  report.operations.rtrs = operations_.rtr.rtrs_sent();
  report.operations.puts = operations_.put.puts();
  report.operations.put_completions = operations_.put.put_completions();
  report.operations.credit_messages = credits_.credit_messages();
  report.operations.refusals = channels_.negotiator.refusals();
  report.shared_receives = {shared_receives_.shared().limit_events,
                            shared_receives_.shared().growths,
                            resources_.receive_pool.chunks_gone(), flow_.waits(), 0};
  report.private_receives = private_receives_.private_report();
  report.connections = eviction_.report();
  report.rc_queue_pairs_peak = channels_.rc.rc_peak();
  const RegistrationCache::Counts& kept = registration_.registrations().counts();
  report.registrations = {registration_.registrations_off(),
                          kept.hits,
                          kept.misses,
                          kept.evictions,
                          kept.invalidations,
                          kept.bytes,
                          kept.bytes_peak};
  if constexpr (kProfiled) {
    ProfileReport& profile = report.profile.emplace();
    profile.counts = context_.profile;
    if (context_.device) profile.rnr_retries = context_.device->rnr_retries();
    parts_.call_time.report(&profile);
  }
  return report;
}

// What `turnout why` computes with. A message count is kept as a rate, to eight digits.
std::optional<SourceReport> EndpointReporter::source_report(const Peer& peer) const {
  const LatestSelection& latest = channels_.selector.latest();
  if (latest.time == 0 || peer.rx.rate < 0 || peer.self) return std::nullopt;
  const Nanoseconds refused =
      std::max<Nanoseconds>(peer.change->refused_until - context_.clock.now(), 0);
  const bool connected = peer.connection->has_rc();
  if (peer.rx.rate <= 0 && peer.rx.kind == context_.default_channel && refused == 0 && !connected)
    return std::nullopt;
  const selection::SenderFeedback feedback = peer.rx.feedback.of_sender();
  const double seconds = static_cast<double>(latest.window.length()) / 1e9;
  return SourceReport{.messages = static_cast<std::uint64_t>(
                          std::llround(static_cast<double>(peer.rx.rate) * seconds)),
                      .connected = connected,
                      .refused_for = refused,
                      .busy = static_cast<double>(feedback.busy),
                      .switched = static_cast<double>(feedback.switched),
                      .active_rc = feedback.active_rc,
                      .here = feedback.here,
                      .full = feedback.full};
}

void EndpointReporter::report_selection(EndpointReport* report) const {
  const LatestSelection& latest = channels_.selector.latest();
  if (latest.time == 0) return;
  const selection::Limits& limits = latest.limits;
  SelectionReport& out = report->selection.emplace();
  out = {.time = std::max<Nanoseconds>(latest.time - context_.born, 0),
         .window = latest.window.length(),
         .messages = latest.messages,
         .gain_current = latest.gain_current,
         .gain_best = latest.gain_best,
         .threshold = latest.threshold,
         .gain_threshold = static_cast<double>(context_.settings.gain_threshold),
         .busy = latest.terms.busy,
         .repaid = latest.terms.repaid,
         .under_way = latest.terms.under_way,
         .sending_rc = latest.terms.sending_rc,
         .ring_entries = static_cast<std::uint32_t>(context_.settings.ring_entries),
         .max_active_rc = limits.max_active_rc,
         .max_channels = limits.max_channels,
         .dc_rdma = limits.dc_rdma_available,
         .bytes_available = limits.bytes_available,
         .bytes_per_ring = limits.bytes_per_ring,
         .bytes_per_rc = limits.bytes_per_rc,
         .bytes_per_target = limits.bytes_per_target,
         .default_channel = context_.default_channel,
         .costs = {}};
  for (const selection::CostRow& row : selection::cost_table()) {
    const selection::CostValue& cost = context_.costs.*row.field;
    out.costs.push_back({fmt::format("{}.{}", row.group, row.name), cost.value, cost.uncertainty});
  }
}

void EndpointReporter::report_memory(EndpointReport* report) const {
  for (std::size_t i = 0; i < MemoryHistory::kKinds; ++i) {
    const auto kind = static_cast<MemoryKind>(i);
    const MemoryAccount::Line& line = context_.account.line(kind);
    report->memory.push_back(
        {std::string(name(kind)), line.now, line.peak, line.objects, line.objects_peak});
  }
  report->budget = context_.account.budget();
  report->used = context_.account.used();
  report->peak = context_.account.peak();
  for (const MemoryHistory::Point& point : parts_.memory_history.points(context_.clock.now())) {
    report->memory_over_time.push_back({std::max<Nanoseconds>(point.time - context_.born, 0),
                                        {point.bytes.begin(), point.bytes.end()}});
  }
}

// The intervals of the statistics, and the current one.
void EndpointReporter::report_history(EndpointReport* report) const {
  const auto age_of = [this](Nanoseconds time) {
    return std::max<Nanoseconds>(time - context_.born, 0);
  };
  const selection::Statistics* const statistics = context_.statistics.get();
  if (statistics != nullptr) {
    for (selection::WindowCounts& slot : statistics->slots()) {
      HistoryInterval& interval = report->history.emplace_back();
      interval.begin = age_of(slot.window.begin);
      interval.end = age_of(slot.window.end);
      interval.messages = slot.messages;
      for (const selection::SourceCount& source : slot.sources) {
        interval.sources.emplace_back(source.peer, source.messages);
      }
    }
  }
  // A policy without statistics resets the counts at each decision: there is no history.
  if (statistics != nullptr || channels_.selector.next_decision() - context_.settings.interval <=
                                   channels_.selector.interval_began()) {
    HistoryInterval now{age_of(channels_.selector.interval_began()), report->lifetime, 0, {}};
    for (Peer& peer : peer_table_.peers()) {
      if (peer.rx.window == 0) continue;
      now.messages += peer.rx.window;
      now.sources.emplace_back(peer.id, peer.rx.window);
    }
    if (now.messages > 0) report->history.push_back(std::move(now));
  }
  std::size_t entries = 0, first = report->history.size();
  while (first > 0) {
    entries += report->history[first - 1].sources.size() + 1;
    if (entries > EndpointReport::kMaxHistory) break;
    --first;
  }
  report->history.erase(report->history.begin(),
                        report->history.begin() + static_cast<std::ptrdiff_t>(first));
}

}  // namespace turnout
