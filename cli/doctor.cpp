// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/doctor.h"

namespace turnout::cli {
namespace {

void print_table(const std::vector<Finding>& findings) {
  std::size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, finding.what.size());
  for (const Finding& finding : findings) {
    fmt::print("{:<8} {:<{}}  {}\n", level_name(finding.level), finding.what, width, finding.found);
    if (!finding.fix.empty()) fmt::print("{:<8} {:<{}}  -> {}\n", "", "", width, finding.fix);
  }
}

void print_json(const std::vector<Finding>& findings) {
  nlohmann::json list = nlohmann::json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"level", level_name(finding.level)},
                    {"what", finding.what},
                    {"found", finding.found},
                    {"fix", finding.fix}});
  }
  fmt::print("{}\n", list.dump(1));
}

struct DoctorOptions {
  bool json = false;
};

int run_doctor(const DoctorOptions& options) {
  const std::vector<Finding> findings = judge(gather_facts());
  const auto count = [&](Level level) {
    return std::count_if(findings.begin(), findings.end(),
                         [&](const Finding& finding) { return finding.level == level; });
  };
  const auto problems = count(Level::problem), warnings = count(Level::warning);
  if (options.json) {
    print_json(findings);
  } else {
    print_table(findings);
    fmt::print("\n{} problem{}, {} warning{}\n", problems, problems == 1 ? "" : "s", warnings,
               warnings == 1 ? "" : "s");
  }
  return problems == 0 ? 0 : kFailed;
}

}  // namespace

void add_doctor(CLI::App& app) {
  const auto [doctor, options] = add_command<DoctorOptions>(
      app, "doctor", "check this machine for problems, with remedies", run_doctor);
  doctor->add_flag("--json", options->json, "print the findings as JSON");
}

}  // namespace turnout::cli
