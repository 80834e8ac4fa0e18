// SPDX-License-Identifier: BSD-3-Clause
// `turnout top`: once, as text once a second, or on a terminal.
#include <fmt/format.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <ctime>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/top_model.h"
#include "cli/top_screen.h"
#include "cli/top_text.h"
#include "cli/top_view.h"
#include "cli/watch.h"

namespace turnout::cli {
namespace {

constexpr double kRefresh = 1;  // seconds

struct TopOptions {
  bool once = false;
  double wait = 10;       // seconds, with `once`, until somebody tells something
  std::string job;        // only this one; empty: all
  std::uint32_t pid = 0;  // only this process; 0: all
  PageLimits limits;
};

volatile sig_atomic_t interrupted = 0;

void on_signal(int) {
  interrupted = 1;
}

void catch_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) ::sigaction(signal, &action, nullptr);
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

bool is_asked_for(const Watched& one, const TopOptions& options) {
  return (options.job.empty() || one.report.job == options.job) &&
         (options.pid == 0 || one.report.pid == options.pid);
}

Seen look(const Watch& watch, const TopOptions& options) {
  Seen seen;
  seen.reports = watch.read(&seen.damaged);
  std::erase_if(seen.reports, [&](const Watched& one) { return !is_asked_for(one, options); });
  return seen;
}

std::string page(const Seen& seen, const TopOptions& options) {
  std::string out, late;
  std::vector<EndpointReport> reports;
  for (const Watched& one : seen.reports) {
    reports.push_back(one.report);
    if (one.age > kStaleAge) {
      late += fmt::format("{}: no report for {}: the process does not call the library\n",
                          who(one.report), long_age(one.age));
    }
  }
  if (reports.empty()) {
    out += "no process of yours";
    if (options.pid != 0) out += fmt::format(" with the number {}", options.pid);
    if (!options.job.empty()) out += fmt::format(" of job {}", options.job);
    out += " reports: none runs over Turnout, or none calls the library now\n";
  } else {
    out += format_jobs(std::move(reports), {options.limits.peers, options.limits.decisions, false});
  }
  out += late;
  for (const std::string& text : seen.damaged) out += fmt::format("{}\n", printable(text));
  return out;
}

int failed(const Status& status) {
  complain("turnout top", status);
  return kFailed;
}

int once(Watch* watch, const TopOptions& options) {
  Seen seen;
  Result<std::vector<Watched>> reports = watch->settle(
      options.wait, [&](const Watched& one) { return is_asked_for(one, options); }, &seen.damaged,
      [] { return interrupted == 0; });
  if (!reports) return failed(reports.status());
  seen.reports = std::move(reports).value();
  fmt::print("{}", page(seen, options));
  return seen.reports.empty() ? 1 : 0;
}

// Standard output is no terminal, or one that cannot be drawn on.
int print_each_second(Watch* watch, const TopOptions& options) {
  while (interrupted == 0) {
    if (const Status s = watch->touch(); !s.ok()) return failed(s);
    fmt::print("{}", page(look(*watch, options), options));
    // A reader that left (head) ends it.
    if (std::fflush(stdout) != 0) break;
    sleep_for(kRefresh);
  }
  return 0;
}

Status draw_until_quit(Watch* watch, const TopOptions& options, TopScreen* screen) {
  TopModel model;
  TopView view(options.limits);
  double next = 0;
  while (interrupted == 0) {
    if (const double now = seconds(); now >= next) {
      // Processes go on writing while the screen is paused: the next reports are fresh.
      if (Status s = watch->touch(); !s.ok()) return s;
      if (!view.paused()) {
        Seen seen = look(*watch, options);
        model.add(std::move(seen.reports), std::move(seen.damaged));
      }
      next = seconds() + kRefresh;
    }
    screen->show(view.draw(model, screen->rows(), screen->columns()));
    if (!view.press(screen->wait(next - seconds()), model)) break;
  }
  return {};
}

int run_top(const TopOptions& options) {
  Result<Watch> watch = Watch::open();
  if (!watch) return failed(watch.status());
  catch_signals();
  if (options.once) return once(&watch.value(), options);
  Status status;
  {
    TopScreen screen;
    if (!screen.open()) return print_each_second(&watch.value(), options);
    status = draw_until_quit(&watch.value(), options, &screen);
  }  // the terminal is restored before anything is printed
  return status.ok() ? 0 : failed(status);
}

}  // namespace

void add_top(CLI::App& app) {
  const auto [top, o] = add_command<TopOptions>(app, "top", "watch running programs", run_top);
  top->add_flag("-1,--once", o->once, "print all tables once and exit");
  top->add_option("-w,--wait", o->wait, "with --once: wait at most this many seconds for a report")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 3600.0));
  top->add_option("-j,--job", o->job, "only this job");
  top->add_option("-p,--pid", o->pid, "only this process");
  top->add_option("--peers", o->limits.peers, "peers of each process, the busiest")
      ->capture_default_str();
  top->add_option("-d,--decisions", o->limits.decisions, "decisions of each process, the latest")
      ->capture_default_str();
}

}  // namespace turnout::cli
