// SPDX-License-Identifier: BSD-3-Clause
// One file of KeptResults: layout, writing, and reading with every field checked.

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "core/report/json_reader.h"
#include "sim/study/kept_results.h"

namespace turnout::sim {
namespace {

// What the layout below is; a reader refuses what it does not know.
constexpr std::uint64_t kFormat = 4;
// Far beyond what there is: kinds of channels and of memory, parts of a run.
constexpr std::size_t kMostLines = 65536;
// Failures of runs, which follow from what was run.
constexpr Code kOfRuns[] = {Code::over_budget, Code::peer_lost, Code::system, Code::internal};

// The members of Outcome and WorldStatistics that are whole numbers, by name, for both ways.
template <class OutcomeOf, class Each>
void each_number(OutcomeOf& o, Each each) {
  each("time_ps", o.time);
  each("messages", o.messages);
  each("bytes", o.bytes);
  each("switches", o.switches);
  each("first_rc_ps", o.first_rc);
  each("rc_connections", o.rc_connections);
  each("peers", o.peers);
  each("rc_peak", o.rc_peak);
  each("connections_made", o.connections.made);
  each("tear_downs", o.connections.tear_downs);
  each("tear_downs_by_peers", o.connections.tear_downs_by_peers);
  each("waited_for_a_place", o.connections.waited);
  each("waited_in_vain", o.connections.gave_up);
  each("connections_failed", o.connections.failed);
  each("tear_downs_ended", o.connections.freed);
  each("tear_down_ns", o.connections.time);
  each("tear_down_most_ns", o.connections.time_most);
  each("clients", o.clients.ranks);
  each("connections_of_clients", o.clients.made);
  each("connections_of_a_client", o.clients.made_most);
  each("rc_peak_of_a_client", o.clients.rc_peak);
  each("queue_pair_bytes_of_a_client", o.clients.queue_pairs);
  each("receiving", o.receiving.ranks);
  each("receive_bytes", o.receiving.largest);
  each("receive_bytes_of_all", o.receiving.sum);
  each("other_bytes", o.receiving.others);
  each("rings", o.receiving.rings);
  each("sources", o.receiving.sources);
  each("limit_events", o.receiving.limit_events);
  each("growths", o.receiving.growths);
  each("rnr_naks", o.receiving.rnr_naks);
  each("memory_peak", o.memory_peak);
  each("budget", o.budget);
  each("bytes_per_rank", o.bytes_per_rank);
  each("events", o.world.events);
  each("operations", o.world.operations);
  each("adapter_bytes", o.world.bytes);
  each("dc_connects", o.world.dc_connects);
  each("dc_nacks", o.world.dc_nacks);
  each("first_misses", o.world.first_misses);
  each("second_misses", o.world.second_misses);
  each("rnr_waits", o.world.rnr_waits);
  each("retransmissions", o.world.retransmissions);
  each("faults", o.world.faults);
  each("qps_created", o.world.qps_created);
  each("qps_alive", o.world.qps_alive);
  each("regions_alive", o.world.regions_alive);
}

struct Reader : JsonReader {
  Reader(const Json& object, std::string place, Status* status)
      : JsonReader("a kept result", object, std::move(place), status) {}
};

// Likewise of the parts of a result.
template <class Part, class Each>
void each_member(Part& part, Each each) {
  using Plain = std::remove_const_t<Part>;
  if constexpr (std::is_same_v<Plain, Phase>) {
    each("name", part.name);
    each("begin_ps", part.begin);
    each("end_ps", part.end);
    each("messages", part.messages);
  } else if constexpr (std::is_same_v<Plain, Channels>) {
    each("channel", part.channel);
    each("messages", part.messages);
    each("bytes", part.bytes);
  } else {
    each("kind", part.kind);
    each("largest", part.largest);
    each("sum", part.sum);
  }
}

template <class Part>
Json list_of(const std::vector<Part>& parts) {
  Json list = Json::array();
  for (const Part& part : parts) {
    Json& one = list.emplace_back();
    each_member(part, [&](const char* key, const auto& value) { one[key] = value; });
  }
  return list;
}

template <class Part>
void read_list(const Reader& reader, const char* name, std::vector<Part>* parts, Status* status) {
  reader.each(
      name,
      [&](const Json& element, const std::string& place) {
        const Reader at(element, place, status);
        Part part;
        each_member(part, [&](const char* key, auto& value) { at.get(key, &value); });
        if constexpr (std::is_same_v<Part, Phase>) {
          if (part.begin < 0 || part.end < part.begin) at.wrong("end_ps", "a time after begin_ps");
        }
        parts->push_back(std::move(part));
      },
      kMostLines);
}

Json result_to_json(const PolicyResult& r) {
  Json out = {{"policy", r.policy}};
  each_number(r.outcome, [&](const char* key, auto value) { out[key] = value; });
  out["hash"] = fmt::format("{:016x}", r.outcome.world.hash);
  out["real_seconds"] = finite(r.outcome.real_seconds);
  out["phases"] = list_of(r.phases);
  out["channels"] = list_of(r.outcome.channels);
  out["memory"] = list_of(r.outcome.memory);
  return out;
}

PolicyResult result_from_json(const Json& json, Status* status) {
  PolicyResult r;
  const Reader reader(json, "result.", status);
  reader.get("policy", &r.policy);
  each_number(r.outcome, [&](const char* key, auto& value) { reader.get(key, &value); });
  reader.get_hex("hash", &r.outcome.world.hash);
  reader.get("real_seconds", &r.outcome.real_seconds);
  if (r.outcome.real_seconds < 0) reader.wrong("real_seconds", "a time");
  if (r.outcome.time < 0) reader.wrong("time_ps", "a time");
  read_list(reader, "phases", &r.phases, status);
  read_list(reader, "channels", &r.outcome.channels, status);
  read_list(reader, "memory", &r.outcome.memory, status);
  return r;
}

bool keeps(Code code) {
  return std::find(std::begin(kOfRuns), std::end(kOfRuns), code) != std::end(kOfRuns);
}

}  // namespace

std::string to_kept_json(const std::string& identity, const Result<PolicyResult>& result) {
  Json out = {{"turnout_result", kFormat}, {"of", identity}};
  if (result) {
    out["result"] = result_to_json(result.value());
  } else {
    const Status s = result.status();
    if (!keeps(s.code())) return {};
    out["failure"] = {{"code", static_cast<unsigned>(s.code())}, {"text", s.text()}};
  }
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {
// Of a run that failed.
Result<Kept> failure_from_json(const Reader& failure, Status* status) {
  unsigned code = 0;
  std::string words;
  failure.get("code", &code);
  failure.get("text", &words);
  if (!keeps(static_cast<Code>(code)) || code > static_cast<unsigned>(Code::internal)) {
    failure.wrong("code", "an error code of a run");
  }
  if (!status->ok()) return *status;
  return Kept{Status{static_cast<Code>(code), words}};
}
}  // namespace

Result<Kept> from_kept_json(std::string_view text, const std::string& identity) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Status{Code::invalid, "not valid JSON, or truncated"};
  Status status;
  const Reader reader(json, "", &status);
  std::uint64_t format = 0;
  reader.get("turnout_result", &format);
  if (status.ok() && format != kFormat) {
    return Status{Code::version,
                  fmt::format("format version {}; this turnout reads {}", format, kFormat)};
  }
  std::string of;
  reader.get("of", &of);
  if (status.ok() && of != identity) {
    return Status{Code::invalid, "\"of\" names a run other than the file name does"};
  }
  if (reader.has("failure")) {
    return failure_from_json(Reader(*reader.member("failure"), "failure.", &status), &status);
  }
  const Json* const found = reader.member("result");
  if (found == nullptr) return status;
  // In place: gcc 12 takes one variant moved into another for memory that is not initialized.
  Result<Kept> kept(Kept{result_from_json(*found, &status)});
  if (!status.ok()) return status;
  return kept;
}

}  // namespace turnout::sim
