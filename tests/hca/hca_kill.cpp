// SPDX-License-Identifier: BSD-3-Clause
// hca_kill: processes killed (SIGKILL) at random moments while all of them talk to each other over
// the virtual adapter.
//
//   hca_kill --ranks 4 --repeat 1000 --seed 1
//
// Every survivor must be told by an error completion, the traffic among them must go on and stay
// whole, and nothing may be left of the dead. After each death a new process takes the place. The
// seed is printed; --seed repeats a run's choices, if not its timing. Exit code 0: all as it must
// be.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "hca/live/directory.h"
#include "tests/hca/kill_state.h"
#include "tests/hca/kill_worker.h"

namespace turnout::hca::kill_test {
namespace {

struct Options {
  std::uint32_t ranks = 4, repeat = 20;
  std::uint64_t seed = 0;
  std::string fabric;
  double patience = 30;  // seconds without what must happen
};

class Job {
 public:
  explicit Job(const Options& options)
      : options_(options), random_(options.seed), pids_(options.ranks), lives_(options.ranks) {
    void* at = mmap(nullptr, sizeof(SharedArea), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                    -1, 0);
    if (at == MAP_FAILED) throw std::runtime_error(fmt::format("mmap: {}", std::strerror(errno)));
    shared_ = new (at) SharedArea;
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    for (const pid_t pid : pids_) {
      if (pid == 0) continue;
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    munmap(shared_, sizeof(SharedArea));
  }

  void run() {
    for (std::uint32_t rank = 0; rank < options_.ranks; ++rank) start(rank);
    wait_connected();
    state_ = std::make_unique<StateView>(options_.fabric, pids_.front());
    all_ = state_->count(pids_);
    begin_stretch();
    bool connected = true;
    while (kills_ < options_.repeat) {
      if (connected && kills_ >= next_check_) check();
      connected = round();
    }
    wait_connected();
    end();
  }

  void print() {
    std::uint64_t checked = 0, errors = 0;
    for (const RankArea& rank : shared_->rank) {
      checked += rank.checked;
      errors += rank.errors;
    }
    std::sort(times_.begin(), times_.end());
    const auto milliseconds = [&](std::size_t i) {
      return times_.empty() ? 0.0 : static_cast<double>(times_[i]) / 1e6;
    };
    fmt::print(
        "{} kills in {} rounds: {} survivors told (timers {:.1f} ms) in {:.1f} ms median, {:.1f} "
        "ms "
        "longest; {} messages and requests checked, {} error completions; most files {}, mappings "
        "{} of a process; seed {}\n",
        kills_, rounds_, times_.size(), (kRetries + 1) * 4.096e-3 * (1 << kTimeout),
        milliseconds(times_.size() / 2), milliseconds(times_.empty() ? 0 : times_.size() - 1),
        checked, errors, most_files_, most_mappings_, options_.seed);
  }

 private:
  static constexpr std::uint32_t kStretch = 50;  // kills between two looks at the state

  void start(std::uint32_t rank) {
    const std::uint32_t life = ++lives_[rank];
    const pid_t pid = fork();
    if (pid < 0) throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
    if (pid != 0) {
      pids_[rank] = pid;
      return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody watches it any more
    int code = 0;
    try {
      KillWorker(*shared_, rank, options_.ranks, life, options_.seed).run();
    } catch (const std::exception& e) {
      auto& text = shared_->rank[rank].text;
      std::snprintf(text.data(), text.size(), "%s", e.what());
      code = 1;
    }
    // The adapter's own exit handlers must run as in any program, the parent's objects stay.
    std::exit(code);
  }

  // Throws when a process ended that nobody killed.
  void watch() {
    for (std::uint32_t rank = 0; rank < options_.ranks; ++rank) {
      int status = 0;
      if (pids_[rank] == 0 || waitpid(pids_[rank], &status, WNOHANG) == 0) continue;
      pids_[rank] = 0;
      if (shared_->rank[rank].killed.load() == lives_[rank]) continue;
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && shared_->phase == Phase::leave) continue;
      throw std::runtime_error(
          WIFSIGNALED(status) ? fmt::format("rank {} ended by signal {}", rank, WTERMSIG(status))
                              : fmt::format("exit code {}: {}", WEXITSTATUS(status),
                                            shared_->rank[rank].text.data()));
    }
  }

  // `what` says what is missing; empty: it has happened.
  void wait_for(const std::function<std::string()>& what) {
    const std::int64_t end = now_ns() + static_cast<std::int64_t>(options_.patience * 1e9);
    for (;;) {
      watch();
      const std::string missing = what();
      if (missing.empty()) return;
      if (now_ns() > end) {
        throw std::runtime_error(fmt::format("after {} s: {}", options_.patience, missing));
      }
      usleep(200);
    }
  }

  [[nodiscard]] const End& end_of(std::uint32_t rank, std::uint32_t peer) const {
    return shared_->rank[rank].end[peer];
  }
  [[nodiscard]] bool is_ready(std::uint32_t a, std::uint32_t b) const {
    return end_of(a, b).ready.load() == ticket(lives_[a], lives_[b]);
  }
  // The first pair for which `wrong` holds.
  [[nodiscard]] std::string first_pair(
      const std::function<std::string(std::uint32_t, std::uint32_t)>& wrong) const {
    for (std::uint32_t a = 0; a < options_.ranks; ++a) {
      for (std::uint32_t b = 0; b < options_.ranks; ++b) {
        if (a == b) continue;
        if (std::string text = wrong(a, b); !text.empty()) return text;
      }
    }
    return {};
  }

  void wait_connected() {
    wait_for([&] {
      return first_pair([&](std::uint32_t a, std::uint32_t b) {
        return is_ready(a, b) ? "" : fmt::format("rank {} is not connected to rank {}", a, b);
      });
    });
  }

  void kill_rank(std::uint32_t rank) {
    shared_->rank[rank].killed = lives_[rank];  // first: an error before it is a false one
    killed_at_[rank] = now_ns();
    kill(pids_[rank], SIGKILL);
    ++kills_;
  }

  // One to two deaths and their replacement. False: not all are connected again yet.
  bool round() {
    ++rounds_;
    usleep(static_cast<useconds_t>(random_() % 3000));
    std::vector<std::uint32_t> victims;
    std::uint32_t victim = 0;
    do {
      victim = static_cast<std::uint32_t>(random_() % options_.ranks);
    } while (victim == spared_);
    victims.push_back(victim);
    // Now and then a second one dies while the others clear up behind the first.
    if (options_.ranks > 3 && kills_ + 2 <= options_.repeat && random_() % 8 == 0) {
      do {
        victim = static_cast<std::uint32_t>(random_() % options_.ranks);
      } while (victim == spared_ || victim == victims[0]);
      victims.push_back(victim);
    }
    std::vector<std::uint64_t> moved(std::size_t{options_.ranks} * options_.ranks);
    const auto survives = [&](std::uint32_t rank) {
      return std::find(victims.begin(), victims.end(), rank) == victims.end();
    };
    for (const std::uint32_t rank : victims) {
      if (rank != victims[0]) usleep(static_cast<useconds_t>(random_() % 1000));
      kill_rank(rank);
    }
    for (std::uint32_t a = 0; a < options_.ranks; ++a) {
      for (std::uint32_t b = 0; b < options_.ranks; ++b) {
        moved[a * options_.ranks + b] = end_of(a, b).moved;
      }
    }
    wait_for([&] {
      return first_pair([&](std::uint32_t a, std::uint32_t b) -> std::string {
        if (!survives(a)) return {};
        if (!survives(b)) {
          const bool told =
              end_of(a, b).told.load() >= lives_[b] || shared_->rank[b].open.load() != lives_[b];
          return told ? "" : fmt::format("rank {} was not told that rank {} is dead", a, b);
        }
        const bool moves = end_of(a, b).moved.load() >= moved[a * options_.ranks + b] + 20;
        return moves ? "" : fmt::format("nothing moves from rank {} to rank {}, which live", b, a);
      });
    });
    for (std::uint32_t a = 0; a < options_.ranks; ++a) {
      if (!survives(a)) continue;
      for (const std::uint32_t b : victims) {
        if (end_of(a, b).told.load() < lives_[b]) continue;
        if (const std::int64_t at = end_of(a, b).told_at.load(); at != 0) {
          times_.push_back(at - killed_at_[b]);
          if (times_.back() > 1'000'000'000) {
            fmt::print(stderr, "round {}: rank {} was told of rank {} after {} ms\n", rounds_, a, b,
                       times_.back() / 1'000'000);
          }
        }
      }
    }
    for (const std::uint32_t rank : victims) {
      wait_for([&] { return pids_[rank] == 0 ? "" : fmt::format("rank {} does not die", rank); });
      start(rank);
    }
    if (random_() % 8 == 0) return false;  // the next one dies while these connect
    wait_connected();
    return true;
  }

  // A leak adds up in who lives long: one rank is spared in each stretch, in turn.
  void begin_stretch() {
    next_check_ = kills_ + kStretch;
    spared_ = stretches_++ % options_.ranks;
    files_ = open_files(pids_[spared_]);
    mappings_ = mappings(pids_[spared_]);
  }

  void check() {
    check_census(false);
    // The ends of pipes are opened when they are first needed: one or another for each peer.
    const std::uint64_t slack = options_.ranks;
    const std::uint64_t files = open_files(pids_[spared_]), maps = mappings(pids_[spared_]);
    most_files_ = std::max(most_files_, files);
    most_mappings_ = std::max(most_mappings_, maps);
    if (files > files_ + slack || maps > mappings_ + 2 * slack) {
      throw std::runtime_error(
          fmt::format("rank {} had {} files open and {} mappings, after {} kills more {} and {}",
                      spared_, files_, mappings_, kStretch, files, maps));
    }
    begin_stretch();
  }

  // What the processes have is always the same; only of posted receives some are in use.
  void check_census(bool receives) {
    wait_for([&]() -> std::string {
      const Census now = state_->count(pids_);
      Census expected = all_;
      expected.foreign = 0;
      expected.receives = receives ? std::uint64_t{options_.ranks} * kSharedReceives : now.receives;
      if (now == expected) return {};
      return fmt::format("the state holds {}; at the beginning {}", now.text(), all_.text());
    });
  }

  void end() {
    shared_->phase = Phase::stop;
    wait_for([&] {
      for (std::uint32_t rank = 0; rank < options_.ranks; ++rank) {
        if (shared_->rank[rank].quiet.load() != lives_[rank]) {
          return fmt::format("rank {} still waits for requests", rank);
        }
      }
      return std::string();
    });
    wait_for([&] {
      return first_pair([&](std::uint32_t a, std::uint32_t b) -> std::string {
        const End &from = end_of(a, b), &to = end_of(b, a);
        if (from.sent.load() == to.taken.load() && from.dc_sent.load() == to.dc_taken.load()) {
          return {};
        }
        return fmt::format("rank {} sent {} messages to rank {}, {} over DC; {} and {} came", a,
                           from.sent.load(), b, from.dc_sent.load(), to.taken.load(),
                           to.dc_taken.load());
      });
    });
    check_census(true);
    shared_->phase = Phase::leave;
    wait_for([&] {
      return std::all_of(pids_.begin(), pids_.end(), [](pid_t pid) { return pid == 0; })
                 ? ""
                 : "not all processes have ended";
    });
    auto members = list_members(options_.fabric);
    if (!members || !members->empty()) {
      throw std::runtime_error(fmt::format("fabric {} is still there", options_.fabric));
    }
  }

  const Options& options_;
  std::mt19937_64 random_;
  SharedArea* shared_ = nullptr;
  std::vector<pid_t> pids_;
  std::vector<std::uint32_t> lives_;
  std::int64_t killed_at_[kMaxRanks] = {};
  std::unique_ptr<StateView> state_;
  Census all_;
  std::uint32_t kills_ = 0, rounds_ = 0, next_check_ = 0, stretches_ = 0, spared_ = 0;
  std::uint64_t files_ = 0, mappings_ = 0, most_files_ = 0, most_mappings_ = 0;
  std::vector<std::int64_t> times_;
};

int run(Options options) {
  if (options.seed == 0) options.seed = std::random_device{}();
  if (options.fabric.empty()) options.fabric = fmt::format("kill.{}", getpid());
  setenv("TURNOUT_FABRIC", options.fabric.c_str(), 1);
  setenv("TURNOUT_FABRIC_SIZE", "512MiB", 0);
  fmt::print("seed {}\n", options.seed);
  std::fflush(stdout);  // before the forks
  Job job(options);
  try {
    job.run();
  } catch (const std::exception& e) {
    job.print();
    std::fflush(stdout);
    fmt::print(stderr, "hca_kill: {} (seed {})\n", e.what(), options.seed);
    return 1;
  }
  job.print();
  return 0;
}

}  // namespace
}  // namespace turnout::hca::kill_test

int main(int argc, char** argv) {
  using turnout::hca::kill_test::kMaxRanks;
  CLI::App app{"Processes of the virtual adapter killed under load."};
  turnout::hca::kill_test::Options options;
  app.add_option("--ranks", options.ranks, "processes")->check(CLI::Range(2U, kMaxRanks));
  app.add_option("--repeat", options.repeat, "processes to kill, one after another");
  app.add_option("--seed", options.seed, "of all random choices; 0: a new one");
  app.add_option("--fabric", options.fabric, "name of the fabric; without it one of its own");
  app.add_option("--patience", options.patience, "seconds after which it is a hang");
  CLI11_PARSE(app, argc, argv);
  try {
    return turnout::hca::kill_test::run(options);
  } catch (const std::exception& e) {
    fmt::print(stderr, "hca_kill: {}\n", e.what());
    return 1;
  }
}
