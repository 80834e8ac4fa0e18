// SPDX-License-Identifier: BSD-3-Clause
#include "cli/launch_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>

#include "base/text_file.h"
#include "cli/run_program.h"

extern char** environ;

namespace turnout::cli {
namespace {

constexpr std::uint64_t kMaxNodeFile = 16 << 20;  // a line for each of some 100,000 processes

std::map<std::string, std::string> environment() {
  std::map<std::string, std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view text = *at;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

// Hosts of the node file of PBS, which has a line for each process of a host.
unsigned batch_hosts() {
  const char* const path = std::getenv("PBS_NODEFILE");
  if (path == nullptr) return 1;
  const Result<std::string> text =
      read_text_file(path, fmt::format("{} (PBS_NODEFILE)", path), "node file", kMaxNodeFile);
  if (!text) return 1;
  std::set<std::string> hosts;
  std::istringstream lines(text.value());
  for (std::string host; lines >> host;) hosts.insert(host);
  return std::max(1U, static_cast<unsigned>(hosts.size()));
}

unsigned processors() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
}

}  // namespace

LaunchFacts launch_facts(std::vector<std::string> command) {
  LaunchFacts facts;
  facts.command = std::move(command);
  facts.environment = environment();
  facts.processors = processors();
  facts.batch_hosts = batch_hosts();
  facts.root = ::geteuid() == 0;
  facts.version = mpi_of(version_text(facts.command.front()));
  return facts;
}

std::string shell_text(const Launch& launch) {
  std::string out;
  for (const auto& [name, value] : launch.variables)
    out += fmt::format("export {}={}\n", name, shell_word(value));
  std::vector<std::string> words;
  for (const std::string& word : launch.command) words.push_back(shell_word(word));
  return out + fmt::format("{}\n", fmt::join(words, " "));
}

}  // namespace turnout::cli
