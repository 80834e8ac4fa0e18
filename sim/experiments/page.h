// SPDX-License-Identifier: BSD-3-Clause
// What the pages of all experiments have: tables, claims, how it was run, what was
// fitted.
//
// Pure; any thread. Text is Markdown.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/memory/account.h"
#include "sim/experiments/experiment.h"

namespace turnout::sim {

using Rows = std::vector<std::vector<std::string>>;
// The first row is the head; numbers are aligned to the right.
[[nodiscard]] std::string markdown_table(const Rows& rows);

// "-19.3 %": by how much `ours` is below (-) or above (+) `other`.
[[nodiscard]] double change_percent(double ours, double other);
[[nodiscard]] std::string print_percent(double percent);

// "Modelled, not measured": profile, device, and the values of the profile that were fitted.
[[nodiscard]] std::string provenance(const ProfileFile& profile);
// The section with the command that makes the page again, the settings and options it ran with.
[[nodiscard]] std::string how_it_was_run(std::string_view name, const ExperimentOptions& options,
                                         const NamedValues& workload_options,
                                         const NamedValues& settings, std::string_view before = {});

// `own` with what the user gave in the place of values of the same name, or after them.
[[nodiscard]] NamedValues overlaid(NamedValues own, const NamedValues& given);
[[nodiscard]] bool gives(const NamedValues& given, std::string_view name);

// Of Turnout: room for a connection to everyone.
[[nodiscard]] NamedValues room_for_all(std::uint32_t ranks);

// What makes a policy the paper's: rc-rdma-od has no limit but the number of sources, and keeps a
// user's settings.
[[nodiscard]] std::map<std::string, NamedValues> settings_of_paper(const NamedValues& given,
                                                                   std::uint32_t ranks);
inline constexpr std::string_view kSettingsOfPaper =
    "`rc-rdma-od` may connect to every process (`max_active_rc`, `max_channels`, `rc_pool` = the "
    "number of\nprocesses), as in the paper; `aqps` uses the limits of Table 2.\n";

// Where the policy `turnout` has its costs from.
[[nodiscard]] std::string costs_of_turnout(const ExperimentOptions& options);

// A study of so many ranks as an experiment asks for it, its progress told behind `what`; workload,
// settings and policies are the caller's.
[[nodiscard]] StudyOptions begin_study(const ExperimentOptions& options, std::uint32_t ranks,
                                       const std::string& what = {});

// The numbers of ranks asked for; none: the usual ones.
[[nodiscard]] std::vector<std::uint32_t> sizes_of(const ExperimentOptions& options,
                                                  std::vector<std::uint32_t> usual);

// run_studies() with the options' jobs. Errors: the first one's that failed.
[[nodiscard]] Result<std::vector<Study>> results_of(std::span<const StudyOptions> studies,
                                                    const ExperimentOptions& options,
                                                    const Runner& runner);

// Of all phases but the warm-up.
struct Timed {
  double time = 0;  // picoseconds
  double messages = 0;
};
[[nodiscard]] Timed timed_phases(std::span<const Phase> phases);
[[nodiscard]] inline Timed timed_phases(const PolicyResult& result) {
  return timed_phases(result.phases);
}

// Of the process that had most of that kind; bytes.
[[nodiscard]] std::uint64_t largest_of(const Outcome& outcome, MemoryKind kind);

// The policies asked for, checked; none: the usual ones.
[[nodiscard]] Result<std::vector<std::string>> policies_of(const std::vector<std::string>& asked,
                                                           const std::vector<std::string>& usual);

// Claims of the papers beside ours, each with a verdict that follows from the numbers. The page of
// an experiment has one table of them; tools/claims.py collects the tables of all pages. The later
// verdict, the worse.
enum class Verdict : std::uint8_t {
  met,           // within the tolerance
  tendency,      // outside of it, in the paper's direction with every seed
  missed,        // neither
  contradicted,  // in the other direction with every seed
  not_run,       // this experiment has nothing to compare
};
[[nodiscard]] std::string_view name(Verdict verdict) noexcept;
[[nodiscard]] constexpr Verdict met_if(bool agrees) noexcept {
  return agrees ? Verdict::met : Verdict::missed;
}

struct Claim {
  std::string id, what, paper, ours;
  Verdict verdict = Verdict::not_run;
  std::string cause = {};  // of any verdict but met; not printed if met
};

// Of several seeds.
struct OfSeeds {
  double median = 0, least = 0, most = 0;
};
[[nodiscard]] OfSeeds of_seeds(std::vector<double> values);
// "-19.3 %", of several seeds "-19.3 % (-20.1 to -18.0)".
[[nodiscard]] std::string print_percent(const OfSeeds& percent);

// Differences in percent: met within so many percentage points.
inline constexpr double kPoints = 3;
// Everything else: met within so much of the paper's value [spec/claims.md, E3].
inline constexpr double kPart = 0.15;
// The paper's change in percent; 0: that there is none.
[[nodiscard]] Verdict of_change(double paper, const OfSeeds& ours) noexcept;
[[nodiscard]] Verdict of_value(double paper, double ours) noexcept;

[[nodiscard]] std::string claims_table(const std::vector<Claim>& claims);

}  // namespace turnout::sim
