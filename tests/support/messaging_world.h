// SPDX-License-Identifier: BSD-3-Clause
// MessagingWorld: a ComponentWorld with the components of core/messaging. Buffers are registered
// with a device that does nothing (stub_verbs.cpp): messages stay in the records of the queues, and
// a test puts those of a peer into receive buffers itself.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/memory/device_domain.h"
#include "core/messaging/messaging.h"
#include "tests/support/component_world.h"

namespace turnout {

class MessagingWorld : public ComponentWorld, public Messaging {
 public:
  static constexpr std::uint32_t kEager = 4096;  // bytes of a receive, and of a send buffer
  static constexpr std::uint32_t kDepth = 8;     // of each send queue
  static constexpr std::uint32_t kSendBuffers = 16, kReceives = 16;

  explicit MessagingWorld(const Settings& wanted = stub_settings())
      : ComponentWorld(wanted), Messaging{static_cast<EndpointState&>(*this)} {
    context.domain = std::make_shared<DeviceDomain>(verbs::Device::open(settings).value());
    context.device = &context.domain->device();
    context.format.own_eager_size = kEager;
    const verbs::Device& device = *context.device;
    resources.send_pool = BufferPool::create(device, kSendBuffers, kEager).value();
    resources.control_send_pool =
        BufferPool::create(device, kSendBuffers, wire::kControlBuffer).value();
    resources.receive_pool =
        ReceivePool::create(device, kReceives, kEager, &resources.to_post).value();
    resources.data_srq.reset(ibv_create_srq(device.pd(), nullptr));
    resources.control_srq.reset(ibv_create_srq(device.pd(), nullptr));
    resources.unsignalled_data.limit = resources.unsignalled_control.limit = kSendBuffers / 4;
    resources.private_room = 64;
    ud.configure(kSendBuffers);
    shared_receives.begin_flow_control();
    shared_receives.post_receives();
    shared_receives.begin_receives();
    registration.start_registrations();
  }

  // One that is wired up and has `credits` of ours to use.
  Peer& add_known_peer(std::uint32_t credits = 4) {
    Peer& peer = add_peer();
    peer.address.counts = 1 | 1 << 4 | 1 << 6;
    for (unsigned i = 0; i < 3; ++i) peer.address.dct[i][0] = static_cast<std::uint8_t>(100 + i);
    peer.tx.credits = credits;
    return peer;
  }
  // The connection of the pair, of a private receive queue.
  void connect(Peer& peer) {
    peer.connect().rc = std::make_unique<RcQueue>(
        7, kDepth, resources.unsignalled_data, std::uint8_t{0}, std::uint8_t{1}, context.account);
    QpTuning tuning;
    tuning.max_inline = kMostInline;
    ASSERT_TRUE(
        peer.connection->rc->create(*context.device, nullptr, nullptr, nullptr, 64, kDepth, tuning)
            .ok());
    ASSERT_TRUE(peer.connection->rc->connect(1, 1, {}).ok());
  }

  [[nodiscard]] static wire::ControlMessage control_in(const SendRecord& record) {
    wire::ControlMessage message;
    std::memcpy(&message, reinterpret_cast<const void*>(record.local), sizeof message);
    return message;
  }
  [[nodiscard]] static wire::Header header_in(const SendRecord& record) {
    wire::Header header;
    std::memcpy(&header, reinterpret_cast<const void*>(record.local), sizeof header);
    return header;
  }
  // The control messages that were posted, in order.
  [[nodiscard]] static std::vector<wire::ControlMessage> controls_of(const RecordedQueue& queue) {
    std::vector<wire::ControlMessage> all;
    for (const SendRecord& record : queue.posted) all.push_back(control_in(record));
    return all;
  }
  // The adapter has sent everything: places and buffers are free again.
  void complete(RecordedQueue& queue) {
    for (const SendRecord& record : queue.take_all()) resources.give_back(record);
  }
  void fill(RecordedQueue& queue) {
    while (!queue.full()) ASSERT_TRUE(queue.post({}).ok());
  }

  RecordedQueue& data = add_queue(Purpose::data, kDepth);
  RecordedQueue& credit = add_queue(Purpose::credit, kDepth);
  RecordedQueue& establishment = add_queue(Purpose::establishment, kDepth);
};

}  // namespace turnout
