// SPDX-License-Identifier: BSD-3-Clause
// PartsWorld: all components of an endpoint, for the tests of what stands above them (PeerLoss,
// SendCompletions and so on), one at a time. There is no endpoint and no adapter: the verbs library
// does nothing (stub_verbs.cpp), the test puts entries into completion queues, and what is said
// upwards is recorded (component_world.cpp).
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "core/endpoint/components.h"
#include "core/memory/device_domain.h"
#include "tests/support/component_world.h"

namespace turnout {

class PartsWorld : public Surroundings, public Components {
 public:
  static constexpr std::uint32_t kBytes = 4096;  // of a receive
  static constexpr std::uint32_t kBuffers = 16;

  explicit PartsWorld(const Settings& wanted = stub_settings())
      : Surroundings(wanted), Components(Surroundings::settings, clock, options, above) {
    context.domain = std::make_shared<DeviceDomain>(verbs::Device::open(context.settings).value());
    context.device = &context.domain->device();
    context.device->context()->ops.poll_cq = &poll;
    context.settings.data_qps = context.settings.credit_qps = context.settings.establishment_qps =
        1;
    entries().clear();
  }
  // What Startup makes, but for queue pairs that only remember what was posted.
  void make_queues() {
    const verbs::Device& device = *context.device;
    resources.receive_cq.reset(ibv_create_cq(device.context(), 1, nullptr, nullptr, 0));
    resources.send_cq.reset(ibv_create_cq(device.context(), 1, nullptr, nullptr, 0));
    resources.receive_cq->context = resources.send_cq->context = device.context();
    resources.send_pool = BufferPool::create(device, kBuffers, kBytes).value();
    resources.control_send_pool =
        BufferPool::create(device, kBuffers, wire::kControlBuffer).value();
    resources.control_receive_pool =
        BufferPool::create(device, kBuffers, wire::kControlBuffer).value();
    resources.receive_pool =
        ReceivePool::create(device, kBuffers, kBytes, &resources.to_post).value();
    for (const Purpose purpose : {Purpose::data, Purpose::credit, Purpose::establishment}) {
      auto queue =
          std::make_unique<RecordedQueue>(static_cast<std::uint32_t>(resources.queues.size()),
                                          kBuffers, resources.unsignalled_data);
      resources.queues.push_back(queue.get());
      resources.pool(purpose).push_back(std::move(queue));
    }
    resources.default_queues = resources.queues.size();
  }
  [[nodiscard]] RecordedQueue& queue(Purpose purpose) {
    return static_cast<RecordedQueue&>(*resources.pool(purpose).front());
  }
  // One that knows us.
  Peer& add_peer() {
    Address address;
    address.counts = 1 | 1 << 4 | 1 << 6;
    address.set_sizes(kBytes, 4, context.over_datagrams());
    address.id = 1000 + peer_table.peers().size();
    address.seal();
    Status status;
    Peer* const peer = peer_table.make_peer(address, &status);
    EXPECT_NE(peer, nullptr) << status.text();
    peer->remote_index = 7;
    return *peer;
  }
  // For the next poll of either completion queue.
  static void complete(std::uint64_t wr_id, ibv_wc_status status, std::size_t length = 0) {
    ibv_wc entry{};
    entry.wr_id = wr_id;
    entry.status = status;
    entry.byte_len = static_cast<std::uint32_t>(length);
    entries().push_back(entry);
  }
  // A control message of the peer arrives.
  void arrive(const Peer& peer, wire::ControlMessage message, std::size_t length = sizeof message) {
    message.sender = peer.address.id;
    message.index = peer.id;
    const std::uint32_t buffer = resources.control_receive_pool.take();
    std::memcpy(resources.control_receive_pool.data(buffer), &message, sizeof message);
    complete(buffer | kControlReceive, IBV_WC_SUCCESS, length);
  }
  [[nodiscard]] static wire::ControlMessage control_in(const SendRecord& record) {
    wire::ControlMessage message;
    std::memcpy(&message, reinterpret_cast<const void*>(record.local), sizeof message);
    return message;
  }
  // Into it, with the errors.
  [[nodiscard]] Report report() { return {&completions, &completions, nullptr, nullptr}; }

  CompletionQueue completions;

 private:
  [[nodiscard]] static std::deque<ibv_wc>& entries() {
    static std::deque<ibv_wc> all;
    return all;
  }
  static int poll(ibv_cq* /*queue*/, int most, ibv_wc* to) {
    int n = 0;
    for (; n < most && !entries().empty(); ++n) {
      to[n] = entries().front();
      entries().pop_front();
    }
    return n;
  }
};

}  // namespace turnout
