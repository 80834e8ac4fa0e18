// SPDX-License-Identifier: BSD-3-Clause
// fi_pingpong: latency and rate of tagged messages between two processes pinned to two cores,
// through libfabric.
//
//   fi_pingpong --provider turnout [--size 8 --size 1048576] [--warm-up 2] [--json]
//
// Latency: a ping-pong, half of a round trip. Rate: kWindow messages, all from one buffer and to
// one, which the receiver answers when it has all; the time of a message. For each size the median
// over batches, with the lowest and the highest batch of the latency beside it. The warm-up is long
// enough for a provider that changes channels while it runs (TURNOUT_INTERVAL is 1 s). Buffers are
// ordinary heap memory, as an application's are.
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "tests/programs/fi_node.h"

namespace {

constexpr std::size_t kWindow = 64;

using turnout::programs::AddressBytes;
using turnout::programs::FiError;
using turnout::programs::FiNode;
using turnout::programs::FiNodeOptions;

struct Options {
  FiNodeOptions node;
  std::vector<std::size_t> sizes;
  double warm_up = 2.0;   // seconds
  double duration = 0.5;  // seconds for one size
  std::vector<int> cores;
  bool json = false;
};

struct Shared {
  AddressBytes address[2];
  std::atomic<int> ready;
  std::atomic<bool> failed;
  std::atomic<std::uint64_t> step, batches[2];  // see Baton
};

double now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) {
    throw std::runtime_error(fmt::format("cannot pin to core {}: {}", core, std::strerror(errno)));
  }
}

// One side of the exchange; both sides run the same number of round trips.
class Side {
 public:
  Side(const Options& options, int rank, Shared& shared)
      : node_(options.node),
        rank_(rank),
        shared_(shared),
        out_(largest(options)),
        in_(largest(options)) {
    std::memset(out_.data(), 0x5a, out_.size());
    std::memset(in_.data(), 0, in_.size());
    shared.address[rank] = node_.address();
    shared.ready.fetch_add(1);
    while (shared.ready.load() < 2) usleep(1000);
    peer_ = node_.insert({shared.address[1 - rank]}).front();
  }

  void round_trips(std::size_t size, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      post_receive(size);
      if (rank_ == 0) send(size);
      wait(sent_, sends_);
      wait(received_, 1);
      if (rank_ == 1) send(size);
      wait(sent_, sends_);
    }
  }
  void windows(std::size_t size, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      if (rank_ == 0) post_receive(1);
      for (std::size_t k = 0; k < kWindow; ++k) rank_ == 0 ? send(size, k) : post_receive(size, k);
      wait(sent_, sends_);
      wait(received_, rank_ == 0 ? 1 : kWindow);
      if (rank_ == 1) send(1);
      wait(sent_, sends_);
    }
  }

 private:
  static std::size_t largest(const Options& o) {
    return std::max<std::size_t>(*std::max_element(o.sizes.begin(), o.sizes.end()), 8);
  }
  void post_receive(std::size_t size, std::size_t slot = 0) {
    ssize_t rc = 0;
    while ((rc = fi_trecv(node_.ep(), in_.data(), size, nullptr, peer_, 1, 0, &receives_[slot])) ==
           -FI_EAGAIN) {
      poll();
    }
    if (rc != 0) throw FiError("fi_trecv", static_cast<int>(rc));
  }
  void send(std::size_t size, std::size_t slot = 0) {
    const bool inject = size <= node_.inject_size();
    ssize_t rc = 0;
    do {
      rc = inject ? fi_tinject(node_.ep(), out_.data(), size, peer_, 1)
                  : fi_tsend(node_.ep(), out_.data(), size, nullptr, peer_, 1, &sends_made_[slot]);
      if (rc == -FI_EAGAIN) poll();
    } while (rc == -FI_EAGAIN);
    if (rc != 0) throw FiError("fi_tsend", static_cast<int>(rc));
    if (!inject) ++sends_;
  }
  // Until so many have completed.
  void wait(std::size_t& completed, std::size_t count) {
    while (completed < count) poll();
    completed = 0;
    if (&completed == &sent_) sends_ = 0;
  }
  void poll() {
    fi_cq_tagged_entry entry{};
    const ssize_t n = fi_cq_read(node_.cq(), &entry, 1);
    if (n == 1) {
      (is_receive(entry.op_context) ? received_ : sent_) += 1;
    } else if (n == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      fi_cq_readerr(node_.cq(), &error, 0);
      throw std::runtime_error(node_.describe(error));
    } else if (n != -FI_EAGAIN) {
      throw FiError("fi_cq_read", static_cast<int>(n));
    } else if (shared_.failed.load(std::memory_order_relaxed)) {
      throw std::runtime_error("the other side failed");
    }
  }

  [[nodiscard]] bool is_receive(const void* context) const {
    return std::any_of(std::begin(receives_), std::end(receives_),
                       [context](const fi_context2& one) { return &one == context; });
  }

  FiNode node_;
  int rank_;
  Shared& shared_;
  std::vector<char> out_, in_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  fi_context2 receives_[kWindow] = {}, sends_made_[kWindow] = {};
  std::size_t received_ = 0, sent_ = 0;  // completions
  std::size_t sends_ = 0;                // that end with one
};

// Round trips in one batch: 1 to 3 ms, the same on both sides.
std::uint64_t batch_size(std::size_t size) {
  if (size <= 4096) return 500;
  if (size <= 65536) return 100;
  return 10;
}

// Rank 0 decides how many batches come next, rank 1 follows. A step of no batches lets rank 0 run
// one step ahead, hence two slots.
class Baton {
 public:
  Baton(int rank, Shared& shared) : rank_(rank), shared_(shared) {}
  std::uint64_t next(std::uint64_t batches) {
    ++step_;
    if (rank_ == 0) {
      shared_.batches[step_ % 2].store(batches);
      shared_.step.store(step_);
      return batches;
    }
    while (shared_.step.load() < step_) {
      if (shared_.failed.load()) throw std::runtime_error("the other side failed");
    }
    return shared_.batches[step_ % 2].load();
  }

 private:
  int rank_;
  Shared& shared_;
  std::uint64_t step_ = 0;
};

struct Row {
  std::size_t size = 0;
  double median = 0, low = 0, high = 0;  // ns one way
  double message = 0;                    // ns
};

std::vector<Row> run(const Options& options, int rank, Shared& shared) {
  pin(options.cores[static_cast<std::size_t>(rank)]);
  Side side(options, rank, shared);
  Baton baton(rank, shared);
  std::vector<double> times;
  const auto trips = [&](std::size_t size, std::uint64_t n) {
    side.round_trips(size, n);
    return 2 * n;
  };
  const auto windows = [&](std::size_t size, std::uint64_t n) {
    const std::uint64_t count = (n + kWindow - 1) / kWindow;
    side.windows(size, count);
    return count * kWindow;
  };
  // Batches until `seconds` have passed on rank 0's clock. The median time of a message.
  const auto phase = [&](auto&& batch, std::size_t size, double seconds) {
    const double end = now() + seconds * 1e9;
    times.clear();
    std::uint64_t batches = 1;
    while ((batches = baton.next(now() < end ? 1 : 0)) != 0) {
      const double start = now();
      const std::uint64_t messages = batch(size, batch_size(size));
      times.push_back((now() - start) / static_cast<double>(messages));
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  };
  phase(trips, 8, options.warm_up);
  std::vector<Row> rows;
  for (const std::size_t size : options.sizes) {
    // First: caches, registrations, the channel's view of this size.
    phase(trips, size, options.duration / 4);
    Row row{.size = size, .median = phase(trips, size, options.duration)};
    row.low = times.front();
    row.high = times.back();
    phase(windows, size, options.duration / 4);
    row.message = phase(windows, size, options.duration);
    rows.push_back(row);
  }
  return rows;
}

void print(const Options& options, const std::vector<Row>& rows) {
  if (options.json) {
    const auto object = [&](const char* name, double Row::*value) {
      fmt::print("\"{}\": {{", name);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        fmt::print("{}\"{}\": {:.1f}", i == 0 ? "" : ", ", rows[i].size, rows[i].*value);
      }
      fmt::print("}}");
    };
    fmt::print("{{\"provider\": \"{}\", ", options.node.provider);
    object("one_way_ns", &Row::median);
    fmt::print(", ");
    object("message_ns", &Row::message);
    fmt::print("}}\n");
    return;
  }
  fmt::print("{:>9} {:>12} {:>12} {:>12} {:>12}   {}\n", "bytes", "one way ns", "lowest", "highest",
             "message ns", options.node.provider);
  for (const Row& r : rows) {
    fmt::print("{:>9} {:>12.1f} {:>12.1f} {:>12.1f} {:>12.1f}\n", r.size, r.median, r.low, r.high,
               r.message);
  }
}

// The first two cores this process may use.
std::vector<int> first_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return {0, 1};
  for (int c = 0; c < CPU_SETSIZE && cores.size() < 2; ++c) {
    if (CPU_ISSET(static_cast<std::size_t>(c), &set)) cores.push_back(c);
  }
  if (cores.size() == 1) cores.push_back(cores.front());
  return cores;
}

int run_child(const Options& options, int rank, Shared& shared) {
  try {
    const std::vector<Row> rows = run(options, rank, shared);
    if (rank == 0) print(options, rows);
    std::fflush(stdout);
    return 0;
  } catch (const std::exception& e) {
    if (!shared.failed.exchange(true)) {
      fmt::print(stderr, "rank {}: {}\n", rank, e.what());
    }
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("tagged ping-pong over a libfabric provider");
  Options options;
  options.cores = first_cores();
  app.add_option("--provider", options.node.provider, "provider's name")->capture_default_str();
  app.add_option("--size", options.sizes, "bytes (repeatable)");
  app.add_option("--warm-up", options.warm_up, "seconds before the first measurement");
  app.add_option("--duration", options.duration, "seconds for one size");
  app.add_option("--core", options.cores, "the two cores")->expected(2);
  app.add_flag("--json", options.json, "one line of JSON");
  CLI11_PARSE(app, argc, argv);
  if (options.sizes.empty()) {
    options.sizes = {8, 64, 512, 2048, 4096, 8192, 16384, 65536, 262144, 1048576};
  }
  setenv("TURNOUT_FABRIC", fmt::format("pingpong-{}", getpid()).c_str(), 0);
  void* at =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    fmt::print(stderr, "mmap: {}\n", std::strerror(errno));
    return 1;
  }
  auto& shared = *new (at) Shared{};
  pid_t child[2];
  for (int rank = 0; rank < 2; ++rank) {
    child[rank] = fork();
    if (child[rank] < 0) {
      fmt::print(stderr, "fork: {}\n", std::strerror(errno));
      return 1;
    }
    if (child[rank] == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::exit(run_child(options, rank, shared));
    }
  }
  int code = 0;
  for (const pid_t pid : child) {
    int status = 0;
    waitpid(pid, &status, 0);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      shared.failed.store(true);
      code = 1;
    }
  }
  return code;
}
