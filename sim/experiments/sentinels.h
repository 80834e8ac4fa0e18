// SPDX-License-Identifier: BSD-3-Clause
// Sentinels: runs of an experiment that stand beside its page with what they gave, so that a test
// can make them again and tell when the page is not true any more.
//
// SentinelCollector takes every run of an experiment; choose_sentinels() keeps those that are
// cheap, from each workload of the page alike. They are written as NAME.sentinels.json: what was
// run, as far as it was given (a changed default or profile is to be noticed), and the modelled
// results to the last digit. Times are picoseconds. Plain values; one thread. The text of a file is
// untrusted. Errors: invalid, naming the field.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sim/study/study.h"

namespace turnout::sim {

// What a run gave.
struct SentinelResult {
  Picoseconds time = 0;   // of the whole run
  Picoseconds timed = 0;  // of its timed phases; 0: it has none
  std::uint64_t messages = 0;
  std::uint64_t memory_peak = 0;  // bytes, of the largest rank
  std::uint64_t connections = 0;  // RC queue pairs of a rank at one time, at most
  bool operator==(const SentinelResult&) const = default;
};
[[nodiscard]] SentinelResult sentinel_result(const PolicyResult& result);

struct SentinelRun {
  std::string policy;
  NamedValues own_settings;  // of this policy, over the study's
  bool calibrated = false;   // it has the costs that `turnout calibrate` finds on the profile
  SentinelResult result;
  std::uint64_t events = 0;  // what it takes to make it again
};

// Runs that differ in their policy alone.
struct SentinelStudy : StudyInput {
  std::string profile;  // its name
  bool quick = false;   // for `make test`
  std::vector<SentinelRun> runs;
};

struct Sentinels {
  std::string page;    // the experiment
  std::string commit;  // at which the page was made
  std::vector<SentinelStudy> studies;
};

// Takes the runs of an experiment; one whose program has no name, or whose costs are a user's file,
// is left out, as is one that is told of again.
class SentinelCollector {
 public:
  // `costs`: the file with the costs of `turnout calibrate`; empty: none.
  explicit SentinelCollector(std::string costs) : costs_(std::move(costs)) {}
  void add(const StudyOptions& study, const PolicyResult& result);
  // Each has one run or more.
  [[nodiscard]] std::vector<SentinelStudy> studies() const;

 private:
  std::string costs_;
  std::map<std::string, SentinelStudy> studies_;  // by what its runs share
};

// What the tests may take of one page: events of the engine, of which a second of processor time
// plays about a million, and runs.
struct SentinelLimit {
  std::uint64_t events;
  std::size_t runs;
};
inline constexpr SentinelLimit kQuick{3'000'000, 24}, kThorough{60'000'000, 120};

// Those for `make test-all`, the quick ones among them first. The cheapest study of each workload,
// then the second of each, and so on.
[[nodiscard]] std::vector<SentinelStudy> choose_sentinels(std::vector<SentinelStudy> all,
                                                          SentinelLimit quick = kQuick,
                                                          SentinelLimit thorough = kThorough);

// The section of the page about them.
[[nodiscard]] std::string sentinels_section(const Sentinels& sentinels);

[[nodiscard]] std::string to_json(const Sentinels& sentinels);
[[nodiscard]] Result<Sentinels> parse_sentinels(std::string_view text);

// How to make a run again, at that profile; `costs`: the file for calibrated ones.
[[nodiscard]] StudyOptions again(const SentinelStudy& study, const SentinelRun& run,
                                 const ProfileFile& profile, const std::string& costs);

// Time of the policy `turnout` divided by the least of the others; 0: there is no such comparison.
[[nodiscard]] double lead_of_turnout(const SentinelStudy& study);

}  // namespace turnout::sim
