// SPDX-License-Identifier: BSD-3-Clause
// EndpointReport to and from JSON.
#include "core/report/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <nlohmann/json.hpp>
#include <set>

#include "core/report/json_reader.h"
#include "core/report/profile_json.h"

namespace turnout {

namespace {

// What the layout below is; a reader refuses what it does not know.
constexpr std::uint64_t kFormat = 1;

// Both directions go through the same lists of fields, describe(): a Writer makes an object of
// them, a Reader fills them in. What has() guards is missing in reports of older versions.
class Writer {
 public:
  [[nodiscard]] static bool has(const char*) { return true; }
  template <class T>
  void operator()(const char* key, const T& value) {
    if constexpr (std::is_enum_v<T>) {
      json[key] = std::string(name(value));
    } else {
      json[key] = value;
    }
  }
  void operator()(const char* key, double value) { json[key] = finite(value); }
  template <class T>
  void operator()(const char* key, const std::optional<T>& value) {
    json[key] = nullptr;
    if (value) (*this)(key, *value);
  }
  void operator()(const char* key, const SizeCounts& sizes) { json[key] = sizes_to_json(sizes); }
  // 64-bit identifiers are text: other tools' numbers are doubles.
  void hex(const char* key, std::uint64_t id) { json[key] = fmt::format("{:#018x}", id); }
  template <class Part>
  void object(const char* key, const Part& part) {
    json[key] = object_of(part);
  }
  // Written only if it is there.
  template <class Part>
  void part(const char* key, const std::optional<Part>& part) {
    if (part) object(key, *part);
  }
  template <class Part>
  void list(const char* key, const std::vector<Part>& parts, std::size_t /*most*/ = SIZE_MAX) {
    Json& array = json[key] = Json::array();
    for (const Part& part : parts) array.push_back(object_of(part));
  }

  Json json = Json::object();

 private:
  template <class Part>
  static Json object_of(const Part& part) {
    Writer writer;
    describe(writer, part);
    return std::move(writer.json);
  }
};

class Reader : public JsonReader {
 public:
  Reader(const Json& object, std::string place, Status* status)
      : JsonReader("a report", object, std::move(place), status), status_(status) {}
  template <class T>
  void operator()(const char* key, T& value) const {
    get(key, &value);
  }
  template <class T>
  void operator()(const char* key, std::optional<T>& value) const {
    if (const Json* const v = member(key); v != nullptr && !v->is_null()) {
      get(key, &value.emplace());
    }
  }
  void operator()(const char* key, WaitKind& kind) const {
    get_name(key, kWaitKinds, "a kind of operation", &kind);
  }
  void operator()(const char* key, WaitFor& what) const {
    get_name(key, kWaitsFor, "what an operation waits for", &what);
  }
  void operator()(const char* key, SizeCounts& sizes) const {
    sizes_from_json(*this, key, &sizes, status_);
  }
  void hex(const char* key, std::uint64_t& id) const { get_hex(key, &id, true); }
  template <class Part>
  void object(const char* key, Part& part) const {
    if (const Json* const v = member(key)) {
      describe(Reader(*v, fmt::format("{}{}.", place(), key), status_), part);
    }
  }
  template <class Part>
  void part(const char* key, std::optional<Part>& part) const {
    if (has(key)) object(key, part.emplace());
  }
  template <class Part>
  void list(const char* key, std::vector<Part>& parts, std::size_t most = SIZE_MAX) const {
    each(
        key,
        [&](const Json& element, const std::string& at) {
          describe(Reader(element, at, status_), parts.emplace_back());
        },
        most);
  }

 private:
  Status* status_;
};

// Of pairs of a key and a value.
template <class Io, class Value, class... More>
void fields(Io& io, const char* key, Value& value, More&... more) {
  io(key, value);
  if constexpr (sizeof...(More) > 0) fields(io, more...);
}

template <class T, class Plain>
concept Is = std::same_as<std::remove_const_t<T>, Plain>;

void describe(auto&& io, Is<ChannelSpan> auto& span) {
  fields(io, "channel", span.channel, "since_ns", span.since, "messages", span.messages, "bytes",
         span.bytes);
}

void describe(auto&& io, Is<DirectionReport> auto& direction) {
  io("switches", direction.switches);
  io.list("spans", direction.spans);
}

void describe(auto&& io, Is<SourceReport> auto& source) {
  fields(io, "messages", source.messages, "connected", source.connected, "refused_for_ns",
         source.refused_for, "busy", source.busy, "switched", source.switched, "active_rc",
         source.active_rc, "here", source.here, "full", source.full);
}

void describe(auto&& io, Is<CostReport> auto& cost) {
  fields(io, "name", cost.name, "value", cost.value, "uncertainty", cost.uncertainty);
}

void describe(auto&& io, Is<SelectionReport> auto& of) {
  fields(io, "time_ns", of.time, "window_ns", of.window, "messages", of.messages, "gain_current_ns",
         of.gain_current, "gain_best_ns", of.gain_best, "threshold_ns", of.threshold,
         "gain_threshold_ns", of.gain_threshold, "busy", of.busy, "repaid", of.repaid, "under_way",
         of.under_way, "sending_rc", of.sending_rc, "ring_entries", of.ring_entries,
         "max_active_rc", of.max_active_rc, "max_channels", of.max_channels, "dc_rdma", of.dc_rdma,
         "bytes_available", of.bytes_available, "bytes_per_ring", of.bytes_per_ring, "bytes_per_rc",
         of.bytes_per_rc, "bytes_per_target", of.bytes_per_target, "default_channel",
         of.default_channel);
  io.list("costs", of.costs, SelectionReport::kMostCosts);
}

void describe(auto&& io, Is<PeerReport> auto& peer) {
  io("peer", peer.peer);
  io.hex("endpoint", peer.endpoint);
  io("pid", peer.pid);
  io.object("send", peer.send);
  io.object("receive", peer.receive);
  fields(io, "reason", peer.reason, "predicted_gain_ns", peer.predicted_gain);
  if (io.has("observed_gain_ns")) io("observed_gain_ns", peer.observed_gain);
  fields(io, "bytes", peer.bytes, "lost", peer.lost);
  if (io.has("tear_downs")) io("tear_downs", peer.tear_downs);
  io.part("source", peer.source);
}

void describe(auto&& io, Is<DecisionReport> auto& decision) {
  fields(io, "time_ns", decision.time, "peer", decision.peer, "from", decision.from, "to",
         decision.to, "reason", decision.reason, "outcome", decision.outcome);
}

void describe(auto&& io, Is<MemoryLine> auto& line) {
  fields(io, "kind", line.kind, "now", line.now, "peak", line.peak);
  if (!io.has("objects")) return;
  fields(io, "objects", line.objects, "objects_peak", line.objects_peak);
}

void describe(auto&& io, Is<ReceiveCostLine> auto& line) {
  fields(io, "channel", line.channel, "messages", line.messages, "mean_ns", line.mean);
}

void describe(auto&& io, Is<RegistrationReport> auto& report) {
  fields(io, "off", report.off, "hits", report.hits, "misses", report.misses, "evictions",
         report.evictions, "invalidations", report.invalidations, "bytes", report.bytes,
         "bytes_peak", report.bytes_peak);
}

void describe(auto&& io, Is<SharedReceivesReport> auto& receives) {
  fields(io, "limit_events", receives.limit_events, "growths", receives.growths, "shrinks",
         receives.shrinks, "credit_waits", receives.credit_waits, "rnr_naks", receives.rnr_naks);
}

void describe(auto&& io, Is<PrivateReceivesReport> auto& receives) {
  fields(io, "buffers_peak", receives.buffers_peak, "growths", receives.growths, "refused",
         receives.refused, "controls", receives.controls);
}

void describe(auto&& io, Is<ConnectionsReport> auto& connections) {
  constexpr std::pair<const char*, std::uint64_t ConnectionsReport::*> kFields[] = {
      {"made", &ConnectionsReport::made},
      {"tear_downs", &ConnectionsReport::tear_downs},
      {"tear_downs_by_peers", &ConnectionsReport::tear_downs_by_peers},
      {"waited", &ConnectionsReport::waited},
      {"gave_up", &ConnectionsReport::gave_up},
      {"failed", &ConnectionsReport::failed},
      {"freed", &ConnectionsReport::freed},
      {"time_ns", &ConnectionsReport::time},
      {"time_most_ns", &ConnectionsReport::time_most}};
  for (const auto& [name, field] : kFields) {
    if (io.has(name)) io(name, connections.*field);
  }
}

void describe(auto&& io, Is<std::array<SizeCounts, kTrafficKinds>> auto& sent) {
  for (std::size_t kind = 0; kind < kTrafficKinds; ++kind) {
    io(name(static_cast<Traffic>(kind)).data(), sent[kind]);
  }
}

void describe(auto&& io, Is<ProfileReport> auto& profile) {
  io.object("sent", profile.counts.sent);
  fields(io, "unexpected", profile.counts.unexpected, "low_watermark_events",
         profile.counts.low_watermark_events, "rnr_retries", profile.rnr_retries, "calls",
         profile.calls, "calls_measured", profile.calls_measured, "library_time_ns",
         profile.library_time, "library_time_error_ns", profile.library_time_error);
}

void describe(auto&& io, Is<WaitReport> auto& wait) {
  fields(io, "kind", wait.kind, "waits_for", wait.waits_for, "peer", wait.peer, "tagged",
         wait.tagged);
  io.hex("tag", wait.tag);
  io.hex("ignore", wait.ignore);
  fields(io, "bytes", wait.bytes, "age_ns", wait.age);
}

void describe(auto&& io, Is<std::array<std::uint64_t, kWaitKinds.size()>> auto& totals) {
  for (std::size_t kind = 0; kind < totals.size(); ++kind) {
    io(kWaitKinds[kind].data(), totals[kind]);
  }
}

void describe(auto&& io, Is<WaitsReport> auto& waits) {
  fields(io, "quiet_ns", waits.quiet, "mpi", waits.mpi);
  io.object("totals", waits.totals);
  io.list("list", waits.list, WaitsReport::kMost * kWaitKinds.size());
}

// Profile, waits, start, memory over time and history are read and written apart: not all have
// them.
void describe(auto&& io, Is<EndpointReport> auto& report) {
  fields(io, "job", report.job, "rank", report.rank, "ranks", report.ranks, "host", report.host,
         "pid", report.pid);
  io.hex("endpoint", report.endpoint);
  fields(io, "device", report.device, "policy", report.policy, "lifetime_ns", report.lifetime,
         "budget", report.budget, "used", report.used, "peak", report.peak, "unexpected",
         report.operations.unexpected, "rendezvous", report.operations.rendezvous, "offers",
         report.operations.rtrs, "puts", report.operations.puts, "puts_told",
         report.operations.put_completions, "credit_messages", report.operations.credit_messages,
         "refusals", report.operations.refusals);
  if (io.has("measured_limit")) io("measured_limit", report.operations.measured_limit);
  if (io.has("registrations")) io.object("registrations", report.registrations);
  io("rc_queue_pairs_peak", report.rc_queue_pairs_peak);
  if (io.has("shared_receives")) io.object("shared_receives", report.shared_receives);
  if (io.has("own_receives")) io.object("own_receives", report.private_receives);
  if (io.has("connections")) io.object("connections", report.connections);
  io.list("memory", report.memory);
  io.list("peers", report.peers);
  io.list("decisions", report.decisions);
  io("decisions_dropped", report.decisions_dropped);
  if (io.has("receive_costs")) io.list("receive_costs", report.receive_costs);
  io.part("selection", report.selection);
}

// `at`: of an element, as JsonReader::each() gives it, with a point at its end.
void wrong_at(const Reader& report, std::string_view at, std::string_view index,
              std::string_view expected) {
  report.wrong(fmt::format("{}{}", at.substr(0, at.size() - 1), index), expected);
}

void interval_from_json(const Reader& report, const Json& json, const std::string& place,
                        const std::set<std::uint32_t>& peers, HistoryInterval* out,
                        Status* status) {
  const Reader reader(json, place, status);
  reader("begin_ns", out->begin);
  reader("end_ns", out->end);
  // Reports of others need not know of messages that no source is listed for.
  if (reader.has("messages")) reader("messages", out->messages);
  if (out->begin < 0) reader.wrong("begin_ns", "a time since the beginning");
  if (out->end < out->begin) reader.wrong("end_ns", "after its begin_ns");
  reader.each("sources", [&](const Json& pair, const std::string& at) {
    auto& [peer, messages] = out->sources.emplace_back();
    if (!pair.is_array() || pair.size() != 2) {
      wrong_at(report, at, "", "a peer and its messages");
    } else if (!Reader::integer(pair[0], &peer) || !peers.contains(peer)) {
      wrong_at(report, at, "[0]", "one of the report's peers");
    } else if (!Reader::integer(pair[1], &messages)) {
      wrong_at(report, at, "[1]", "a number of messages");
    }
  });
}

// Numbers only, a row for each point: time_ns, then the bytes of each line of "memory".
void memory_points_from_json(const Reader& reader, EndpointReport* report) {
  std::int64_t before = 0;
  reader.each(
      "memory_over_time",
      [&](const Json& row, const std::string& at) {
        MemoryPoint& point = report->memory_over_time.emplace_back();
        if (!row.is_array() || row.size() != report->memory.size() + 1) {
          wrong_at(reader, at, "", "a time and the bytes of each line of \"memory\"");
          return;
        }
        if (!Reader::integer(row[0], &point.time) || point.time < before) {
          wrong_at(reader, at, "", "at a time after the one before it");
        }
        before = point.time;
        for (std::size_t i = 1; i < row.size(); ++i) {
          if (Reader::integer(row[i], &point.bytes.emplace_back())) continue;
          wrong_at(reader, at, fmt::format("[{}]", i), "a number of bytes");
        }
      },
      EndpointReport::kMaxMemoryPoints);
}

void waits_from_json(const Reader& reader, EndpointReport* report) {
  WaitsReport& waits = report->waits.emplace();
  reader.object("waits", waits);
  if (waits.quiet < 0) reader.wrong("waits.quiet_ns", "a time since the beginning");
  if (waits.mpi.size() > WaitsReport::kMostText) reader.wrong("waits.mpi", "a short text");
  for (const WaitReport& wait : waits.list) {
    if (wait.age < 0) reader.wrong("waits.list", "a list of operations that are not in the future");
  }
}

void history_from_json(const Reader& reader, EndpointReport* report, Status* status) {
  std::set<std::uint32_t> peers;
  for (const PeerReport& peer : report->peers) peers.insert(peer.peer);
  std::size_t entries = 0;
  reader.each("history", [&](const Json& element, const std::string& at) {
    HistoryInterval& interval = report->history.emplace_back();
    interval_from_json(reader, element, at, peers, &interval, status);
    entries += interval.sources.size() + 1;
    if (entries > 2 * EndpointReport::kMaxHistory) {
      reader.wrong("history", fmt::format("at most {} sources long", EndpointReport::kMaxHistory));
    }
  });
}

}  // namespace

bool carried_anything(const EndpointReport& report) {
  const auto carried = [](const DirectionReport& direction) {
    return std::ranges::any_of(direction.spans, [](const auto& span) { return span.messages > 0; });
  };
  return std::ranges::any_of(report.peers, [&](const PeerReport& peer) {
    return carried(peer.send) || carried(peer.receive);
  });
}

std::string to_json(const EndpointReport& report) {
  Writer writer;
  Json& json = writer.json;
  json["turnout_report"] = kFormat;
  describe(writer, report);
  if (report.profile) writer.object("profile", *report.profile);
  if (report.waits) writer.object("waits", *report.waits);
  if (report.started > 0) json["started_unix_ns"] = report.started;
  for (const MemoryPoint& point : report.memory_over_time) {
    Json& row = json["memory_over_time"].emplace_back(Json::array({point.time}));
    for (const std::uint64_t bytes : point.bytes) row.push_back(bytes);
  }
  for (const HistoryInterval& interval : report.history) {
    json["history"].push_back({{"begin_ns", interval.begin},
                               {"end_ns", interval.end},
                               {"messages", interval.messages},
                               {"sources", interval.sources}});
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<EndpointReport> report_from_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Status{Code::invalid, "not JSON, or JSON that was cut off"};
  Status status;
  EndpointReport report;
  const Reader reader(json, "", &status);
  std::uint64_t format = 0;
  reader("turnout_report", format);
  if (status.ok() && format != kFormat) {
    return Status{Code::version,
                  fmt::format("a report of layout {}; this turnout reads {}", format, kFormat)};
  }
  describe(reader, report);
  if (reader.has("started_unix_ns")) {
    reader("started_unix_ns", report.started);
    if (report.started < 0) reader.wrong("started_unix_ns", "a time since 1970");
  }
  if (reader.has("memory_over_time")) memory_points_from_json(reader, &report);
  if (reader.has("profile")) {
    ProfileReport& profile = report.profile.emplace();
    reader.object("profile", profile);
    if (profile.calls_measured > profile.calls) {
      reader.wrong("profile.calls_measured", "at most the calls");
    }
  }
  if (report.selection && report.selection->window < 0)
    reader.wrong("selection.window_ns", "a length of time");
  if (reader.has("waits")) waits_from_json(reader, &report);
  if (reader.has("history")) history_from_json(reader, &report, &status);
  if (!status.ok()) return status;
  return report;
}

}  // namespace turnout
