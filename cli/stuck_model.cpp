// SPDX-License-Identifier: BSD-3-Clause
#include "cli/stuck_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/value.h"
#include "cli/mpi_tag.h"
#include "cli/top_model.h"
#include "cli/top_text.h"

namespace turnout::cli {
namespace {

constexpr int kMostMissing = 4096;  // ranks: a report may say anything

double seconds_of(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1e9;
}

bool accepts(const WaitReport& receive, const WaitReport& message) {
  return receive.tagged == message.tagged && ((receive.tag ^ message.tag) & ~receive.ignore) == 0;
}

class Builder {
 public:
  Builder(const Observation& observation, const std::string& name) : observation_(observation) {
    job_.name = name;
  }

  void add(const Watched& one) { reports_.push_back(&one); }
  void add(const LocalProcess& one) { local_.push_back(&one); }

  StuckJob build() {
    make_processes();
    make_waits();
    for (StuckWait& wait : job_.waits) wait.detail = detail_of(wait);
    find_deadlocks();
    find_roots();
    return std::move(job_);
  }

 private:
  void make_processes() {
    std::map<std::pair<std::string, std::uint32_t>, StuckProcess> found;
    std::set<int> ranks;
    for (const Watched* const one : reports_) {
      const EndpointReport& report = one->report;
      StuckProcess& process = found[{report.host, report.pid}];
      process.rank = report.rank;
      process.pid = report.pid;
      process.host = report.host;
      process.age = process.reports.empty() ? one->age : std::min(process.age, one->age);
      process.reports.push_back(one);
      job_.ranks = std::max(job_.ranks, report.ranks);
    }
    // Processes of this host have no host in what was found of them.
    for (const LocalProcess* const one : local_) {
      StuckProcess* process = nullptr;
      for (auto& [key, candidate] : found) {
        if (candidate.pid == one->pid && candidate.rank == one->rank) process = &candidate;
      }
      if (process == nullptr) process = &found[{"", one->pid}];
      process->rank = one->rank;
      process->pid = one->pid;
      process->doing = one->doing;
      process->computes = one->computes;
      job_.ranks = std::max(job_.ranks, one->ranks);
    }
    for (auto& [key, process] : found) {
      process.answers = process.age >= 0 && (!observation_.live || process.age <= kStaleAge);
      process.quiet = quiet_of(process);
      ranks.insert(process.rank);
      job_.processes.push_back(std::move(process));
    }
    for (int rank = 0; rank < std::min(job_.ranks, kMostMissing); ++rank) {
      if (ranks.contains(rank)) continue;
      StuckProcess& missing = job_.processes.emplace_back();
      missing.rank = rank;
      missing.gone = true;
    }
    std::ranges::sort(job_.processes, {}, [](const StuckProcess& one) {
      return std::tuple(static_cast<unsigned>(one.rank), one.host, one.pid);
    });
    for (std::size_t i = 0; i < job_.processes.size(); ++i) {
      const StuckProcess& process = job_.processes[i];
      for (const Watched* const one : process.reports) by_endpoint_[one->report.endpoint] = i;
      if (process.pid != 0) by_pid_.emplace(process.pid, i);
    }
    for (const Watched* const one : reports_) find_targets(one->report);
  }

  static double quiet_of(const StuckProcess& process) {
    double quiet = -1;
    for (const Watched* const one : process.reports) {
      if (!one->report.waits) continue;
      const double of_one = seconds_of(one->report.waits->quiet) + std::max(one->age, 0.0);
      quiet = quiet < 0 ? of_one : std::min(quiet, of_one);
    }
    return std::max(quiet, 0.0);
  }

  // By its endpoint; a process that has not reported by its number: it is on this host, as it was
  // found there.
  void find_targets(const EndpointReport& report) {
    auto& targets = targets_[&report];
    for (const PeerReport& peer : report.peers) {
      if (const auto found = by_endpoint_.find(peer.endpoint); found != by_endpoint_.end()) {
        targets[peer.peer] = found->second;
      } else if (const auto silent = by_pid_.find(peer.pid);
                 silent != by_pid_.end() && job_.processes[silent->second].reports.empty()) {
        targets[peer.peer] = silent->second;
      }
    }
  }
  [[nodiscard]] std::optional<std::size_t> target_of(const EndpointReport& report,
                                                     std::uint32_t peer) const {
    const auto& targets = targets_.at(&report);
    const auto found = targets.find(peer);
    return found == targets.end() ? std::nullopt : std::optional(found->second);
  }

  void make_waits() {
    for (std::size_t i = 0; i < job_.processes.size(); ++i) {
      const StuckProcess& process = job_.processes[i];
      // Who sends or receives goes on, whatever else is pending. So does who computes: it has not
      // come to wait for what it has posted.
      if (process.quiet < observation_.least || (!process.answers && process.computes)) continue;
      const std::size_t first = job_.waits.size();
      for (const Watched* const one : process.reports) {
        if (one->report.waits) add_waits(i, *one);
      }
      std::stable_sort(job_.waits.begin() + static_cast<std::ptrdiff_t>(first), job_.waits.end(),
                       [](const StuckWait& a, const StuckWait& b) { return a.age > b.age; });
    }
  }

  void add_waits(std::size_t process, const Watched& of) {
    const std::size_t first = job_.waits.size();
    std::vector<const WaitReport*> behind;
    for (const WaitReport& wait : of.report.waits->list) {
      const double age = seconds_of(wait.age) + (observation_.live ? std::max(of.age, 0.0) : 0.0);
      if (!blocks(wait.kind) || age < observation_.least) continue;
      if (wait.waits_for == WaitFor::order) {
        behind.push_back(&wait);
        continue;
      }
      StuckWait& added = job_.waits.emplace_back();
      added.process = process;
      if (wait.peer) added.target = target_of(of.report, *wait.peer);
      added.wait = &wait;
      added.report = &of.report;
      added.age = age;
    }
    for (const WaitReport* const wait : behind) {
      for (std::size_t i = first; i < job_.waits.size(); ++i) {
        StuckWait& head = job_.waits[i];
        if (head.wait->peer != wait->peer || head.wait->kind != WaitKind::send) continue;
        ++head.behind;
        break;
      }
    }
  }

  // Calls `call` with each wait of `process` that names `other` as its peer, and its report.
  template <class Call>
  void each_between(std::size_t process, std::size_t other, const Call& call) const {
    for (const Watched* const one : job_.processes[process].reports) {
      if (!one->report.waits) continue;
      for (const WaitReport& wait : one->report.waits->list) {
        if (wait.peer && target_of(one->report, *wait.peer) == other) call(wait, one->report);
      }
    }
  }

  [[nodiscard]] static std::string message_text(const WaitReport& wait,
                                                const EndpointReport& report) {
    return fmt::format("{}, {}", tag_text(wait, report.waits->mpi), value::human_bytes(wait.bytes));
  }

  // `count` messages that no receive takes, the first is `message`.
  [[nodiscard]] static std::string instead_text(const std::string& sender,
                                                const WaitReport& message, std::size_t count,
                                                const EndpointReport& report) {
    return fmt::format("{} sent {}, instead{}", sender, message_text(message, report),
                       count == 1   ? ""
                       : count == 2 ? ", and 1 more message"
                                    : fmt::format(", and {} more messages", count - 1));
  }

  [[nodiscard]] std::string silent_text(std::size_t process) const {
    const StuckProcess& one = job_.processes[process];
    if (one.answers) return {};
    if (one.gone) return fmt::format("no process of {} was found", job_.process_text(process));
    return fmt::format("{} does not call the library", job_.process_text(process));
  }

  [[nodiscard]] std::string detail_of(const StuckWait& wait) const {
    switch (wait.wait->kind) {
      case WaitKind::receive:
        if (answered_tag(*wait.wait, wait.report->waits->mpi)) return detail_of_send(wait);
        return wait.any() ? detail_of_any(wait) : detail_of_receive(wait);
      case WaitKind::send:
        return detail_of_send(wait);
      default:
        return wait.target ? silent_text(*wait.target) : "";
    }
  }

  [[nodiscard]] std::string detail_of_any(const StuckWait& wait) const {
    std::size_t others = 0;
    const WaitReport* other = nullptr;
    for (const WaitReport& one : wait.report->waits->list) {
      if (one.kind != WaitKind::unexpected) continue;
      if (others++ == 0) other = &one;
    }
    if (other == nullptr) return "no such message has arrived";
    const auto sender = target_of(*wait.report, other->peer.value_or(UINT32_MAX));
    return instead_text(sender ? job_.process_text(*sender) : "another process", *other, others,
                        *wait.report);
  }

  // The messages of the awaited process that no receive takes, those that it has not got rid of, or
  // what it does.
  [[nodiscard]] std::string detail_of_receive(const StuckWait& wait) const {
    std::size_t others = 0;
    const WaitReport* other = nullptr;
    for (const WaitReport& one : wait.report->waits->list) {
      if (one.kind != WaitKind::unexpected || one.peer != wait.wait->peer) continue;
      if (others++ == 0) other = &one;
    }
    const std::string target = wait.target ? job_.process_text(*wait.target) : "the peer";
    if (other != nullptr) {
      return instead_text(target, *other, others, *wait.report);
    }
    if (!wait.target) return {};
    std::string text;
    each_between(*wait.target, wait.process, [&](const WaitReport& one, const EndpointReport& of) {
      if (one.kind != WaitKind::send || !text.empty()) return;
      text = accepts(*wait.wait, one)
                 ? fmt::format("{} has it, but cannot send it: {}", target, explain(one.waits_for))
                 : fmt::format("{} sends {} instead", target, message_text(one, of));
    });
    if (text.empty()) text = silent_text(*wait.target);
    if (text.empty()) text = fmt::format("{} has sent no such message", target);
    return text;
  }

  [[nodiscard]] std::string detail_of_send(const StuckWait& wait) const {
    if (!wait.target) return {};
    const std::string target = job_.process_text(*wait.target);
    std::string silent = silent_text(*wait.target);
    if (!silent.empty()) return silent;
    const std::uint64_t tag = without_protocol(*wait.wait, wait.report->waits->mpi);
    std::uint64_t unexpected = 0, bytes = 0;
    bool arrived = false, full = false;
    const WaitReport* receive = nullptr;
    const EndpointReport* its_report = nullptr;
    each_between(*wait.target, wait.process, [&](const WaitReport& one, const EndpointReport& of) {
      if (one.kind == WaitKind::unexpected) {
        ++unexpected;
        bytes += one.bytes;
        arrived = arrived ||
                  (one.tagged == wait.wait->tagged && without_protocol(one, of.waits->mpi) == tag);
      } else if (one.kind == WaitKind::receive && receive == nullptr) {
        receive = &one;
        its_report = &of;
      } else if (one.kind == WaitKind::incoming) {
        full = full || one.waits_for == WaitFor::memory;
      }
    });
    const std::string instead =
        receive == nullptr
            ? ""
            : fmt::format("; it receives {} instead", tag_text(*receive, its_report->waits->mpi));
    const WaitFor what = wait.wait->waits_for;
    if (what == WaitFor::credits || what == WaitFor::ring || what == WaitFor::resources) {
      std::string text;
      if (unexpected > 0) {
        text =
            fmt::format("{} has {}{} unexpected messages of {} ({}) and posts no receive for them",
                        target, unexpected == WaitsReport::kMost ? "at least " : "", unexpected,
                        job_.process_text(wait.process), value::human_bytes(bytes));
      }
      if (full) text += fmt::format("{}its memory for them is full", text.empty() ? "" : "; ");
      return text + instead;
    }
    if (arrived) return fmt::format("{} has posted no receive for it{}", target, instead);
    if (full) return fmt::format("{} has no memory for it", target);
    return instead.empty() ? "" : fmt::format("{}{}", target, instead.substr(4));
  }

  // A process goes on if all that it waits for can come. What is left when nobody else can go on
  // waits for each other, directly or through those behind it.
  void find_deadlocks() {
    const std::size_t n = job_.processes.size();
    std::vector<std::vector<std::size_t>> of(n);  // waits
    for (std::size_t i = 0; i < job_.waits.size(); ++i) of[job_.waits[i].process].push_back(i);
    std::vector<bool> goes_on(n);
    std::size_t going = 0;
    for (std::size_t i = 0; i < n; ++i) {
      // One that does not answer waits too if its last report says so: it may be stopped there.
      goes_on[i] = of[i].empty();
      going += goes_on[i] ? 1 : 0;
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = 0; i < n; ++i) {
        if (goes_on[i]) continue;
        goes_on[i] = std::ranges::all_of(of[i], [&](std::size_t at) {
          const StuckWait& wait = job_.waits[at];
          return wait.any() ? going > 0 : !wait.target || goes_on[*wait.target];
        });
        if (!goes_on[i]) continue;
        ++going;
        changed = true;
      }
    }
    std::vector<bool> used = goes_on;
    for (std::size_t i = 0; i < n; ++i) {
      if (used[i]) continue;
      std::vector<std::size_t> cycle = shortest_cycle(i, of, used);
      for (const std::size_t wait : cycle) used[job_.waits[wait].process] = true;
      if (!cycle.empty()) job_.cycles.push_back(std::move(cycle));
    }
    if (!job_.cycles.empty()) return;
    for (std::size_t i = 0; i < n; ++i) {
      if (!used[i]) job_.knot.push_back(i);
    }
  }

  // Of waits, from a process back to itself, through processes that are not used; breadth first.
  [[nodiscard]] std::vector<std::size_t> shortest_cycle(
      std::size_t start, const std::vector<std::vector<std::size_t>>& of,
      const std::vector<bool>& used) const {
    std::map<std::size_t, std::size_t> by;  // process -> wait that led to it
    std::vector<std::size_t> queue = {start};
    for (std::size_t next = 0; next < queue.size(); ++next) {
      for (const std::size_t wait : of[queue[next]]) {
        const std::optional<std::size_t> target = job_.waits[wait].target;
        if (!target || used[*target] || by.contains(*target)) continue;
        by[*target] = wait;
        if (*target != start) {
          queue.push_back(*target);
          continue;
        }
        std::vector<std::size_t> cycle;
        for (std::size_t at = start; cycle.empty() || at != start;) {
          cycle.push_back(by[at]);
          at = job_.waits[by[at]].process;
        }
        std::ranges::reverse(cycle);
        return cycle;
      }
    }
    return {};
  }

  void find_roots() {
    std::vector<std::size_t> waits(job_.processes.size()), waited_for(job_.processes.size());
    for (const StuckWait& wait : job_.waits) {
      ++waits[wait.process];
      if (wait.target) ++waited_for[*wait.target];
    }
    for (std::size_t i = 0; i < job_.processes.size(); ++i) {
      const bool silent = !job_.processes[i].answers && !job_.processes[i].gone;
      // Where nobody waits, MPI may wait without an operation of the library.
      const bool idle = job_.waits.empty() && job_.processes[i].answers &&
                        job_.processes[i].quiet >= observation_.least;
      if ((waited_for[i] > 0 && waits[i] == 0) || silent || idle) job_.roots.push_back(i);
    }
    std::ranges::stable_sort(job_.roots, std::ranges::greater{},
                             [&](std::size_t i) { return waited_for[i]; });
  }

  const Observation& observation_;
  StuckJob job_;
  std::vector<const Watched*> reports_;
  std::vector<const LocalProcess*> local_;
  std::map<std::uint64_t, std::size_t> by_endpoint_;
  std::map<std::uint32_t, std::size_t> by_pid_;
  // Of each report: the process of each peer.
  std::map<const EndpointReport*, std::map<std::uint32_t, std::size_t>> targets_;
};

}  // namespace

std::string StuckJob::process_text(std::size_t process) const {
  const StuckProcess& one = processes[process];
  return one.rank >= 0 ? fmt::format("rank {}", one.rank) : fmt::format("process {}", one.pid);
}

std::vector<std::size_t> StuckJob::waiting_for(std::size_t process) const {
  std::set<std::size_t> found = {process};
  for (std::size_t before = 0; before != found.size();) {
    before = found.size();
    for (const StuckWait& wait : waits) {
      if (wait.any() || (wait.target && found.contains(*wait.target))) found.insert(wait.process);
    }
  }
  found.erase(process);
  return {found.begin(), found.end()};
}

std::vector<StuckJob> stuck_jobs(const Observation& observation) {
  std::map<std::string, Builder> jobs;
  const auto of = [&](const std::string& name) -> Builder& {
    return jobs.try_emplace(name, observation, name).first->second;
  };
  for (const Watched& one : observation.reports) of(one.report.job).add(one);
  for (const LocalProcess& one : observation.processes) of(one.job).add(one);
  std::vector<StuckJob> built;
  for (auto& [name, builder] : jobs) built.push_back(builder.build());
  return built;
}

}  // namespace turnout::cli
