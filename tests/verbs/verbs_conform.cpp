// SPDX-License-Identifier: BSD-3-Clause
// verbs_conform: asks an adapter, through whatever libibverbs it finds, how it behaves, and prints
// the table of its answers. It judges nothing: tests/verbs/conformance.py compares the tables.
//
//   verbs_conform [--device NAME] [--gid-index N] [--only TEXT]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "tests/verbs/cases.h"

int main(int argc, char** argv) {
  using namespace turnout::conform;
  CLI::App app("prints how an adapter behaves: one line a case, its name and the outcome");
  Choice choice;
  std::string only;
  app.add_option("--device", choice.device, "adapter; default: the first with an active port");
  app.add_option("--gid-index", choice.gid_index,
                 "which of the port's GIDs; default: that of IPv4");
  app.add_option("--only", only, "cases whose name has this in it");
  CLI11_PARSE(app, argc, argv);
  int asked = 0;
  for (const auto& topic :
       {state_cases(), operation_cases(), protection_cases(), connection_cases(), queue_cases(),
        datagram_cases(), window_cases(), event_cases()}) {
    for (const Case& one : topic) {
      if (one.name.find(only) == std::string::npos) continue;
      std::string outcome;
      try {
        Bed bed(choice);
        outcome = one.ask(bed);
      } catch (const Cannot& cannot) {
        outcome = fmt::format("cannot: {}", cannot.what());
      }
      fmt::print("{}\t{}\n", one.name, outcome);
      std::fflush(stdout);
      ++asked;
    }
  }
  if (asked == 0) fmt::print(stderr, "no case has '{}' in its name\n", only);
  return asked == 0 ? 2 : 0;
}
