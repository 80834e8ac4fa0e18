// SPDX-License-Identifier: BSD-3-Clause
// OperationsWorld: a MessagingWorld with the components of core/operations. A test decides when the
// adapter has carried out a request.
#pragma once

#include <span>

#include "core/operations/operations.h"
#include "tests/support/messaging_world.h"

namespace turnout {

class OperationsWorld : public MessagingWorld, public Operations {
 public:
  explicit OperationsWorld(const Settings& wanted = stub_settings())
      : MessagingWorld(wanted), Operations{*this, *this} {}

  [[nodiscard]] Report report(void* of) { return {&completions, &completions, nullptr, of}; }
  // A receive that is posted, of any peer.
  RecvOperation& post_receive(std::span<std::byte> buffer, std::uint64_t tag) {
    const iovec part{buffer.data(), buffer.size()};
    RecvOperation& receive = *records.receives.take();
    EXPECT_TRUE(receive.iov.set({&part, 1}));
    receive.match = {kAnyPeer, tag, 0, true};
    receive.report = report(&receive);
    records.matcher.post(&receive);
    receive.posted = true;
    return receive;
  }
  // A large message whose RTS was sent; it waits for the receiver.
  SendOperation& announce(Peer& peer, std::span<std::byte> bytes) {
    const iovec part{bytes.data(), bytes.size()};
    SendOperation& operation = *records.sends.take();
    operation.peer = &peer;
    EXPECT_TRUE(operation.iov.set({&part, 1}));
    operation.rendezvous = true;
    operation.report = report(&operation);
    EXPECT_TRUE(send_engine.prepare_rendezvous(operation).ok());
    operation.announced = true;
    ++peer.tx.awaiting_fin;
    return operation;
  }
  // The same of the peer, as it describes it.
  [[nodiscard]] static wire::Rts rts_of(std::uint64_t total, std::uint64_t operation) {
    wire::Rts rts;
    rts.total = total;
    rts.operation = operation;
    rts.segments = 1;
    rts.segment[0] = {0x10000, total, 88, 0};
    return rts;
  }
  // A message of the peer in a receive, which the adapter reports.
  void arrive(const Peer& peer, wire::Header header, std::span<const std::byte> payload = {}) {
    ASSERT_LT(next_receive, kReceives);
    header.index = peer.id;
    header.length = static_cast<std::uint16_t>(payload.size());
    std::byte* const to = resources.receive_pool.data(next_receive);
    std::memcpy(to, &header, sizeof header);
    if (!payload.empty()) std::memcpy(to + sizeof header, payload.data(), payload.size());
    receive_engine.on_data(next_receive++,
                           static_cast<std::uint32_t>(sizeof header + payload.size()));
  }
  [[nodiscard]] static wire::Header eager(std::uint32_t sequence, std::uint64_t tag) {
    wire::Header header;
    header.type = wire::Type::eager;
    header.flags = wire::kTagged;
    header.sequence = sequence;
    header.tag = tag;
    return header;
  }
  [[nodiscard]] Completion next_completion() {
    EXPECT_GT(completions.size(), 0u);
    const Completion first = completions.size() > 0 ? completions.front() : Completion{};
    if (completions.size() > 0) completions.pop();
    return first;
  }

  CompletionQueue completions;
  std::uint32_t next_receive = 0;
};

}  // namespace turnout
