// SPDX-License-Identifier: BSD-3-Clause
// fabric_clients: one side of one test. fabric_clients.py runs both and makes the table.
//
//   fabric_clients --list                              names, with the number of processes
//   fabric_clients --test "fi_rdm" --server --port 23000 [--provider shm] [--out-of-band]
//   fabric_clients --test "fi_rdm" --port 23000 [--provider shm] [--out-of-band]
//
// Exit code 0: passed; 61: the provider does not offer it; 1: failed, with the reason on standard
// error. A test that takes longer than --limit seconds is ended, and says where it was.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>

#include "tests/clients/rig.h"

namespace {

using turnout::clients::Run;
using turnout::clients::Test;

std::vector<Test> all_tests() {
  std::vector<Test> all;
  for (auto part : {turnout::clients::unit_tests, turnout::clients::message_tests,
                    turnout::clients::connection_tests, turnout::clients::endpoint_tests,
                    turnout::clients::one_sided_tests, turnout::clients::benchmark_tests}) {
    for (Test& test : part()) all.push_back(std::move(test));
  }
  return all;
}

void out_of_time(int) {
  constexpr std::string_view kWords = "hangs at: ";
  const std::string_view stage = turnout::clients::current_stage();
  if (::write(STDERR_FILENO, kWords.data(), kWords.size()) < 0 ||
      ::write(STDERR_FILENO, stage.data(), stage.size()) < 0 || ::write(STDERR_FILENO, "\n", 1) < 0)
    _exit(1);
  _exit(1);
}

int run_test(const Test& test, const Run& run) {
  try {
    test.body(run);
    return 0;
  } catch (const turnout::clients::Unsupported& e) {
    fmt::print(stderr, "not supported: {}\n", e.what());
    return ENODATA;
  } catch (const std::exception& e) {
    fmt::print(stderr, "{} (after: {})\n", e.what(), turnout::clients::current_stage());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("one side of a test of a libfabric provider");
  Run run;
  std::string name;
  bool list = false;
  unsigned limit = 30;
  app.add_option("--test", name, "the test's name");
  app.add_flag("--list", list, "print the names and the processes of each");
  app.add_option("--provider", run.provider, "libfabric's name of it")->capture_default_str();
  app.add_option("--host", run.host, "the server's")->capture_default_str();
  app.add_option("--port", run.port, "the server's");
  app.add_flag("--server", run.server, "this is the server");
  app.add_flag("--out-of-band", run.out_of_band, "addresses go over a socket beside the fabric");
  app.add_flag("--standard", run.standard, "all sizes and more iterations");
  app.add_option("--limit", limit, "seconds")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const std::vector<Test> tests = all_tests();
  if (list) {
    for (const Test& test : tests) fmt::print("{}\t{}\n", test.processes, test.name);
    return 0;
  }
  signal(SIGALRM, out_of_time);
  signal(SIGPIPE, SIG_IGN);
  alarm(limit);
  for (const Test& test : tests) {
    if (test.name == name) return run_test(test, run);
  }
  fmt::print(stderr, "there is no test {}\n", name);
  return 2;
}
