// SPDX-License-Identifier: BSD-3-Clause
// Selects the default transport, and creates the queues and queue pairs of an endpoint.
#include <fmt/format.h>

#include <algorithm>
#include <cassert>

#include "core/endpoint/endpoint_core.h"

namespace turnout {

// DC if the device has it, unless a setting selects UD.
Status EndpointCore::choose_default_channel() {
  const bool dc_asked = settings_.default_transport == "dc";
  const bool ud_asked =
      settings_.default_transport == "ud" || settings_.policy == "static:ud-sendrecv";
  const bool dc = !ud_asked && device_->has_dc();
  if (!dc && dc_asked) {
    return {Code::unsupported,
            fmt::format("TURNOUT_DEFAULT_TRANSPORT=dc: {} does not support DC; use ud or auto",
                        device_->name())};
  }
  if (!dc && needs_dc(settings_.policy)) {
    return {Code::unsupported,
            fmt::format("TURNOUT_POLICY={} needs DC, which {} does not support; use aqps, "
                        "rc-rdma-od, static:rc-rdma or static:ud-sendrecv",
                        settings_.policy, device_->name())};
  }
  own_eager_size_ = static_cast<std::uint32_t>(settings_.ring_entry_size);
  if (dc) return {};
  default_channel_ = ChannelKind::ud_sendrecv;
  receive_cost_.set_default_channel(default_channel_);
  stream_overhead_ = sizeof(wire::Datagram) + sizeof(wire::Header);
  receive_offset_ = wire::kDatagramOffset;
  if (device_->mtu() < 512) {
    return {
        Code::unsupported,
        fmt::format("{}: the port's MTU of {} bytes is too small for UD; at least 512 are required",
                    device_->name(), device_->mtu())};
  }
  own_eager_size_ = std::min(own_eager_size_, device_->mtu()) - wire::kGrhBytes;
  kept_.resize(settings_.send_buffers + kRecoveryBuffers);
  return {};
}

// Derives the limits of the policy `turnout` from costs and budget, unless they were set. The
// memory that they need at the start fits every budget that fits the minimum.
void EndpointCore::limits_from_costs() {
  const bool connections = !settings_.is_given("max_active_rc");
  const bool initiators = !settings_.is_given("data_qps") && !over_datagrams();
  const auto allow = [this](std::uint64_t most) {
    settings_.max_active_rc = most;
    // The send queue has room for all of them.
    if (!settings_.is_given("rc_pool")) settings_.rc_pool = std::min(settings_.rc_pool, most);
  };
  if (connections) {
    const std::uint64_t each = rc_bytes_ + settings_.ring_entries * settings_.ring_entry_size;
    allow(std::clamp<std::uint64_t>(account_.budget() / each, 1, settings_.max_channels));
  }
  constexpr std::uint64_t kFewest = 4;
  if (initiators) {
    settings_.data_qps = selection::wanted_dcis(costs_);
    while (settings_.data_qps > kFewest &&
           dc_pool_bytes(Object::dc_data_pool, settings_.data_qps, 0) > account_.budget() / 4) {
      settings_.data_qps /= 2;
    }
  }
  while (!fits_at_start()) {
    if (initiators && settings_.data_qps > kFewest) {
      settings_.data_qps /= 2;
    } else if (connections && settings_.max_active_rc > 1) {
      allow(settings_.max_active_rc / 2);
    } else {
      return;  // create_queues() reports it
    }
  }
}

Status EndpointCore::create_queues() {
  const auto data_buffers = static_cast<std::uint32_t>(settings_.receive_buffers);
  const auto control_buffers = static_cast<std::uint32_t>(settings_.control_buffers);
  const auto send_buffers = static_cast<std::uint32_t>(settings_.send_buffers);
  const auto buffer_size = static_cast<std::uint32_t>(settings_.ring_entry_size);
  const std::size_t targets = data_targets() + settings_.credit_qps + settings_.establishment_qps;
  private_room_ = private_entries();
  if (Status s = reserve_fixed(); !s.ok()) return s;
  // One block of each kind of record, so that each has some whatever the others use.
  const std::size_t promised = operation_limits_.promised;
  const bool ready = sends_.promise(promised) && copies_.promise(promised) &&
                     receives_.promise(promised) && atomics_.promise(promised) && sends_.ready() &&
                     receives_.ready() && messages_.ready() && transfers_.ready();
  assert(ready && account_.available() >= reserved_headroom());
  (void)ready;

  receive_cq_.reset(ibv_create_cq(device_->context(),
                                  static_cast<int>(receive_entries() + private_room_), nullptr,
                                  nullptr, 0));
  if (!receive_cq_) return verbs::failure("ibv_create_cq", "receive queue", errno);
  send_cq_.reset(
      ibv_create_cq(device_->context(), static_cast<int>(send_entries()), nullptr, nullptr, 0));
  if (!send_cq_) return verbs::failure("ibv_create_cq", "send queue", errno);
  const auto make_srq = [this](verbs::Srq* srq, std::uint32_t count) -> Status {
    ibv_srq_init_attr attr{};
    attr.attr.max_wr = count;
    attr.attr.max_sge = 1;
    srq->reset(ibv_create_srq(device_->pd(), &attr));
    if (!*srq)
      return verbs::failure("ibv_create_srq",
                            fmt::format("shared receive queue of {} entries", count), errno);
    return {};
  };
  if (Status s = make_srq(&data_srq_, data_buffers); !s.ok()) return s;
  if (Status s = make_srq(&control_srq_, control_buffers); !s.ok()) return s;

  const auto make_pool = [this](BufferPool* pool, std::uint32_t count, std::uint32_t size,
                                std::uint32_t kept = 0) -> Status {
    auto made = BufferPool::create(*device_, count, size, kept);
    if (!made) return made.status();
    *pool = std::move(made).value();
    return {};
  };
  auto receives = ReceivePool::create(*device_, first_receives(), buffer_size, &to_post_);
  if (!receives) return receives.status();
  receive_pool_ = std::move(receives).value();
  if (Status s = make_pool(&control_receive_pool_, control_buffers, wire::kControlBuffer); !s.ok())
    return s;
  if (Status s =
          make_pool(&send_pool_, send_buffers + kRecoveryBuffers, buffer_size, kRecoveryBuffers);
      !s.ok()) {
    return s;
  }
  if (Status s = make_pool(&control_send_pool_, kControlSendBuffers, wire::kControlBuffer); !s.ok())
    return s;

  unsignalled_data_.limit = send_buffers / 4;
  unsignalled_control_.limit = kControlSendBuffers / 4;
  for (std::uint32_t i = 0; i < control_buffers; ++i) {
    to_post_control_.push_back(control_receive_pool_.take());
  }
  post_receives();
  if (!to_post_.empty() || !to_post_control_.empty()) {
    return {Code::system, "posting the initial receives failed; see the log"};
  }

  begin_receives();
  if (!over_datagrams()) targets_.reserve(targets);
  if (Status s = create_pool(Purpose::data, settings_.data_qps, data_targets(), data_srq_.get());
      !s.ok())
    return s;
  if (Status s = create_pool(Purpose::credit, settings_.credit_qps, settings_.credit_qps,
                             control_srq_.get());
      !s.ok())
    return s;
  return create_pool(Purpose::establishment, settings_.establishment_qps,
                     settings_.establishment_qps, control_srq_.get());
}

Status EndpointCore::create_pool(Purpose purpose, std::size_t initiators, std::size_t targets,
                                 ibv_srq* srq) {
  UnsignalledBuffers& unsignalled =
      purpose == Purpose::data ? unsignalled_data_ : unsignalled_control_;
  const auto add = [&](std::unique_ptr<MessageQueue> queue) {
    queues_.push_back(queue.get());
    pool(purpose).push_back(std::move(queue));
    ++default_queues_;
  };
  if (over_datagrams()) {  // each sends and receives; the first ones are known to the peers
    const std::size_t first = purpose == Purpose::data     ? 0
                              : purpose == Purpose::credit ? data_targets()
                                                           : data_targets() + settings_.credit_qps;
    for (std::size_t i = 0; i < std::max(initiators, targets); ++i) {
      auto queue = std::make_unique<UdQueue>(static_cast<std::uint32_t>(queues_.size()),
                                             kQueueDepth, unsignalled);
      if (Status s = queue->create(*device_, send_cq_.get(), receive_cq_.get(), srq, kQueueDepth,
                                   address_.id);
          !s.ok()) {
        return s;
      }
      if (i < targets) address_.set_dct_number(first + i, queue->number());
      add(std::move(queue));
    }
    return {};
  }
  QpTuning tuning = tuning_;
  tuning.max_inline = 0;  // messages over DC keep their buffers until complete, see DcInitiator
  for (std::size_t i = 0; i < initiators; ++i) {
    auto queue = std::make_unique<DcInitiator>(static_cast<std::uint32_t>(queues_.size()),
                                               kQueueDepth, unsignalled);
    if (Status s = queue->create(*device_, send_cq_.get(), kQueueDepth, tuning); !s.ok()) return s;
    add(std::move(queue));
  }
  if (purpose == Purpose::data) placement_.ask_reads(pool(purpose).front()->qp());
  for (std::size_t i = 0; i < targets; ++i) {
    DcTarget& target = targets_.emplace_back();
    if (Status s = target.create(*device_, receive_cq_.get(), srq, address_.id); !s.ok()) return s;
    address_.set_dct_number(targets_.size() - 1, target.number());
    if (purpose == Purpose::data) placement_.ask_dc(target);
  }
  return {};
}

}  // namespace turnout
