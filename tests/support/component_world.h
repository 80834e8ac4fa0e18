// SPDX-License-Identifier: BSD-3-Clause
// ComponentWorld: what components of an endpoint stand on, without an endpoint and without an
// adapter: a context with a clock that the test moves, records, an empty table of peers, and queues
// that only remember what was posted. What a component says to those above it is recorded.
//
// A test links with turnout_components and component_world.cpp, which defines the methods of
// EndpointEvents.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/state/component.h"
#include "core/transport/message_queue.h"

namespace turnout {

// Here in place of the endpoint's own: what was said, and what is answered.
struct EndpointParts {
  struct Event {
    std::string_view name;
    const Peer* peer;
  };
  std::vector<std::uint64_t> fins;  // operations of on_fin()
  void record(std::string_view name, const Peer* peer) { events.push_back({name, peer}); }
  [[nodiscard]] std::size_t count(std::string_view name) const {
    std::size_t n = 0;
    for (const Event& event : events) n += event.name == name ? 1 : 0;
    return n;
  }

  std::vector<Event> events;
  bool answer = true;
  std::function<void()> arrives;  // when the receive queue is polled
  ChannelKind channel = ChannelKind::dc_rdma;
  DataPath path = DataPath::dc;
  Status loss;                                  // why the latest peer was lost
  wire::Refusal refusal = wire::Refusal::none;  // of the latest request that was refused
};

// A queue pair that remembers what was posted; the test decides when it is done.
class RecordedQueue final : public MessageQueue {
 public:
  RecordedQueue(std::uint32_t id, std::uint32_t depth, UnsignalledBuffers& buffers)
      : MessageQueue(id, depth, buffers) {}
  [[nodiscard]] Status post(const SendRecord& record) override {
    if (!result.ok()) return result;
    push(record, record.signalled);
    posted.push_back(record);
    return {};
  }
  [[nodiscard]] Status recover() override { return {}; }

  std::vector<SendRecord> posted;
  Status result;  // of the next requests
};

#ifndef STUB_VERBS  // the folder of stub_verbs.cpp's library, from CMake
#define STUB_VERBS ""
#endif
// Of a world whose verbs library does nothing.
[[nodiscard]] inline Settings stub_settings() {
  Settings settings = Settings::defaults();
  settings.device = "virtual";
  settings.verbs_path = STUB_VERBS;
  return settings;
}

// What the state of an endpoint refers to.
struct Surroundings {
  explicit Surroundings(Settings wanted) : settings(std::move(wanted)) {
    options.context_size = 64;
  }

  struct HandClock final : Clock {
    [[nodiscard]] Nanoseconds now() noexcept override { return time += between_calls; }
    Nanoseconds time = 1, between_calls = 0;
  } clock;
  Settings settings;
  EndpointOptions options;
  EndpointParts above;
};

class ComponentWorld : public Surroundings, public EndpointState {
 public:
  explicit ComponentWorld(Settings wanted = Settings::defaults())
      : Surroundings(std::move(wanted)),
        EndpointState(Surroundings::settings, clock, options, above) {}

  // A peer as the table makes it, with no address handle.
  Peer& add_peer() {
    Peer& peer = peers.peers().add();
    peer.remote_index = peer.id;
    peer.tx.kind = peer.rx.kind = context.default_channel;
    peer.address.id = 1000 + peer.id;
    peer.address.port = &port;
    return peer;
  }
  RecordedQueue& add_queue(Purpose purpose, std::uint32_t depth = 16) {
    const auto id = static_cast<std::uint32_t>(resources.queues.size());
    auto queue = std::make_unique<RecordedQueue>(id, depth, resources.unsignalled_data);
    RecordedQueue& made = *queue;
    resources.queues.push_back(queue.get());
    resources.pool(purpose).push_back(std::move(queue));
    return made;
  }

  PeerTable& peers = peer_table;
  RemotePort port;
};

}  // namespace turnout
