// SPDX-License-Identifier: BSD-3-Clause
// Simulation: ranks as coroutines over Turnout's real endpoints on the virtual engine.
//
// run() executes the program and returns the outcome. Deterministic: equal options and programs
// give equal results, including the event hash. One simulation at a time in a process; one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "core/report/report.h"
#include "core/types/simulation_hooks.h"
#include "hca/virtual/world.h"
#include "sim/runtime/rank.h"

namespace turnout::sim {

// What a program does; see Options::step.
struct ProgramStep {
  enum class Kind : std::uint8_t { send, receive, put, get, add, wait, compute };
  Kind kind = Kind::compute;
  std::uint32_t peer = 0;     // kAnySource; of the wait for a receive: the source
  std::uint64_t tag = 0;      // the same
  std::uint64_t amount = 0;   // bytes; picoseconds of a compute
  std::uint32_t request = 0;  // that began, or was waited for
};

struct Options {
  std::uint32_t ranks = 2;
  std::uint32_t ranks_per_node = 1;
  std::uint64_t seed = 1;
  hca::Profile profile;
  // Settings of Turnout by name, as in settings.def ("policy", "memory_budget", ...).
  std::vector<std::pair<std::string, std::string>> settings;
  bool check_content = true;  // generate and compare every byte
  bool keep_reports = true;   // Outcome::reports; much memory for many ranks
  bool keep_latencies = true;
  bool keep_partners = false;  // Outcome::partners
  // Ranks begin at times drawn from the seed, at most so far apart: no job starts in step.
  Picoseconds start_spread = hca::kMicrosecond;
  // From the exchange of addresses to the begin of the programs: endpoints make progress meanwhile,
  // as in the rest of MPI_Init and while a program reads its input.
  Picoseconds start_after = 0;
  Picoseconds time_limit = 0;  // virtual; 0: none
  // Ranks killed as by SIGKILL, and when (after the start of the programs).
  std::vector<std::pair<std::uint32_t, Picoseconds>> kills;
  // A rank whose operation fails ends alone and the others go on: Outcome::errors. Else run()
  // fails.
  bool go_on_after_errors = false;
  // The channel of each direction, asked for at its first message instead of what the policy would
  // ask for then; empty: the policy's. For policies that change nothing later (static:...).
  std::function<ChannelKind(std::uint32_t source, std::uint32_t destination)> first_channel;
  // What endpoints keep their statistics in; empty: the core's.
  StatisticsFactory make_statistics;
  // As with ARMCI's data servers [ACTS III]: the first rank of each node has no max_conn and room
  // for everyone, and RC connections are made with such ranks only. Outcome::clients has the
  // others.
  bool data_servers = false;
  bool prepares = false;      // PolicyOverride::prepares
  bool flow_control = false;  // PolicyOverride::flow_control
  // Called now and then in real time: ranks that have ended, virtual time, events so far.
  std::function<void(std::uint32_t ended, Picoseconds now, std::uint64_t events)> progress;
  std::function<void(const hca::Trace&)> trace;
  // Called for each operation that a program has started or waited for, and each computation, in
  // the order of each rank; may be empty.
  std::function<void(std::uint32_t rank, const ProgramStep& step)> step;
  // Called once for every rank that was not killed, at its very end, also when the run fails.
  std::function<void(std::uint32_t rank, const EndpointReport& report)> examine;
};

struct MemoryByKind {
  std::string kind;
  std::uint64_t largest = 0;  // peak of one rank, bytes
  std::uint64_t sum = 0;      // of all ranks' peaks
};

struct Channels {
  std::string channel;  // "dc-sendrecv", "rc-rdma", ...
  std::uint64_t messages = 0, bytes = 0;
};

// Of the ranks that are no data servers.
struct Clients {
  std::uint64_t ranks = 0;
  std::uint64_t made = 0, made_most = 0;  // connections: of all of them, and of one at most
  std::uint64_t rc_peak = 0;              // RC queue pairs of one at one time, at most
  std::uint64_t queue_pairs = 0;          // bytes of one's queue pairs at their peak, at most
};

// What ranks had to receive messages with: receive buffers and rings.
struct Receiving {
  std::uint64_t ranks = 0;
  std::uint64_t largest = 0, sum = 0;  // bytes of one rank at their peaks, at most, and of all
  std::uint64_t others = 0;            // bytes of everything else of one rank, at most
  std::uint64_t rings = 0;             // that were used at some time, of all ranks
  std::uint64_t sources = 0;           // peers that sent to one rank, at most
  std::uint64_t limit_events = 0, growths = 0, rnr_naks = 0;  // of shared queues, of all ranks
};

struct Outcome {
  Picoseconds time = 0;            // when the last rank's program ended
  std::vector<Picoseconds> ended;  // by rank
  std::uint64_t messages = 0, bytes = 0;
  // From the start of a send to the end of its receive, of messages whose receive was waited for;
  // sorted. Empty without keep_latencies.
  std::vector<Picoseconds> latencies;
  std::vector<Channels> channels;    // messages sent, by channel
  std::uint64_t switches = 0;        // changes of channel
  Picoseconds first_rc = -1;         // when the first direction went over RC; -1: none did
  std::uint64_t rc_connections = 0;  // RC queue pairs alive at the end, all ranks
  std::uint64_t peers = 0;           // records of peers, all ranks
  ConnectionsReport connections;     // sums over all ranks; of time_most the largest
  std::uint64_t rc_peak = 0;         // RC queue pairs of a rank at one time, at most
  Clients clients;                   // zeros without data servers
  Receiving receiving;
  std::vector<MemoryByKind> memory;  // against budget
  std::uint64_t memory_peak = 0;     // of the largest rank
  std::uint64_t budget = 0;
  std::vector<std::pair<std::uint32_t, std::string>> errors;  // ranks that ended so, in that order
  hca::WorldStatistics world;
  double real_seconds = 0;           // of playing the programs, without setting up and tearing down
  std::uint64_t bytes_per_rank = 0;  // real memory of this process, per rank
  std::vector<EndpointReport> reports;  // by rank, with keep_reports
  // Messages sent, by (source, destination); with keep_reports.
  std::vector<std::pair<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t>> pairs;
  // By rank: to whom it sent, or whose memory it reached, in the order in which it began to, never
  // one twice in a row; with keep_partners. What sim/analysis/victim_bound.h wants.
  std::vector<std::vector<std::uint32_t>> partners;
};

// Errors: invalid (options, settings), no_device (the virtual adapter's library), or what a rank
// threw, with its number and the virtual time.
[[nodiscard]] Result<Outcome> run(const Options& options, const Program& program);

}  // namespace turnout::sim
