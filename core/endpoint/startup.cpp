// SPDX-License-Identifier: BSD-3-Clause
// Selects the default transport, and creates the queues and queue pairs of an endpoint.
#include <unistd.h>

#include <atomic>
#include <random>

#include "base/launcher.h"
#include "base/log.h"
#include "core/endpoint/startup.h"
#include "core/memory/node_share.h"
#include "core/report/last_run_reader.h"
#include "core/verbs/device_limits.h"

namespace turnout {
namespace {
// Copies take less up to there than a system call that reads the other process's memory, measured
// with bench/fi_pingpong: docs/decisions/027-eager-fragments.md.
constexpr std::uint64_t kThresholdOfVirtualAdapter = EagerLimit::kLeast;
// Of rings for which there is room: docs/decisions/028-large-ring-entries.md. Not a power of two:
// the ends of entries, where small messages are, lie in different cache sets.
constexpr std::uint32_t kLargeRingEntry = (16 << 10) + 64;
constexpr std::uint32_t kLargeRingEntries = 32;
static_assert(kLargeRingEntry % Address::kSizeUnit == 0 && sizeof(wire::Header) <= 64);

// Unlike a process id it is never reused within a job.
std::uint64_t unique_id() {
  std::random_device entropy;
  std::uint64_t id = 0;
  while (id == 0) id = std::uint64_t{entropy()} << 32 | entropy();
  return id;
}
}  // namespace

// DC if the device has it, unless a setting selects UD.
Status Startup::choose_default_channel() {
  const Settings& settings = context_.settings;
  const bool dc_asked = settings.default_transport == "dc";
  const bool ud_asked =
      settings.default_transport == "ud" || settings.policy == "static:ud-sendrecv";
  const bool dc = !ud_asked && context_.device->has_dc();
  if (!dc && dc_asked) {
    return {Code::unsupported,
            fmt::format("TURNOUT_DEFAULT_TRANSPORT=dc: {} does not support DC; use ud or auto",
                        context_.device->name())};
  }
  if (!dc && needs_dc(settings.policy)) {
    return {Code::unsupported,
            fmt::format("TURNOUT_POLICY={} needs DC, which {} does not support; use aqps, "
                        "rc-rdma-od, static:rc-rdma or static:ud-sendrecv",
                        settings.policy, context_.device->name())};
  }
  context_.format.own_eager_size = static_cast<std::uint32_t>(settings.ring_entry_size);
  std::uint64_t threshold = settings.rendezvous_threshold, large = settings.large_ring_entry;
  if (threshold == 0 && context_.device->is_between_processes()) {
    threshold = kThresholdOfVirtualAdapter;
    if (large == 0 && !settings.is_given("ring_entry_size")) large = kLargeRingEntry;
    context_.format.measures_limit = large != 0;
  }
  if (dc && large > settings.ring_entry_size && large <= settings.unexpected_memory)
    context_.format.large_ring_entry = static_cast<std::uint32_t>(large);
  context_.format.large_ring_entries = settings.is_given("ring_entries")
                                           ? static_cast<std::uint32_t>(settings.ring_entries)
                                           : kLargeRingEntries;
  // A message that nobody waits for must fit there.
  context_.format.rendezvous_threshold = std::min(threshold, settings.unexpected_memory);
  if (dc) return {};
  context_.default_channel = ChannelKind::ud_sendrecv;
  context_.receive_cost.set_default_channel(context_.default_channel);
  context_.format.stream_overhead = sizeof(wire::Datagram) + sizeof(wire::Header);
  resources_.receive_offset = wire::kDatagramOffset;
  if (context_.device->mtu() < 512) {
    return {
        Code::unsupported,
        fmt::format("{}: the port's MTU of {} bytes is too small for UD; at least 512 are required",
                    context_.device->name(), context_.device->mtu())};
  }
  context_.format.own_eager_size =
      std::min(context_.format.own_eager_size, context_.device->mtu()) - wire::kGrhBytes;
  ud_.configure(settings.send_buffers + kRecoveryBuffers);
  return {};
}

// Initiators that return credits, beside so many that send data.
std::uint64_t Startup::credits_beside(std::uint64_t data) const noexcept {
  const Settings& settings = context_.settings;
  const bool follow = context_.traits.uses_feedback && !context_.over_datagrams() &&
                      !settings.is_given("credit_qps");
  return follow ? selection::credit_dcis(data, job_processes()) : settings.credit_qps;
}

void Startup::use_initiators(std::uint64_t data) noexcept {
  context_.settings.credit_qps = credits_beside(data);
  context_.settings.data_qps = data;
}

// Derives the limits of the policy `turnout` from costs and budget, unless they were set. The
// memory that they need at the start fits every budget that fits the minimum.
void Startup::limits_from_costs() {
  Settings& settings = context_.settings;
  const bool connections = !settings.is_given("max_active_rc");
  const bool initiators = !settings.is_given("data_qps") && !context_.over_datagrams();
  const auto allow = [&](std::uint64_t most) {
    settings.max_active_rc = most;
    // The send queue has room for all of them.
    if (!settings.is_given("rc_pool")) settings.rc_pool = std::min(settings.rc_pool, most);
  };
  if (connections) {
    const std::uint64_t each = context_.rc_bytes + settings.ring_entries * settings.ring_entry_size;
    allow(std::clamp<std::uint64_t>(context_.account.budget() / each, 1, settings.max_channels));
  }
  constexpr std::uint64_t kFewest = 4;
  const auto too_many = [&] {
    return dc_pool_bytes(Object::dc_data_pool, settings.data_qps, 0) >
           context_.account.budget() / 4;
  };
  use_initiators(initiators ? selection::wanted_dcis(context_.costs, job_processes())
                            : settings.data_qps);
  while (initiators && settings.data_qps > kFewest && too_many())
    use_initiators(settings.data_qps / 2);
  while (!fits_at_start()) {
    if (initiators && settings.data_qps > kFewest) {
      use_initiators(settings.data_qps / 2);
    } else if (settings.credit_qps > credits_beside(0)) {
      settings.credit_qps /= 2;
    } else if (connections && settings.max_active_rc > 1) {
      allow(settings.max_active_rc / 2);
    } else {
      return;  // create_queues() reports it
    }
  }
}

// Receives for a message of each process of the job at once, within a sixteenth of the budget: up
// to the usual maximum are there from the start, more may be added.
void Startup::receives_for_job() {
  Settings& settings = context_.settings;
  const std::uint64_t most = context_.account.budget() / (16 * settings.ring_entry_size);
  const std::uint64_t wanted = std::min(job_processes(), most);
  if (!settings.is_given("receive_first"))
    receives_at_start_ = std::min(wanted, settings.receive_buffers);
  if (!settings.is_given("receive_buffers"))
    settings.receive_buffers = std::max(wanted, settings.receive_buffers);
}

Status Startup::create_queues() {
  const Settings& settings = context_.settings;
  const auto data_buffers = static_cast<std::uint32_t>(settings.receive_buffers);
  const auto control_buffers = static_cast<std::uint32_t>(settings.control_buffers);
  const auto send_buffers = static_cast<std::uint32_t>(settings.send_buffers);
  const auto buffer_size = static_cast<std::uint32_t>(settings.ring_entry_size);
  const std::size_t targets =
      context_.data_targets() + context_.credit_targets() + settings.establishment_qps;
  resources_.private_room = private_entries();
  if (Status s = reserve_fixed(); !s.ok()) return s;
  // One block of each kind of record, so that each has some whatever the others use.
  const std::size_t promised = records_.operation_limits.promised;
  const bool ready = records_.sends.promise(promised) && records_.copies.promise(promised) &&
                     records_.receives.promise(promised) && records_.atomics.promise(promised) &&
                     records_.sends.ready() && records_.receives.ready() &&
                     records_.messages.ready() && records_.transfers.ready();
  assert(ready && context_.account.available() >= peer_table_.reserved_headroom());
  (void)ready;

  resources_.receive_cq.reset(ibv_create_cq(
      context_.device->context(), static_cast<int>(receive_entries() + resources_.private_room),
      nullptr, nullptr, 0));
  if (!resources_.receive_cq) return verbs::failure("ibv_create_cq", "receive queue", errno);
  resources_.send_cq.reset(ibv_create_cq(context_.device->context(),
                                         static_cast<int>(send_entries()), nullptr, nullptr, 0));
  if (!resources_.send_cq) return verbs::failure("ibv_create_cq", "send queue", errno);
  const auto make_srq = [this](verbs::Srq* srq, std::uint32_t count) -> Status {
    ibv_srq_init_attr attr{};
    attr.attr.max_wr = count;
    attr.attr.max_sge = 1;
    srq->reset(ibv_create_srq(context_.device->pd(), &attr));
    if (!*srq)
      return verbs::failure("ibv_create_srq",
                            fmt::format("shared receive queue of {} entries", count), errno);
    return {};
  };
  Status status = make_srq(&resources_.data_srq, data_buffers);
  if (status.ok()) status = make_srq(&resources_.control_srq, control_buffers);
  if (!status.ok()) return status;

  const auto make_pool = [this](BufferPool* pool, std::uint32_t count, std::uint32_t size,
                                std::uint32_t kept = 0) -> Status {
    auto made = BufferPool::create(*context_.device, count, size, kept);
    if (!made) return made.status();
    *pool = std::move(made).value();
    return {};
  };
  auto receives = ReceivePool::create(*context_.device, context_.first_receives(), buffer_size,
                                      &resources_.to_post);
  if (!receives) return receives.status();
  resources_.receive_pool = std::move(receives).value();
  status = make_pool(&resources_.control_receive_pool, control_buffers, wire::kControlBuffer);
  if (status.ok())
    status = make_pool(&resources_.send_pool, send_buffers + kRecoveryBuffers, buffer_size,
                       kRecoveryBuffers);
  if (status.ok())
    status = make_pool(&resources_.control_send_pool, kControlSendBuffers, wire::kControlBuffer);
  if (!status.ok()) return status;

  resources_.unsignalled_data.limit = send_buffers / 4;
  resources_.unsignalled_control.limit = kControlSendBuffers / 4;
  for (std::uint32_t i = 0; i < control_buffers; ++i) {
    resources_.to_post_control.push_back(resources_.control_receive_pool.take());
  }
  shared_receives_.add_at_start(receives_at_start_);
  shared_receives_.post_receives();
  if (!resources_.to_post.empty() || !resources_.to_post_control.empty()) {
    return {Code::system, "posting the initial receives failed; see the log"};
  }

  shared_receives_.begin_receives();
  if (!context_.over_datagrams()) resources_.targets.reserve(targets);
  do {
    status = create_pools();
  } while (!status.ok() && settles_for_fewer(status));
  if (status.ok() && context_.traits.writes_credits)
    resources_.credit_words.prepare(*context_.device, context_.account);
  return status;
}

Status Startup::create_pools() {
  const std::uint64_t establishment = context_.settings.establishment_qps;
  ibv_srq* const control = resources_.control_srq.get();
  Status status = create_pool(Purpose::data, context_.settings.data_qps, context_.data_targets(),
                              resources_.data_srq.get());
  if (status.ok())
    status = create_pool(Purpose::credit, context_.settings.credit_qps, context_.credit_targets(),
                         control);
  if (status.ok())
    status = create_pool(Purpose::establishment, establishment, establishment, control);
  return status;
}

// The adapter has no more queue pairs, or no memory for them. True: fewer that send data would do,
// and none was created.
bool Startup::settles_for_fewer(const Status& failure) {
  Settings& settings = context_.settings;
  const bool exhausted = failure.sys_errno() == ENOMEM || failure.sys_errno() == EAGAIN;
  const std::size_t least = context_.data_targets();
  if (!exhausted || settings.data_qps <= least) return false;
  // As many as there was room for, with what comes after them.
  const std::size_t made = resources_.pool(Purpose::data).size();
  const std::size_t asked = settings.data_qps;
  const auto needed = [&] {
    return settings.data_qps + least + settings.credit_qps + context_.credit_targets() +
           2 * settings.establishment_qps;
  };
  use_initiators(std::clamp(made, least, asked - 1));
  while (settings.data_qps > least && needed() > made) use_initiators(settings.data_qps - 1);
  TURNOUT_LOG(
      endpoint, warn,
      "{}; continuing with {} queue pairs that send data instead of {}; set TURNOUT_DATA_QPS "
      "to ask for fewer",
      failure.text(), settings.data_qps, asked);
  resources_.queues.clear();
  for (const Purpose purpose : {Purpose::data, Purpose::credit, Purpose::establishment})
    resources_.pool(purpose).clear();
  resources_.default_queues = 0;
  resources_.targets.clear();
  return true;
}

Status Startup::create_pool(Purpose purpose, std::size_t initiators, std::size_t targets,
                            ibv_srq* srq) {
  UnsignalledBuffers& unsignalled =
      purpose == Purpose::data ? resources_.unsignalled_data : resources_.unsignalled_control;
  const auto add = [&](std::unique_ptr<MessageQueue> queue) {
    resources_.queues.push_back(queue.get());
    resources_.pool(purpose).push_back(std::move(queue));
    ++resources_.default_queues;
  };
  if (context_.over_datagrams()) {
    // Each sends and receives; the first ones are known to the peers.
    const std::size_t first = purpose == Purpose::data ? 0
                              : purpose == Purpose::credit
                                  ? context_.data_targets()
                                  : context_.data_targets() + context_.credit_targets();
    for (std::size_t i = 0; i < std::max(initiators, targets); ++i) {
      auto queue = std::make_unique<UdQueue>(static_cast<std::uint32_t>(resources_.queues.size()),
                                             kQueueDepth, unsignalled);
      if (Status s =
              queue->create(*context_.device, resources_.send_cq.get(), resources_.receive_cq.get(),
                            srq, kQueueDepth, context_.address.id);
          !s.ok()) {
        return s;
      }
      if (i < targets) context_.address.set_dct_number(first + i, queue->number());
      add(std::move(queue));
    }
    return {};
  }
  QpTuning tuning = context_.tuning;
  tuning.max_inline = 0;  // messages over DC keep their buffers until complete, see DcInitiator
  for (std::size_t i = 0; i < initiators; ++i) {
    auto queue = std::make_unique<DcInitiator>(static_cast<std::uint32_t>(resources_.queues.size()),
                                               kQueueDepth, unsignalled);
    if (Status s = queue->create(*context_.device, resources_.send_cq.get(), kQueueDepth, tuning);
        !s.ok())
      return s;
    add(std::move(queue));
  }
  if (purpose == Purpose::data)
    context_.placement.ask_reads(resources_.pool(purpose).front()->qp());
  for (std::size_t i = 0; i < targets; ++i) {
    DcTarget& target = resources_.targets.emplace_back();
    if (Status s =
            target.create(*context_.device, resources_.receive_cq.get(), srq, context_.address.id);
        !s.ok())
      return s;
    context_.address.set_dct_number(resources_.targets.size() - 1, target.number());
    if (purpose == Purpose::data) context_.placement.ask_dc(target);
  }
  return {};
}

// So that its peers know who it is before it sends. The id of a simulated process has the rank.
void Startup::take_rank() {
  const int rank = launcher_.rank;
  if (context_.simulation.rank >= 0 || rank < 0 || rank >= 1 << Address::kRankBits) return;
  context_.address.id = context_.address.id << Address::kRankBits | std::uint64_t{1} << 63 |
                        static_cast<std::uint64_t>(rank);
}

// Its failure is no failure of the endpoint.
void Startup::use_prediction() {
  const Settings& settings = context_.settings;
  Status status;
  if (!context_.traits.uses_feedback) {
    status = {Code::unsupported, fmt::format("the policy {} uses none", settings.policy)};
  } else if (launcher_.rank < 0 || launcher_.ranks < 0) {
    status = {Code::unsupported, "the launcher tells neither rank nor number of processes"};
  } else {
    constexpr std::uint64_t kMost = 4096;  // of the report's sources
    Result<LastRun> last = read_last_run(
        settings.prediction, launcher_.rank, launcher_.ranks,
        {selection::least_predicted(context_.costs), std::min(settings.max_channels, kMost)});
    status = last.ok() ? channels_.selector.predict(std::move(last).value()) : last.status();
  }
  static std::atomic<bool> told{false};  // by an endpoint of this process
  if (status.ok() || told.exchange(true)) return;
  TURNOUT_LOG(selection, warn,
              "reading the prediction failed: {}: {}; set TURNOUT_PREDICTION to the folder that "
              "TURNOUT_REPORT named in a run of as many processes, or unset it",
              settings.prediction, status.text());
}

Status Startup::start() {
  Settings& settings = context_.settings;
  auto costs = selection::load_costs(settings);
  if (!costs) return costs.status();
  context_.costs = selection::shared_by(costs->costs, node_processes(settings));
  if (context_.simulation.processor == nullptr) {
    launcher_ = launcher_identity();
  } else {
    launcher_.rank = context_.simulation.rank;
    launcher_.ranks = context_.simulation.ranks;
  }
  if (context_.domain == nullptr) {
    auto domain = MemoryDomain::open(settings);
    if (!domain) return domain.status();
    context_.domain = std::static_pointer_cast<DeviceDomain>(std::move(domain).value());
  }
  context_.device = &context_.domain->device();
  context_.address.pid = context_.address.id == 0
                             ? static_cast<std::uint32_t>(getpid())
                             : static_cast<std::uint32_t>(context_.address.id & 0xffffff);
  if (context_.address.id == 0) context_.address.id = unique_id();
  if (!settings.prediction.empty()) take_rank();
  context_.address.lid = context_.device->port().lid;
  context_.address.gid = context_.device->gid();
  context_.tuning.ack_timeout = static_cast<std::uint8_t>(settings.ack_timeout);
  context_.tuning.retry_count = static_cast<std::uint8_t>(settings.retry_count);
  context_.tuning.max_inline = kMostInline;
  if (Status status = choose_default_channel(); !status.ok()) return status;
  MessageFormat& format = context_.format;
  format.most_short = format.own_eager_size - format.stream_overhead - sizeof(wire::WireupRequest);
  if (format.rendezvous_threshold != 0)
    format.most_short = std::min(format.most_short, format.rendezvous_threshold);
  if (context_.over_datagrams()) context_.costs = selection::with_ud(context_.costs);
  context_.rc_bytes = context_.object_bytes(
      Object::rc_queue_pair, 1,
      queue_pair_bytes(QpService::rc, kQueueDepth, 2, context_.tuning.max_inline));
  if (settings.policy == "ardma-sr") {
    context_.traits.has_private_receives = true;
    settings.private_receive_buffers = std::min<std::uint64_t>(
        settings.private_receive_buffers,
        static_cast<std::uint64_t>(context_.device->attributes().max_qp_wr));
    context_.rc_bytes += 16 * settings.private_receive_buffers;  // mlx5: a receive with one segment
  }
  context_.traits.uses_feedback = settings.policy == "turnout";
  const PolicyOverride* const simulated = context_.simulation.policy;
  context_.traits.prepares =
      context_.traits.uses_feedback || (simulated != nullptr && simulated->prepares);
  const bool flow_control =
      context_.traits.uses_feedback || (simulated != nullptr && simulated->flow_control);
  context_.traits.writes_credits = flow_control;
  context_.traits.never_connects = settings.policy == "static:ud-sendrecv";
  context_.rendezvous = rendezvous_named(settings.rendezvous).value_or(Rendezvous::getcqe);
  operations_.rdma.set_posts_in_progress(settings.progress_thread > 0 &&
                                         context_.device->is_between_processes());
  operations_.rtr.configure(settings.rtr_sentinel == "set", context_.address.id);
  context_.statistics.use(context_.simulation.statistics);
  if (flow_control) receives_for_job();
  if (context_.traits.uses_feedback) {
    limits_from_costs();
    context_.feedback.configure(settings.data_qps, !context_.over_datagrams());
  }
  const std::uint64_t initiators =
      settings.data_qps + settings.credit_qps + settings.establishment_qps;
  if (Status status = fit_device(context_.device->attributes(), context_.device->name(), initiators,
                                 kQueueDepth, &settings);
      !status.ok()) {
    return status;
  }
  channels_.slots.limit_connections();
  if (Status status = create_queues(); !status.ok()) return status;
  shared_receives_.begin_flow_control();
  std::uint64_t receive_size = settings.ring_entry_size;
  if (context_.over_datagrams())
    receive_size = std::min<std::uint64_t>(receive_size, context_.device->mtu());
  context_.address.counts = static_cast<std::uint8_t>(
      context_.data_targets() | context_.credit_targets() << 4 | settings.establishment_qps << 6);
  context_.address.set_sizes(static_cast<std::uint32_t>(receive_size), flow_.first(),
                             context_.over_datagrams());
  context_.address.seal();
  if (settings.policy == "dc-rdma-od" || settings.policy == "static:dc-rdma") {
    context_.traits.first_message = ChannelKind::dc_rdma;
  } else if (settings.policy == "rc-rdma-od" || settings.policy == "static:rc-rdma") {
    context_.traits.first_message = ChannelKind::rc_rdma;
  } else if (settings.policy == "srq" || settings.policy == "ardma-srq") {
    context_.traits.first_message = ChannelKind::rc_srq;
    if (settings.policy == "ardma-srq") context_.traits.ring_threshold = settings.ring_threshold;
  } else if (settings.policy == "xrc-rdma-od") {
    context_.traits.first_message = ChannelKind::xrc_rdma;
    if (Status status = channels_.xrc_nodes.open_xrc(); !status.ok()) {
      return {status.code(),
              fmt::format("TURNOUT_POLICY={}: {}; use dc-rdma-od or turnout", settings.policy,
                          status.text()),
              status.sys_errno()};
    }
  } else if (context_.traits.has_private_receives) {
    context_.traits.first_message = ChannelKind::rc_sr;
    context_.traits.ring_threshold = settings.ring_threshold;
  }
  registration_.start_registrations();
  if (!settings.prediction.empty()) use_prediction();
  context_.started = true;
  if (!context_.device->is_simulated()) {
    parts_.live_report.open(context_.address.id, settings.report_job);
    parts_.memory_history.open();
    parts_.memory_history.tick(context_.clock.now());
    timespec wall{};
    if (::clock_gettime(CLOCK_REALTIME, &wall) == 0) {
      context_.started_at =
          wall.tv_sec * 1'000'000'000 + wall.tv_nsec - (context_.clock.now() - context_.born);
    }
  }
  const Nanoseconds now = context_.clock.now();
  channels_.selector.begin(now);
  channels_.keep_alive.begin(now);
  TURNOUT_LOG(endpoint, info, "{} on {} ({}), policy {}, {} of {} bytes used at start",
              context_.address.to_string(), context_.device->name(), context_.device->why(),
              settings.policy, context_.account.used(), context_.account.budget());
  return {};
}

}  // namespace turnout
