// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <set>
#include <string_view>

#include "cli/commands.h"
#include "cli/watch.h"

namespace turnout::cli {

namespace {

constexpr long kSecond = 1'000'000'000, kLook = 100'000'000;  // ns
// A process that makes progress writes once a second.
constexpr double kLate = 3;
// How long nobody new has told anything, before `--once` takes it that all have.
constexpr double kSettled = 1.3;

volatile sig_atomic_t interrupted = 0;

void on_signal(int) {
  interrupted = 1;
}

void catch_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
}

void pause_for(long nanoseconds) {
  const timespec time{nanoseconds / kSecond, nanoseconds % kSecond};
  ::nanosleep(&time, nullptr);
}

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string who(const EndpointReport& report) {
  return report.rank < 0 ? fmt::format("process {}", report.pid)
                         : fmt::format("rank {} (process {})", report.rank, report.pid);
}

struct Seen {
  std::vector<Watched> reports;
  std::vector<std::string> damaged;
};

Seen look(const Watch& watch, const TopOptions& options) {
  Seen seen;
  seen.reports = watch.read(&seen.damaged);
  std::erase_if(seen.reports, [&](const Watched& one) {
    return (!options.job.empty() && one.report.job != options.job) ||
           (options.pid != 0 && one.report.pid != options.pid);
  });
  return seen;
}

std::string page(const Seen& seen, const TopOptions& options) {
  std::string out, late;
  std::vector<EndpointReport> reports;
  for (const Watched& one : seen.reports) {
    reports.push_back(one.report);
    if (one.age > kLate) {
      late += fmt::format("{} told this {:.0f} s ago: it does not call the library\n",
                          who(one.report), one.age);
    }
  }
  if (reports.empty()) {
    out += "no process of yours";
    if (options.pid != 0) out += fmt::format(" with the number {}", options.pid);
    if (!options.job.empty()) out += fmt::format(" of job {}", options.job);
    out += " tells anything: none runs over Turnout, or none calls it now\n";
  } else {
    out += format_jobs(std::move(reports), {options.peers, options.decisions, false});
  }
  out += late;
  for (const std::string& text : seen.damaged) out += fmt::format("{}\n", text);
  return out;
}

// What fits on the terminal, over what was there.
void redraw(std::string_view text) {
  winsize size{};
  std::size_t rows = 24;
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 2) rows = size.ws_row;
  const auto lines = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  const std::size_t shown = lines < rows ? lines : rows - 2;
  std::string out = "\033[H\033[?7l";  // a line that is too wide is cut, not continued
  for (std::size_t i = 0; i < shown; ++i) {
    const std::size_t end = text.find('\n');
    out += fmt::format("{}\033[K\n", text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  if (shown < lines) {
    out += fmt::format("... {} more lines: --pid shows one process, --once prints all\033[K\n",
                       lines - shown);
  }
  fmt::print("{}\033[J\033[?7h", out);
}

int once(Watch* watch, const TopOptions& options) {
  const double start = seconds();
  double changed = start;
  std::set<std::uint64_t> known;
  Seen seen;
  for (double now = start; interrupted == 0; now = seconds()) {
    if (Status s = watch->touch(); !s.ok()) {
      fmt::print(stderr, "turnout top: {}\n", s.text());
      return 1;
    }
    seen = look(*watch, options);
    // What an earlier watcher left is told anew first.
    std::erase_if(seen.reports, [&](const Watched& one) { return one.age > now - start; });
    for (const Watched& one : seen.reports) {
      if (known.insert(one.report.endpoint).second) changed = now;
    }
    if (!known.empty() ? now - changed > kSettled : now - start > options.wait) break;
    pause_for(kLook);
  }
  fmt::print("{}", page(seen, options));
  return seen.reports.empty() ? 1 : 0;
}

}  // namespace

int top(const TopOptions& options) {
  Result<Watch> watch = Watch::open();
  if (!watch) {
    fmt::print(stderr, "turnout top: {}\n", watch.status().text());
    return 1;
  }
  catch_signals();
  if (options.once) return once(&watch.value(), options);
  const bool terminal = ::isatty(STDOUT_FILENO) == 1;
  if (terminal) fmt::print("\033[2J");
  while (interrupted == 0) {
    if (Status s = watch->touch(); !s.ok()) {
      fmt::print(stderr, "turnout top: {}\n", s.text());
      return 1;
    }
    const std::string text = page(look(watch.value(), options), options);
    if (terminal) {
      redraw(text);
    } else {
      fmt::print("{}", text);
    }
    // A reader that left (head) ends it.
    if (std::fflush(stdout) != 0) break;
    pause_for(kSecond);
  }
  return 0;
}

}  // namespace turnout::cli
