// SPDX-License-Identifier: BSD-3-Clause
// EndpointReport to and from JSON.
#include "core/report/report.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/report/json_reader.h"
#include "core/report/profile_json.h"

namespace turnout {

namespace {

// What the layout below is; a reader refuses what it does not know.
constexpr std::uint64_t kFormat = 1;

// 64-bit identifiers are text: other tools' numbers are doubles.
std::string hex(std::uint64_t id) {
  return fmt::format("{:#018x}", id);
}

Json direction_to_json(const DirectionReport& direction) {
  Json spans = Json::array();
  for (const ChannelSpan& span : direction.spans) {
    spans.push_back({{"channel", std::string(name(span.channel))},
                     {"since_ns", span.since},
                     {"messages", span.messages},
                     {"bytes", span.bytes}});
  }
  return {{"switches", direction.switches}, {"spans", std::move(spans)}};
}

struct Reader : JsonReader {
  Reader(const Json& object, std::string place, Status* status)
      : JsonReader("a report", object, std::move(place), status) {}
};

void direction_from_json(const Json& json, const std::string& place, DirectionReport* out,
                         Status* status) {
  const Reader reader(json, place, status);
  reader.get("switches", &out->switches);
  reader.each("spans", [&](const Json& element, const std::string& at) {
    ChannelSpan span;
    const Reader r(element, at, status);
    r.get("channel", &span.channel);
    r.get("since_ns", &span.since);
    r.get("messages", &span.messages);
    r.get("bytes", &span.bytes);
    out->spans.push_back(span);
  });
}

Json history_to_json(const std::vector<HistoryInterval>& history) {
  Json intervals = Json::array();
  for (const HistoryInterval& interval : history) {
    Json sources = Json::array();
    for (const auto& [peer, messages] : interval.sources) {
      sources.push_back(Json::array({peer, messages}));
    }
    intervals.push_back({{"begin_ns", interval.begin},
                         {"end_ns", interval.end},
                         {"messages", interval.messages},
                         {"sources", std::move(sources)}});
  }
  return intervals;
}

template <class Integer>
bool whole(const Json& value, Integer* out) {
  if (!value.is_number_unsigned()) return false;
  const auto number = value.get<std::uint64_t>();
  if (!std::in_range<Integer>(number)) return false;
  *out = static_cast<Integer>(number);
  return true;
}

void interval_from_json(const Json& json, const std::string& place,
                        const std::set<std::uint32_t>& peers, HistoryInterval* out,
                        Status* status) {
  const Reader reader(json, place, status);
  reader.get("begin_ns", &out->begin);
  reader.get("end_ns", &out->end);
  // Reports of others need not know of messages that no source is listed for.
  if (reader.has("messages")) reader.get("messages", &out->messages);
  if (status->ok() && out->begin < 0) reader.wrong("begin_ns", "a time since the beginning");
  if (status->ok() && out->end < out->begin) reader.wrong("end_ns", "after its begin_ns");
  reader.each("sources", [&](const Json& pair, std::string at) {
    at.pop_back();  // the point
    std::pair<std::uint32_t, std::uint64_t> source;
    if (!pair.is_array() || pair.size() != 2) {
      *status = {Code::invalid,
                 fmt::format("a report whose \"{}\" is not a peer and its messages", at)};
    } else if (!whole(pair[0], &source.first) || !peers.contains(source.first)) {
      *status = {Code::invalid,
                 fmt::format("a report whose \"{}[0]\" is not one of the report's peers", at)};
    } else if (!whole(pair[1], &source.second)) {
      *status = {Code::invalid,
                 fmt::format("a report whose \"{}[1]\" is not a number of messages", at)};
    }
    out->sources.push_back(source);
  });
}

// Numbers only, a row for each point: time_ns, then the bytes of each line of "memory".
Json memory_points_to_json(const std::vector<MemoryPoint>& points) {
  Json rows = Json::array();
  for (const MemoryPoint& point : points) {
    Json row = Json::array({point.time});
    for (const std::uint64_t bytes : point.bytes) row.push_back(bytes);
    rows.push_back(std::move(row));
  }
  return rows;
}

void memory_points_from_json(const Reader& reader, EndpointReport* report, Status* status) {
  const auto wrong = [&](std::string place, std::string_view expected) {
    place.pop_back();  // the point
    *status = {Code::invalid, fmt::format("a report whose \"{}\" is not {}", place, expected)};
  };
  reader.each(
      "memory_over_time",
      [&](const Json& row, const std::string& at) {
        MemoryPoint point;
        if (!row.is_array() || row.size() != report->memory.size() + 1) {
          wrong(at, "a time and the bytes of each line of \"memory\"");
          return;
        }
        const std::int64_t before =
            report->memory_over_time.empty() ? 0 : report->memory_over_time.back().time;
        if (!whole(row[0], &point.time) || point.time < before) {
          wrong(at, "at a time after the one before it");
          return;
        }
        for (std::size_t i = 1; i < row.size(); ++i) {
          if (whole(row[i], &point.bytes.emplace_back())) continue;
          wrong(fmt::format("{}[{}].", at.substr(0, at.size() - 1), i), "a number of bytes");
          return;
        }
        report->memory_over_time.push_back(std::move(point));
      },
      EndpointReport::kMaxMemoryPoints);
}

Json registrations_to_json(const RegistrationReport& report) {
  return {{"off", report.off},
          {"hits", report.hits},
          {"misses", report.misses},
          {"evictions", report.evictions},
          {"invalidations", report.invalidations},
          {"bytes", report.bytes},
          {"bytes_peak", report.bytes_peak}};
}

void registrations_from_json(const Json& json, RegistrationReport* out, Status* status) {
  const Reader reader(json, "registrations.", status);
  reader.get("off", &out->off);
  reader.get("hits", &out->hits);
  reader.get("misses", &out->misses);
  reader.get("evictions", &out->evictions);
  reader.get("invalidations", &out->invalidations);
  reader.get("bytes", &out->bytes);
  reader.get("bytes_peak", &out->bytes_peak);
}

constexpr std::pair<const char*, std::uint64_t ConnectionsReport::*> kConnectionFields[] = {
    {"made", &ConnectionsReport::made},
    {"tear_downs", &ConnectionsReport::tear_downs},
    {"tear_downs_by_peers", &ConnectionsReport::tear_downs_by_peers},
    {"waited", &ConnectionsReport::waited},
    {"gave_up", &ConnectionsReport::gave_up},
    {"failed", &ConnectionsReport::failed},
    {"freed", &ConnectionsReport::freed},
    {"time_ns", &ConnectionsReport::time},
    {"time_most_ns", &ConnectionsReport::time_most}};

Json connections_to_json(const ConnectionsReport& report) {
  Json json = Json::object();
  for (const auto& [name, field] : kConnectionFields) json[name] = report.*field;
  return json;
}

// What reports have only since they can be measured and drawn, and not all of them.
void optional_parts_from_json(const Reader& reader, EndpointReport* report, Status* status) {
  if (reader.has("receive_costs")) {
    reader.each("receive_costs", [&](const Json& element, const std::string& at) {
      ReceiveCostLine line;
      const Reader r(element, at, status);
      r.get("channel", &line.channel);
      r.get("messages", &line.messages);
      r.get("mean_ns", &line.mean);
      report->receive_costs.push_back(line);
    });
  }
  if (reader.has("started_unix_ns")) {
    reader.get("started_unix_ns", &report->started);
    if (status->ok() && report->started < 0) reader.wrong("started_unix_ns", "a time since 1970");
  }
  if (reader.has("memory_over_time")) memory_points_from_json(reader, report, status);
  if (const Json* const registrations = reader.optional("registrations")) {
    registrations_from_json(*registrations, &report->registrations, status);
  }
  if (const Json* const profile = reader.optional("profile")) {
    profile_from_json(*profile, &report->profile.emplace(), status);
  }
  if (const Json* const receives = reader.optional("shared_receives")) {
    const Reader r(*receives, "shared_receives.", status);
    r.get("limit_events", &report->shared_receives.limit_events);
    r.get("growths", &report->shared_receives.growths);
    r.get("shrinks", &report->shared_receives.shrinks);
    r.get("credit_waits", &report->shared_receives.credit_waits);
    r.get("rnr_naks", &report->shared_receives.rnr_naks);
  }
  if (const Json* const receives = reader.optional("own_receives")) {
    const Reader r(*receives, "own_receives.", status);
    r.get("buffers_peak", &report->private_receives.buffers_peak);
    r.get("growths", &report->private_receives.growths);
    r.get("refused", &report->private_receives.refused);
    r.get("controls", &report->private_receives.controls);
  }
  if (const Json* const connections = reader.optional("connections")) {
    const Reader r(*connections, "connections.", status);
    for (const auto& [name, field] : kConnectionFields) {
      if (r.has(name)) r.get(name, &(report->connections.*field));
    }
  }
  if (!reader.has("history")) return;
  std::set<std::uint32_t> peers;
  for (const PeerReport& peer : report->peers) peers.insert(peer.peer);
  std::size_t entries = 0;
  reader.each("history", [&](const Json& element, const std::string& at) {
    HistoryInterval interval;
    interval_from_json(element, at, peers, &interval, status);
    entries += interval.sources.size() + 1;
    if (status->ok() && entries > 2 * EndpointReport::kMaxHistory) {
      reader.wrong("history", fmt::format("at most {} sources long", EndpointReport::kMaxHistory));
    }
    report->history.push_back(std::move(interval));
  });
}

}  // namespace

bool carried_anything(const EndpointReport& report) {
  for (const PeerReport& peer : report.peers) {
    for (const auto* direction : {&peer.send, &peer.receive}) {
      for (const ChannelSpan& span : direction->spans) {
        if (span.messages > 0) return true;
      }
    }
  }
  return false;
}

std::string to_json(const EndpointReport& report) {
  Json peers = Json::array();
  for (const PeerReport& peer : report.peers) {
    peers.push_back({{"peer", peer.peer},
                     {"endpoint", hex(peer.endpoint)},
                     {"pid", peer.pid},
                     {"send", direction_to_json(peer.send)},
                     {"receive", direction_to_json(peer.receive)},
                     {"reason", peer.reason},
                     {"predicted_gain_ns", finite(peer.predicted_gain)},
                     {"observed_gain_ns",
                      peer.observed_gain ? Json(finite(*peer.observed_gain)) : Json(nullptr)},
                     {"bytes", peer.bytes},
                     {"lost", peer.lost},
                     {"tear_downs", peer.tear_downs}});
  }
  Json decisions = Json::array();
  for (const DecisionReport& decision : report.decisions) {
    decisions.push_back({{"time_ns", decision.time},
                         {"peer", decision.peer},
                         {"from", std::string(name(decision.from))},
                         {"to", std::string(name(decision.to))},
                         {"reason", decision.reason},
                         {"outcome", decision.outcome}});
  }
  Json memory = Json::array();
  for (const MemoryLine& line : report.memory) {
    memory.push_back({{"kind", line.kind},
                      {"now", line.now},
                      {"peak", line.peak},
                      {"objects", line.objects},
                      {"objects_peak", line.objects_peak}});
  }
  Json costs = Json::array();
  for (const ReceiveCostLine& line : report.receive_costs) {
    costs.push_back({{"channel", std::string(name(line.channel))},
                     {"messages", line.messages},
                     {"mean_ns", finite(line.mean)}});
  }
  Json json = {{"turnout_report", kFormat},
               {"job", report.job},
               {"rank", report.rank},
               {"ranks", report.ranks},
               {"host", report.host},
               {"pid", report.pid},
               {"endpoint", hex(report.endpoint)},
               {"device", report.device},
               {"policy", report.policy},
               {"lifetime_ns", report.lifetime},
               {"budget", report.budget},
               {"used", report.used},
               {"peak", report.peak},
               {"unexpected", report.operations.unexpected},
               {"rendezvous", report.operations.rendezvous},
               {"offers", report.operations.rtrs},
               {"puts", report.operations.puts},
               {"puts_told", report.operations.put_completions},
               {"credit_messages", report.operations.credit_messages},
               {"refusals", report.operations.refusals},
               {"registrations", registrations_to_json(report.registrations)},
               {"rc_queue_pairs_peak", report.rc_queue_pairs_peak},
               {"shared_receives",
                {{"limit_events", report.shared_receives.limit_events},
                 {"growths", report.shared_receives.growths},
                 {"shrinks", report.shared_receives.shrinks},
                 {"credit_waits", report.shared_receives.credit_waits},
                 {"rnr_naks", report.shared_receives.rnr_naks}}},
               {"own_receives",
                {{"buffers_peak", report.private_receives.buffers_peak},
                 {"growths", report.private_receives.growths},
                 {"refused", report.private_receives.refused},
                 {"controls", report.private_receives.controls}}},
               {"connections", connections_to_json(report.connections)},
               {"memory", std::move(memory)},
               {"peers", std::move(peers)},
               {"decisions", std::move(decisions)},
               {"decisions_dropped", report.decisions_dropped},
               {"receive_costs", std::move(costs)}};
  if (report.profile) json["profile"] = profile_to_json(*report.profile);
  if (report.started > 0) json["started_unix_ns"] = report.started;
  if (!report.memory_over_time.empty()) {
    json["memory_over_time"] = memory_points_to_json(report.memory_over_time);
  }
  if (!report.history.empty()) json["history"] = history_to_json(report.history);
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<EndpointReport> report_from_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Status{Code::invalid, "not JSON, or JSON that was cut off"};
  Status status;
  EndpointReport report;
  const Reader reader(json, "", &status);
  std::uint64_t format = 0;
  reader.get("turnout_report", &format);
  if (status.ok() && format != kFormat) {
    return Status{Code::version,
                  fmt::format("a report of layout {}; this turnout reads {}", format, kFormat)};
  }
  reader.get("job", &report.job);
  reader.get("rank", &report.rank);
  reader.get("ranks", &report.ranks);
  reader.get("host", &report.host);
  reader.get("pid", &report.pid);
  reader.get_hex("endpoint", &report.endpoint);
  reader.get("device", &report.device);
  reader.get("policy", &report.policy);
  reader.get("lifetime_ns", &report.lifetime);
  reader.get("budget", &report.budget);
  reader.get("used", &report.used);
  reader.get("peak", &report.peak);
  reader.get("unexpected", &report.operations.unexpected);
  reader.get("rendezvous", &report.operations.rendezvous);
  reader.get("offers", &report.operations.rtrs);
  reader.get("puts", &report.operations.puts);
  reader.get("puts_told", &report.operations.put_completions);
  reader.get("credit_messages", &report.operations.credit_messages);
  reader.get("refusals", &report.operations.refusals);
  reader.get("rc_queue_pairs_peak", &report.rc_queue_pairs_peak);
  reader.get("decisions_dropped", &report.decisions_dropped);
  reader.each("memory", [&](const Json& element, const std::string& at) {
    MemoryLine line;
    const Reader r(element, at, &status);
    r.get("kind", &line.kind);
    r.get("now", &line.now);
    r.get("peak", &line.peak);
    if (r.has("objects")) {
      r.get("objects", &line.objects);
      r.get("objects_peak", &line.objects_peak);
    }
    report.memory.push_back(std::move(line));
  });
  reader.each("peers", [&](const Json& element, const std::string& at) {
    PeerReport peer;
    const Reader r(element, at, &status);
    r.get("peer", &peer.peer);
    r.get_hex("endpoint", &peer.endpoint);
    r.get("pid", &peer.pid);
    if (const Json* send = r.member("send")) {
      direction_from_json(*send, at + "send.", &peer.send, &status);
    }
    if (const Json* receive = r.member("receive")) {
      direction_from_json(*receive, at + "receive.", &peer.receive, &status);
    }
    r.get("reason", &peer.reason);
    r.get("predicted_gain_ns", &peer.predicted_gain);
    if (r.has("observed_gain_ns") && !r.member("observed_gain_ns")->is_null()) {
      r.get("observed_gain_ns", &peer.observed_gain.emplace());
    }
    r.get("bytes", &peer.bytes);
    r.get("lost", &peer.lost);
    if (r.has("tear_downs")) r.get("tear_downs", &peer.tear_downs);
    report.peers.push_back(std::move(peer));
  });
  reader.each("decisions", [&](const Json& element, const std::string& at) {
    DecisionReport decision;
    const Reader r(element, at, &status);
    r.get("time_ns", &decision.time);
    r.get("peer", &decision.peer);
    r.get("from", &decision.from);
    r.get("to", &decision.to);
    r.get("reason", &decision.reason);
    r.get("outcome", &decision.outcome);
    report.decisions.push_back(std::move(decision));
  });
  optional_parts_from_json(reader, &report, &status);
  if (!status.ok()) return status;
  return report;
}

}  // namespace turnout
