// SPDX-License-Identifier: BSD-3-Clause
// What a settled pair does for an 8-byte message: how many allocations and system calls, which are
// to be none, and, run by instructions.py under callgrind, how many instructions.
//
//   core_hot_path POLICY MESSAGES [allocations|system-calls]
//
// Two endpoints on the virtual adapter in one process exchange so many messages, one at a time.
// Their clock stands still meanwhile, so nothing that is due by time is counted. Exit code 1, and
// what was found, if there were any.
#include <fmt/format.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/settings.h"
#include "core/endpoint.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<pthread_t> messages_thread{};
std::atomic<long> allocations{0};

// Of the thread of the messages: the adapter's own may still be starting.
void count_allocation() noexcept {
  if (counting.load(std::memory_order_relaxed) && messages_thread.load() == pthread_self())
    ++allocations;
}

}  // namespace

// The C library's, counted: also those of libraries, such as the virtual adapter.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* malloc(std::size_t bytes) {
  count_allocation();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  count_allocation();
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, std::size_t bytes) {
  count_allocation();
  return __libc_realloc(old, bytes);
}
}

namespace turnout {
namespace {

class StandingClock final : public Clock {
 public:
  [[nodiscard]] Nanoseconds now() noexcept override { return time; }
  Nanoseconds time = 1'000'000'000;
};

constexpr std::size_t kBytes = 8;
constexpr int kRounds = 100'000;  // in which a message must have come
constexpr int kSettling = 2000;   // messages before the counted ones
constexpr Nanoseconds kStep = 1'000'000;

[[noreturn]] void fail(const std::string& what) {
  fmt::print(stderr, "core_hot_path: {}\n", what);
  std::_Exit(2);
}

class Pair {
 public:
  explicit Pair(std::string_view policy) {
    const std::string fabric = fmt::format("hot-path-{}", ::getpid());
    setenv("TURNOUT_FABRIC", fabric.c_str(), 1);
    setenv("TURNOUT_FABRIC_SIZE", "256MiB", 1);  // under callgrind there is no room for more
    Settings settings = Settings::defaults();
    settings.setup_thread = false;
    set(settings, "device", "virtual");
    set(settings, "fabric", fabric);
    set(settings, "policy", policy);
    if (const char* path = getenv("TURNOUT_VERBS_PATH")) set(settings, "verbs_path", path);
    for (End& end : ends_) {
      auto made = Endpoint::create(settings, clock_);
      if (!made) fail(made.status().text());
      end.endpoint = std::move(made).value();
    }
    for (std::size_t i = 0; i < 2; ++i) {
      auto id = ends_[i].endpoint->peer(ends_[1 - i].endpoint->address());
      if (!id) fail(id.status().text());
      ends_[i].peer = id.value();
    }
  }
  void settle() {
    for (int i = 0; i < kSettling; ++i) {
      clock_.time += kStep;
      exchange(i % 2);
    }
    for (int i = 0; i < kSettling; ++i) exchange(i % 2);  // what was due is done
  }
  // From one end to the other.
  void exchange(int from) {
    End& sender = ends_[static_cast<std::size_t>(from)];
    End& receiver = ends_[static_cast<std::size_t>(1 - from)];
    iovec in{receiver.bytes.data(), kBytes}, out{sender.bytes.data(), kBytes};
    RecvRequest receive;
    receive.peer = receiver.peer;
    receive.buffer = {&in, 1};
    receive.tagged = true;
    receive.tag = 7;
    receive.report = Report{&receiver.queue, &receiver.queue, nullptr, nullptr};
    if (!receiver.endpoint->recv(receive).ok()) fail("recv refused");
    SendRequest send;
    send.peer = sender.peer;
    send.data = {&out, 1};
    send.tagged = true;
    send.tag = 7;
    send.report = Report{&sender.queue, &sender.queue, nullptr, nullptr};
    for (int i = 0; !sender.endpoint->send(send).ok(); ++i) {
      if (i == kRounds) fail("send refused");
      progress();
    }
    for (int i = 0; sender.queue.size() == 0 || receiver.queue.size() == 0; ++i) {
      if (i == kRounds) fail("a message did not arrive");
      progress();
    }
    sender.queue.pop();
    receiver.queue.pop();
  }
  [[nodiscard]] std::string channel() const {
    const EndpointReport report = ends_[0].endpoint->report();
    return std::string(name(report.peers[0].receive.spans.back().channel));
  }

 private:
  struct End {
    CompletionQueue queue;
    std::unique_ptr<Endpoint> endpoint;
    PeerId peer = kAnyPeer;
    std::array<std::byte, kBytes> bytes{};
  };
  static void set(Settings& settings, std::string_view name, std::string_view value) {
    if (Status status = settings.set(std::string(name), std::string(value)); !status.ok()) {
      fail(status.text());
    }
  }
  void progress() {
    for (End& end : ends_) end.endpoint->progress();
  }

  StandingClock clock_;
  std::array<End, 2> ends_;
};

std::array<std::atomic<int>, 512> system_calls{};

void on_system_call(int, siginfo_t* info, void* context) {
  const auto number = static_cast<std::size_t>(info->si_syscall);
  ++system_calls[number < system_calls.size() ? number : system_calls.size() - 1];
  static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RAX] = -ENOSYS;
}

// From here on every system call is counted and fails, but for those that tell of it. The virtual
// adapter's ibv_poll_cq() yields the processor after some 20 us in which it found nothing
// (docs/virtual-adapter.md); how often that is depends on the machine.
void trap_system_calls() {
  struct sigaction action {};
  action.sa_sigaction = on_system_call;
  action.sa_flags = SA_SIGINFO;
  if (sigaction(SIGSYS, &action, nullptr) != 0) fail("sigaction");
  std::array filter = {
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_rt_sigreturn, 4, 0),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_exit_group, 3, 0),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_sched_yield, 2, 0),
      sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_write, 1, 0),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    fail("seccomp is not to be had");
  }
}

int run(std::string_view policy, int messages, std::string_view what) {
  auto* const pair = new Pair(policy);  // never destroyed: system calls end with the process only
  pair->settle();
  const std::string channel = pair->channel();
  if (what == "system-calls") trap_system_calls();
  messages_thread = pthread_self();
  counting = what == "allocations";
  for (int i = 0; i < messages; ++i) pair->exchange(i % 2);
  counting = false;
  long found = 0;
  std::array<char, 200> text;
  const auto tell = [&](long count, long number) {
    const auto end = fmt::format_to_n(
        text.data(), text.size(), "{}: {} {} in {} messages on {}\n", policy, count,
        number < 0 ? std::string("allocations") : fmt::format("calls of system call {}", number),
        messages, channel);
    if (::write(STDERR_FILENO, text.data(), std::min(end.size, text.size())) < 0) std::_Exit(2);
    found += count;
  };
  if (allocations > 0) tell(allocations, -1);
  for (std::size_t i = 0; i < system_calls.size(); ++i) {
    if (system_calls[i] > 0) tell(system_calls[i], static_cast<long>(i));
  }
  if (what.empty()) fmt::print("{}\n", channel);
  std::fflush(stdout);
  std::_Exit(found > 0 ? 1 : 0);
}

}  // namespace
}  // namespace turnout

int main(int argc, char** argv) {
  int messages = 0;
  const std::string_view number = argc > 2 ? argv[2] : "";
  const std::string_view what = argc > 3 ? argv[3] : "";
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), messages);
  if (argc < 3 || argc > 4 || error != std::errc() || end != number.data() + number.size() ||
      (!what.empty() && what != "allocations" && what != "system-calls")) {
    fmt::print(stderr, "usage: core_hot_path POLICY MESSAGES [allocations|system-calls]\n");
    return 2;
  }
  return turnout::run(argv[1], messages, what);
}
