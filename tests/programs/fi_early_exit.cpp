// SPDX-License-Identifier: BSD-3-Clause
// fi_early_exit: a client that connects, sends its last message and ends at once, as fabtests'
// fi_rdm does. What it had sent arrives at the server in any case, even if the client is gone
// before the server looks.
//
//   turnout verbs -- fi_early_exit --end close --repeat 100
//   fi_early_exit --provider turnout --end close --repeat 100
//
// Client and server find each other as those of fabtests do: the server has a port and names no
// address, the client names the host; the client's address comes as the first message, and the
// server answers it. The client's second message is its last. Exit code 0: the server had both, in
// every round.
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>

#include "tests/programs/fi_node.h"

namespace {

using turnout::programs::AddressBytes;
using turnout::programs::FiError;
using turnout::programs::FiNode;
using turnout::programs::FiNodeOptions;

constexpr std::string_view kLast = "Hello from Client!";
constexpr std::size_t kRoom = 4096;
constexpr unsigned kLimit = 60;  // seconds of a round; after them SIGALRM ends who hangs

struct Options {
  FiNodeOptions node;
  std::string host = "localhost";
  std::string end = "close";
  unsigned repeat = 20;
  unsigned pause = 0, busy = 0;
  bool only = false, late = false;
};

struct Shared {
  std::atomic<bool> listening{false}, client_gone{false};
};

class Side {
 public:
  Side(const Options& options, Shared& shared, bool server)
      : options_(options), shared_(shared), pause_(server ? options.pause : 0), node_(of(server)) {
    post();
  }

  void serve() {
    shared_.listening = true;
    if (!options_.only) {
      const std::string name = receive();
      AddressBytes client{};
      std::copy_n(reinterpret_cast<const std::byte*>(name.data()),
                  std::min(name.size(), client.size()), client.begin());
      post();
      send(node_.insert({client}).front(), "k", 1);
    }
    while (options_.late && !shared_.client_gone) usleep(100);
    if (const std::string last = receive(); last != kLast) {
      throw std::runtime_error("the last message is another: " + last);
    }
  }

  void call() {
    const fi_addr_t to = node_.insert({node_.destination()}).front();
    if (!options_.only) {
      const AddressBytes own = node_.address();
      send(to, own.data(), own.size());
      static_cast<void>(receive());
      post();
    }
    send(to, kLast.data(), kLast.size());
  }

 private:
  [[nodiscard]] FiNodeOptions of(bool server) const {
    FiNodeOptions node = options_.node;
    if (!server) node.node = options_.host;
    return node;
  }
  template <class Start>
  void start(const char* call, Start&& start) {
    ssize_t rc = 0;
    while ((rc = start()) == -FI_EAGAIN) poll();
    if (rc != 0) throw FiError(call, static_cast<int>(rc));
  }
  void post() {
    start("fi_recv", [&] {
      return fi_recv(node_.ep(), in_.data(), in_.size(), nullptr, FI_ADDR_UNSPEC, &receiving_);
    });
  }
  void send(fi_addr_t to, const void* data, std::size_t size) {
    std::memcpy(out_.data(), data, size);
    sent_ = false;
    start("fi_send",
          [&] { return fi_send(node_.ep(), out_.data(), size, nullptr, to, &sending_); });
    while (!sent_) poll();
  }
  std::string receive() {
    while (!received_) {
      poll();
      if (pause_ != 0) usleep(pause_);
    }
    received_ = false;
    return {in_.data(), length_};
  }
  void poll() {
    fi_cq_tagged_entry entry{};
    const ssize_t n = fi_cq_read(node_.cq(), &entry, 1);
    if (n == -FI_EAGAIN) return;
    if (n != 1) {
      fi_cq_err_entry error{};
      if (n == -FI_EAVAIL) fi_cq_readerr(node_.cq(), &error, 0);
      throw std::runtime_error("an operation failed: " + node_.describe(error));
    }
    if (entry.op_context == &receiving_) {
      received_ = true;
      length_ = entry.len;
    } else {
      sent_ = true;
    }
  }

  const Options& options_;
  Shared& shared_;
  unsigned pause_;
  std::array<char, kRoom> in_{}, out_{};
  fi_context2 receiving_{}, sending_{};
  bool sent_ = false, received_ = false;
  std::size_t length_ = 0;
  FiNode node_;  // last: it is closed before the buffers it writes to go
};

pid_t start(const Options& options, Shared& shared, bool server) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  alarm(kLimit);
  try {
    while (!server && !shared.listening) usleep(100);
    auto* const side = new Side(options, shared, server);
    server ? side->serve() : side->call();
    if (!server && options.end == "_exit") _exit(0);
    if (!server && options.end == "exit") std::exit(0);
    delete side;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}: {}\n", server ? "server" : "client", e.what());
    std::exit(1);
  }
  std::exit(0);
}

// Client and server share one processor with `count` processes that only use it up: each of them is
// stopped at any point for longer than the other needs to end.
void share_processor(unsigned count) {
  cpu_set_t mine, one;
  CPU_ZERO(&mine);
  CPU_ZERO(&one);
  sched_getaffinity(0, sizeof mine, &mine);
  int first = 0;
  while (!CPU_ISSET(first, &mine)) ++first;
  CPU_SET(first, &one);
  sched_setaffinity(0, sizeof one, &one);
  for (unsigned i = 0; i < count; ++i) {
    if (fork() != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (std::atomic<unsigned> n{0};;) ++n;
  }
}

bool ended_well(const char* who, pid_t pid) {
  int status = 0;
  if (waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  const bool hung = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
  fmt::print("{}: {}\n", who, hung ? "hangs" : fmt::format("status {:#x}", status));
  return false;
}

bool round(const Options& options, Shared& shared) {
  const pid_t server = start(options, shared, true);
  const pid_t client = start(options, shared, false);
  bool good = ended_well("client", client);
  shared.client_gone = true;
  if (!good) kill(server, SIGKILL);
  return ended_well("server", server) && good;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("clients that end right after their last message");
  Options options;
  options.node.provider = "verbs;ofi_rxm";
  options.node.source = false;
  options.node.manual_progress = false;
  options.node.service = fmt::format("{}", 20'000 + getpid() % 10'000);
  app.add_option("--provider", options.node.provider, "provider's name")->capture_default_str();
  app.add_option("--host", options.host, "what the client calls the server")->capture_default_str();
  app.add_option("--end", options.end, "how the client ends")
      ->check(CLI::IsMember({"close", "exit", "_exit"}))
      ->capture_default_str();
  app.add_option("--repeat", options.repeat, "rounds")->capture_default_str();
  app.add_option("--pause", options.pause, "us that the server rests between two looks");
  app.add_option("--busy", options.busy, "all on one processor, with so many that keep it busy");
  app.add_flag("--manual", options.node.manual_progress, "progress in the program's calls only");
  CLI::Option* const only =
      app.add_flag("--only", options.only, "the client's last message is its first");
  app.add_flag("--late", options.late, "the server looks for it when the client has ended")
      ->excludes(only);
  CLI11_PARSE(app, argc, argv);
  setenv("TURNOUT_FABRIC", fmt::format("early-exit-{}", getpid()).c_str(), 0);
  void* at =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return 1;
  if (options.busy != 0) share_processor(options.busy);
  for (unsigned number = 1; number <= options.repeat; ++number) {
    if (round(options, *new (at) Shared{})) continue;
    fmt::print("round {}: FAILED\n", number);
    return 1;
  }
  fmt::print("{} rounds\n", options.repeat);
  return 0;
}
