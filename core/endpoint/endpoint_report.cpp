// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "core/endpoint/endpoint_core.h"
#include "core/types/launcher.h"

namespace turnout {

EndpointReport EndpointCore::report() const {
  EndpointReport report;
  report.endpoint = address_.id;
  report.pid = address_.pid;
  const LauncherIdentity launcher = launcher_identity();
  report.rank = launcher.rank;
  report.ranks = launcher.ranks;
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) == 0) report.host = host.data();
  report.device = device_ ? device_->name() : "none";
  report.policy = settings_.policy;
  report.lifetime = clock_.now() - born_;
  report.started = started_at_;
  for (const auto& peer : peers_) {
    PeerReport line;
    line.peer = peer->id;
    line.endpoint = peer->address.id;
    line.pid = peer->address.pid;
    line.send = peer->sent.report();
    line.receive = peer->received.report();
    line.reason = peer->reason;
    if (line.reason.empty() && peer->rate >= 0) {
      line.reason =
          fmt::format("{} ({:.0f} messages/s)", selection::explain(peer->verdict), peer->rate);
    } else if (line.reason.empty()) {
      line.reason = settings_.policy == "aqps" || uses_feedback_
                        ? "no decision yet"
                        : selection::explain(selection::Reason::forced);
    }
    line.predicted_gain = peer->predicted_gain;
    line.observed_gain = receive_cost_.gain(peer->receive_kind);
    line.bytes =
        kPeerBytes + (peer->has_rc() ? rc_bytes_ : 0) +
        (peer->xrc ? sizeof(PeerXrc) + peer->xrc->bytes.bytes() : 0) +
        (peer->ring ? std::uint64_t{peer->ring->entries()} * peer->ring->entry_size() : 0) +
        std::uint64_t{peer->private_receives.count} * receive_pool_.size();
    line.lost = peer->lost && !peer->shut_down;
    line.tear_downs = peer->eviction.torn_down;
    report.peers.push_back(std::move(line));
  }
  report.receive_costs = receive_cost_.lines();
  report_history(&report);
  report.decisions.assign(decisions_.kept().begin(), decisions_.kept().end());
  report.decisions_dropped = decisions_.dropped();
  report_memory(&report);
  report.unexpected = unexpected_count_;
  report.rendezvous = rendezvous_count_;
  report.rtrs = rtrs_sent_;
  report.puts = puts_;
  report.put_completions = put_completions_;
  report.credit_messages = credit_messages_;
  report.refusals = refusals_;
  report.shared_receives = {shared_.limit_events, shared_.growths, receive_pool_.chunks_gone(),
                            flow_.waits(), 0};
  report.private_receives = private_report_;
  report.connections = eviction_.report();
  report.rc_queue_pairs_peak = rc_peak_;
  const RegistrationCache::Counts& kept = registrations_.counts();
  report.registrations = {registrations_off_, kept.hits,  kept.misses,    kept.evictions,
                          kept.invalidations, kept.bytes, kept.bytes_peak};
  if constexpr (kProfiled) {
    ProfileReport& profile = report.profile.emplace();
    profile.counts = profile_;
    if (device_) profile.rnr_retries = device_->rnr_retries();
    call_time_.report(&profile);
  }
  return report;
}

void EndpointCore::report_memory(EndpointReport* report) const {
  for (std::size_t i = 0; i < MemoryHistory::kKinds; ++i) {
    const auto kind = static_cast<MemoryKind>(i);
    const MemoryAccount::Line& line = account_.line(kind);
    report->memory.push_back(
        {std::string(name(kind)), line.now, line.peak, line.objects, line.objects_peak});
  }
  report->budget = account_.budget();
  report->used = account_.used();
  report->peak = account_.peak();
  for (const MemoryHistory::Point& point : memory_history_.points(clock_.now())) {
    report->memory_over_time.push_back(
        {std::max<Nanoseconds>(point.time - born_, 0), {point.bytes.begin(), point.bytes.end()}});
  }
}

// The intervals of the statistics, and the current one.
void EndpointCore::report_history(EndpointReport* report) const {
  const auto age_of = [this](Nanoseconds time) { return std::max<Nanoseconds>(time - born_, 0); };
  const selection::Statistics* const statistics = statistics_.get();
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
  if (statistics != nullptr || next_decision_ - settings_.interval <= interval_began_) {
    HistoryInterval now{age_of(interval_began_), report->lifetime, 0, {}};
    for (const auto& peer : peers_) {
      if (peer->window == 0) continue;
      now.messages += peer->window;
      now.sources.emplace_back(peer->id, peer->window);
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
