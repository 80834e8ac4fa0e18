// SPDX-License-Identifier: BSD-3-Clause
// EndpointContext: what every component of an endpoint may read: settings, clock, budget, device,
// address, what the policy and the default transport ask for, and the counters of the report.
//
// The endpoint owns it, fills it in at the start, and reports completions of the caller's
// operations through it. Only the thread that drives the endpoint uses it. Sizes are bytes, times
// nanoseconds.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>

#include "core/connection/decision_log.h"
#include "core/connection/feedback_counter.h"
#include "core/connection/traffic_statistics.h"
#include "core/endpoint.h"
#include "core/memory/account.h"
#include "core/memory/device_domain.h"
#include "core/protocol/rendezvous.h"
#include "core/report/profile.h"
#include "core/report/receive_cost.h"
#include "core/selection/device_costs.h"
#include "core/state/pending_work.h"
#include "core/transport/placement.h"
#include "core/transport/rc_queue.h"
#include "core/transport/ring.h"
#include "core/transport/wire.h"
#include "core/verbs/device.h"

namespace turnout {

enum class Closing : std::uint8_t { open, flushing, shutting_down, closed };

// How messages of the stream lie in receive buffers, and which of the program's travel so.
struct MessageFormat {
  std::uint32_t own_eager_size = 0;  // bytes of a message that our receives take
  std::size_t stream_overhead = sizeof(wire::Header);
  // Longer ones use rendezvous, others are eager, in fragments if need be; 0: those use rendezvous
  // that do not fit one message of the stream.
  std::size_t rendezvous_threshold = 0;
  // Of rings for which there is room, see PeerTable::ring_shape(); 0: the others only. To a peer
  // with such a ring, messages of up to half of it are eager.
  std::uint32_t large_ring_entry = 0;
  std::uint32_t large_ring_entries = 0;
  // Which of these use rendezvous depends on what both take (operations/eager_limit.h).
  bool measures_limit = false;
  // Bytes of the longest message that such a ring makes eager, if its entries are large; else 0.
  [[nodiscard]] std::size_t most_over(RingShape ring) const noexcept {
    if (large_ring_entry == 0 || ring.entry_size <= own_eager_size) return 0;
    return rendezvous_threshold != 0 ? ring.half() : ring.entry_size - sizeof(wire::Header);
  }
  // Messages of no more bytes are eager, and whole, to every peer that does not take less than we.
  std::size_t most_short = 0;
};

// What follows from the policy.
struct PolicyTraits {
  bool uses_feedback = false;         // policy turnout
  bool prepares = false;              // set-ups overlap each other and the program
  bool writes_credits = false;        // of rings over RC, see credit_words.h
  bool has_private_receives = false;  // policy ardma-sr: RC queue pairs have private receive queues
  bool never_connects = false;        // policy static:ud-sendrecv
  bool connects_first = false;        // at a peer's first message, or one-sided operation
  bool waits_for_connections = false;  // one-sided operations do, in a simulation of ACTS
  ChannelKind first_message = ChannelKind::dc_sendrecv;  // asked for at a peer's first message
  std::uint64_t ring_threshold = 0;                      // messages on RC-SRQ, RC-SR; 0: no ring
};

struct EndpointContext {
  EndpointContext(const Settings& wanted, Clock& time, EndpointOptions& options);

  void charge(Work work, std::uint64_t amount) noexcept {
    if (simulation.processor != nullptr) [[unlikely]]
      simulation.processor->charge(work, amount);
  }
  [[nodiscard]] Nanoseconds age() noexcept { return clock.now() - born; }
  [[nodiscard]] bool over_datagrams() const noexcept {
    return default_channel == ChannelKind::ud_sendrecv;
  }
  // Channels change, or fail, after so many messages.
  [[nodiscard]] bool tests_channels() const noexcept {
    return (settings.test_switch_every | settings.test_break_every) != 0;
  }
  // One target serves all initiators; several take turns with completions of different peers.
  [[nodiscard]] std::size_t data_targets() const noexcept {
    return std::min<std::size_t>(settings.data_qps, kMaxDataQps);
  }
  [[nodiscard]] std::size_t credit_targets() const noexcept {
    return std::min<std::size_t>(settings.credit_qps, kMaxCreditQps);
  }
  [[nodiscard]] std::uint32_t first_receives() const noexcept {
    return static_cast<std::uint32_t>(std::min(settings.receive_first, settings.receive_buffers));
  }
  [[nodiscard]] std::uint32_t most_private() const noexcept {
    return static_cast<std::uint32_t>(settings.private_receive_buffers);
  }
  // What `count` objects are accounted with: all queue pairs and queues ask here.
  [[nodiscard]] std::uint64_t object_bytes(Object object, std::uint64_t count,
                                           std::uint64_t computed) const noexcept {
    const ObjectSizes* const sizes = simulation.object_sizes;
    return sizes != nullptr ? sizes->bytes(object, count, computed) : computed;
  }
  // Tell the caller that its operation is done, or has failed.
  void finish(const Report& report, const Completion& completion) {
    finish(report, [&] { return completion; });
  }
  // `make` is called where there is a queue, and makes the entry in its place.
  template <std::invocable Make>
  void finish(const Report& report, Make&& make) {
    if (closing) [[unlikely]]
      return;
    if (report.queue != nullptr) report.queue->push(make);
    if (report.counter != nullptr) report.counter->value.fetch_add(1, std::memory_order_release);
  }
  // A peer has written to our memory, or updated it, and gave data with it.
  void report_write(std::uint64_t length, std::uint64_t data, PeerId source,
                    std::uint32_t kind = 0) {
    finish(remote_access.writes, {.context = remote_access.writes.context,
                                  .length = length,
                                  .data = data,
                                  .flags = kind | kRemoteWrite | kRemoteData,
                                  .source = source});
  }
  // A peer has written to the region of this key, or updated it, or it has read. `reported`: by
  // report_write(), so that it is counted for the endpoint.
  void count_access(bool write, std::uint64_t key, bool reported) noexcept {
    if (!remote_access.events || closing) return;
    Counter* const counter = write ? remote_access.writes.counter : remote_access.reads;
    if (!reported && counter != nullptr) counter->value.fetch_add(1, std::memory_order_release);
    domain->count_access(key, write);
  }
  void fail(const Report& report, const Completion& completion, Status status,
            std::size_t overflow = 0);

  Settings settings;
  Clock& clock;
  const SimulationHooks simulation;
  Nanoseconds born = 0;
  MemoryAccount account;
  std::shared_ptr<DeviceDomain> domain;
  verbs::Device* device = nullptr;  // the domain's
  Address address;
  selection::DeviceCosts costs;
  QpTuning tuning;
  Placement placement;
  ChannelKind default_channel = ChannelKind::dc_sendrecv;  // serves every pair at first
  std::uint64_t rc_bytes = 0;                              // of an RC queue pair
  Rendezvous rendezvous = Rendezvous::getcqe;
  MessageFormat format;
  PolicyTraits traits;
  RemoteAccess remote_access;
  Closing closing_phase = Closing::open;
  bool started = false;
  bool closing = false;
  std::uint32_t ticks = 0;
  bool in_progress = false;  // a call of progress runs
  PendingWork pending;
  TrafficStatistics statistics{account};
  FeedbackCounter feedback;
  DecisionLog decisions{account};
  std::int64_t started_at = 0;  // ns since 1970; 0: the time is not this machine's
  std::uint64_t delivered = 0;  // messages
  ReceiveCost receive_cost;
  CommunicationProfile profile;
};

}  // namespace turnout
