// SPDX-License-Identifier: BSD-3-Clause
#include "sim/calibration/verbs_bench.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "sim/calibration/verbs_process.h"
#include "sim/runtime/virtual_world.h"

namespace turnout::sim {

namespace {

constexpr std::uint32_t kWarmup = 20, kTrips = 100;
constexpr std::uint32_t kGrh = 40;  // in front of a datagram
constexpr std::uint32_t kDepth = 16;
// Queue pairs of one target: so few that its adapter holds all their contexts.
constexpr std::uint32_t kPerTarget = 16;
constexpr std::uint32_t kFewestWrites = 4096;  // of a round

double nanoseconds(hca::Picoseconds time) {
  return static_cast<double>(time) / static_cast<double>(hca::kNanosecond);
}

// The processes of a benchmark, each on the node given with it.
class Stage {
 public:
  Status open(const hca::Profile& profile, std::uint32_t nodes) {
    Result<Settings> settings = virtual_settings();
    if (!settings) return settings.status();
    settings_ = std::move(settings).value();
    auto world = create_world({profile, 1, nodes}, settings_);
    if (!world) return world.status();
    world_ = std::move(world).value();
    return {};
  }
  ~Stage() { processes_.clear(); }

  Status add(std::uint32_t node, std::size_t bytes, VerbsProcess** out) {
    auto made = VerbsProcess::create(*world_, node, settings_, bytes);
    if (!made) return made.status();
    processes_.push_back(std::move(made).value());
    *out = processes_.back().get();
    return {};
  }
  [[nodiscard]] hca::World& world() { return *world_; }

 private:
  Settings settings_ = Settings::defaults();
  std::unique_ptr<hca::World> world_;
  std::vector<std::unique_ptr<VerbsProcess>> processes_;
};

Status connect(VerbsProcess& a, VerbsProcess& b, std::uint32_t depth, ibv_qp** at_a,
               ibv_qp** at_b) {
  Status s = a.make_rc(depth, at_a);
  if (s.ok()) s = b.make_rc(depth, at_b);
  if (s.ok()) s = a.connect(*at_a, (*at_b)->qp_num);
  if (s.ok()) s = b.connect(*at_b, (*at_a)->qp_num);
  return s;
}

// Two processes on two nodes, with a queue pair each.
struct Pair {
  Stage stage;
  VerbsProcess* side[2] = {};
  ibv_qp* qp[2] = {};

  Status open(const hca::Profile& profile, VerbsTransport transport, std::size_t bytes) {
    if (Status s = stage.open(profile, 2); !s.ok()) return s;
    for (std::uint32_t i = 0; i < 2; ++i) {
      if (Status s = stage.add(i, bytes, &side[i]); !s.ok()) return s;
    }
    if (transport == VerbsTransport::rc) return connect(*side[0], *side[1], kDepth, &qp[0], &qp[1]);
    Status s = side[0]->make_ud(kDepth, &qp[0]);
    return s.ok() ? side[1]->make_ud(kDepth, &qp[1]) : s;
  }
};

// Runs `step` for warm-up and trips; the mean time of a timed one.
template <class Step>
Result<double> timed(hca::World& world, VerbsProcess& first, Step&& step) {
  hca::Picoseconds begin = 0;
  for (std::uint32_t i = 0; i < kWarmup + kTrips; ++i) {
    first.enter();
    if (i == kWarmup) begin = world.process_time();
    if (Status s = step(i); !s.ok()) return s;
  }
  first.enter();
  return nanoseconds(world.process_time() - begin) / kTrips;
}

}  // namespace

Result<double> send_latency(const hca::Profile& profile, VerbsTransport transport,
                            std::uint32_t bytes, bool inlined) {
  Pair pair;
  if (Status s = pair.open(profile, transport, bytes + kGrh); !s.ok()) return s;
  for (std::size_t i = 0; i < 2; ++i) {
    pair.side[i]->enter();
    if (Status s = pair.side[i]->post_receive(pair.qp[i]); !s.ok()) return s;
  }
  const Result<double> trip = timed(pair.stage.world(), *pair.side[0], [&](std::uint32_t) {
    Status s;
    for (std::size_t i = 0; s.ok() && i < 2; ++i) {
      VerbsProcess& from = *pair.side[i];
      VerbsProcess& to = *pair.side[1 - i];
      VerbsProcess::Request request{IBV_WR_SEND, bytes, inlined};
      if (transport == VerbsTransport::ud) request.datagram_to = pair.qp[1 - i]->qp_num;
      from.enter();
      s = from.post(pair.qp[i], to, request);
      if (s.ok()) s = to.wait(IBV_WC_RECV);
      if (s.ok()) s = to.post_receive(pair.qp[1 - i]);
    }
    return s;
  });
  if (!trip) return trip;
  return trip.value() / 2;
}

Result<double> write_latency(const hca::Profile& profile, std::uint32_t bytes, bool inlined) {
  Pair pair;
  // What is sent and what came do not share a place.
  if (Status s = pair.open(profile, VerbsTransport::rc, std::size_t{2} * bytes); !s.ok()) return s;
  const Result<double> trip = timed(pair.stage.world(), *pair.side[0], [&](std::uint32_t round) {
    for (std::size_t i = 0; i < 2; ++i) {
      VerbsProcess& from = *pair.side[i];
      VerbsProcess& to = *pair.side[1 - i];
      const auto value = static_cast<std::uint16_t>(round + 1);
      std::memcpy(from.buffer().data(), &value, sizeof value);
      from.enter();
      // Completions that came meanwhile: perftest takes them while it waits.
      ibv_wc entry;
      for (bool more = true; more;) {
        const Result<bool> taken = from.take(&entry);
        if (!taken) return taken.status();
        more = taken.value();
      }
      Status s = from.post(pair.qp[i], to, {IBV_WR_RDMA_WRITE, bytes, inlined, 0, bytes});
      if (!s.ok()) return s;
      while (std::memcmp(to.buffer().data() + bytes, &value, sizeof value) != 0) {
        if (!pair.stage.world().run_one()) {
          return Status{Code::internal, "benchmark failed: a write did not arrive"};
        }
      }
      to.enter();
    }
    return Status();
  });
  if (!trip) return trip;
  return trip.value() / 2;
}

Result<double> read_latency(const hca::Profile& profile, std::uint32_t bytes) {
  Pair pair;
  if (Status s = pair.open(profile, VerbsTransport::rc, bytes); !s.ok()) return s;
  return timed(pair.stage.world(), *pair.side[0], [&](std::uint32_t) {
    Status s = pair.side[0]->post(pair.qp[0], *pair.side[1], {IBV_WR_RDMA_READ, bytes});
    return s.ok() ? pair.side[0]->wait(IBV_WC_RDMA_READ) : s;
  });
}

Result<double> dc_read_latency(const hca::Profile& profile, std::uint32_t targets) {
  constexpr std::uint32_t kBytes = 8;
  Stage stage;
  if (Status s = stage.open(profile, 1 + targets); !s.ok()) return s;
  VerbsProcess* reader = nullptr;
  if (Status s = stage.add(0, kBytes, &reader); !s.ok()) return s;
  if (Status s = reader->make_dc_initiator(); !s.ok()) return s;
  std::vector<VerbsProcess*> all(targets);
  for (std::uint32_t i = 0; i < targets; ++i) {
    if (Status s = stage.add(1 + i, kBytes, &all[i]); !s.ok()) return s;
    if (Status s = all[i]->make_dc_target(); !s.ok()) return s;
  }
  return timed(stage.world(), *reader, [&](std::uint32_t i) {
    Status s = reader->read_dc(*all[i % targets], kBytes);
    return s.ok() ? reader->wait(IBV_WC_RDMA_READ) : s;
  });
}

Result<std::vector<double>> write_times(const hca::Profile& profile, const WriteStreams& streams) {
  struct Sender {
    VerbsProcess* process = nullptr;
    std::vector<std::pair<ibv_qp*, VerbsProcess*>> queues;
    std::size_t next = 0;
    std::uint32_t under_way = 0;
  };
  const std::uint32_t targets = (streams.queue_pairs + kPerTarget - 1) / kPerTarget;
  Stage stage;
  if (Status s = stage.open(profile, 1 + targets); !s.ok()) return s;
  std::vector<Sender> senders(streams.processes);
  for (Sender& sender : senders) {
    if (Status s = stage.add(0, streams.bytes, &sender.process); !s.ok()) return s;
  }
  std::vector<VerbsProcess*> receivers(targets);
  for (std::uint32_t i = 0; i < targets; ++i) {
    if (Status s = stage.add(1 + i, streams.bytes, &receivers[i]); !s.ok()) return s;
  }
  for (std::uint32_t i = 0; i < streams.queue_pairs; ++i) {
    Sender& sender = senders[i % streams.processes];
    VerbsProcess& receiver = *receivers[i % targets];
    ibv_qp *here = nullptr, *there = nullptr;
    if (Status s = connect(*sender.process, receiver, streams.under_way, &here, &there); !s.ok()) {
      return s;
    }
    sender.queues.emplace_back(here, &receiver);
  }
  // All begin together: those that began alone would keep their writes side by side, and the same
  // contexts in the adapter, for ever.
  hca::Picoseconds start = 0;
  for (Sender& sender : senders) {
    sender.process->enter();
    start = std::max(start, stage.world().process_time());
  }
  for (Sender& sender : senders) {
    sender.process->enter();
    stage.world().charge(start - stage.world().process_time());
  }
  const VerbsProcess::Request request{IBV_WR_RDMA_WRITE, streams.bytes, true};
  std::uint64_t completed = 0;
  const auto step = [&](Sender& sender) -> Status {
    sender.process->woken = false;
    sender.process->enter();
    ibv_wc entry;
    for (;;) {
      const Result<bool> taken = sender.process->take(&entry);
      if (!taken) return taken.status();
      if (!taken.value()) break;
      --sender.under_way;
      ++completed;
    }
    for (; sender.under_way < streams.under_way; ++sender.under_way) {
      const auto& [qp, target] = sender.queues[sender.next++ % sender.queues.size()];
      if (Status s = sender.process->post(qp, *target, request); !s.ok()) return s;
    }
    return {};
  };
  // Whole turns over all queue pairs.
  const std::uint64_t turns = (kFewestWrites + streams.queue_pairs - 1) / streams.queue_pairs;
  const std::uint64_t round = std::max<std::uint64_t>(turns, 2) * streams.queue_pairs;
  std::vector<double> times;
  hca::Picoseconds begin = 0;
  for (Sender& sender : senders) sender.process->woken = true;
  for (std::uint64_t ends = round; times.size() < streams.rounds;) {
    for (Sender& sender : senders) {
      if (!sender.process->woken) continue;
      if (Status s = step(sender); !s.ok()) return s;
    }
    if (completed >= ends) {  // the first round warms up
      const hca::Picoseconds now = stage.world().now();
      if (ends > round) times.push_back(nanoseconds(now - begin) / static_cast<double>(round));
      begin = now;
      ends += round;
    }
    if (!stage.world().run_one()) {
      return Status{Code::internal, "benchmark failed: a completion did not come"};
    }
  }
  return times;
}

}  // namespace turnout::sim
