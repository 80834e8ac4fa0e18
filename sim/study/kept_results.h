// SPDX-License-Identifier: BSD-3-Clause
// KeptResults: a folder with results of runs, so that a long experiment can run in parts, in
// several processes, and can be resumed.
//
// One file per run. Its name is a hash of all inputs: Turnout's version, the profile's values, the
// workload with its options, settings (with the text of a file they name), policy, ranks, seed. The
// build is not an input: use a new folder for each build. A file repeats its inputs and is used
// only if they match. The text is untrusted: a damaged file causes a warning and is ignored. Copies
// share only the folder; several processes may use it at once. Errors: system, permission, with the
// path.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "sim/study/study.h"

namespace turnout::sim {

class KeptResults {
 public:
  // Makes the folder. `version` is Turnout's.
  [[nodiscard]] static Result<KeptResults> open(const std::string& folder, std::string version);

  // What the run of `policy` of this study follows from, as JSON; empty: its result cannot be kept,
  // because it is more than the numbers (reports, a trace) or because its program has no name.
  [[nodiscard]] std::string identity(const StudyOptions& study, const std::string& policy) const;

  // The result, or how the run failed, which it would again.
  [[nodiscard]] std::optional<Result<PolicyResult>> find(const std::string& identity) const;
  // Latencies and reports of a result are left out. A failure that is not the run's own (no device,
  // settings that are wrong) is not kept.
  [[nodiscard]] Status keep(const std::string& identity, const Result<PolicyResult>& result) const;

  // The text kept for something else that follows from `identity`, and repeats it.
  [[nodiscard]] std::optional<Result<std::string>> find_text(const std::string& identity) const;
  [[nodiscard]] Status keep_text(const std::string& identity, const std::string& text) const;
  // That what was found is damaged, and is made again.
  void warn_of(const std::string& identity, const Status& status) const;

  [[nodiscard]] const std::string& folder() const noexcept { return folder_; }
  [[nodiscard]] std::string path_of(const std::string& identity) const;

 private:
  KeptResults(std::string folder, std::string version)
      : folder_(std::move(folder)), version_(std::move(version)) {}

  std::string folder_, version_;
};

[[nodiscard]] std::string to_kept_json(const std::string& identity,
                                       const Result<PolicyResult>& result);
// Untrusted text. Errors: invalid, naming the field; version (another layout).
struct Kept {
  Result<PolicyResult> result;
};
[[nodiscard]] Result<Kept> from_kept_json(std::string_view text, const std::string& identity);

}  // namespace turnout::sim
