// SPDX-License-Identifier: BSD-3-Clause
#include "cli/stuck_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/value.h"
#include "cli/mpi_tag.h"
#include "cli/top_text.h"

namespace turnout::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostNames = 8;   // of a list of ranks
constexpr std::size_t kMostCycles = 3;  // printed with their waits
constexpr std::size_t kMostInCycle = 6;
constexpr std::size_t kMostRoots = 6;
constexpr std::size_t kMostName = 40, kMostHost = 24, kMostDoing = 160;  // characters
// Lines that cycles leave to what follows, and causes to the rest.
constexpr std::size_t kLeftToCauses = 14, kLeftToOthers = 6;
constexpr std::size_t kMostOfOne = 3;  // waits of a process that are in no cycle

// "rank 0", "ranks 0, 1 and 2", "ranks 0, 1, 2 and 13 more".
std::string names_of(const StuckJob& job, std::span<const std::size_t> processes) {
  if (processes.size() == 1) return job.process_text(processes[0]);
  const bool ranks = std::ranges::all_of(
      processes, [&](std::size_t process) { return job.processes[process].rank >= 0; });
  std::string text = ranks ? "ranks " : "";
  const std::size_t shown = processes.size() <= kMostNames ? processes.size() : kMostNames - 1;
  for (std::size_t i = 0; i < shown; ++i) {
    const std::size_t process = processes[i];
    if (i > 0) text += i + 1 == processes.size() ? " and " : ", ";
    text += ranks ? fmt::format("{}", job.processes[process].rank) : job.process_text(process);
  }
  if (shown < processes.size()) text += fmt::format(" and {} more", processes.size() - shown);
  return text;
}

std::string with_pid(const StuckJob& job, std::size_t process) {
  const StuckProcess& one = job.processes[process];
  std::set<std::string> hosts;
  for (const StuckProcess& other : job.processes) {
    if (!other.host.empty()) hosts.insert(other.host);
  }
  std::string text = job.process_text(process);
  if (one.rank >= 0 && one.pid != 0) {
    text += hosts.size() > 1 && !one.host.empty()
                ? fmt::format(" (pid {} on {})", one.pid, shortened_to(one.host, kMostHost))
                : fmt::format(" (pid {})", one.pid);
  }
  return text;
}

std::string target_text(const StuckJob& job, const StuckWait& wait) {
  if (wait.any()) return "any process";
  if (wait.target) return job.process_text(*wait.target);
  const auto peer = std::ranges::find(wait.report->peers, *wait.wait->peer, &PeerReport::peer);
  return peer == wait.report->peers.end()
             ? "a process that does not report"
             : fmt::format("process {}, which does not report", peer->pid);
}

// "receives MPI tag 5 on MPI_COMM_WORLD (MPICH), at most 4 B".
std::string operation_text(const StuckWait& wait) {
  const std::string tag = tag_text(*wait.wait, wait.report->waits->mpi);
  const std::string bytes = value::human_bytes(wait.wait->bytes);
  const std::string_view why = explain(wait.wait->waits_for);
  switch (wait.wait->kind) {
    case WaitKind::receive:
      return fmt::format("receive, {}{}", tag, wait.wait->bytes > 0 ? ", at most " + bytes : "");
    case WaitKind::send:
      // The other side says it better.
      if (wait.wait->waits_for == WaitFor::match && !wait.detail.empty()) {
        return fmt::format("send, {}, {}", tag, bytes);
      }
      return fmt::format("send, {}, {}: {}", tag, bytes, why);
    case WaitKind::incoming:
      return fmt::format("message that has arrived in part, {}, {}: {}", tag, bytes, why);
    case WaitKind::one_sided:
      return fmt::format("one-sided operation, {}: {}", bytes, why);
    case WaitKind::atomic:
      return fmt::format("atomic operation, {}: {}", bytes, why);
    case WaitKind::unexpected:
    case WaitKind::channel:
      break;
  }
  return std::string(why);
}

bool has_operations(const StuckProcess& process) {
  return std::ranges::any_of(process.reports, [](const Watched* one) {
    return one->report.waits &&
           std::ranges::any_of(one->report.waits->list,
                               [](const WaitReport& wait) { return blocks(wait.kind); });
  });
}

class Page {
 public:
  Page(const StuckJob& job, double least) : job_(job), least_(least) {}

  std::string text() {
    head();
    if (!job_.waits.empty()) {
      cycles();
      knot();
    }
    roots();
    missing();
    if (!job_.waits.empty()) others();
    std::string out;
    for (const Line& line : lines_) out += line.text() + "\n";
    return out;
  }

 private:
  // False: it does not fit, when so many lines are left to others.
  bool add(std::string_view label, std::string_view text, std::size_t left = 0) {
    Lines block;
    wrap(&block, label, text, kStuckColumns);
    return add_block(std::move(block), left);
  }
  bool add_block(Lines block, std::size_t left) {
    if (lines_.size() + block.size() + left > kStuckLines) return false;
    std::ranges::move(block, std::back_inserter(lines_));
    return true;
  }

  void head() {
    std::size_t reporting = 0;
    std::set<std::string> hosts;
    std::set<std::size_t> waiting;
    for (const StuckProcess& one : job_.processes) {
      reporting += one.answers ? 1 : 0;
      if (!one.host.empty()) hosts.insert(one.host);
    }
    for (const StuckWait& wait : job_.waits) waiting.insert(wait.process);
    const std::size_t all =
        std::max(job_.processes.size(), static_cast<std::size_t>(std::max(job_.ranks, 0)));
    std::string text = fmt::format(
        "job {}: {} of {} processes report",
        job_.name.empty() ? "without a name" : shortened_to(job_.name, kMostName), reporting, all);
    if (hosts.size() > 1) text += fmt::format(" on {} hosts", hosts.size());
    if (job_.waits.empty()) {
      text += fmt::format(
          "; no operation of a process that makes no progress has been pending for "
          "{:.0f} s or more",
          least_);
    } else {
      text += fmt::format("; {} {} waited for {:.0f} s or more", waiting.size(),
                          waiting.size() == 1 ? "has" : "have", least_);
    }
    add("", text);
  }

  bool wait(std::size_t at, std::size_t left) {
    const StuckWait& one = job_.waits[at];
    std::string text = fmt::format("waits for {}: {}; for {} or more", target_text(job_, one),
                                   operation_text(one), long_age(one.age));
    if (one.behind > 0)
      text += fmt::format("; {} or more behind it", plural(one.behind, "message"));
    Lines block;
    wrap(&block, fmt::format("  {} ", with_pid(job_, one.process)), text, kStuckColumns);
    if (!one.detail.empty()) wrap(&block, "      ", one.detail, kStuckColumns);
    if (!add_block(std::move(block), left)) return false;
    printed_.insert(at);
    return true;
  }

  void cycles() {
    for (std::size_t i = 0; i < std::min(job_.cycles.size(), kMostCycles); ++i) {
      const std::vector<std::size_t>& cycle = job_.cycles[i];
      std::vector<std::size_t> members;
      for (const std::size_t at : cycle) members.push_back(job_.waits[at].process);
      if (cycle.size() == 1) {
        add("Deadlock: ", fmt::format("{} waits for itself", names_of(job_, members)));
      } else {
        add("Deadlock: ", fmt::format("{} wait for each other{}", names_of(job_, members),
                                      members.size() > 2 ? " in a circle" : ""));
      }
      std::size_t shown = 0;
      while (shown < std::min(cycle.size(), kMostInCycle) && wait(cycle[shown], kLeftToCauses)) {
        ++shown;
      }
      if (shown < cycle.size()) {
        add("  ", fmt::format("and {} more in the same circle", cycle.size() - shown));
      }
    }
    if (job_.cycles.size() > kMostCycles) {
      add("", fmt::format("and {} more circles", job_.cycles.size() - kMostCycles));
    }
  }

  void knot() {
    if (job_.knot.empty()) return;
    add("Deadlock: ",
        fmt::format("{} can only go on with messages of each other", names_of(job_, job_.knot)));
  }

  void roots() {
    std::size_t shown = 0;
    for (const std::size_t process : job_.roots) {
      if (shown == kMostRoots || !root(process)) {
        add("", fmt::format("and {} more", job_.roots.size() - shown));
        break;
      }
      ++shown;
    }
  }

  bool root(std::size_t process) {
    const StuckProcess& one = job_.processes[process];
    const std::vector<std::size_t> waiting = job_.waiting_for(process);
    std::string text;
    if (!one.answers) {
      text =
          fmt::format("{} does not call the library{}: {}", with_pid(job_, process),
                      one.age >= 0 ? fmt::format(" (last report {} ago)", long_age(one.age)) : "",
                      one.doing.empty() ? "no report of it" : shortened_to(one.doing, kMostDoing));
    } else if (one.quiet < least_) {
      text = fmt::format("{} still sends or receives messages", with_pid(job_, process));
    } else if (has_operations(one)) {
      text = fmt::format(
          "{} calls the library; its operations have been pending for less than {:.0f} s",
          with_pid(job_, process), least_);
    } else {
      text = fmt::format(
          "{} calls the library, but has no operation pending that could end: it "
          "waits for something else, such as a probe, a test, or a lock or fence of a "
          "window",
          with_pid(job_, process));
    }
    if (!waiting.empty()) {
      text += fmt::format("; {} {} for it", names_of(job_, waiting),
                          waiting.size() == 1 ? "waits" : "wait");
    }
    return add(waiting.empty() ? "Note: " : "Cause: ", text, kLeftToOthers);
  }

  void missing() {
    std::vector<std::size_t> gone;
    for (std::size_t i = 0; i < job_.processes.size(); ++i) {
      if (job_.processes[i].gone) gone.push_back(i);
    }
    if (gone.empty()) return;
    add("Missing: ",
        fmt::format("{}: no process with Turnout was found for {} on this host, and no "
                    "report; ended, not started, or on another host",
                    names_of(job_, gone), gone.size() == 1 ? "it" : "them"));
  }

  void others() {
    std::vector<std::size_t> rest;
    std::size_t left_out = 0;
    std::map<std::size_t, std::size_t> of_one;  // by process
    for (std::size_t i = 0; i < job_.waits.size(); ++i) {
      if (printed_.contains(i)) continue;
      if (++of_one[job_.waits[i].process] > kMostOfOne) {
        ++left_out;
      } else {
        rest.push_back(i);
      }
    }
    if (rest.empty()) return;
    add("", printed_.empty() ? "Waits:" : "Other waits:", 1);
    std::size_t shown = 0;
    while (shown < rest.size() && wait(rest[shown], 1)) ++shown;
    left_out += rest.size() - shown;
    if (left_out > 0) add("  ", fmt::format("and {} more; --json prints all", left_out));
  }

  const StuckJob& job_;
  double least_;
  Lines lines_;
  std::set<std::size_t> printed_;  // waits
};

Json json_of(const StuckWait& wait) {
  Json json = {{"process", wait.process},
               {"target", nullptr},
               {"kind", name(wait.wait->kind)},
               {"waits_for", name(wait.wait->waits_for)},
               {"tagged", wait.wait->tagged},
               {"tag", fmt::format("{:#018x}", wait.wait->tag)},
               {"ignore", fmt::format("{:#018x}", wait.wait->ignore)},
               {"tag_text", tag_text(*wait.wait, wait.report->waits->mpi)},
               {"bytes", wait.wait->bytes},
               {"age_s", wait.age},
               {"behind", wait.behind},
               {"any", wait.any()},
               {"detail", printable(wait.detail)}};
  if (wait.target) json["target"] = *wait.target;
  return json;
}

}  // namespace

std::string stuck_text(const StuckJob& job, double least) {
  return Page(job, least).text();
}

std::string stuck_json(std::span<const StuckJob> jobs) {
  Json all = Json::array();
  for (const StuckJob& job : jobs) {
    Json& json = all.emplace_back(Json::object());
    json["job"] = printable(job.name);
    json["ranks"] = job.ranks;
    json["hangs"] = job.hangs();
    json["processes"] = Json::array();
    for (const StuckProcess& one : job.processes) {
      json["processes"].push_back({{"rank", one.rank},
                                   {"pid", one.pid},
                                   {"host", printable(one.host)},
                                   {"answers", one.answers},
                                   {"found", !one.gone},
                                   {"report_age_s", one.age},
                                   {"quiet_s", one.quiet},
                                   {"doing", printable(one.doing)}});
    }
    json["waits"] = Json::array();
    for (const StuckWait& wait : job.waits) json["waits"].push_back(json_of(wait));
    json["cycles"] = job.cycles;
    json["knot"] = job.knot;
    json["causes"] = job.roots;
  }
  return Json{{"jobs", all}}.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace turnout::cli
