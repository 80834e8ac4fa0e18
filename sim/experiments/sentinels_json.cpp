// SPDX-License-Identifier: BSD-3-Clause
// The file NAME.sentinels.json: layout, writing, and reading with every field checked.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/report/json_reader.h"
#include "sim/experiments/sentinels.h"

namespace turnout::sim {

namespace {

// What the layout below is; a reader refuses what it does not know.
constexpr std::uint64_t kLayout = 2;
constexpr std::size_t kMostStudies = 65536, kMostRuns = 1024, kMostValues = 1024;

struct Reader : JsonReader {
  Reader(const Json& object, std::string place, Status* status)
      : JsonReader("a file of sentinels", object, std::move(place), status) {}
};

Json json_of(const NamedValues& values) {
  Json list = Json::array();
  for (const auto& [name, value] : values) list.push_back(fmt::format("{}={}", name, value));
  return list;
}

NamedValues values_of(const Reader& reader, const char* key) {
  NamedValues values;
  const Json* const list = reader.member(key);
  if (list == nullptr) return values;
  if (!list->is_array() || list->size() > kMostValues) {
    reader.wrong(key, "an array");
    return values;
  }
  for (const Json& element : *list) {
    const std::string text = element.is_string() ? element.get<std::string>() : std::string();
    const auto equals = text.find('=');
    if (equals == 0 || equals == std::string::npos) {
      reader.wrong(key, "a list of name=value");
      return values;
    }
    values.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  return values;
}

Json json_of(const SentinelRun& run) {
  return {{"policy", run.policy},
          {"own_settings", json_of(run.own_settings)},
          {"calibrated", run.calibrated},
          {"time_ps", run.result.time},
          {"timed_ps", run.result.timed},
          {"messages", run.result.messages},
          {"memory_peak", run.result.memory_peak},
          {"connections", run.result.connections},
          {"events", run.events}};
}

SentinelRun run_of(const Reader& reader) {
  SentinelRun run;
  reader.get("policy", &run.policy);
  run.own_settings = values_of(reader, "own_settings");
  reader.get("calibrated", &run.calibrated);
  reader.get("time_ps", &run.result.time);
  reader.get("timed_ps", &run.result.timed);
  reader.get("messages", &run.result.messages);
  reader.get("memory_peak", &run.result.memory_peak);
  reader.get("connections", &run.result.connections);
  reader.get("events", &run.events);
  if (run.result.time < 0) reader.wrong("time_ps", "a time");
  if (run.result.timed < 0) reader.wrong("timed_ps", "a time");
  return run;
}

Json json_of(const SentinelStudy& study) {
  Json runs = Json::array();
  for (const SentinelRun& run : study.runs) runs.push_back(json_of(run));
  return {{"title", study.title},
          {"workload", study.workload},
          {"profile", study.profile},
          {"options", json_of(study.options)},
          {"settings", json_of(study.settings)},
          {"ranks", study.place.ranks},
          {"ranks_per_node", study.place.ranks_per_node},
          {"seed", study.place.seed},
          {"check_content", study.check_content},
          {"data_servers", study.data_servers},
          {"time_limit_ps", study.time_limit},
          {"quick", study.quick},
          {"runs", std::move(runs)}};
}

SentinelStudy study_of(const Reader& reader, Status* status) {
  SentinelStudy study;
  reader.get("title", &study.title);
  reader.get("workload", &study.workload);
  reader.get("profile", &study.profile);
  study.options = values_of(reader, "options");
  study.settings = values_of(reader, "settings");
  reader.get("ranks", &study.place.ranks);
  reader.get("ranks_per_node", &study.place.ranks_per_node);
  reader.get("seed", &study.place.seed);
  reader.get("check_content", &study.check_content);
  reader.get("data_servers", &study.data_servers);
  reader.get("time_limit_ps", &study.time_limit);
  reader.get("quick", &study.quick);
  if (study.time_limit < 0) reader.wrong("time_limit_ps", "a time");
  reader.each(
      "runs",
      [&](const Json& element, const std::string& place) {
        study.runs.push_back(run_of(Reader(element, place, status)));
      },
      kMostRuns);
  if (study.runs.empty()) reader.wrong("runs", "a list of runs");
  return study;
}

}  // namespace

std::string to_json(const Sentinels& sentinels) {
  Json studies = Json::array();
  for (const SentinelStudy& study : sentinels.studies) studies.push_back(json_of(study));
  return Json{{"turnout_sentinels", kLayout},
              {"page", sentinels.page},
              {"commit", sentinels.commit},
              {"studies", std::move(studies)}}
             .dump(1, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

Result<Sentinels> parse_sentinels(std::string_view text) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return Status{Code::invalid, "not valid JSON, or truncated"};
  Status status;
  const Reader reader(json, "", &status);
  std::uint64_t layout = 0;
  reader.get("turnout_sentinels", &layout);
  if (status.ok() && layout != kLayout) {
    return Status{Code::version,
                  fmt::format("layout {}; this turnout reads layout {}", layout, kLayout)};
  }
  Sentinels sentinels;
  reader.get("page", &sentinels.page);
  reader.get("commit", &sentinels.commit);
  reader.each(
      "studies",
      [&](const Json& element, const std::string& place) {
        sentinels.studies.push_back(study_of(Reader(element, place, &status), &status));
      },
      kMostStudies);
  if (!status.ok()) return status;
  return sentinels;
}

}  // namespace turnout::sim
