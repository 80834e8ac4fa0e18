#include "core/endpoint_core.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

#include "base/log.h"
#include "core/recording/recording_endpoint.h"

namespace turnout {
namespace {

constexpr std::uint32_t kWantedInline = 256;  // header, and kInjectLimit of payload
constexpr int kPollBatch = 16;
constexpr std::uint32_t kTickEvery = 64;  // progress calls between two looks at the clock
constexpr Nanoseconds kCloseTimeout = 1'000'000'000;
constexpr std::uint64_t kControlReceive = std::uint64_t{1} << 32;  // wr_id bit

// Unlike a process id it is never reused within a job.
std::uint64_t unique_id() {
  std::random_device entropy;
  std::uint64_t id = 0;
  while (id == 0) id = std::uint64_t{entropy()} << 32 | entropy();
  return id;
}

}  // namespace

Result<std::unique_ptr<Endpoint>> Endpoint::create(const Settings& settings, Clock& clock,
                                                   Processor* processor, std::uint64_t id) {
  if (Status status = settings.validate(); !status.ok()) return status;
  auto endpoint = std::make_unique<EndpointCore>(settings, clock, processor, id);
  if (Status status = endpoint->start(); !status.ok()) {
    TURNOUT_LOG(endpoint, error, "no endpoint: {}", status.text());
    return status;
  }
  if (!settings.trace.empty()) [[unlikely]] {
    return std::unique_ptr<Endpoint>(
        std::make_unique<RecordingEndpoint>(std::move(endpoint), settings.trace, clock, processor));
  }
  return std::unique_ptr<Endpoint>(std::move(endpoint));
}

EndpointCore::EndpointCore(const Settings& settings, Clock& clock, Processor* processor,
                           std::uint64_t id)
    : settings_(settings),
      clock_(clock),
      processor_(processor),
      born_(clock.now()),
      account_(settings.memory_budget),
      sends_(account_, MemoryKind::operations, sizeof(void*) + sizeof(std::uint32_t)),
      receives_(account_, MemoryKind::operations),
      messages_(account_, MemoryKind::unexpected),
      transfers_(account_, MemoryKind::operations),
      // Under a virtual clock looking costs nothing, and every call may be the last for long.
      tick_every_(processor == nullptr ? kTickEvery : 1) {
  address_.id = id;
  if (settings_.data_qps == 0) settings_.data_qps = settings_.policy == "dc-rdma-od" ? 28 : 4;
}

Status EndpointCore::start() {
  auto costs = selection::load_costs(settings_);
  if (!costs) return costs.status();
  costs_ = costs->costs;
  hints_ = settings_.policy == "turnout";
  if (hints_) {
    // Limits follow from the costs and the budget, unless somebody gave them.
    if (!settings_.is_given("max_active_rc")) settings_.max_active_rc = settings_.max_channels;
    if (!settings_.is_given("data_qps")) settings_.data_qps = selection::wanted_dcis(costs_);
    dci_targets_.assign(settings_.data_qps, kAnyPeer);
  }
  // The first decisions come early: a program may be over before an interval is.
  constexpr Nanoseconds kFirst = 64;
  interval_ = hints_ ? std::max<Nanoseconds>(settings_.interval / kFirst, 1) : settings_.interval;
  auto device = verbs::Device::open(settings_);
  if (!device) return device.status();
  device_ = std::move(device).value();
  address_.pid = address_.id == 0 ? static_cast<std::uint32_t>(getpid())
                                  : static_cast<std::uint32_t>(address_.id & 0xffffff);
  if (address_.id == 0) address_.id = unique_id();
  address_.lid = device_->port().lid;
  address_.gid = device_->gid();
  tuning_.ack_timeout = static_cast<std::uint8_t>(settings_.ack_timeout);
  tuning_.retry_count = static_cast<std::uint8_t>(settings_.retry_count);
  tuning_.max_inline = kWantedInline;
  if (Status status = create_queues(); !status.ok()) return status;
  const auto sizes = static_cast<unsigned>(std::bit_width(settings_.ring_entry_size) - 1 - 9);
  const auto credits = static_cast<unsigned>(std::bit_width(settings_.credits) - 1);
  address_.counts = static_cast<std::uint8_t>(data_targets() | settings_.credit_qps << 4 |
                                              settings_.establishment_qps << 6);
  address_.sizes = static_cast<std::uint8_t>(sizes | credits << 4);
  address_.seal();
  if (settings_.policy == "dc-rdma-od" || settings_.policy == "static:dc-rdma") {
    first_message_ = ChannelKind::dc_rdma;
  } else if (settings_.policy == "rc-rdma-od" || settings_.policy == "static:rc-rdma") {
    first_message_ = ChannelKind::rc_rdma;
  }
  frees_before_drain_ = settings_.break_rule == "free-before-drain";
  started_ = true;
  if (!device_->is_simulated()) live_report_.open(address_.id, settings_.report_job);
  const Nanoseconds now = clock_.now();
  interval_began_ = now;
  next_decision_ = now + interval_;
  next_keepalive_ = now + settings_.keepalive / 4;
  TURNOUT_LOG(endpoint, info, "{} on {} ({}), policy {}, {} of {} bytes used at start",
              address_.to_string(), device_->name(), device_->why(), settings_.policy,
              account_.used(), account_.budget());
  return {};
}

Status EndpointCore::create_queues() {
  const auto data_buffers = static_cast<std::uint32_t>(settings_.receive_buffers);
  const auto control_buffers = static_cast<std::uint32_t>(settings_.control_buffers);
  const auto send_buffers = static_cast<std::uint32_t>(settings_.send_buffers);
  const auto buffer_size = static_cast<std::uint32_t>(settings_.ring_entry_size);
  const std::size_t initiators =
      settings_.data_qps + settings_.credit_qps + settings_.establishment_qps;
  const std::size_t targets = data_targets() + settings_.credit_qps + settings_.establishment_qps;

  const std::uint32_t receive_entries = data_buffers + control_buffers;
  const auto rc_limit = static_cast<std::uint32_t>(settings_.rc_pool + settings_.max_active_rc);
  const std::uint32_t send_entries = static_cast<std::uint32_t>(
      std::min<std::uint64_t>((initiators + rc_limit) * kDcDepth,
                              static_cast<std::uint64_t>(device_->attributes().max_cqe)));
  if (Status s = reserve_fixed(receive_entries, send_entries); !s.ok()) return s;

  // A block of every kind of record, so that each has a few whatever the others took.
  if (!sends_.ready() || !receives_.ready() || !messages_.ready() || !transfers_.ready()) {
    return reserve_fixed(MemoryKind::operations, account_.available() + 1, "the first operations");
  }
  if (account_.available() < spare()) {
    return {Code::over_budget,
            fmt::format("TURNOUT_MEMORY_BUDGET={} is too small: {} are used before the first "
                        "message, and an eighth must be left for messages; raise it to {}, or "
                        "lower TURNOUT_RECEIVE_BUFFERS, TURNOUT_CONTROL_BUFFERS or "
                        "TURNOUT_SEND_BUFFERS",
                        account_.budget(), account_.used(), account_.used() * 8 / 7 + 1)};
  }

  receive_cq_.reset(
      ibv_create_cq(device_->context(), static_cast<int>(receive_entries), nullptr, nullptr, 0));
  if (!receive_cq_) return verbs::failure("ibv_create_cq", "the receive queue", errno);
  send_cq_.reset(
      ibv_create_cq(device_->context(), static_cast<int>(send_entries), nullptr, nullptr, 0));
  if (!send_cq_) return verbs::failure("ibv_create_cq", "the send queue", errno);
  const auto make_srq = [this](verbs::Srq* srq, std::uint32_t count) -> Status {
    ibv_srq_init_attr attr{};
    attr.attr.max_wr = count;
    attr.attr.max_sge = 1;
    srq->reset(ibv_create_srq(device_->pd(), &attr));
    if (!*srq) return verbs::failure("ibv_create_srq", fmt::format("{} receives", count), errno);
    return {};
  };
  if (Status s = make_srq(&data_srq_, data_buffers); !s.ok()) return s;
  if (Status s = make_srq(&control_srq_, control_buffers); !s.ok()) return s;

  const auto make_pool = [this](BufferPool* pool, std::uint32_t count,
                                std::uint32_t size) -> Status {
    auto made = BufferPool::create(*device_, count, size);
    if (!made) return made.status();
    *pool = std::move(made).value();
    return {};
  };
  if (Status s = make_pool(&receive_pool_, data_buffers, buffer_size); !s.ok()) return s;
  if (Status s = make_pool(&control_receive_pool_, control_buffers, wire::kControlBuffer); !s.ok())
    return s;
  if (Status s = make_pool(&send_pool_, send_buffers, buffer_size); !s.ok()) return s;
  if (Status s = make_pool(&control_send_pool_, kControlSendBuffers, wire::kControlBuffer); !s.ok())
    return s;

  unsignalled_data_.limit = send_buffers / 4;
  unsignalled_control_.limit = kControlSendBuffers / 4;
  for (std::uint32_t i = 0; i < data_buffers; ++i) to_post_.push_back(receive_pool_.take());
  for (std::uint32_t i = 0; i < control_buffers; ++i) {
    to_post_control_.push_back(control_receive_pool_.take());
  }
  post_receives();
  if (!to_post_.empty() || !to_post_control_.empty()) {
    return {Code::system, "the first receives cannot be posted: see the log"};
  }

  targets_.reserve(targets);
  if (Status s = create_dc_pool(Purpose::data, settings_.data_qps, data_targets(), data_srq_.get());
      !s.ok())
    return s;
  if (Status s = create_dc_pool(Purpose::credit, settings_.credit_qps, settings_.credit_qps,
                                control_srq_.get());
      !s.ok())
    return s;
  return create_dc_pool(Purpose::establishment, settings_.establishment_qps,
                        settings_.establishment_qps, control_srq_.get());
}

Status EndpointCore::create_dc_pool(Purpose purpose, std::size_t initiators, std::size_t targets,
                                    ibv_srq* srq) {
  QpTuning tuning = tuning_;
  tuning.max_inline = 0;  // messages over DC stay in their buffers until done, see DcInitiator
  for (std::size_t i = 0; i < initiators; ++i) {
    auto queue = std::make_unique<DcInitiator>(
        static_cast<std::uint32_t>(queues_.size()), kDcDepth,
        purpose == Purpose::data ? unsignalled_data_ : unsignalled_control_);
    if (Status s = queue->create(*device_, send_cq_.get(), kDcDepth, tuning); !s.ok()) return s;
    queues_.push_back(queue.get());
    pool(purpose).push_back(std::move(queue));
    ++dc_queues_;
  }
  for (std::size_t i = 0; i < targets; ++i) {
    DcTarget& target = targets_.emplace_back();
    if (Status s = target.create(*device_, receive_cq_.get(), srq, address_.id); !s.ok()) return s;
    address_.set_dct_number(targets_.size() - 1, target.number());
  }
  return {};
}

EndpointCore::~EndpointCore() {
  if (!started_) return;
  while (!close()) {
  }
  if (settings_.report != "0" && !settings_.report.empty()) {
    if (Status s = publish(report(), settings_.report, settings_.report_job); !s.ok()) {
      TURNOUT_LOG(endpoint, warn, "no report: {}", s.text());
    }
  }
}

// From here on the application's buffers are its own again: nothing may be read from or put into
// them, and nobody waits for completions any more. What was taken over as a copy is still sent.
void EndpointCore::abandon_user_buffers() {
  for (const bool tagged : {true, false}) {
    while (RecvOperation* const receive = matcher_.posted(tagged).first()) unpost(*receive);
  }
  for (Peer* peer : backlogged_) {
    // What stands behind a message that cannot be sent any more is dropped with it: order is kept.
    bool dropped = false;
    for (SendOperation* operation = peer->backlog.first(); operation != nullptr;) {
      SendOperation* const next = operation->next;
      dropped = dropped || (!operation->copy && operation->pieces.total > 0);
      if (dropped) {
        peer->backlog.remove(operation);
        end_send(*operation, Status{Code::canceled, "the endpoint closes"});
      }
      operation = next;
    }
  }
  while (UnexpectedMessage* const message = waiting_.pop_front()) release_unexpected(*message);
  for (Transfer* transfer = active_transfers_.first(); transfer != nullptr;) {
    Transfer* const next = transfer->next;
    transfer->status = Status{Code::canceled, "the endpoint closes"};
    pump(*transfer);
    transfer = next;
  }
}

// What was taken over from the application (injected messages, eager data) shall reach its peers,
// and they shall know that nothing follows; but a peer that stopped receiving must not hold us for
// ever.
bool EndpointCore::close() {
  if (!started_ || closing_phase_ == Closing::closed) return true;
  if (closing_phase_ == Closing::open) {
    closing_ = true;
    abandon_user_buffers();
    close_deadline_ = clock_.now() + kCloseTimeout;
    closing_phase_ = Closing::flushing;
  }
  progress();
  const bool late = ticks_ == 0 && clock_.now() >= close_deadline_;
  if (closing_phase_ == Closing::flushing) {
    if (!late && !(backlogged_.empty() && pending_control_.empty())) return false;
    say_goodbye();
    closing_phase_ = Closing::parting;
  }
  if (closing_phase_ == Closing::parting) {
    if (!late && !pending_control_.empty()) return false;
    probe_before_close();
    closing_phase_ = Closing::draining;
  }
  const bool drained =
      std::all_of(queues_.begin(), queues_.begin() + static_cast<std::ptrdiff_t>(dc_queues_),
                  [](const SendQueue* queue) { return queue->idle(); });
  if (!late && !drained) return false;
  closing_phase_ = Closing::closed;
  return true;
}

void EndpointCore::say_goodbye() {
  for (auto& peer : peers_) {
    if (peer->lost || peer->self || peer->remote_index == wire::kUnknownIndex) continue;
    wire::ControlMessage bye;
    bye.type = wire::Control::bye;
    bye.last_sequence = peer->send_sequence - 1;
    send_control(*peer, Purpose::credit, bye);
  }
}

// RC queue pairs carry ring writes only, which wait for nobody; DC messages may wait for a receive.
void EndpointCore::probe_before_close() {
  for (auto& initiators : initiators_) {
    for (auto& queue : initiators) {
      if (queue->idle() || queue->full()) continue;
      if (Peer* const peer = find_peer(queue->newest().peer); peer != nullptr && !peer->lost) {
        probe(*peer, *queue);
      }
    }
  }
}

bool EndpointCore::progress() {
  bool moved = poll_receive_queue();
  if (!rings_.empty()) moved |= poll_rings();
  moved |= poll_send_queue();
  if (!pending_control_.empty()) moved |= pump_control();
  if (!backlogged_.empty()) moved |= pump_backlogs();
  if (!active_transfers_.empty()) moved |= pump_transfers();
  if (!waiting_.empty()) moved |= pump_waiting();
  if (!stalled_.empty() || !strangers_.empty()) moved |= pump_stalled();
  if (!to_post_.empty() || !to_post_control_.empty()) post_receives();
  if (++ticks_ >= tick_every_) {
    ticks_ = 0;
    tick();
  }
  return moved;
}

void EndpointCore::tick() {
  const Nanoseconds now = clock_.now();
  live_report_.tick(now, clock_, [this] { return report(); });
  if (now >= next_decision_) {
    decide(now);
    interval_ = std::min(interval_ + interval_ / 2 + 1, settings_.interval);
    next_decision_ = now + interval_;
  }
  if (now >= next_keepalive_) {
    next_keepalive_ = now + std::max<Nanoseconds>(settings_.keepalive / 4, 1);
    keep_alive(now);
  }
}

bool EndpointCore::poll_receive_queue() {
  ibv_wc entries[kPollBatch];
  const int n = ibv_poll_cq(receive_cq_.get(), kPollBatch, entries);
  charge(Work::poll_cq, 1);
  for (int i = 0; i < n; ++i) {
    const ibv_wc& wc = entries[i];
    const auto buffer = static_cast<std::uint32_t>(wc.wr_id);
    const bool control = (wc.wr_id & kControlReceive) != 0;
    if (wc.status != IBV_WC_SUCCESS) {
      TURNOUT_LOG(channel, warn, "a receive failed: {}", ibv_wc_status_str(wc.status));
      (control ? to_post_control_ : to_post_).push_back(buffer);
      continue;
    }
    if (control) {
      on_control(buffer, wc.byte_len);
      to_post_control_.push_back(buffer);
    } else {
      on_data(buffer, wc.byte_len);
    }
  }
  if (n < 0) TURNOUT_LOG(channel, error, "ibv_poll_cq of the receive queue failed");
  return n > 0;
}

bool EndpointCore::poll_send_queue() {
  ibv_wc entries[kPollBatch];
  const int n = ibv_poll_cq(send_cq_.get(), kPollBatch, entries);
  charge(Work::poll_cq, 1);
  for (int i = 0; i < n; ++i) on_send_completion(entries[i]);
  if (n < 0) TURNOUT_LOG(channel, error, "ibv_poll_cq of the send queue failed");
  return n > 0;
}

void EndpointCore::on_send_completion(const ibv_wc& wc) {
  const std::uint32_t id = SendQueue::queue_of(wc.wr_id);
  SendQueue* const queue = id < queues_.size() ? queues_[id] : nullptr;
  if (queue == nullptr || !queue->current(wc.wr_id)) return;  // of a queue pair's earlier life
  if (wc.status == IBV_WC_SUCCESS) {
    queue->retire(wc.wr_id, true, [this](const SendRecord& record) { retire(record); });
    return;
  }
  queue->retire(wc.wr_id, false, [this](const SendRecord& record) { retire(record); });
  if (id < dc_queues_) {
    recover(static_cast<DcInitiator&>(*queue), wc);
    return;
  }
  for (auto& peer : peers_) {
    if (peer->rc.get() != queue) continue;
    lose_peer(*peer, Status{Code::peer_lost,
                            fmt::format("{}: its RC queue pair failed: {}",
                                        peer->address.to_string(), ibv_wc_status_str(wc.status)),
                            EHOSTDOWN});
    return;
  }
}

void EndpointCore::retire(const SendRecord& record) {
  if (record.pool == SendRecord::Pool::data) send_pool_.give_back(record.buffer);
  if (record.pool == SendRecord::Pool::control) control_send_pool_.give_back(record.buffer);
  if (record.kind == SendRecord::Kind::transfer) {
    on_transfer_done(*record.transfer, Status{});
  } else if (record.kind == SendRecord::Kind::probe) {
    Peer& peer = *peers_[record.peer];
    --peer.probes;
    peer.heard_since_tick = true;
  }
}

void EndpointCore::post_receives() {
  const auto post = [](ibv_srq* srq, const BufferPool& buffers, std::vector<std::uint32_t>& list,
                       std::uint64_t mark) {
    std::size_t done = 0;
    for (; done < list.size(); ++done) {
      ibv_sge piece{reinterpret_cast<std::uint64_t>(buffers.data(list[done])), buffers.size(),
                    buffers.lkey()};
      ibv_recv_wr request{};
      request.wr_id = mark | list[done];
      request.sg_list = &piece;
      request.num_sge = 1;
      ibv_recv_wr* bad = nullptr;
      if (const int error = ibv_post_srq_recv(srq, &request, &bad); error != 0) {
        TURNOUT_LOG(channel, error, "ibv_post_srq_recv failed: {}", std::strerror(error));
        break;
      }
    }
    list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(done));
  };
  charge(Work::post, to_post_.size() + to_post_control_.size());
  post(data_srq_.get(), receive_pool_, to_post_, 0);
  post(control_srq_.get(), control_receive_pool_, to_post_control_, kControlReceive);
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

Result<MemoryKey> EndpointCore::register_memory(void* address, std::size_t length,
                                                unsigned access) {
  unsigned flags = IBV_ACCESS_LOCAL_WRITE;
  if ((access & kAccessRemoteRead) != 0) flags |= IBV_ACCESS_REMOTE_READ;
  if ((access & kAccessRemoteWrite) != 0) flags |= IBV_ACCESS_REMOTE_WRITE;
  verbs::Mr region((ibv_reg_mr)(device_->pd(), address, length, static_cast<int>(flags)));
  if (!region) return verbs::failure("ibv_reg_mr", fmt::format("{} bytes", length), errno);
  MemoryKey key{next_region_++, region->rkey};
  user_regions_.emplace(key.handle, std::move(region));
  return key;
}

void EndpointCore::deregister_memory(const MemoryKey& key) {
  user_regions_.erase(key.handle);
}

}  // namespace turnout
