// SPDX-License-Identifier: BSD-3-Clause
// launcher_identity(): what launchers tell their processes, in the variables they set.
//   Open MPI 4 and 5   OMPI_COMM_WORLD_{RANK,SIZE,LOCAL_SIZE}, PMIX_NAMESPACE
//   MPICH, Intel MPI   PMI_RANK, PMI_SIZE, MPI_LOCALNRANKS (hydra); no name of the job
//   SLURM              SLURM_PROCID, SLURM_NTASKS, SLURM_STEP_TASKS_PER_NODE, SLURM_NODEID,
//                      SLURM_NNODES, SLURM_JOB_ID, SLURM_STEP_ID [srun(1)]
//   any other PMIx     PMIX_RANK, PMIX_NAMESPACE; no size

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>

#include "base/launcher.h"

namespace turnout {

std::optional<std::string> read_proc(const std::string& path, std::size_t most) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  // In blocks: most files are far smaller than the limit, and its pages would all be touched.
  std::string content;
  std::array<char, 4096> block;
  while (file && content.size() < most) {
    const std::size_t wanted = std::min(block.size(), most - content.size());
    file.read(block.data(), static_cast<std::streamsize>(wanted));
    content.append(block.data(), static_cast<std::size_t>(file.gcount()));
  }
  return content;
}

// Field 3 is the state, 4 the parent, 14 and 15 the time in user and kernel, 22 the start; the name
// in parentheses before them may hold anything.
std::optional<ProcessStat> process_stat(int pid) {
  const std::optional<std::string> stat = read_proc(fmt::format("/proc/{}/stat", pid), 4096);
  if (!stat) return std::nullopt;
  const auto after_name = stat->rfind(')');
  if (after_name == std::string::npos) return std::nullopt;
  ProcessStat result;
  std::istringstream fields(stat->substr(after_name + 1));
  std::string word;
  for (int field = 3; field <= 22 && fields >> word; ++field) {
    const auto read = [&word](auto* to) {
      std::from_chars(word.data(), word.data() + word.size(), *to);
    };
    std::uint64_t time = 0;
    if (field == 3) result.state = word[0];
    if (field == 4) read(&result.parent);
    if (field == 14 || field == 15) read(&time);
    result.processor_time += time;
    if (field == 22) read(&result.start);
  }
  return result;
}

namespace {

// The value of a variable in the environment of some process; null: it is not set.
using Environment = std::function<const char*(const char* variable)>;

std::optional<int> number(const Environment& environment, const char* variable) {
  const char* const text = environment(variable);
  if (text == nullptr) return std::nullopt;
  const std::string_view view(text);
  int value = 0;
  const auto [next, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc{} || next != view.data() + view.size() || value < 0) return std::nullopt;
  return value;
}

std::string text(const Environment& environment, const char* variable) {
  const char* const value = environment(variable);
  return value == nullptr ? std::string{} : std::string(value);
}

// "16(x4),3": of so many nodes each, in their order.
std::optional<int> slurm_local_tasks(const Environment& environment) {
  const std::string all = text(environment, "SLURM_STEP_TASKS_PER_NODE");
  int node = number(environment, "SLURM_NODEID").value_or(-1);
  if (node < 0) return std::nullopt;
  const char* at = all.data();
  const char* const end = at + all.size();
  while (at < end) {
    int tasks = 0, nodes = 1;
    auto parsed = std::from_chars(at, end, tasks);
    if (parsed.ec != std::errc{} || tasks < 1) return std::nullopt;
    at = parsed.ptr;
    if (end - at > 2 && at[0] == '(' && at[1] == 'x') {
      parsed = std::from_chars(at + 2, end, nodes);
      if (parsed.ec != std::errc{} || nodes < 1 || parsed.ptr == end || *parsed.ptr != ')') {
        return std::nullopt;
      }
      at = parsed.ptr + 1;
    }
    if (node < nodes) return tasks;
    node -= nodes;
    if (at < end && *at++ != ',') return std::nullopt;
  }
  return std::nullopt;
}

constexpr std::size_t kMostEnvironment = 4u << 20;

// hydra names no job in the environment. Its processes have one ancestor in common that is the
// launcher: the nearest one that has no PMI_RANK itself (shells between inherit it).
std::string job_of_launching_process(int pid) {
  constexpr int kMostGenerations = 64;
  for (int generation = 0; pid > 1 && generation < kMostGenerations; ++generation) {
    const std::optional<ProcessStat> found = process_stat(pid);
    if (!found) break;
    const std::optional<std::string> environment =
        read_proc(fmt::format("/proc/{}/environ", pid), kMostEnvironment);
    const std::string marker("\0PMI_RANK=", 10);
    if (!environment || (std::string(1, '\0') + *environment).find(marker) == std::string::npos) {
      return fmt::format("pmi-{}-{}", pid, found->start);
    }
    pid = found->parent;
  }
  return {};
}

LauncherIdentity identity_in(const Environment& environment, int parent) {
  const auto number = [&](const char* variable) { return turnout::number(environment, variable); };
  const auto text = [&](const char* variable) { return turnout::text(environment, variable); };
  LauncherIdentity identity;
  const auto set = [&](const char* rank, const char* ranks, const char* local_ranks) {
    identity.rank = *number(rank);
    identity.ranks = number(ranks).value_or(-1);
    identity.local_ranks = number(local_ranks).value_or(-1);
  };
  const std::string pmix_job = text("PMIX_NAMESPACE"), slurm_id = text("SLURM_JOB_ID");
  const std::string slurm_job = fmt::format("slurm-{}-{}", slurm_id, text("SLURM_STEP_ID"));
  const bool slurm = !slurm_id.empty() && number("SLURM_PROCID");
  if (number("OMPI_COMM_WORLD_RANK")) {
    set("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE");
    const std::string job = pmix_job.empty() ? text("OMPI_MCA_ess_base_jobid") : pmix_job;
    if (!job.empty()) identity.job = "ompi-" + job;
  } else if (number("PMI_RANK")) {
    set("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS");
    identity.job = slurm ? slurm_job : job_of_launching_process(parent);
  } else if (slurm) {
    set("SLURM_PROCID", "SLURM_NTASKS", "");
    identity.job = slurm_job;
    identity.local_ranks =
        slurm_local_tasks(environment)
            .value_or(number("SLURM_NNODES").value_or(0) == 1 ? identity.ranks : -1);
  } else if (number("PMIX_RANK")) {
    set("PMIX_RANK", "", "");
    if (!pmix_job.empty()) identity.job = "pmix-" + pmix_job;
  }
  if (identity.rank >= 0 && identity.ranks >= 0 && identity.rank >= identity.ranks) {
    // They contradict each other: better not to wait for a last one.
    identity.ranks = identity.local_ranks = -1;
  }
  return identity;
}

}  // namespace

LauncherIdentity launcher_identity() {
  return identity_in([](const char* variable) { return std::getenv(variable); }, ::getppid());
}

LauncherIdentity launcher_identity_of(int pid) {
  const std::optional<std::string> variables =
      read_proc(fmt::format("/proc/{}/environ", pid), kMostEnvironment);
  const std::optional<ProcessStat> stat = process_stat(pid);
  if (!variables || !stat) return {};
  // NAME=VALUE, each with a null byte at its end.
  const auto value = [all = '\0' + *variables](const char* variable) -> const char* {
    const std::string marker = fmt::format("{}{}=", '\0', variable);
    const std::size_t at = all.find(marker);
    return at == std::string::npos ? nullptr : all.c_str() + at + marker.size();
  };
  return identity_in(value, stat->parent);
}

}  // namespace turnout
