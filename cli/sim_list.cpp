// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/settings.h"
#include "cli/sim.h"
#include "sim/experiments/experiment.h"
#include "sim/formats/profile_file.h"
#include "sim/study/study.h"
#include "sim/workloads/workload.h"

namespace turnout::cli {

std::string sim_list() {
  std::string out = "workloads (turnout sim NAME --option name=value)\n";
  for (const sim::Workload& w : sim::workloads()) {
    out += fmt::format("  {:<14} {}\n", w.name, w.help);
    for (const sim::Parameter& p : w.parameters) {
      out += fmt::format("  {:<14}   {} = {}: {}\n", "", p.name, p.print(p.default_value), p.help);
    }
  }
  out += "  replay         the messages of a trace (--trace FILE)\n";
  out += "experiments (turnout sim --experiment NAME)\n";
  for (const sim::Experiment& e : sim::experiments()) {
    out += fmt::format("  {:<14} {}\n", e.name, e.help);
  }
  out += fmt::format("policies: {}\n", fmt::join(kPolicyNames, ", "));
  out += fmt::format("profiles: {}\n", fmt::join(sim::list_profiles(), ", "));
  return out;
}

}  // namespace turnout::cli
