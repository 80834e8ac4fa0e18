// SPDX-License-Identifier: BSD-3-Clause
#include "sim/experiments/sentinels.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/report/json_reader.h"
#include "sim/experiments/page.h"
#include "sim/study/result_writer.h"

namespace turnout::sim {
namespace {

constexpr std::string_view kOurs = "turnout";
// A world of so many ranks takes time before its first event and after its last one.
constexpr std::uint64_t kEventsOfRank = 1000;

// A file with the same costs would have to be there again.
bool has_costs(const NamedValues& settings) {
  return std::any_of(settings.begin(), settings.end(),
                     [](const auto& s) { return s.first == "costs" && !s.second.empty(); });
}

std::string joined(const NamedValues& values) {
  std::string text;
  for (const auto& [name, value] : values) text += fmt::format(" {}={}", name, value);
  return text;
}

std::uint64_t cost_of(const SentinelStudy& study) {
  std::uint64_t events = 0;
  for (const SentinelRun& run : study.runs) {
    events += run.events + kEventsOfRank * study.place.ranks;
  }
  return events;
}

double time_of(const SentinelRun& run) {
  return static_cast<double>(run.result.timed > 0 ? run.result.timed : run.result.time);
}

std::vector<std::string> row_of(const SentinelStudy& study, const SentinelRun& run) {
  return {study.title,
          fmt::format("{}", study.place.ranks),
          fmt::format("`{}`", run.policy),
          print_time(run.result.time),
          run.result.timed > 0 ? print_time(run.result.timed) : "-",
          fmt::format("{}", run.result.messages)};
}

// What the layout below is; a reader refuses what it does not know.
constexpr std::uint64_t kLayout = 2;
constexpr std::size_t kMostStudies = 65536, kMostRuns = 1024, kMostValues = 1024;

struct Reader : JsonReader {
  Reader(const Json& object, std::string place, Status* status)
      : JsonReader("a file of sentinels", object, std::move(place), status) {}
  using JsonReader::get;
  void get(const char* key, NamedValues* out) const {
    each(
        key,
        [&](const Json& element, const std::string&) {
          const std::string text = element.is_string() ? element.get<std::string>() : std::string();
          const auto equals = text.find('=');
          if (equals == 0 || equals == std::string::npos) {
            return wrong(key, "a list of name=value");
          }
          out->emplace_back(text.substr(0, equals), text.substr(equals + 1));
        },
        kMostValues);
  }
};

// The members of both by name, for both ways.
template <class RunOf, class Each>
void each_of_run(RunOf& run, Each each) {
  each("policy", run.policy);
  each("own_settings", run.own_settings);
  each("calibrated", run.calibrated);
  each("time_ps", run.result.time);
  each("timed_ps", run.result.timed);
  each("messages", run.result.messages);
  each("memory_peak", run.result.memory_peak);
  each("connections", run.result.connections);
  each("events", run.events);
}
template <class StudyOf, class Each>
void each_of_study(StudyOf& study, Each each) {
  each("title", study.title);
  each("workload", study.workload);
  each("profile", study.profile);
  each("options", study.options);
  each("settings", study.settings);
  each("ranks", study.place.ranks);
  each("ranks_per_node", study.place.ranks_per_node);
  each("seed", study.place.seed);
  each("check_content", study.check_content);
  each("data_servers", study.data_servers);
  each("time_limit_ps", study.time_limit);
  each("quick", study.quick);
}

template <class Value>
Json json_of(const Value& value) {
  return value;
}
Json json_of(const NamedValues& values) {
  Json list = Json::array();
  for (const auto& [name, value] : values) list.push_back(fmt::format("{}={}", name, value));
  return list;
}

Json json_of_study(const SentinelStudy& study) {
  Json json, runs = Json::array();
  each_of_study(study, [&](const char* key, const auto& value) { json[key] = json_of(value); });
  for (const SentinelRun& run : study.runs) {
    Json one;
    each_of_run(run, [&](const char* key, const auto& value) { one[key] = json_of(value); });
    runs.push_back(std::move(one));
  }
  json["runs"] = std::move(runs);
  return json;
}

SentinelRun run_of(const Reader& reader) {
  SentinelRun run;
  each_of_run(run, [&](const char* key, auto& value) { reader.get(key, &value); });
  if (run.result.time < 0) reader.wrong("time_ps", "a time");
  if (run.result.timed < 0) reader.wrong("timed_ps", "a time");
  return run;
}

SentinelStudy study_of(const Reader& reader, Status* status) {
  SentinelStudy study;
  each_of_study(study, [&](const char* key, auto& value) { reader.get(key, &value); });
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

SentinelResult sentinel_result(const PolicyResult& result) {
  const Outcome& o = result.outcome;
  return {o.time, static_cast<Picoseconds>(timed_phases(result).time), o.messages, o.memory_peak,
          o.rc_peak};
}

void SentinelCollector::add(const StudyOptions& study, const PolicyResult& result) {
  if (study.make || has_costs(study.settings)) return;
  SentinelRun run;
  run.policy = result.policy;
  if (const auto own = study.own_settings.find(result.policy); own != study.own_settings.end()) {
    run.own_settings = own->second;
  }
  run.calibrated =
      !costs_.empty() && std::erase(run.own_settings, std::pair(std::string("costs"), costs_)) > 0;
  if (has_costs(run.own_settings)) return;
  run.result = sentinel_result(result);
  run.events = result.outcome.world.events;
  const std::string shared = fmt::format(
      "{} on {}:{};{};{} {} {} {} {} {}", study.workload, study.profile.name, joined(study.options),
      joined(study.settings), study.place.ranks, study.place.ranks_per_node, study.place.seed,
      study.check_content, study.data_servers, study.time_limit);
  SentinelStudy& kept = studies_[shared];
  if (kept.runs.empty()) {
    static_cast<StudyInput&>(kept) = study;
    if (kept.title.empty()) kept.title = study.workload;
    kept.profile = study.profile.name;
  }
  const bool known = std::any_of(kept.runs.begin(), kept.runs.end(), [&](const SentinelRun& r) {
    return r.policy == run.policy && r.own_settings == run.own_settings;
  });
  if (!known) kept.runs.push_back(std::move(run));
}

std::vector<SentinelStudy> SentinelCollector::studies() const {
  std::vector<SentinelStudy> all;
  for (const auto& [shared, study] : studies_) all.push_back(study);
  return all;
}

std::vector<SentinelStudy> choose_sentinels(std::vector<SentinelStudy> all, SentinelLimit quick,
                                            SentinelLimit thorough) {
  std::stable_sort(all.begin(), all.end(), [](const SentinelStudy& a, const SentinelStudy& b) {
    return cost_of(a) < cost_of(b);
  });
  // The n-th of each workload comes before any workload's next one; of those the cheapest first.
  std::map<std::string, std::size_t> seen;
  std::vector<std::pair<std::size_t, SentinelStudy*>> in_turn;
  for (SentinelStudy& study : all) in_turn.emplace_back(seen[study.workload]++, &study);
  std::stable_sort(in_turn.begin(), in_turn.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto take = [](const SentinelStudy& study, SentinelLimit* left) {
    const std::uint64_t cost = cost_of(study);
    if (cost > left->events || study.runs.size() > left->runs) return false;
    left->events -= cost;
    left->runs -= study.runs.size();
    return true;
  };
  std::vector<SentinelStudy> chosen;
  for (const auto& [turn, study] : in_turn) {
    // A page whose cheapest study takes longer has that one all the same.
    const bool first = chosen.empty();
    if (!take(*study, &thorough) && !first) continue;
    study->quick = take(*study, &quick) || first;
    chosen.push_back(*study);
  }
  std::stable_partition(chosen.begin(), chosen.end(),
                        [](const SentinelStudy& study) { return study.quick; });
  return chosen;
}

std::string sentinels_section(const Sentinels& sentinels) {
  std::size_t quick = 0, all = 0;
  Rows rows = {{"run", "processes", "policy", "time", "timed part", "messages"}};
  for (const SentinelStudy& study : sentinels.studies) {
    for (const SentinelRun& run : study.runs) {
      ++all;
      if (!study.quick) continue;
      ++quick;
      rows.push_back(row_of(study, run));
    }
  }
  std::string text =
      fmt::format("\n## Sentinels\n\nThis page was made at commit `{}`.", sentinels.commit);
  if (all == 0) return text + " None of its runs is made again by a test.\n";
  return text +
         fmt::format(
             " `make test` repeats {} of its runs and compares them to the last\ndigit, `make "
             "test-all` {} ([{}.sentinels.json]({}.sentinels.json)). Those of `make test`:\n\n{}",
             quick, all, sentinels.page, sentinels.page, markdown_table(rows));
}

StudyOptions again(const SentinelStudy& study, const SentinelRun& run, const ProfileFile& profile,
                   const std::string& costs) {
  StudyOptions options;
  static_cast<StudyInput&>(options) = study;
  options.profile = profile;
  options.policies = {run.policy};
  options.own_settings[run.policy] = run.own_settings;
  if (run.calibrated) options.own_settings[run.policy].emplace_back("costs", costs);
  return options;
}

double lead_of_turnout(const SentinelStudy& study) {
  double ours = 0, best = std::numeric_limits<double>::infinity();
  for (const SentinelRun& run : study.runs) {
    if (run.policy == kOurs) {
      ours = time_of(run);
    } else {
      best = std::min(best, time_of(run));
    }
  }
  return ours > 0 && best > 0 && best < std::numeric_limits<double>::infinity() ? ours / best : 0;
}

std::string to_json(const Sentinels& sentinels) {
  Json studies = Json::array();
  for (const SentinelStudy& study : sentinels.studies) studies.push_back(json_of_study(study));
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
