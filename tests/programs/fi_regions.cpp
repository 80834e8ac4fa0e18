// SPDX-License-Identifier: BSD-3-Clause
// fi_regions: many large messages one after the other between two processes, always from and into
// other buffers, with runs of sends in one direction in between. Providers register such buffers
// one by one; keys and whatever is remembered by them come round again, and nothing of an earlier
// buffer may stick.
//
//   fi_regions --provider turnout
//
// Exit code 0: every message arrived in the buffer posted for it, and no other byte changed.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/programs/fi_node.h"

namespace {

using turnout::programs::AddressBytes;
using turnout::programs::FiError;
using turnout::programs::FiNode;
using turnout::programs::FiNodeOptions;

struct Options {
  FiNodeOptions node;
  std::size_t size = 20'000;  // above any eager limit, and no multiple of a page
  std::uint32_t runs = 40;
};

struct Shared {
  AddressBytes address[2];
  std::atomic<int> ready;
};

class Side {
 public:
  Side(const Options& options, int rank, Shared& shared)
      : options_(options), rank_(rank), node_(options.node) {
    shared.address[rank] = node_.address();
    shared.ready.fetch_add(1);
    while (shared.ready.load() < 2) usleep(1000);
    peer_ = node_.insert({shared.address[1 - rank]}).front();
  }

  // One message from `from`, in a buffer that no other message has had.
  void exchange(int from) {
    const std::uint64_t number = ++messages_;
    auto buffer = std::make_unique<std::vector<unsigned char>>(options_.size, blank(number));
    fi_context2 context{};
    if (rank_ == from) {
      std::fill(buffer->begin(), buffer->end(), value(number));
      start([&] {
        return fi_tsend(node_.ep(), buffer->data(), buffer->size(), nullptr, peer_, number,
                        &context);
      });
      wait();
      std::fill(buffer->begin(), buffer->end(), blank(number));
      expected_.push_back(blank(number));
    } else {
      start([&] {
        return fi_trecv(node_.ep(), buffer->data(), buffer->size(), nullptr, peer_, number, 0,
                        &context);
      });
      wait();
      expected_.push_back(value(number));
    }
    check(*buffer, messages_ - 1);
    buffers_.push_back(std::move(buffer));
    if (buffers_.size() % 64 == 0) check_all();
  }

  void check_all() const {
    for (std::size_t i = 0; i < buffers_.size(); ++i) check(*buffers_[i], i);
  }

 private:
  static unsigned char value(std::uint64_t n) { return static_cast<unsigned char>(1 + n % 120); }
  static unsigned char blank(std::uint64_t n) { return static_cast<unsigned char>(128 + n % 120); }

  void check(const std::vector<unsigned char>& buffer, std::size_t index) const {
    const unsigned char want = expected_[index];
    const auto at =
        std::find_if(buffer.begin(), buffer.end(), [want](unsigned char b) { return b != want; });
    if (at == buffer.end()) return;
    throw std::runtime_error(
        fmt::format("after message {}: byte {} of the buffer of message {} is {}, not {}: {}",
                    messages_, at - buffer.begin(), index + 1, *at, want,
                    index + 1 == messages_ ? "the message did not arrive in its buffer"
                                           : "a later message was written there"));
  }
  template <class Start>
  void start(Start&& start) {
    ssize_t rc = 0;
    while ((rc = start()) == -FI_EAGAIN) poll();
    if (rc != 0) throw FiError("starting an operation", static_cast<int>(rc));
  }
  void wait() {
    while (done_ == 0) {
      if (!poll()) usleep(0);
    }
    --done_;
  }
  bool poll() {
    fi_cq_tagged_entry entry{};
    const ssize_t n = fi_cq_read(node_.cq(), &entry, 1);
    if (n == -FI_EAGAIN) return false;
    if (n != 1) {
      fi_cq_err_entry error{};
      if (n == -FI_EAVAIL) fi_cq_readerr(node_.cq(), &error, 0);
      throw std::runtime_error("an operation failed: " + node_.describe(error));
    }
    ++done_;
    return true;
  }

  const Options& options_;
  int rank_;
  std::vector<std::unique_ptr<std::vector<unsigned char>>> buffers_;
  std::vector<unsigned char> expected_;
  FiNode node_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  std::uint64_t messages_ = 0;
  int done_ = 0;
};

void run(const Options& options, int rank, Shared& shared) {
  Side side(options, rank, shared);
  // Runs of about 256 messages: the generations of a key are often 8 bits (IBTA 10.6.3: the variant
  // part of a key).
  for (std::uint32_t r = 0; r < options.runs; ++r) {
    side.exchange(0);
    for (std::uint32_t i = 0; i < 250 + r % 10; ++i) side.exchange(1);
  }
  side.check_all();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("large messages through ever new buffers");
  Options options;
  app.add_option("--provider", options.node.provider, "provider's name")->capture_default_str();
  app.add_option("--size", options.size, "bytes of a message");
  app.add_option("--runs", options.runs, "runs of about 256 messages");
  CLI11_PARSE(app, argc, argv);
  setenv("TURNOUT_FABRIC", fmt::format("regions-{}", getpid()).c_str(), 0);
  void* at =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return 1;
  auto& shared = *new (at) Shared{};
  pid_t child[2];
  for (int rank = 0; rank < 2; ++rank) {
    child[rank] = fork();
    if (child[rank] != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int code = 0;
    try {
      run(options, rank, shared);
    } catch (const std::exception& e) {
      fmt::print(stderr, "rank {}: {}\n", rank, e.what());
      code = 1;
    }
    std::exit(code);
  }
  // The first to fail ends the test.
  int code = 0;
  for (int left = 2; left > 0; --left) {
    int status = 0;
    wait(&status);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    code = 1;
    for (const pid_t pid : child) kill(pid, SIGKILL);
  }
  fmt::print("{}\n", code == 0 ? "ok" : "FAILED");
  return code;
}
