// SPDX-License-Identifier: BSD-3-Clause
#include "cli/process_state.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/launcher.h"

namespace turnout::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kProvider = "libturnout-fi.so";
constexpr std::size_t kMostMaps = 16u << 20, kMostEnvironment = 4u << 20;
// Of a core: less is what a process needs that only looks now and then.
constexpr double kComputes = 0.2;

// TURNOUT_REPORT_JOB names the job instead of its launcher.
std::string job_setting(std::uint32_t pid) {
  const std::string all =
      '\0' + read_proc(fmt::format("/proc/{}/environ", pid), kMostEnvironment).value_or("");
  for (const std::string_view name : {"TURNOUT_REPORT_JOB", "FI_TURNOUT_REPORT_JOB"}) {
    const std::string marker = fmt::format("{}{}=", '\0', name);
    if (const std::size_t at = all.find(marker); at != std::string::npos) {
      return all.c_str() + at + marker.size();
    }
  }
  return {};
}

std::string first_word_of(std::uint32_t pid, std::string_view file) {
  const std::string text = read_proc(fmt::format("/proc/{}/{}", pid, file), 256).value_or("");
  return text.substr(0, text.find_first_of(" \n"));
}

std::string sleeping_call(std::uint32_t pid) {
  std::string call = first_word_of(pid, "wchan");
  if (!call.empty() && call != "0") return call;
  call = first_word_of(pid, "syscall");
  return call.empty() || call == "running" ? "" : fmt::format("system call {}", call);
}

}  // namespace

bool look_again(HostProcess* process) {
  const std::optional<ProcessStat> stat = process_stat(static_cast<int>(process->pid));
  if (!stat) return false;
  process->state = stat->state;
  process->processor_time = stat->processor_time;
  process->call = sleeping_call(process->pid);
  return true;
}

std::vector<HostProcess> processes_with_provider() {
  std::vector<HostProcess> found;
  std::error_code error;
  for (fs::directory_iterator i("/proc", error), end; !error && i != end; i.increment(error)) {
    const std::string name = i->path().filename().string();
    HostProcess process;
    const auto [next, bad] = std::from_chars(name.data(), name.data() + name.size(), process.pid);
    if (bad != std::errc{} || next != name.data() + name.size()) continue;
    struct stat info {};
    if (::stat(i->path().c_str(), &info) != 0 || info.st_uid != ::geteuid()) continue;
    const std::optional<std::string> maps = read_proc(i->path().string() + "/maps", kMostMaps);
    if (!maps || maps->find(kProvider) == std::string::npos || !look_again(&process)) continue;
    const LauncherIdentity launcher = launcher_identity_of(static_cast<int>(process.pid));
    process.rank = launcher.rank;
    process.ranks = launcher.ranks;
    process.job = job_setting(process.pid);
    if (process.job.empty()) process.job = launcher.job;
    found.push_back(std::move(process));
  }
  std::ranges::sort(found, {}, [](const HostProcess& one) { return std::pair(one.rank, one.pid); });
  return found;
}

namespace {

// Share of a core.
double used(const HostProcess& process, const HostProcess& earlier, double seconds) {
  const double ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return static_cast<double>(process.processor_time -
                             std::min(earlier.processor_time, process.processor_time)) /
         std::max(ticks, 1.0) / std::max(seconds, 0.1);
}

}  // namespace

bool computes(const HostProcess& process, const HostProcess& earlier, double seconds) {
  return (process.state == 'R' || process.state == 'S') &&
         used(process, earlier, seconds) >= kComputes;
}

std::string doing_text(const HostProcess& process, const HostProcess& earlier, double seconds) {
  switch (process.state) {
    case 'T':
      return fmt::format("it is stopped by a signal; kill -CONT {} continues it", process.pid);
    case 't':
      return "it is stopped by a debugger";
    case 'Z':
      return "it has ended, and its parent has not taken note";
    case 'D':
      return fmt::format("it is in an uninterruptible wait (disk, network file system){}",
                         process.call.empty() ? "" : ": " + process.call);
    default:
      break;
  }
  if (computes(process, earlier, seconds)) {
    return fmt::format("it computes ({:.0f} % of a core)", 100 * used(process, earlier, seconds));
  }
  return fmt::format("it sleeps{}", process.call.empty() ? "" : " in " + process.call);
}

}  // namespace turnout::cli
