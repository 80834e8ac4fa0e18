// SPDX-License-Identifier: BSD-3-Clause
// fi_message: two endpoints of a libfabric provider in one process, one at a time sends the other a
// tagged message; count.py runs it under callgrind.
//
//   fi_message --provider turnout --count 1000 [--size 8] [--inject | --empty]
//
// A message is fi_trecv, fi_tsend (or fi_tinject) and fi_cq_read of both ends until the completions
// have come. --empty makes calls of fi_cq_read that find nothing instead. Before it counts, the
// pair exchanges messages until wire-up and the change of channel are done.
#include <fmt/format.h>
#include <valgrind/callgrind.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/programs/fi_node.h"

namespace {

using turnout::programs::FiError;
using turnout::programs::FiNode;
using turnout::programs::FiNodeOptions;

constexpr std::chrono::seconds kSettling{5};
constexpr int kPatience = 20'000'000;  // vain polls
constexpr int kWork = 1000;            // some 5 us under callgrind at least
constexpr std::uint64_t kTag = 1;

struct Options {
  FiNodeOptions node;
  std::size_t size = 8;
  int count = 1000;
  bool inject = false;
  bool empty = false;
};

struct End {
  explicit End(const Options& options) : node(options.node), in(options.size), out(options.size) {}
  FiNode node;
  std::vector<char> in, out;
  fi_context2 receive{}, send{};
  fi_addr_t peer = FI_ADDR_UNSPEC;
  int completed = 0;

  void poll() {
    fi_cq_tagged_entry entry;
    const ssize_t n = fi_cq_read(node.cq(), &entry, 1);
    if (n == 1) {
      ++completed;
    } else if (n == -FI_EAVAIL) {
      fi_cq_err_entry error{};
      fi_cq_readerr(node.cq(), &error, 0);
      throw std::runtime_error(node.describe(error));
    } else if (n != -FI_EAGAIN) {
      throw FiError("fi_cq_read", static_cast<int>(n));
    }
  }
};

class Pair {
 public:
  explicit Pair(const Options& options) : options_(options), a_(options), b_(options) {
    a_.peer = a_.node.insert({b_.node.address()}).front();
    b_.peer = b_.node.insert({a_.node.address()}).front();
  }
  void settle() {
    const auto end = std::chrono::steady_clock::now() + kSettling;
    do {
      messages(100);
    } while (std::chrono::steady_clock::now() < end);
  }
  void messages(int count) {
    for (int i = 0; i < count; ++i) i % 2 == 0 ? message(a_, b_) : message(b_, a_);
  }
  // The program has work in between: a read that comes at once after another one looks longer.
  void empty_polls(int count) {
    for (int i = 0; i < count; ++i) {
      for (int work = 0; work < kWork; ++work) asm volatile("");
      a_.poll();
    }
  }

 private:
  // Until the call does not ask to try again.
  template <class Call>
  void post(const char* name, Call&& call) {
    ssize_t code;
    while ((code = call()) == -FI_EAGAIN) poll();
    if (code != 0) throw FiError(name, static_cast<int>(code));
  }
  void poll() {
    if (++polls_ > kPatience) throw std::runtime_error("a message did not arrive");
    a_.poll();
    b_.poll();
  }
  void message(End& from, End& to) {
    polls_ = 0;
    post("fi_trecv", [&] {
      return fi_trecv(to.node.ep(), to.in.data(), options_.size, nullptr, to.peer, kTag, 0,
                      &to.receive);
    });
    post(options_.inject ? "fi_tinject" : "fi_tsend", [&] {
      return options_.inject
                 ? fi_tinject(from.node.ep(), from.out.data(), options_.size, from.peer, kTag)
                 : fi_tsend(from.node.ep(), from.out.data(), options_.size, nullptr, from.peer,
                            kTag, &from.send);
    });
    const int sent = options_.inject ? 0 : 1;
    while (to.completed < 1 || from.completed < sent) poll();
    to.completed = from.completed = 0;
  }

  const Options& options_;
  End a_, b_;
  int polls_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("messages between two endpoints of one process, to be counted by callgrind");
  Options options;
  app.add_option("--provider", options.node.provider, "provider's name")->capture_default_str();
  app.add_option("--size", options.size, "bytes")->capture_default_str();
  app.add_option("--count", options.count, "messages, or polls")->capture_default_str();
  auto* const inject = app.add_flag("--inject", options.inject, "fi_tinject in place of fi_tsend");
  app.add_flag("--empty", options.empty, "polls that find nothing")->excludes(inject);
  CLI11_PARSE(app, argc, argv);
  try {
    Pair pair(options);
    pair.settle();
    CALLGRIND_ZERO_STATS;
    options.empty ? pair.empty_polls(options.count) : pair.messages(options.count);
    CALLGRIND_TOGGLE_COLLECT;  // what comes at the end is not counted
    std::_Exit(0);
  } catch (const std::exception& e) {
    fmt::print(stderr, "fi_message: {}: {}\n", options.node.provider, e.what());
    return 1;
  }
}
