// SPDX-License-Identifier: BSD-3-Clause
#include "sim/calibration/verbs_bench.h"

#include <fmt/format.h>
#include <infiniband/verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "base/settings.h"
#include "core/transport/dc_queue.h"
#include "core/verbs/device.h"
#include "core/verbs/handles.h"
#include "hca/virtual/world.h"
#include "sim/runtime/virtual_world.h"

namespace turnout::sim {
namespace {

constexpr unsigned kRights =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr std::uint64_t kDcKey = 1;
constexpr std::uint32_t kQkey = 1;
constexpr std::uint32_t kInline = 256;  // as perftest's default on these adapters, about
constexpr std::uint32_t kDcDepth = 64;
constexpr int kCompletions = 1024;
constexpr std::uint8_t kReadsUnderWay = 16;
constexpr std::uint8_t kTimeout = 14, kRetries = 7, kRnrTimer = 1;  // IBTA codes

// VerbsProcess: a process of a world that calls verbs itself, without the messaging core: its
// adapter, one registered buffer, queue pairs, one completion queue.
//
// Owned by the benchmark, destroyed before the world. One thread; verbs are called for the process
// that was entered last (World::enter). Errors: those of the verbs, in words.
class VerbsProcess {
 public:
  // `bytes`: of the buffer.
  static Result<std::unique_ptr<VerbsProcess>> create(hca::World& world, std::uint32_t node,
                                                      const Settings& settings, std::size_t bytes) {
    std::unique_ptr<VerbsProcess> p(new VerbsProcess(world));
    p->index_ = world.add_process(
        node, [](void* self, std::uint64_t) { static_cast<VerbsProcess*>(self)->woken = true; },
        p.get());
    p->enter();
    auto device = verbs::Device::open(settings);
    if (!device) return device.status();
    p->device_ = std::move(device).value();
    p->cq_.reset(ibv_create_cq(p->device_->context(), kCompletions, nullptr, nullptr, 0));
    if (p->cq_ == nullptr) return verbs::failure("ibv_create_cq", p->device_->name(), errno);
    p->buffer_.resize(bytes);
    p->region_.reset((ibv_reg_mr)(p->device_->pd(), p->buffer_.data(), bytes, kRights));
    if (p->region_ == nullptr) return verbs::failure("ibv_reg_mr", p->device_->name(), errno);
    ibv_ah_attr path{};
    path.port_num = 1;
    p->ah_.reset(ibv_create_ah(p->device_->pd(), &path));
    if (p->ah_ == nullptr) return verbs::failure("ibv_create_ah", p->device_->name(), errno);
    return p;
  }
  VerbsProcess(const VerbsProcess&) = delete;
  VerbsProcess& operator=(const VerbsProcess&) = delete;

  void enter() { world_.enter(index_); }

  // RC: to be connected. UD: ready to send. At most `depth` requests and receives under way.
  [[nodiscard]] Status make_rc(std::uint32_t depth, ibv_qp** out) {
    return make(IBV_QPT_RC, depth, out);
  }

  Status connect(ibv_qp* qp, std::uint32_t peer) {
    enter();
    ibv_qp_attr change{};
    change.qp_state = IBV_QPS_INIT;
    change.port_num = 1;
    change.qp_access_flags = kRights;
    int error = ibv_modify_qp(qp, &change,
                              IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    change.qp_state = IBV_QPS_RTR;
    change.path_mtu = IBV_MTU_4096;
    change.dest_qp_num = peer;
    change.max_dest_rd_atomic = change.max_rd_atomic = kReadsUnderWay;
    change.min_rnr_timer = kRnrTimer;
    change.ah_attr.port_num = 1;
    if (error == 0) {
      error = ibv_modify_qp(qp, &change,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    }
    change.qp_state = IBV_QPS_RTS;
    change.timeout = kTimeout;
    change.retry_cnt = change.rnr_retry = kRetries;
    if (error == 0) {
      error = ibv_modify_qp(qp, &change,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    }
    return error == 0 ? Status() : verbs::failure("ibv_modify_qp", device_->name(), error);
  }

  Status make_ud(std::uint32_t depth, ibv_qp** out) {
    if (Status s = make(IBV_QPT_UD, depth, out); !s.ok()) return s;
    ibv_qp* const qp = *out;
    ibv_qp_attr change{};
    change.qp_state = IBV_QPS_INIT;
    change.port_num = 1;
    change.qkey = kQkey;
    int error =
        ibv_modify_qp(qp, &change, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    change.qp_state = IBV_QPS_RTR;
    if (error == 0) error = ibv_modify_qp(qp, &change, IBV_QP_STATE);
    change.qp_state = IBV_QPS_RTS;
    if (error == 0) error = ibv_modify_qp(qp, &change, IBV_QP_STATE | IBV_QP_SQ_PSN);
    return error == 0 ? Status() : verbs::failure("ibv_modify_qp", device_->name(), error);
  }
  Status make_dc_target() {
    enter();
    ibv_srq_init_attr attr{};
    attr.attr.max_wr = attr.attr.max_sge = 1;
    srq_.reset(ibv_create_srq(device_->pd(), &attr));
    if (srq_ == nullptr) return verbs::failure("ibv_create_srq", device_->name(), errno);
    dc_target_ = std::make_unique<DcTarget>();
    return dc_target_->create(*device_, cq_.get(), srq_.get(), kDcKey);
  }
  Status make_dc_initiator() {
    enter();
    dc_initiator_ = std::make_unique<DcInitiator>(0, kDcDepth, buffers_);
    return dc_initiator_->create(*device_, cq_.get(), kDcDepth, QpTuning{});
  }

  struct Request {
    ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
    std::uint32_t bytes = 8;  // from the begin of the buffer
    bool inlined = false;
    std::uint32_t datagram_to = 0;  // UD: number of the queue pair
    std::uint32_t at = 0;           // where in the target's buffer
  };
  Status post(ibv_qp* qp, const VerbsProcess& target, const Request& request) {
    ibv_sge piece{reinterpret_cast<std::uint64_t>(buffer_.data()), request.bytes, region_->lkey};
    ibv_send_wr wr{};
    wr.sg_list = &piece;
    wr.num_sge = 1;
    wr.opcode = request.opcode;
    wr.send_flags =
        IBV_SEND_SIGNALED | (request.inlined ? static_cast<unsigned>(IBV_SEND_INLINE) : 0U);
    if (request.datagram_to != 0) {
      wr.wr.ud = {ah_.get(), request.datagram_to, kQkey};
    } else {
      wr.wr.rdma = {reinterpret_cast<std::uint64_t>(target.buffer_.data()) + request.at,
                    target.region_->rkey};
    }
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(qp, &wr, &bad);
    return error == 0 ? Status() : verbs::failure("ibv_post_send", device_->name(), error);
  }
  // Over the DC initiator, to the target's DC target.
  Status read_dc(const VerbsProcess& target, std::uint32_t bytes) {
    SendRecord record;
    record.kind = SendRecord::Kind::transfer;
    record.opcode = IBV_WR_RDMA_READ;
    record.local = reinterpret_cast<std::uint64_t>(buffer_.data());
    record.lkey = region_->lkey;
    record.length = bytes;
    record.remote = reinterpret_cast<std::uint64_t>(target.buffer_.data());
    record.rkey = target.region_->rkey;
    record.dct = target.dc_target_->number();
    record.ah = ah_.get();
    record.dc_key = kDcKey;
    return dc_initiator_->post(record);
  }
  Status post_receive(ibv_qp* qp) {
    ibv_sge piece{reinterpret_cast<std::uint64_t>(buffer_.data()),
                  static_cast<std::uint32_t>(buffer_.size()), region_->lkey};
    ibv_recv_wr wr{};
    wr.sg_list = &piece;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    const int error = ibv_post_recv(qp, &wr, &bad);
    return error == 0 ? Status() : verbs::failure("ibv_post_recv", device_->name(), error);
  }

  // The next completion; false: there is none. Errors: what the completion says.
  Result<bool> take(ibv_wc* entry) {
    if (ibv_poll_cq(cq_.get(), 1, entry) != 1) return false;
    if (entry->status != IBV_WC_SUCCESS) {
      return Status{Code::internal, fmt::format("work request failed: {}: {}", device_->name(),
                                                ibv_wc_status_str(entry->status))};
    }
    if (dc_initiator_ != nullptr) {
      dc_initiator_->retire(entry->wr_id, true, [](const SendRecord&) {});
    }
    return true;
  }
  // Plays the world until this process has taken a completion of the opcode; others before it are
  // taken too. Errors: internal if nothing happens any more.
  Status wait(ibv_wc_opcode opcode) {
    for (;;) {
      enter();
      woken = false;
      for (;;) {
        ibv_wc entry;
        const Result<bool> taken = take(&entry);
        if (!taken) return taken.status();
        if (!taken.value()) break;
        if (entry.opcode == opcode) return {};
      }
      while (!woken) {
        if (!world_.run_one()) {
          return {Code::internal, "benchmark failed: a completion did not come"};
        }
      }
    }
  }

  [[nodiscard]] std::vector<std::byte>& buffer() noexcept { return buffer_; }
  // Something reached the process since this was set to false.
  bool woken = false;

 private:
  explicit VerbsProcess(hca::World& world) : world_(world) {}
  Status make(ibv_qp_type type, std::uint32_t depth, ibv_qp** out) {
    enter();
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq_.get();
    attr.cap = {depth, depth, 1, 1, kInline};
    attr.qp_type = type;
    verbs::Qp qp(ibv_create_qp(device_->pd(), &attr));
    if (qp == nullptr) return verbs::failure("ibv_create_qp", device_->name(), errno);
    *out = qps_.emplace_back(std::move(qp)).get();
    return {};
  }

  hca::World& world_;
  hca::ProcessIndex index_ = 0;
  std::unique_ptr<verbs::Device> device_;
  std::vector<std::byte> buffer_;
  verbs::Cq cq_;
  verbs::Srq srq_;
  verbs::Mr region_;
  verbs::Ah ah_;
  UnsignalledBuffers buffers_;
  std::unique_ptr<DcTarget> dc_target_;
  std::unique_ptr<DcInitiator> dc_initiator_;
  std::vector<verbs::Qp> qps_;
};

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
