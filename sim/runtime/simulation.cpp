// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/simulation.h"

#include <fmt/format.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>

#include "core/memory/account.h"
#include "sim/runtime/rank_state.h"
#include "sim/runtime/virtual_world.h"

namespace turnout::sim {
namespace {

// Virtual time in which no rank goes on: the program waits for what will not come.
constexpr Picoseconds kHang = 120 * hca::kSecond;

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t total = 0, resident = 0;
  if (!(file >> total >> resident)) return 0;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

// Thousands of processes' buffers come from one heap, not from a mapping each; where there is room,
// from large pages: a world is looked at all over, and page tables would be half of the time.
void prepare_heap(std::uint32_t ranks) {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  constexpr std::uint64_t kPerRank = std::uint64_t{2} << 20;  // with what large pages waste
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  const std::uint64_t available = static_cast<std::uint64_t>(sysconf(_SC_AVPHYS_PAGES)) * page;
  if (ranks * kPerRank > available / 2) return;
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, static_cast<int>(std::min<std::uint64_t>(ranks * kPerRank, INT_MAX)));
  void* const inside = std::malloc(std::size_t{1} << 20);  // makes the heap grow
  constexpr std::uintptr_t kLarge = std::uintptr_t{2} << 20;
  const auto begin = (reinterpret_cast<std::uintptr_t>(inside) + kLarge - 1) / kLarge * kLarge;
  const auto end = reinterpret_cast<std::uintptr_t>(sbrk(0)) / kLarge * kLarge;
  // With another allocator there is nothing between the two: then it stays as it is.
  if (inside != nullptr && end > begin && end - begin < ranks * kPerRank + (kLarge << 6)) {
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
  }
  std::free(inside);
  mallopt(M_TOP_PAD, 1 << 20);
}

hca::WorldOptions world_options(const Options& options) {
  return {options.profile, options.seed,
          (options.ranks + options.ranks_per_node - 1) / options.ranks_per_node};
}

void add_client(const EndpointReport& report, Clients* clients) {
  ++clients->ranks;
  clients->made += report.connections.made;
  clients->made_most = std::max(clients->made_most, report.connections.made);
  clients->rc_peak = std::max(clients->rc_peak, report.rc_queue_pairs_peak);
  for (const MemoryLine& line : report.memory) {
    if (line.kind != name(MemoryKind::queue_pairs)) continue;
    clients->queue_pairs = std::max(clients->queue_pairs, line.peak);
  }
}

void add_receiving(const EndpointReport& report, Receiving* all) {
  ++all->ranks;
  std::uint64_t buffers = 0, others = 0;
  for (const MemoryLine& line : report.memory) {
    const bool receives =
        line.kind == name(MemoryKind::receive_buffers) || line.kind == name(MemoryKind::rings);
    (receives ? buffers : others) += line.peak;
  }
  all->largest = std::max(all->largest, buffers);
  all->sum += buffers;
  all->others = std::max(all->others, others);
  std::uint64_t sources = 0;
  for (const PeerReport& peer : report.peers) {
    const auto& spans = peer.receive.spans;
    sources += spans.empty() ? 0 : 1;
    all->rings += std::any_of(spans.begin(), spans.end(),
                              [](const ChannelSpan& span) { return over_ring(span.channel); })
                      ? 1
                      : 0;
  }
  all->sources = std::max(all->sources, sources);
  all->limit_events += report.shared_receives.limit_events;
  all->growths += report.shared_receives.growths;
  all->rnr_naks += report.shared_receives.rnr_naks;
}

// With what only the adapter knows.
EndpointReport report_of(const SimulationState& shared, RankState& rank) {
  EndpointReport report = rank.endpoint()->report();
  report.shared_receives.rnr_naks = shared.job.world.rnr_waits(rank.id());
  return report;
}

// `ready` is when the programs began.
void collect(SimulationState& shared, Picoseconds ready, Outcome* outcome) {
  std::map<std::string, MemoryByKind> memory;
  std::map<std::string, Channels> channels;
  for (auto& rank : shared.ranks) {
    if (rank->endpoint() == nullptr || rank->killed()) {
      if (shared.job.options.keep_reports) outcome->reports.emplace_back();
      continue;
    }
    EndpointReport report = report_of(shared, *rank);
    outcome->peers += report.peers.size();
    const Picoseconds born =  // after the start of the programs; below 0
        shared.job.world.process_time() - report.lifetime * hca::kNanosecond - ready;
    outcome->memory_peak = std::max(outcome->memory_peak, report.peak);
    outcome->budget = report.budget;
    outcome->connections.add(report.connections);
    outcome->rc_peak = std::max(outcome->rc_peak, report.rc_queue_pairs_peak);
    if (shared.job.options.data_servers && !serves(shared.job.options, rank->id())) {
      add_client(report, &outcome->clients);
    }
    add_receiving(report, &outcome->receiving);
    for (const MemoryLine& line : report.memory) {
      MemoryByKind& kind = memory[line.kind];
      kind.kind = line.kind;
      kind.largest = std::max(kind.largest, line.peak);
      kind.sum += line.peak;
    }
    for (const PeerReport& peer : report.peers) {
      std::uint64_t sent = 0;
      for (const ChannelSpan& span : peer.send.spans) {
        Channels& channel = channels[std::string(name(span.channel))];
        channel.channel = name(span.channel);
        channel.messages += span.messages;
        channel.bytes += span.bytes;
        sent += span.messages;
      }
      outcome->switches += peer.receive.switches;
      for (const ChannelSpan& span : peer.receive.spans) {
        if (span.channel != ChannelKind::rc_rdma) continue;
        const Picoseconds at = std::max<Picoseconds>(born + span.since * hca::kNanosecond, 0);
        if (outcome->first_rc < 0 || at < outcome->first_rc) outcome->first_rc = at;
        break;
      }
      if (shared.job.options.keep_reports && sent > 0) {
        outcome->pairs.push_back(
            {{rank->id(), rank_of(rank->endpoint()->endpoint_id(peer.peer))}, sent});
      }
    }
    if (shared.job.options.keep_reports) outcome->reports.push_back(std::move(report));
  }
  for (auto& [name, kind] : memory) outcome->memory.push_back(std::move(kind));
  for (auto& [name, channel] : channels) outcome->channels.push_back(std::move(channel));
}

std::string hang_text(const SimulationState& shared) {
  std::string text = "deadlock:";
  int shown = 0;
  for (const auto& rank : shared.ranks) {
    if (rank->ended()) continue;
    if (++shown > 5) {
      text += " ...";
      break;
    }
    text += fmt::format(" rank {} waits for {};", rank->id(), rank->waiting_for());
  }
  return text + " a send above rendezvous_threshold ends only after its receive is posted";
}

// Plays events until `done` holds. Empty: it does; else why not.
template <class Done>
std::string play(SimulationState& shared, Done&& done) {
  const Options& options = shared.job.options;
  hca::World& world = shared.job.world;
  std::uint64_t count = 0;
  while (!done()) {
    if (!shared.error.empty()) return shared.error;
    if (!world.run_one()) return hang_text(shared);
    if (options.time_limit > 0 && world.now() > options.time_limit) {
      return fmt::format("virtual time limit of {} us exceeded; {} of {} ranks have exited",
                         options.time_limit / hca::kMicrosecond, shared.ended, options.ranks);
    }
    if ((++count & 0xffff) == 0) {
      if (options.progress) options.progress(shared.ended, world.now(), world.statistics().events);
      if (world.now() - shared.last_step > kHang) return hang_text(shared);
    }
  }
  return {};
}

}  // namespace

Result<Outcome> run(const Options& options, const Program& program) {
  if (options.ranks == 0 || options.ranks > (1U << 24) || options.ranks_per_node == 0) {
    return Status{Code::invalid,
                  fmt::format("{} ranks, {} per node: expected at least one, at most 2^24",
                              options.ranks, options.ranks_per_node)};
  }
  auto settings = rank_settings(options);
  if (!settings) return settings.status();
  const std::string& way = settings.value().ranks.rendezvous;
  if (!options.check_content && way != "getcqe" && way != "rput") {
    return Status{Code::invalid,
                  fmt::format("rendezvous = {} needs the content of messages, which --no-check "
                              "leaves out; drop --no-check, or use getcqe or rput",
                              way)};
  }
  prepare_heap(options.ranks);
  const std::uint64_t before = resident_bytes();
  auto made = create_world(world_options(options), settings.value().ranks);
  if (!made) return made.status();

  hca::World& world = *made.value();
  SimulationState shared(options, world, std::move(settings).value());
  if (UncheckedMemory& memory = shared.job.unchecked;
      !options.check_content && (memory.of(UncheckedMemory::source) == nullptr ||
                                 memory.of(UncheckedMemory::sink) == nullptr)) {
    return Status{Code::system, "no memory for the content of messages"};
  }
  if (options.trace) world.set_trace(options.trace);
  Status failed;
  Picoseconds ready = 0;
  constexpr std::uint32_t kTell = 256;  // some milliseconds
  for (std::uint32_t id = 0; id < options.ranks && failed.ok(); ++id) {
    if (id % kTell == 0 && options.progress) {
      options.progress(0, world.now(), world.statistics().events);
    }
    shared.ranks.push_back(std::make_unique<RankState>(shared, id));
    (void)world.add_process(
        id / options.ranks_per_node,
        [](void* context, std::uint64_t process) {
          static_cast<SimulationState*>(context)->ranks[process]->wake();
        },
        &shared);
    world.enter(id);
    failed = shared.ranks.back()->open();
    ready = std::max(ready, world.process_time());
    if (failed.ok()) shared.job.addresses.push_back(shared.ranks.back()->endpoint()->address());
  }
  Outcome outcome;
  std::string error;
  if (failed.ok()) {
    // As MPI_Init ends: everybody knows everybody's address.
    const Picoseconds known = ready;
    if (options.start_after > 0) ready += options.start_after;
    for (auto& rank : shared.ranks) {
      rank->create_program(program, options.start_after > 0 ? ready : 0);
      const Picoseconds apart =
          options.start_spread > 0
              ? static_cast<Picoseconds>(world.random() %
                                         static_cast<std::uint64_t>(options.start_spread))
              : 0;
      rank->scheduler().wake_at(known + apart);
    }
    for (const auto& [rank, time] : options.kills) {
      if (rank >= options.ranks) continue;
      world.at(
          ready + time, [](void* self, std::uint64_t) { static_cast<RankState*>(self)->kill(); },
          shared.ranks[rank].get(), 0);
    }
    shared.last_step = ready;
    const std::uint64_t at_start = world.statistics().qps_alive;
    const auto begun = std::chrono::steady_clock::now();
    error = play(shared, [&] { return shared.ended == options.ranks; });
    outcome.real_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    outcome.world = world.statistics();
    outcome.time = *std::max_element(shared.ended_at.begin(), shared.ended_at.end()) - ready;
    if (outcome.time < 0) outcome.time = 0;
    for (const Picoseconds at : shared.ended_at) outcome.ended.push_back(at > 0 ? at - ready : 0);
    outcome.bytes_per_rank = (resident_bytes() - before) / options.ranks;
    outcome.rc_connections = outcome.world.qps_alive - at_start;
    collect(shared, ready, &outcome);
    if (options.keep_partners) {
      for (auto& rank : shared.ranks)
        outcome.partners.push_back(std::move(rank->operations().partners()));
    }
    if (error.empty()) {
      for (auto& rank : shared.ranks) rank->begin_close();
      shared.last_step = world.now();
      error = play(shared, [&] { return shared.closed == options.ranks; });
    }
  }
  for (auto& rank : shared.ranks) {
    if (options.examine && rank->endpoint() != nullptr && !rank->killed()) {
      options.examine(rank->id(), report_of(shared, *rank));
    }
    if (rank->endpoint() != nullptr && !rank->closed()) rank->endpoint()->abandon();
    rank->release();
  }
  // Every queue pair and region was given back.
  outcome.world.qps_alive = world.statistics().qps_alive;
  outcome.world.regions_alive = world.statistics().regions_alive;
  if (!failed.ok()) return failed;
  if (!error.empty()) return Status{Code::system, std::move(error)};
  outcome.errors = std::move(shared.errors);
  outcome.messages = shared.job.messages;
  outcome.bytes = shared.job.bytes;
  outcome.latencies = shared.job.latencies.take_sorted();
  return outcome;
}

}  // namespace turnout::sim
