// SPDX-License-Identifier: BSD-3-Clause
#include "core/endpoint/endpoint_core.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <ctime>
#include <random>

#include "base/log.h"
#include "core/memory/node_share.h"
#include "core/recording/recording_endpoint.h"
#include "core/verbs/device_limits.h"

namespace turnout {
namespace {

constexpr std::uint32_t kTickEvery = 64;  // progress calls between two looks at the clock

// Unlike a process id it is never reused within a job.
std::uint64_t unique_id() {
  std::random_device entropy;
  std::uint64_t id = 0;
  while (id == 0) id = std::uint64_t{entropy()} << 32 | entropy();
  return id;
}

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::create(const Settings& settings, Clock& clock,
                                                   EndpointOptions options) {
  if (Status status = settings.validate(); !status.ok()) return status;
  Processor* const processor = options.processor;
  auto endpoint = std::make_unique<EndpointCore>(settings, clock, std::move(options));
  if (Status status = endpoint->start(); !status.ok()) {
    TURNOUT_LOG(endpoint, error, "opening the endpoint failed: {}", status.text());
    return status;
  }
  if (!settings.trace.empty()) [[unlikely]] {
    return std::unique_ptr<Endpoint>(
        std::make_unique<RecordingEndpoint>(std::move(endpoint), settings.trace, clock, processor));
  }
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

EndpointCore::EndpointCore(const Settings& settings, Clock& clock, EndpointOptions options)
    : settings_(settings),
      clock_(clock),
      processor_(options.processor),
      born_(clock.now()),
      account_(budget_of_process(settings).bytes, settings.break_rule != "over-budget"),
      domain_(std::static_pointer_cast<DeviceDomain>(std::move(options.memory))),
      registrations_(account_, settings.registration_cache_entries,
                     settings.registration_cache_bytes,
                     [](ibv_mr* region) noexcept { verbs::Mr(region).reset(); }),
      placement_(settings.ring_order),
      operation_limits_(operation_limits(account_.budget(), options.context_size)),
      sends_(account_, MemoryKind::operations, sizeof(void*) + sizeof(std::uint32_t)),
      copies_(account_, MemoryKind::operations),
      receives_(account_, MemoryKind::operations),
      messages_(account_, MemoryKind::unexpected),
      transfers_(account_, MemoryKind::operations),
      atomics_(account_, MemoryKind::operations),
      // A virtual clock costs nothing to read, and each call may be the last for long.
      tick_every_(processor_ == nullptr ? kTickEvery : 1),
      call_time_(processor_ != nullptr),
      background_(std::move(options.background)) {
  if (!background_) {
    background_ = settings.setup_thread ? make_background_thread() : make_foreground();
  }
  shutting_down_.reserve(kPollBatch);
  address_.id = options.id;
  if (settings_.data_qps == 0) settings_.data_qps = settings_.policy == "dc-rdma-od" ? 28 : 4;
}

Status EndpointCore::start() {
  auto costs = selection::load_costs(settings_);
  if (!costs) return costs.status();
  costs_ = selection::shared_by(costs->costs, node_processes(settings_));
  if (domain_ == nullptr) {
    auto domain = MemoryDomain::open(settings_);
    if (!domain) return domain.status();
    domain_ = std::static_pointer_cast<DeviceDomain>(std::move(domain).value());
  }
  device_ = &domain_->device();
  address_.pid = address_.id == 0 ? static_cast<std::uint32_t>(getpid())
                                  : static_cast<std::uint32_t>(address_.id & 0xffffff);
  if (address_.id == 0) address_.id = unique_id();
  address_.lid = device_->port().lid;
  address_.gid = device_->gid();
  tuning_.ack_timeout = static_cast<std::uint8_t>(settings_.ack_timeout);
  tuning_.retry_count = static_cast<std::uint8_t>(settings_.retry_count);
  tuning_.max_inline = kMostInline;
  if (Status status = choose_default_channel(); !status.ok()) return status;
  if (over_datagrams()) costs_ = selection::with_ud(costs_);
  rc_bytes_ = object_bytes(Object::rc_queue_pair, 1,
                           queue_pair_bytes(QpService::rc, kQueueDepth, 2, tuning_.max_inline));
  if (settings_.policy == "ardma-sr") {
    has_private_receives_ = true;
    settings_.private_receive_buffers =
        std::min<std::uint64_t>(settings_.private_receive_buffers,
                                static_cast<std::uint64_t>(device_->attributes().max_qp_wr));
    rc_bytes_ += 16 * settings_.private_receive_buffers;  // mlx5: a receive with one segment
  }
  uses_feedback_ = settings_.policy == "turnout";
  never_connects_ = settings_.policy == "static:ud-sendrecv";
  rendezvous_ = rendezvous_named(settings_.rendezvous).value_or(Rendezvous::getcqe);
  sets_sentinels_ = settings_.rtr_sentinel == "set";
  posts_in_progress_ =
      settings_.progress_thread > 0 && device_->is_virtual() && !device_->is_simulated();
  sentinels_ = SplitMix64(address_.id);
  statistics_.configure(static_cast<std::uint32_t>(settings_.statistics_entries));
  if (uses_feedback_) {
    limits_from_costs();
    feedback_.configure(settings_.data_qps, !over_datagrams());
  }
  // The first decisions are early: a program may end within one interval.
  constexpr Nanoseconds kFirst = 64;
  interval_ =
      uses_feedback_ ? std::max<Nanoseconds>(settings_.interval / kFirst, 1) : settings_.interval;
  const std::uint64_t initiators =
      settings_.data_qps + settings_.credit_qps + settings_.establishment_qps;
  if (Status status =
          fit_device(device_->attributes(), device_->name(), initiators, kQueueDepth, &settings_);
      !status.ok()) {
    return status;
  }
  limit_connections();
  if (Status status = create_queues(); !status.ok()) return status;
  begin_flow_control();
  std::uint64_t receive_size = settings_.ring_entry_size;
  if (over_datagrams()) receive_size = std::min<std::uint64_t>(receive_size, device_->mtu());
  address_.counts = static_cast<std::uint8_t>(data_targets() | settings_.credit_qps << 4 |
                                              settings_.establishment_qps << 6);
  address_.set_sizes(static_cast<std::uint32_t>(receive_size), flow_.first(), over_datagrams());
  address_.seal();
  if (settings_.policy == "dc-rdma-od" || settings_.policy == "static:dc-rdma") {
    first_message_ = ChannelKind::dc_rdma;
  } else if (settings_.policy == "rc-rdma-od" || settings_.policy == "static:rc-rdma") {
    first_message_ = ChannelKind::rc_rdma;
  } else if (settings_.policy == "srq" || settings_.policy == "ardma-srq") {
    first_message_ = ChannelKind::rc_srq;
    if (settings_.policy == "ardma-srq") ring_threshold_ = settings_.ring_threshold;
  } else if (settings_.policy == "xrc-rdma-od") {
    first_message_ = ChannelKind::xrc_rdma;
    if (Status status = open_xrc(); !status.ok()) {
      return {status.code(),
              fmt::format("TURNOUT_POLICY={}: {}; use dc-rdma-od or turnout", settings_.policy,
                          status.text()),
              status.sys_errno()};
    }
  } else if (has_private_receives_) {
    first_message_ = ChannelKind::rc_sr;
    ring_threshold_ = settings_.ring_threshold;
  }
  start_registrations();
  frees_before_drain_ = settings_.break_rule == "free-before-drain";
  started_ = true;
  if (!device_->is_simulated()) {
    live_report_.open(address_.id, settings_.report_job);
    memory_history_.open();
    memory_history_.tick(clock_.now());
    timespec wall{};
    if (::clock_gettime(CLOCK_REALTIME, &wall) == 0) {
      started_at_ = wall.tv_sec * 1'000'000'000 + wall.tv_nsec - (clock_.now() - born_);
    }
  }
  const Nanoseconds now = clock_.now();
  interval_began_ = now;
  next_decision_ = now + interval_;
  next_keepalive_ = now + settings_.keepalive / 4;
  TURNOUT_LOG(endpoint, info, "{} on {} ({}), policy {}, {} of {} bytes used at start",
              address_.to_string(), device_->name(), device_->why(), settings_.policy,
              account_.used(), account_.budget());
  return {};
}

EndpointCore::~EndpointCore() {
  if (started_) {
    while (!close()) {
    }
    if (settings_.report != "0" && !settings_.report.empty()) {
      if (Status s = publish(report(), settings_.report, settings_.report_job); !s.ok()) {
        TURNOUT_LOG(endpoint, warn, "writing the report failed: {}; check TURNOUT_REPORT",
                    s.text());
      }
    }
  }
  if (domain_ != nullptr) domain_->forget_queue(data_srq_.get());
}

bool EndpointCore::progress_now() {
  bool moved;
  in_progress_ = true;
  if (receive_cost_.due(delivered_)) [[unlikely]] {
    moved = poll_measured();
  } else {
    moved = poll_receive_queue();
    moved |= poll_rings(rings_.speaking());
  }
  moved |= poll_send_queue();
  if (rings_.silent_due(moved) || closing_) {
    moved |= poll_rings(rings_.silent());
  } else {
    moved |= !rings_.silent().empty();  // poll them again: a message may have arrived
  }
  if (!pending_control_.empty()) moved |= pump_control();
  if (ud_blocked_) moved |= pump_ud_blocked();
  if (deferred_until_ != INT64_MAX) release_overdue();
  if (!recovering_.empty()) moved |= pump_recovering();
  if (!xrc_lost_.empty()) moved |= pump_xrc_lost();
  if (!answering_.empty()) moved |= pump_answers();
  if (!backlogged_.empty()) moved |= pump_backlogs();
  if (!fragmented_.empty()) moved |= pump_fragments();
  if (!polled_.empty()) moved |= poll_last_bytes();
  if (!rput_sends_.empty()) moved |= pump_rput_sends();
  if (!rtr_cancels_.empty()) moved |= pump_rtr_cancels();
  if (!active_transfers_.empty()) moved |= pump_transfers();
  if (!waiting_.empty()) moved |= pump_waiting();
  if (jobs_ > 0) moved |= pump_jobs();
  if (!stalled_.empty() || !pending_wireups_.empty()) moved |= pump_stalled();
  if (receive_cost_.is_open()) [[unlikely]] {
    const Nanoseconds begun = clock_.now();
    post_receives();
    receive_cost_.close(clock_.now() - begun, delivered_);
  } else if (!to_post_.empty() || !to_post_control_.empty()) {
    post_receives();
  }
  if (++ticks_ >= tick_every_) {
    ticks_ = 0;
    tick();
  }
  in_progress_ = false;
  return moved;
}

void EndpointCore::tick() {
  const Nanoseconds now = clock_.now();
  (void)notice_unmapped(0, 0);  // unmapped memory must not stay pinned
  live_report_.tick(now, clock_, [this] { return report(); });
  memory_history_.tick(now);
  if (now >= next_decision_) {
    decide(now);
    interval_ = std::min(interval_ + interval_ / 2 + 1, settings_.interval);
    next_decision_ = now + interval_;
  }
  if (now >= next_keepalive_) {
    next_keepalive_ = now + std::max<Nanoseconds>(settings_.keepalive / 4, 1);
    keep_alive(now);
  }
  if (now >= next_ud_timer_) service_ud_timers(now);
  if (now >= shared_.look_at) look_after_receives(now);
  if (now >= flow_.next_sweep()) sweep_credits(now);
  if (now >= eviction_.next_service()) serve_slot_waiters();
}

bool EndpointCore::poll_receive_queue() {
  ibv_wc entries[kPollBatch];
  const int n = ibv_poll_cq(receive_cq_.get(), kPollBatch, entries);
  charge(Work::poll_cq, 1);
  note_shutdowns({entries, static_cast<std::size_t>(std::max(n, 0))});
  for (int i = 0; i < n; ++i) {
    const ibv_wc& wc = entries[i];
    if ((wc.wr_id & kPrivateReceive) != 0) [[unlikely]] {
      on_private_receive(wc);
      continue;
    }
    const auto buffer = static_cast<std::uint32_t>(wc.wr_id);
    const bool control = (wc.wr_id & kControlReceive) != 0;
    if (!control) --shared_.posted;
    if (wc.status != IBV_WC_SUCCESS) {
      TURNOUT_LOG(channel, warn, "receive failed: {}; reposting the buffer",
                  ibv_wc_status_str(wc.status));
      (control ? to_post_control_ : to_post_).push_back(buffer);
      continue;
    }
    if (over_datagrams()) {
      on_datagram(control, buffer, wc.byte_len);
    } else if (control) {
      on_control(buffer, wc.byte_len);
      to_post_control_.push_back(buffer);
    } else {
      on_data(buffer, wc.byte_len);
    }
  }
  shutting_down_.clear();
  if (n < 0) TURNOUT_LOG(channel, error, "ibv_poll_cq failed: receive queue");
  return n > 0;
}

// A peer whose shutdown message is in this batch may be gone: earlier messages of the batch are not
// answered, because the reply could only fail.
void EndpointCore::note_shutdowns(std::span<const ibv_wc> entries) noexcept {
  if (over_datagrams()) return;
  for (const ibv_wc& wc : entries) {
    if ((wc.wr_id & kControlReceive) == 0 || wc.status != IBV_WC_SUCCESS ||
        wc.byte_len < sizeof(wire::ControlMessage)) {
      continue;
    }
    wire::ControlMessage message;
    std::memcpy(&message, control_receive_pool_.data(static_cast<std::uint32_t>(wc.wr_id)),
                sizeof message);
    if (message.type == wire::Control::shutdown) shutting_down_.push_back(message.sender);
  }
}

bool EndpointCore::poll_send_queue() {
  ibv_wc entries[kPollBatch];
  const int n = ibv_poll_cq(send_cq_.get(), kPollBatch, entries);
  charge(Work::poll_cq, 1);
  for (int i = 0; i < n; ++i) on_send_completion(entries[i]);
  if (n < 0) TURNOUT_LOG(channel, error, "ibv_poll_cq failed: send queue");
  return n > 0;
}

void EndpointCore::on_send_completion(const ibv_wc& wc) {
  const std::uint32_t id = SendQueue::queue_of(wc.wr_id);
  SendQueue* const queue = id < queues_.size() ? queues_[id] : nullptr;
  if (queue == nullptr || !queue->current(wc.wr_id))
    return;  // of an earlier connection of the queue pair
  if (id >= default_queues_) {
    on_rc_completion(static_cast<RcQueue&>(*queue), wc);
    return;
  }
  if (wc.status == IBV_WC_SUCCESS) {
    queue->retire(wc.wr_id, true, [this](const SendRecord& record) { retire(record); });
    return;
  }
  queue->retire(wc.wr_id, false, [this](const SendRecord& record) { retire(record); });
  recover(static_cast<MessageQueue&>(*queue), wc);
}

void EndpointCore::on_rc_completion(RcQueue& queue, const ibv_wc& wc) {
  const bool done = wc.status == IBV_WC_SUCCESS;
  queue.retire(wc.wr_id, done, [this](const SendRecord& record) { retire(record); });
  if (done) return;
  for (auto& peer : peers_) {
    if (peer->rc.get() != &queue) continue;
    fail_connection(*peer, &wc);
    return;
  }
  for (const auto& [node, link] : xrc_connections_) {
    if (link->queue.get() != &queue) continue;
    fail_xrc_connection(*link, wc);
    return;
  }
}

void EndpointCore::retire(const SendRecord& record) {
  if (record.pool == SendRecord::Pool::data) send_pool_.give_back(record.buffer);
  if (record.pool == SendRecord::Pool::control) control_send_pool_.give_back(record.buffer);
  if (record.pool == SendRecord::Pool::kept) {
    KeptBuffer& kept = kept_[record.buffer];
    if (--kept.posted == 0 && kept.acknowledged) send_pool_.give_back(record.buffer);
  }
  if (record.kind == SendRecord::Kind::transfer) {
    on_transfer_done(*record.transfer, Status{});
  } else if (record.kind == SendRecord::Kind::flush) {
    Peer& peer = *peers_[record.peer];
    if (--peer.flushes == 0) on_flushed(peer);
  } else if (record.kind == SendRecord::Kind::probe) {
    Peer& peer = *peers_[record.peer];
    --peer.probes;
    peer.heard_since_tick = true;
  }
}

void EndpointCore::finish(const Report& report, const Completion& completion) {
  if (closing_) [[unlikely]]
    return;
  if (report.queue != nullptr) report.queue->push(completion);
  if (report.counter != nullptr) {
    report.counter->value.fetch_add(1, std::memory_order_release);
  }
}

void EndpointCore::fail(const Report& report, const Completion& completion, Status status,
                        std::size_t overflow) {
  if (closing_) return;
  CompletionQueue* const queue = report.errors != nullptr ? report.errors : report.queue;
  if (queue != nullptr) {
    ErrorCompletion error;
    static_cast<Completion&>(error) = completion;
    error.overflow = overflow;
    error.status = std::move(status);
    queue->push_error(std::move(error));
  }
  if (report.counter != nullptr) {
    report.counter->errors.fetch_add(1, std::memory_order_release);
  }
}

}  // namespace turnout
