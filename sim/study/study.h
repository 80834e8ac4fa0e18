// SPDX-License-Identifier: BSD-3-Clause
// Study: one workload under several policies, everything else equal.
//
// `turnout sim WORKLOAD` and the experiments run studies. All inputs are checked before the first
// run. Results are modelled and name their profile. Plain values; one thread. Errors: invalid (a
// policy, a setting or an option, with the nearest name), or the error of a run with its policy.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sim/formats/profile_file.h"
#include "sim/runtime/simulation.h"
#include "sim/workloads/workload.h"

namespace turnout::sim {

class KeptResults;
struct PolicyResult;

// A setting of studies that is none of Turnout: the intervals of a table of statistics (sigma in
// AQPS). with_paper_table() of sim/experiments takes it.
inline constexpr std::string_view kStatisticsEntries = "statistics_entries";

// How a program is run: sim::run, or a test's own.
using Runner = std::function<Result<Outcome>(const Options&, const Program&)>;

// What stands in a file about runs: all that they follow from but the profile and the policy.
struct StudyInput {
  std::string title;  // for progress; may be empty
  std::string workload;
  NamedValues options;   // of the workload
  NamedValues settings;  // of Turnout, without "policy"
  Place place;
  bool check_content = true;
  bool data_servers = false;  // as in Options
  Picoseconds start_after = 0;
  Picoseconds time_limit = 0;
};

struct StudyOptions : StudyInput {
  // Makes what is run, once for each policy; empty: the workload of that name.
  std::function<Result<Instance>(const Place&)> make;
  bool options_say_all = false;  // what `make` makes follows from `options`: results can be kept
  ProfileFile profile;
  std::vector<std::string> policies;
  std::map<std::string, NamedValues> own_settings;  // of one policy, over `settings`
  bool keep_reports = false;
  bool keep_partners = false;  // not of results that are read back
  // Of the run under way; may be empty.
  std::function<void(const std::string& policy, std::uint32_t ended, Picoseconds now,
                     std::uint64_t events)>
      progress;
  // Told of each result, also of one that was read back; may be empty.
  std::function<void(const StudyOptions& study, const PolicyResult& result)> ended;
  // Where results are read from, and kept in; null: nowhere.
  const KeptResults* kept = nullptr;
  // What takes the trace of a policy's run; may be empty, or give an empty function.
  std::function<std::function<void(const hca::Trace&)>(const std::string& policy)> trace;
};

struct PolicyResult {
  std::string policy;
  Outcome outcome;
  std::vector<Phase> phases;
};

struct Study {
  std::string workload;
  std::map<std::string, std::string> options;  // all of them, printed with units
  Place place;
  std::string profile, device;
  NamedValues settings;
  std::vector<PolicyResult> results;  // in the order asked for
};

[[nodiscard]] Options options_at(const Place& place, const ProfileFile& profile);

[[nodiscard]] Result<Study> run_study(const StudyOptions& options, const Runner& runner);

// Settings of one policy's run, without the policy itself.
[[nodiscard]] NamedValues settings_of(const StudyOptions& options, const std::string& policy);
// Options of the workload as printed in results: defaults too, so that a result tells all.
[[nodiscard]] std::map<std::string, std::string> printed_options(const StudyOptions& options);

// Settings as they would be in a run, checked as a whole. Errors: invalid.
[[nodiscard]] Status check_settings(const std::string& policy, const NamedValues& settings);

// "a,b,c" in its parts; empty ones are left out.
[[nodiscard]] std::vector<std::string> split(std::string_view list, char between = ',');
// "name=value" pairs. Errors: invalid, naming the option they were given to.
[[nodiscard]] Result<NamedValues> parse_pairs(const std::vector<std::string>& given,
                                              std::string_view option);

// Many studies in several processes (children.h), with the results in a folder. A child that exits
// early ends the set with an error; finished results stay in the folder.
struct SetOptions {
  std::uint32_t jobs = 1;  // more than one: all studies have `kept`
  // Told of each run that was made, in a line; from children too. May be empty.
  std::function<void(const std::string& line)> told;
};

// One result for each study, in their order; a study whose run failed has its failure.
// Errors: invalid (jobs without a folder), system, internal (a child ended early).
[[nodiscard]] Result<std::vector<Result<Study>>> run_studies(std::span<const StudyOptions> studies,
                                                             const SetOptions& options,
                                                             const Runner& runner);

}  // namespace turnout::sim
