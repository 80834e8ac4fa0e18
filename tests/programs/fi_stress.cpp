// SPDX-License-Identifier: BSD-3-Clause
// fi_stress: random checked traffic between processes over any libfabric provider, and what happens
// to the others when one of them is killed.
//
//   fi_stress traffic --provider turnout --ranks 16 --messages 1000000 [--switch-every 200]
//   fi_stress kill    --provider turnout --ranks 8 --repeat 100
//
// The seed is printed; --seed repeats a run's traffic. Exit code 0: everything as it must be.
#include <dirent.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/programs/shared_area.h"
#include "tests/programs/traffic_rank.h"

namespace {

using turnout::programs::kMaxRanks;
using turnout::programs::now_ns;
using turnout::programs::SharedArea;
using turnout::programs::TrafficOptions;
using turnout::programs::TrafficRank;

struct Options {
  TrafficOptions traffic;
  std::uint64_t switch_every = 0;
  std::string interval, budget, report, fabric;
  std::uint64_t break_every = 0;
  std::uint64_t least_failures = 0;    // ends of connections, of all processes
  std::uint64_t most_connections = 0;  // of a process at one time; 0: as many as it likes
  std::uint64_t repeat = 1;
  double stall = 60;   // seconds without any progress that count as a hang
  double notice = 10;  // seconds in which a dead rank must be noticed
  bool allow_switchless = false;
};

SharedArea* map_shared_area() {
  void* at =
      mmap(nullptr, sizeof(SharedArea), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::runtime_error(fmt::format("mmap: {}", std::strerror(errno)));
  return new (at) SharedArea;
}

class Job {
 public:
  explicit Job(const Options& options) : options_(options), shared_(map_shared_area()) {}
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    for (const pid_t pid : pids_) {
      if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
      }
    }
    munmap(shared_, sizeof(SharedArea));
  }

  void start() {
    const pid_t parent = getpid();
    for (std::uint32_t rank = 0; rank < options_.traffic.ranks; ++rank) {
      const pid_t pid = fork();
      if (pid < 0) throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
      if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody watches it any more
        run_child(rank, parent);
      }
      pids_.push_back(pid);
    }
  }

  // Collects ended children; false when a child failed. `running` counts those left.
  bool reap(std::uint32_t& running) {
    bool ok = true;
    running = 0;
    for (std::uint32_t rank = 0; rank < pids_.size(); ++rank) {
      if (pids_[rank] <= 0) continue;
      int status = 0;
      if (waitpid(pids_[rank], &status, WNOHANG) == 0) {
        ++running;
        continue;
      }
      pids_[rank] = 0;
      if (static_cast<std::int32_t>(rank) == shared_->victim.load()) continue;
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
      ok = false;
      shared_->stop.store(true);
      if (WIFSIGNALED(status)) {
        fmt::print(stderr, "rank {}: ended by signal {} ({}) {}\n", rank, WTERMSIG(status),
                   strsignal(WTERMSIG(status)), shared_->rank[rank].text.data());
      } else {
        fmt::print(stderr, "rank {}: {}\n", rank, shared_->rank[rank].text.data());
      }
    }
    return ok;
  }

  void kill_rank(std::uint32_t rank) {
    shared_->victim.store(static_cast<std::int32_t>(rank));
    shared_->killed_at.store(now_ns());
    kill(pids_[rank], SIGKILL);
  }

  [[nodiscard]] std::uint64_t moved() const {
    std::uint64_t sum = 0;
    for (std::uint32_t r = 0; r < options_.traffic.ranks; ++r) {
      sum += shared_->rank[r].received.load() + shared_->rank[r].sent.load();
    }
    return sum + shared_->done.load();
  }

  void print_state() const {
    for (std::uint32_t r = 0; r < options_.traffic.ranks; ++r) {
      const auto& a = shared_->rank[r];
      fmt::print(stderr,
                 "  rank {:2}: sent {}, receives posted {}, received {}, tries again {}{}{}\n", r,
                 a.sent.load(), a.posted.load(), a.received.load(), a.tries_again.load(),
                 a.peer_error_at.load() != 0 ? ", noticed the loss" : "",
                 a.released.load() ? ", all operations with the dead ended" : "");
    }
  }

  [[nodiscard]] SharedArea& shared() noexcept { return *shared_; }

 private:
  [[noreturn]] void run_child(std::uint32_t rank, pid_t parent) {
    int code = 1;
    const auto tell = [&](const char* why) {
      std::snprintf(shared_->rank[rank].text.data(), shared_->rank[rank].text.size(), "%s", why);
    };
    try {
      TrafficRank traffic(options_.traffic, rank, *shared_);
      try {
        traffic.run();
      } catch (const std::exception& e) {
        tell(e.what());  // before anything is closed: that may end the process, too
        throw;
      }
      code = shared_->stop.load() ? 2 : 0;
      if (code == 2 && shared_->rank[rank].text[0] == '\0') {
        std::snprintf(shared_->rank[rank].text.data(), shared_->rank[rank].text.size(),
                      "stopped because another rank failed");
      }
    } catch (const std::exception& e) {
      tell(e.what());
      shared_->stop.store(true);
    }
    if (getppid() != parent) code = 3;
    std::fflush(nullptr);
    std::exit(code);
  }

  const Options& options_;
  SharedArea* shared_;
  std::vector<pid_t> pids_;
};

// Watches a job to its end. False: a rank failed or nothing moved for too long.
bool watch(Job& job, const Options& options) {
  std::uint32_t running = 0;
  std::uint64_t last = 0;
  std::int64_t last_change = now_ns(), last_print = last_change;
  bool ok = true;
  do {
    ok = job.reap(running) && ok;
    const std::uint64_t moved = job.moved();
    const std::int64_t now = now_ns();
    if (moved != last) {
      last = moved;
      last_change = now;
    }
    if (static_cast<double>(now - last_change) > options.stall * 1e9) {
      fmt::print(stderr, "nothing has moved for {} s:\n", options.stall);
      job.print_state();
      return false;
    }
    if (now - last_print > 10'000'000'000) {
      last_print = now;
      fmt::print(stderr, "  {} sends and receives so far\n", moved);
    }
    usleep(2000);
  } while (running > 0);
  return ok;
}

// What the library itself reported: one JSON file per process.
bool check_reports(const Options& options) {
  std::uint64_t files = 0, switches = 0, worst_peak = 0, budget = 0;
  std::uint64_t made = 0, torn_down = 0, failed = 0, least_made = ~std::uint64_t{0};
  bool ok = true;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(options.report)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream in(entry.path());
    const auto report = nlohmann::json::parse(in, nullptr, false);
    if (report.is_discarded()) {
      fmt::print(stderr, "{}: not JSON\n", entry.path().filename().string());
      ok = false;
      continue;
    }
    ++files;
    const auto peak = report.value("peak", std::uint64_t{0});
    const auto limit = report.value("budget", std::uint64_t{0});
    if (peak == 0 || limit == 0 || peak > limit) {
      fmt::print(stderr, "{}: peak {} bytes, budget {} bytes\n", entry.path().filename().string(),
                 peak, limit);
      ok = false;
    }
    const auto connections = report.value("rc_queue_pairs_peak", std::uint64_t{0});
    if (options.most_connections != 0 && connections > options.most_connections) {
      fmt::print(stderr, "{}: {} connections at one time, {} are allowed\n",
                 entry.path().filename().string(), connections, options.most_connections);
      ok = false;
    }
    const auto& of_connections = report.value("connections", nlohmann::json::object());
    made += of_connections.value("made", std::uint64_t{0});
    least_made = std::min(least_made, of_connections.value("made", std::uint64_t{0}));
    torn_down += of_connections.value("tear_downs", std::uint64_t{0});
    failed += of_connections.value("failed", std::uint64_t{0});
    worst_peak = std::max(worst_peak, peak);
    budget = limit;
    for (const auto& peer : report.value("peers", nlohmann::json::array())) {
      for (const char* direction : {"send", "receive"}) {
        if (peer.contains(direction)) {
          switches += peer[direction].value("switches", std::uint64_t{0});
        }
      }
    }
  }
  fmt::print("reports: {} files, largest peak {} of {} bytes, {} channel switches counted\n", files,
             worst_peak, budget, switches);
  if (options.most_connections != 0) {
    fmt::print("{} ends of connections made, {} at least by each process, {} torn down by choice\n",
               made, least_made, torn_down);
    if (torn_down == 0) {
      fmt::print(stderr, "no connection was torn down\n");
      ok = false;
    }
  }
  if (options.break_every != 0) {
    fmt::print("{} ends of connections made, {} failed\n", made, failed);
    if (failed < options.least_failures) {
      fmt::print(stderr, "{} failures were asked for at least\n", options.least_failures);
      ok = false;
    }
  } else if (failed != 0) {
    fmt::print(stderr, "{} ends of connections failed, which nobody broke\n", failed);
    ok = false;
  }
  if (files != options.traffic.ranks) {
    fmt::print(stderr, "{} reports for {} processes\n", files, options.traffic.ranks);
    ok = false;
  }
  if (options.switch_every != 0 && switches == 0 && !options.allow_switchless) {
    fmt::print(stderr, "no channel switch although one was asked for\n");
    ok = false;
  }
  return ok;
}

// Whether a process of this run is still in the fabric: its name in the kernel, unix(7).
bool is_left(const std::string& fabric) {
  std::ifstream names("/proc/net/unix");
  const std::string all{std::istreambuf_iterator<char>(names), {}};
  return all.empty() ||  // it cannot be read
         all.find(fmt::format(" @turnout/{:x}/{}/", geteuid(), fabric)) != std::string::npos;
}

bool run_traffic(const Options& options) {
  fmt::print("traffic: provider {}, {} ranks, {} messages, seed {}\n",
             options.traffic.node.provider, options.traffic.ranks, options.traffic.messages,
             options.traffic.seed);
  std::fflush(stdout);
  const std::int64_t start = now_ns();
  std::uint64_t again = 0, received = 0;
  bool ok = false;
  {
    Job job(options);
    job.start();
    ok = watch(job, options);
    for (std::uint32_t r = 0; r < options.traffic.ranks; ++r) {
      again += job.shared().rank[r].tries_again.load();
      received += job.shared().rank[r].received.load();
    }
  }
  fmt::print("{} messages received and verified in {:.1f} s, {} operations had to be tried again\n",
             received, static_cast<double>(now_ns() - start) / 1e9, again);
  if (ok && received != options.traffic.messages) {
    fmt::print(stderr, "{} messages are missing\n", options.traffic.messages - received);
    ok = false;
  }
  if (!options.report.empty()) ok = check_reports(options) && ok;
  return ok;
}

// One kill under load. Appends the notice times of the survivors (seconds).
bool run_kill(const Options& options, std::mt19937_64& random, std::vector<double>& notices,
              std::string& example) {
  Job job(options);
  job.start();
  SharedArea& shared = job.shared();
  std::uint32_t running = 0;
  const std::uint32_t ranks = options.traffic.ranks;
  const std::int64_t start = now_ns();
  const auto busy = [&] {
    for (std::uint32_t r = 0; r < ranks; ++r) {
      if (shared.rank[r].received.load() < 100) return false;
    }
    return true;
  };
  while (!busy()) {
    if (!job.reap(running)) return false;
    if (static_cast<double>(now_ns() - start) > options.stall * 1e9) {
      fmt::print(stderr, "the load did not start within {} s:\n", options.stall);
      job.print_state();
      return false;
    }
    usleep(500);
  }
  usleep(static_cast<useconds_t>(random() % 300'000));
  const auto victim = static_cast<std::uint32_t>(random() % ranks);
  job.kill_rank(victim);
  const std::int64_t killed = shared.killed_at.load();
  // noticed in time, then everyone leaves within as much time again
  bool ok = true;
  while (true) {
    ok = job.reap(running) && ok;
    if (running == 0) break;
    const double since = static_cast<double>(now_ns() - killed) / 1e9;
    std::uint32_t noticed = 0;
    for (std::uint32_t r = 0; r < ranks; ++r) noticed += shared.rank[r].peer_error_at.load() != 0;
    if ((since > options.notice && noticed + 1 < ranks) || since > 2 * options.notice) {
      fmt::print(stderr, "{:.0f} s after rank {} was killed, {} of {} noticed, {} still run:\n",
                 since, victim, noticed, ranks - 1, running);
      job.print_state();
      return false;
    }
    usleep(1000);
  }
  if (!ok) fmt::print(stderr, "rank {} had been killed\n", victim);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    if (r == victim) continue;
    const std::int64_t at = shared.rank[r].peer_error_at.load();
    if (at == 0) {
      if (ok) fmt::print(stderr, "rank {} saw no error of rank {}\n", r, victim);
      ok = false;
      continue;
    }
    notices.push_back(static_cast<double>(at - killed) / 1e9);
    example = shared.rank[r].text.data();
  }
  return ok;
}

bool run_kills(Options options) {
  fmt::print("kill: provider {}, {} ranks, {} times, seed {}\n", options.traffic.node.provider,
             options.traffic.ranks, options.repeat, options.traffic.seed);
  std::fflush(stdout);
  options.traffic.endless = true;
  std::mt19937_64 random(options.traffic.seed);
  std::vector<double> notices;
  std::string example;
  const std::uint64_t seed = options.traffic.seed;
  for (std::uint64_t i = 0; i < options.repeat; ++i) {
    options.traffic.seed = seed + i;
    if (!run_kill(options, random, notices, example)) {
      fmt::print(stderr, "failed in round {} (traffic seed {})\n", i, options.traffic.seed);
      return false;
    }
    if (i % 10 == 9) {
      fmt::print("  {} rounds\n", i + 1);
      std::fflush(stdout);
    }
  }
  std::sort(notices.begin(), notices.end());
  fmt::print(
      "{} rounds; {} survivors got an error after {:.3f} s (median), {:.3f} s (longest)\n"
      "for example: {}\n",
      options.repeat, notices.size(), notices[notices.size() / 2], notices.back(), example);
  return true;
}

// What the caller's list has, and the faults of the options.
std::string tuning(const Options& options) {
  const char* const given = std::getenv("TURNOUT_TUNING");
  return fmt::format("{},test_switch_every={},test_break_every={}", given == nullptr ? "" : given,
                     options.switch_every, options.break_every);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("random checked traffic over a libfabric provider");
  app.require_subcommand(1);
  Options options;
  options.traffic.seed = std::random_device{}();
  const auto common = [&](CLI::App* sub) {
    sub->add_option("--provider", options.traffic.node.provider, "provider's name")
        ->capture_default_str();
    sub->add_option("--ranks", options.traffic.ranks, "processes")
        ->check(CLI::Range(2U, kMaxRanks));
    sub->add_option("--seed", options.traffic.seed, "seed of the traffic");
    sub->add_option("--max-size", options.traffic.max_size, "largest message in bytes")
        ->check(CLI::Range(std::size_t{1}, turnout::programs::kMaxSize));
    sub->add_option("--switch-every", options.switch_every, "test_switch_every of TURNOUT_TUNING");
    sub->add_option("--interval", options.interval, "TURNOUT_INTERVAL");
    sub->add_option("--budget", options.budget, "TURNOUT_MEMORY_BUDGET");
    sub->add_option("--stall", options.stall, "seconds without progress that count as a hang");
  };
  auto* traffic = app.add_subcommand("traffic", "every message arrives once, in order, unchanged");
  common(traffic);
  traffic->add_option("--messages", options.traffic.messages, "messages of all ranks together");
  traffic->add_option("--report", options.report, "folder for the library's reports; checked");
  traffic->add_option(
      "--partners", options.traffic.partners,
      "send to so many ranks at a time, a set that changes all the time; 0: to all");
  traffic->add_option("--most-connections", options.most_connections,
                      "TURNOUT_MAX_CONN; with --report it is checked");
  traffic->add_option("--break-every", options.break_every, "test_break_every of TURNOUT_TUNING");
  traffic->add_option("--least-failures", options.least_failures,
                      "with --break-every and --report: ends of connections that fail");
  traffic->add_flag("--allow-switchless", options.allow_switchless,
                    "accept a run in which no channel was switched");
  auto* killer = app.add_subcommand("kill", "the others survive a kill -9 and are told");
  common(killer);
  killer->add_option("--repeat", options.repeat, "rounds");
  killer->add_option("--notice", options.notice, "seconds in which the loss must be noticed");
  bool lenient = false;
  killer->add_flag("--lenient", lenient, "one error is enough, other operations may stay pending");
  CLI11_PARSE(app, argc, argv);
  options.traffic.strict = !lenient;
  if (killer->parsed() && killer->get_option("--ranks")->count() == 0) options.traffic.ranks = 8;

  // A fabric of this run's own, unless the caller chose one.
  const char* fabric = std::getenv("TURNOUT_FABRIC");
  options.fabric = fabric != nullptr ? fabric : fmt::format("stress-{}", getpid());
  setenv("TURNOUT_FABRIC", options.fabric.c_str(), 1);
  if (killer->parsed()) setenv("TURNOUT_LOG", "off", 0);  // every survivor logs the loss: we look
  const auto set = [](const char* name, const std::string& value) {
    if (!value.empty() && value != "0") setenv(name, value.c_str(), 1);
  };
  set("TURNOUT_TUNING", tuning(options));
  set("TURNOUT_INTERVAL", options.interval);
  set("TURNOUT_MEMORY_BUDGET", options.budget);
  set("TURNOUT_MAX_CONN", std::to_string(options.most_connections));
  set("TURNOUT_REPORT", options.report);
  setenv("TURNOUT_REPORT_JOB", options.fabric.c_str(), 0);
  try {
    bool ok = killer->parsed() ? run_kills(options) : run_traffic(options);
    if (is_left(options.fabric)) {
      fmt::print(stderr, "a process is left in fabric {}\n", options.fabric);
      ok = false;
    }
    fmt::print("{}\n", ok ? "ok" : "FAILED");
    return ok ? 0 : 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
