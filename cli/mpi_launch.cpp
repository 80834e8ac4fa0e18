// SPDX-License-Identifier: BSD-3-Clause
#include "cli/mpi_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <set>

namespace turnout::cli {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The first word of digits and dots behind `mark`.
std::string number_behind(std::string_view text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos) return {};
  std::size_t begin = at + mark.size();
  while (begin < text.size() && std::isdigit(static_cast<unsigned char>(text[begin])) == 0) {
    if (text[begin] == '\n') return {};
    ++begin;
  }
  std::size_t end = begin;
  while (end < text.size() &&
         (std::isdigit(static_cast<unsigned char>(text[end])) != 0 || text[end] == '.')) {
    ++end;
  }
  return std::string(text.substr(begin, end - begin));
}

// The value of one of these options, "-n 4", "--ntasks=4" or "-n4" alike.
std::optional<std::string> value_of(const std::vector<std::string>& command,
                                    std::initializer_list<std::string_view> names) {
  for (std::size_t i = 1; i < command.size(); ++i) {
    const std::string_view word = command[i];
    for (const std::string_view name : names) {
      if (word == name && i + 1 < command.size()) return command[i + 1];
      if (word.starts_with(name) && word.size() > name.size() + 1 && word[name.size()] == '=') {
        return std::string(word.substr(name.size() + 1));
      }
    }
  }
  return std::nullopt;
}

unsigned ranks_of(const std::vector<std::string>& command) {
  const std::string text =
      value_of(command, {"-n", "-np", "--np", "--n", "-c", "--ntasks", "-ntasks"}).value_or("");
  unsigned ranks = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  return error == std::errc{} && end == text.data() + text.size() ? ranks : 0;
}

bool names_hosts(const LaunchFacts& facts) {
  if (facts.batch_hosts > 1) return true;
  if (value_of(facts.command,
               {"-H", "-host", "--host", "-hosts", "--hosts", "-f", "-hostfile", "--hostfile",
                "-machinefile", "--machinefile", "-machine", "-w", "--nodelist", "-ppn"})) {
    return true;
  }
  if (const auto nodes = value_of(facts.command, {"-N", "--nodes"}); nodes && *nodes != "1") {
    return true;
  }
  const auto nodes = facts.environment.find("SLURM_JOB_NUM_NODES");
  return nodes != facts.environment.end() && nodes->second != "1";
}

bool is_open_mpi(Mpi mpi) {
  return mpi == Mpi::open_mpi_4 || mpi == Mpi::open_mpi_5;
}

using Variables = std::vector<std::pair<std::string, std::string>>;

// Open MPI refuses to run as root unless that is allowed; this is the user's decision, not ours.
bool allows_root(const LaunchFacts& facts) {
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"}) {
    const auto found = facts.environment.find(name);
    if (found != facts.environment.end() && found->second == "1") return true;
  }
  return false;
}

void set_open_mpi(Variables* variables, bool crowded, bool root) {
  // pml cm: whatever leaves a rank goes through the MTL, none through Open MPI's own transports.
  variables->emplace_back("OMPI_MCA_pml", "cm");
  variables->emplace_back("OMPI_MCA_mtl", "ofi");
  variables->emplace_back("OMPI_MCA_mtl_ofi_provider_include", "turnout");          // Open MPI 4
  variables->emplace_back("OMPI_MCA_opal_common_ofi_provider_include", "turnout");  // Open MPI 5
  if (root) {  // mpirun wants both, and those of the other version
    for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                             "PRTE_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"}) {
      variables->emplace_back(name, "1");
    }
  }
  if (!crowded) return;
  variables->emplace_back("OMPI_MCA_mpi_yield_when_idle", "1");
  variables->emplace_back("OMPI_MCA_rmaps_base_oversubscribe", "1");                   // Open MPI 4
  variables->emplace_back("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe");  // Open MPI 5
  variables->emplace_back("OMPI_MCA_hwloc_base_binding_policy", "none");               // Open MPI 4
  variables->emplace_back("PRTE_MCA_hwloc_default_binding_policy", "none");            // Open MPI 5
}

void set_mpich(Variables* variables, bool crowded, bool one_host) {
  variables->emplace_back("MPIR_CVAR_CH4_NETMOD", "ofi");
  variables->emplace_back("FI_PROVIDER", "turnout");
  // Else messages inside a host go through MPICH's shared memory: all of them, where there is one.
  if (one_host) variables->emplace_back("MPIR_CVAR_NOLOCAL", "1");
  if (!crowded) return;
  variables->emplace_back("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "1");
  variables->emplace_back("MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT", "16");
}

// Intel MPI brought its own libfabric until 2021.18. An unknown version counts as one of these.
bool has_own_libfabric(const MpiVersion& version) {
  const std::string number = number_behind(version.name, "Intel MPI");  // "2021.19.0"
  unsigned year = 0, update = 0;
  const char* const end = number.data() + number.size();
  const char* const dot = std::from_chars(number.data(), end, year).ptr;
  if (dot != end) std::from_chars(dot + 1, end, update);
  return std::pair(year, update) < std::pair(2021u, 19u);
}

void set_intel_mpi(Variables* variables, const MpiVersion& version) {
  variables->emplace_back("I_MPI_FABRICS", "ofi");
  variables->emplace_back("FI_PROVIDER", "turnout");
  variables->emplace_back("I_MPI_OFI_PROVIDER", "turnout");
  // The start scripts of Intel MPI's own libfabric replace FI_PROVIDER_PATH unless this is 0.
  // Versions without one warn about the variable.
  if (has_own_libfabric(version)) variables->emplace_back("I_MPI_OFI_LIBRARY_INTERNAL", "0");
}

}  // namespace

MpiVersion mpi_of(std::string_view text) {
  if (contains(text, "Intel(R) MPI Library")) {
    return {Mpi::intel_mpi, "Intel MPI " + number_behind(text, "Version")};
  }
  if (contains(text, "(Open MPI)") || contains(text, "open-mpi")) {
    // mpirun.openmpi and orterun of Open MPI 4 print OpenRTE in the place of Open MPI.
    std::string number =
        number_behind(text, contains(text, "(OpenRTE)") ? "(OpenRTE)" : "(Open MPI)");
    const bool old = number.starts_with("4") || number.starts_with("3");
    return {old ? Mpi::open_mpi_4 : Mpi::open_mpi_5, "Open MPI " + number};
  }
  if (contains(text, "PRRTE")) {
    return {Mpi::open_mpi_5, "Open MPI 5 (PRRTE " + number_behind(text, "PRRTE") + ")"};
  }
  if (contains(text, "HYDRA build details")) {
    return {Mpi::mpich, "MPICH " + number_behind(text, "Version:")};
  }
  if (text.starts_with("slurm")) return {Mpi::slurm, "Slurm " + number_behind(text, "slurm")};
  return {};
}

Launch plan_launch(const LaunchFacts& facts) {
  Launch launch;
  launch.command = facts.command;
  launch.ranks = ranks_of(facts.command);
  launch.one_host = !names_hosts(facts);
  const bool crowded = launch.one_host && launch.ranks > facts.processors;
  Variables variables;
  const Mpi mpi = facts.version.mpi;
  const bool any = mpi == Mpi::unknown || mpi == Mpi::slurm;  // the names of all do not collide
  if (any || is_open_mpi(mpi)) {
    set_open_mpi(&variables, crowded, allows_root(facts) && mpi != Mpi::slurm);
  }
  if (any || mpi == Mpi::mpich) set_mpich(&variables, crowded, launch.one_host);
  if (any || mpi == Mpi::intel_mpi) set_intel_mpi(&variables, facts.version);
  // What the user has set stays, but for one that gets a folder more.
  std::erase_if(variables, [&](const auto& one) { return facts.environment.contains(one.first); });
  std::string paths = facts.provider_folder;
  const auto old = facts.environment.find("FI_PROVIDER_PATH");
  if (old != facts.environment.end() && !old->second.empty() && old->second != paths) {
    paths += ":" + old->second;
  }
  launch.variables.emplace_back("FI_PROVIDER_PATH", std::move(paths));
  launch.variables.insert(launch.variables.end(), variables.begin(), variables.end());
  if (!facts.report_folder.empty()) {
    launch.variables.emplace_back("TURNOUT_REPORT", facts.report_folder + "/");
  }
  launch.variables.insert(launch.variables.end(), facts.settings.begin(), facts.settings.end());
  // Open MPI hands its own variables to other hosts; the others have to be named.
  if (is_open_mpi(mpi) && !launch.one_host) {
    std::set<std::string> names;
    for (const auto& [name, value] : launch.variables) names.insert(name);
    for (const auto& [name, value] : facts.environment) names.insert(name);
    std::vector<std::string> exported;
    for (const std::string& name : names) {
      if (!name.starts_with("TURNOUT_") && !name.starts_with("FI_")) continue;
      exported.emplace_back("-x");
      exported.push_back(name);
    }
    launch.command.insert(launch.command.begin() + 1, exported.begin(), exported.end());
  }
  return launch;
}

std::vector<std::string> reasons_of_absence(const LaunchFacts& facts) {
  std::vector<std::string> reasons;
  const auto given = [&](const char* name) -> std::string {
    const auto found = facts.environment.find(name);
    return found == facts.environment.end() ? std::string() : found->second;
  };
  for (const auto& [name, wanted] : {std::pair{"FI_PROVIDER", "turnout"},
                                     {"OMPI_MCA_pml", "cm"},
                                     {"OMPI_MCA_mtl", "ofi"},
                                     {"OMPI_MCA_mtl_ofi_provider_include", "turnout"},
                                     {"MPIR_CVAR_CH4_NETMOD", "ofi"},
                                     {"I_MPI_FABRICS", "ofi"},
                                     {"I_MPI_OFI_PROVIDER", "turnout"}}) {
    const std::string value = given(name);
    if (!value.empty() && value != wanted) {
      reasons.push_back(
          fmt::format("{} is set to {}; Turnout needs {}, or unset it", name, value, wanted));
    }
  }
  if (facts.root && is_open_mpi(facts.version.mpi) && !allows_root(facts)) {
    reasons.emplace_back(
        "Open MPI refuses to run as root: use another user, or in a container set "
        "OMPI_ALLOW_RUN_AS_ROOT=1");
  }
  if (facts.version.mpi == Mpi::unknown) {
    reasons.push_back(fmt::format("{} is not a known launcher", facts.command.front()));
  } else {
    reasons.push_back(
        fmt::format("the program was built with another MPI than the launcher's, {}: compare `ldd "
                    "PROGRAM | grep mpi`",
                    facts.version.name));
  }
  reasons.emplace_back(
      "this MPI was built without libfabric (OFI), or its libfabric does not take the provider: "
      "FI_LOG_LEVEL=warn prints why");
  reasons.emplace_back("the program ended before MPI_Init or was killed");
  return reasons;
}

}  // namespace turnout::cli
