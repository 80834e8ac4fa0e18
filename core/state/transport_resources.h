// SPDX-License-Identifier: BSD-3-Clause
// TransportResources: completion queues, shared receive queues, queue pairs of the default
// transport, and the buffers of sends and receives. A plain struct: Startup fills it in, the
// components that post and poll use it.
//
// The endpoint owns it; only the thread that drives the endpoint uses it. Its members are destroyed
// from the last to the first: queue pairs before their queues.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/memory/account.h"
#include "core/memory/buffer_pool.h"
#include "core/receive/receive_pool.h"
#include "core/state/endpoint_context.h"
#include "core/state/peer.h"
#include "core/transport/dc_queue.h"
#include "core/transport/rc_queue.h"
#include "core/transport/ud_queue.h"
#include "core/transport/xrc_domain.h"
#include "core/verbs/device.h"

namespace turnout {

inline constexpr std::uint32_t kQueueDepth = 128;  // work requests of one queue pair
inline constexpr std::uint32_t kControlSendBuffers = 128;
// Send buffers reserved for retransmission: lost messages may occupy all others.
inline constexpr std::uint32_t kRecoveryBuffers = 1;
inline constexpr int kPollBatch = 16;              // completions looked at together
inline constexpr std::uint32_t kMostInline = 256;  // header and payload
inline constexpr std::uint64_t kControlReceive = std::uint64_t{1} << 32;  // bits of a wr_id
inline constexpr std::uint64_t kPrivateReceive = std::uint64_t{1} << 33;
inline constexpr unsigned kLifetimeShift = 34;  // above them, of an own receive
inline constexpr int kDecisionsRefused = 4;     // a channel is not asked for again for so many

// What a queue pair of the default transport is for.
enum class Purpose : std::uint8_t { data, credit, establishment };

struct TransportResources {
  [[nodiscard]] std::vector<std::unique_ptr<MessageQueue>>& pool(Purpose purpose) noexcept {
    return initiators[static_cast<std::size_t>(purpose)];
  }
  // A stream message in a receive buffer.
  [[nodiscard]] const std::byte* received(std::uint32_t buffer) const noexcept {
    return receive_pool.data(buffer) + receive_offset;
  }
  // Unexpected messages occupy so many receive buffers that others may find none.
  [[nodiscard]] bool receives_scarce() const noexcept {
    return receives_kept > receive_pool.count() / 2;
  }
  // To the peer's target of our data initiator for it.
  void address_data(const Peer& peer, SendRecord* record) const noexcept {
    record->dct = number_of(peer.address.dct[peer.data_target]);
    record->ah = peer.address.port->handle.get();
    record->dc_key = peer.address.id;
  }

  // The buffer of a message of which nothing is in flight any more.
  void give_back(const SendRecord& record) noexcept {
    if (record.pool == SendRecord::Pool::data) send_pool.give_back(record.buffer);
    if (record.pool == SendRecord::Pool::large) large_send_pool.give_back(record.buffer);
    if (record.pool == SendRecord::Pool::control) control_send_pool.give_back(record.buffer);
  }
  // A request is in flight whose completion will come.
  [[nodiscard]] bool awaits_completion() const noexcept {
    return (unsignalled_data.signalled | unsignalled_control.signalled) != 0;
  }

  verbs::Cq receive_cq, send_cq;
  verbs::Srq data_srq, control_srq;
  std::unique_ptr<XrcDomain> xrc;  // null: nothing was over XRC yet
  ReceivePool receive_pool;
  BufferPool control_receive_pool, send_pool, control_send_pool;
  CreditWords credit_words;
  BufferPool large_send_pool;  // for messages that fit only large ring entries; empty: none yet
  std::vector<Reservation> fixed;
  UnsignalledBuffers unsignalled_data, unsignalled_control;
  std::vector<DcTarget> targets;
  std::size_t default_queues = 0;  // of the default transport: they have the first ids of `queues`
  std::vector<std::unique_ptr<MessageQueue>> initiators[3];
  std::vector<SendQueue*> queues;                          // by id; null: free
  std::vector<std::unique_ptr<RcQueue>> rc_pool;           // RESET or INIT, unconnected
  std::vector<std::unique_ptr<RingReceiver>> spare_rings;  // of nobody
  std::vector<std::uint32_t> to_post, to_post_control;     // receive buffers to post again
  std::uint32_t receive_offset = 0;  // where a stream message begins in a receive buffer
  std::size_t receives_kept = 0;     // receive buffers held by messages
  std::vector<std::uint64_t>
      shutting_down;               // ids of peers that shut down in the batch being looked at
  std::uint32_t private_room = 0;  // private receives that their completion queue has room for
};

}  // namespace turnout
