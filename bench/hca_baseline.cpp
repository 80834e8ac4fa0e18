// SPDX-License-Identifier: BSD-3-Clause
// hca_baseline: what this machine itself takes for the things that the virtual adapter is made of,
// for bench/run_verbs.py to put beside it.
//
//   hca_baseline [--bytes 1048576] [--copies 4000] [--handovers 1000000] [--cpus 0 1]
//
// A cache line handed over from one core to the other, one way; memcpy to memory that another
// process has mapped, too; process_vm_writev to another process's own memory. The other process is
// there and waits. Prints one line of JSON.
#include <sched.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/hca_program.h"

namespace {

using namespace turnout::bench;

using Clock = std::chrono::steady_clock;

struct Options {
  std::uint64_t bytes = 1 << 20, copies = 4000, handovers = 1'000'000;
  std::vector<int> cpus = {0, 1};
};

void stay_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  expect(sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");
}

double seconds_since(Clock::time_point begun) {
  return std::chrono::duration<double>(Clock::now() - begun).count();
}

// What the two processes share: a word each, in cache lines that are not neighbours.
struct Shared {
  alignas(256) std::atomic<std::uint64_t> there;
  alignas(256) std::atomic<std::uint64_t> back;
  alignas(256) std::atomic<unsigned char*> memory;  // of the other process
};

void* map_shared(std::size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  expect(p != MAP_FAILED, "mmap");
  return p;
}

[[noreturn]] void other(const Options& options, Shared& shared) {
  stay_on(options.cpus[1]);
  std::vector<unsigned char> memory(options.bytes, 1);
  shared.memory.store(memory.data());
  for (std::uint64_t i = 1; i <= options.handovers; ++i) {
    while (shared.there.load(std::memory_order_acquire) != i) {
    }
    shared.back.store(i, std::memory_order_release);
  }
  for (;;) pause();  // until it is killed
}

double hand_over(const Options& options, Shared& shared) {
  const auto begun = Clock::now();
  for (std::uint64_t i = 1; i <= options.handovers; ++i) {
    shared.there.store(i, std::memory_order_release);
    while (shared.back.load(std::memory_order_acquire) != i) {
    }
  }
  return seconds_since(begun) / static_cast<double>(options.handovers) / 2;
}

// Bytes in a second.
template <typename Copy>
double rate(const Options& options, Copy copy) {
  for (int i = 0; i < 8; ++i) copy();
  const auto begun = Clock::now();
  for (std::uint64_t i = 0; i < options.copies; ++i) copy();
  return static_cast<double>(options.bytes * options.copies) / seconds_since(begun);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "What a hand-over of a cache line and a copy to another process take on this machine");
  app.add_option("--bytes", options.bytes)
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 30));
  app.add_option("--copies", options.copies)->check(CLI::PositiveNumber);
  app.add_option("--handovers", options.handovers)->check(CLI::PositiveNumber);
  app.add_option("--cpus", options.cpus, "Where the two processes run")->expected(2);
  CLI11_PARSE(app, argc, argv);

  auto& shared = *new (map_shared(sizeof(Shared))) Shared{};
  auto* const target = static_cast<unsigned char*>(map_shared(options.bytes));
  const pid_t child = fork();
  expect(child >= 0, "fork");
  if (child == 0) other(options, shared);
  stay_on(options.cpus[0]);
  const double handed = hand_over(options, shared);

  std::vector<unsigned char> source(options.bytes, 7);
  const double copied = rate(options, [&] {
    std::memcpy(target, source.data(), options.bytes);
    asm volatile("" : : "r"(target) : "memory");
  });
  const double written = rate(options, [&] {
    iovec here{source.data(), options.bytes};
    iovec there{shared.memory.load(), options.bytes};
    expect(process_vm_writev(child, &here, 1, &there, 1, 0) == static_cast<ssize_t>(options.bytes),
           "process_vm_writev");
  });
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  std::printf(
      "{\"benchmark\": \"hca_baseline\", \"bytes\": %llu, \"handover_ns\": %.1f, "
      "\"memcpy_bytes_per_s\": %.0f, \"writev_bytes_per_s\": %.0f}\n",
      static_cast<unsigned long long>(options.bytes), handed * 1e9, copied, written);
  return 0;
}
