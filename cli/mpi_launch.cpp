// SPDX-License-Identifier: BSD-3-Clause
#include "cli/mpi_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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

// A variable of the environment.
std::optional<std::string> given(const LaunchFacts& facts, const std::string& name) {
  const auto found = facts.environment.find(name);
  return found == facts.environment.end() ? std::nullopt : std::optional(found->second);
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
  return given(facts, "SLURM_JOB_NUM_NODES").value_or("1") != "1";
}

bool is_open_mpi(Mpi mpi) {
  return mpi == Mpi::open_mpi_4 || mpi == Mpi::open_mpi_5;
}

// mpirun wants both, and those of the other version.
constexpr std::array<const char*, 4> kAllowRoot = {
    "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM"};

// Open MPI refuses to run as root unless that is allowed; this is the user's decision, not ours.
bool allows_root(const LaunchFacts& facts) {
  return given(facts, "OMPI_ALLOW_RUN_AS_ROOT") == "1" ||
         given(facts, "PRTE_ALLOW_RUN_AS_ROOT") == "1";
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

// What the MPI library needs, and the user has not set.
void add_variables(const LaunchFacts& facts, Launch* launch) {
  const Mpi mpi = facts.version.mpi;
  const bool any = mpi == Mpi::unknown || mpi == Mpi::slurm;  // the names of all do not collide
  const bool open_mpi = any || is_open_mpi(mpi), mpich = any || mpi == Mpi::mpich;
  const bool intel_mpi = any || mpi == Mpi::intel_mpi;
  const bool root = open_mpi && allows_root(facts) && mpi != Mpi::slurm;
  const bool crowded = launch->one_host && launch->ranks > facts.processors;
  struct Variable {
    bool needed;
    const char* name;
    const char* value;
  };
  for (const auto& [needed, name, value] : {
           // pml cm: whatever leaves a rank goes through the MTL, none through Open MPI's own
           // transports. OMPI_* are of version 4 or of both, PRTE_* and opal_common_* of 5.
           Variable{open_mpi, "OMPI_MCA_pml", "cm"},
           {open_mpi, "OMPI_MCA_mtl", "ofi"},
           {open_mpi, "OMPI_MCA_mtl_ofi_provider_include", "turnout"},
           {open_mpi, "OMPI_MCA_opal_common_ofi_provider_include", "turnout"},
           {root, kAllowRoot[0], "1"},
           {root, kAllowRoot[1], "1"},
           {root, kAllowRoot[2], "1"},
           {root, kAllowRoot[3], "1"},
           {open_mpi && crowded, "OMPI_MCA_mpi_yield_when_idle", "1"},
           {open_mpi && crowded, "OMPI_MCA_rmaps_base_oversubscribe", "1"},
           {open_mpi && crowded, "PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"},
           {open_mpi && crowded, "OMPI_MCA_hwloc_base_binding_policy", "none"},
           {open_mpi && crowded, "PRTE_MCA_hwloc_default_binding_policy", "none"},
           {mpich, "MPIR_CVAR_CH4_NETMOD", "ofi"},
           {mpich, "FI_PROVIDER", "turnout"},
           // Else messages inside a host go through MPICH's shared memory: all, where there is one.
           {mpich && launch->one_host, "MPIR_CVAR_NOLOCAL", "1"},
           {mpich && crowded, "MPIR_CVAR_CH4_PROGRESS_THROTTLE", "1"},
           {mpich && crowded, "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT", "16"},
           {intel_mpi, "I_MPI_FABRICS", "ofi"},
           {intel_mpi, "FI_PROVIDER", "turnout"},
           {intel_mpi, "I_MPI_OFI_PROVIDER", "turnout"},
           // The start scripts of Intel MPI's own libfabric replace FI_PROVIDER_PATH unless this is
           // 0. Versions without one warn about the variable.
           {intel_mpi && has_own_libfabric(facts.version), "I_MPI_OFI_LIBRARY_INTERNAL", "0"},
       }) {
    if (needed && !given(facts, name)) launch->variables.emplace_back(name, value);
  }
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

Launch plan_recording(const LaunchFacts& facts, const std::string& library,
                      const std::string& folder) {
  const Mpi mpi = facts.version.mpi;
  const bool any = mpi == Mpi::unknown || mpi == Mpi::slurm;
  Launch launch;
  launch.command = facts.command;
  launch.ranks = ranks_of(facts.command);
  launch.one_host = !names_hosts(facts);
  const auto set_if_not_given = [&](bool needed, const char* name, const char* value) {
    if (needed && !given(facts, name)) launch.variables.emplace_back(name, value);
  };
  set_if_not_given((any || mpi == Mpi::mpich) && launch.one_host, "MPIR_CVAR_NOLOCAL", "1");
  set_if_not_given(any || mpi == Mpi::intel_mpi, "I_MPI_FABRICS", "ofi");
  // Without an adapter Open MPI takes transports of its own.
  const bool own = is_open_mpi(mpi) && launch.one_host && !facts.infiniband &&
                   !given(facts, "OMPI_MCA_pml") && !value_of(facts.command, {"--mca", "-mca"});
  set_if_not_given(own, "OMPI_MCA_pml", "cm");
  set_if_not_given(own, "OMPI_MCA_mtl", "ofi");
  set_if_not_given(own, "OMPI_MCA_mtl_ofi_provider_include", "tcp");
  set_if_not_given(own, "OMPI_MCA_opal_common_ofi_provider_include", "tcp");
  const bool root = is_open_mpi(mpi) && allows_root(facts);
  for (const char* const name : kAllowRoot) set_if_not_given(root, name, "1");
  const std::string before = given(facts, "LD_PRELOAD").value_or("");
  launch.variables.emplace_back("LD_PRELOAD", before.empty() ? library : library + ":" + before);
  launch.variables.emplace_back("LIBTURNOUT_RECORD", folder + "/");
  if (is_open_mpi(mpi) && !launch.one_host) {
    const std::initializer_list<std::string> exported = {"-x", "LD_PRELOAD", "-x",
                                                         "LIBTURNOUT_RECORD"};
    launch.command.insert(launch.command.begin() + 1, exported);
  }
  return launch;
}

Launch plan_launch(const LaunchFacts& facts) {
  Launch launch;
  launch.command = facts.command;
  launch.ranks = ranks_of(facts.command);
  launch.one_host = !names_hosts(facts);
  std::string paths = facts.provider_folder;
  const std::string old = given(facts, "FI_PROVIDER_PATH").value_or("");
  if (!old.empty() && old != paths) paths += ":" + old;
  launch.variables.emplace_back("FI_PROVIDER_PATH", std::move(paths));
  add_variables(facts, &launch);
  if (!facts.report_folder.empty()) {
    launch.variables.emplace_back("TURNOUT_REPORT", facts.report_folder + "/");
  }
  launch.variables.insert(launch.variables.end(), facts.settings.begin(), facts.settings.end());
  // Open MPI hands its own variables to other hosts; the others have to be named.
  if (is_open_mpi(facts.version.mpi) && !launch.one_host) {
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
  for (const auto& [name, wanted] : {std::pair{"FI_PROVIDER", "turnout"},
                                     {"OMPI_MCA_pml", "cm"},
                                     {"OMPI_MCA_mtl", "ofi"},
                                     {"OMPI_MCA_mtl_ofi_provider_include", "turnout"},
                                     {"MPIR_CVAR_CH4_NETMOD", "ofi"},
                                     {"I_MPI_FABRICS", "ofi"},
                                     {"I_MPI_OFI_PROVIDER", "turnout"}}) {
    const std::string value = given(facts, name).value_or("");
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
