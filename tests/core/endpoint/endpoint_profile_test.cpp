// SPDX-License-Identifier: BSD-3-Clause
// What the profile counts of an exchange that is known message by message.
#include <gtest/gtest.h>

#include "core/transport/wire.h"
#include "tests/support/memory_line.h"
#include "tests/support/requests.h"
#include "tests/support/test_world.h"

namespace turnout {
namespace {

SizeCount sent(const EndpointReport& report, Traffic traffic) {
  return report.profile->counts.sent[static_cast<std::size_t>(traffic)].total();
}

std::uint64_t objects(const EndpointReport& report, MemoryKind kind) {
  return memory_line(report, kind).objects;
}

class EndpointProfile : public ::testing::Test {
 protected:
  // From endpoint 0 to 1; the receive stands first, or is posted when the message is there.
  void exchange(std::size_t bytes, bool expected) {
    std::vector<std::byte> out = pattern(bytes, 1), in(bytes);
    const iovec source = piece(out), target = piece(in);
    const auto receive = [&] {
      ASSERT_TRUE(world_[1]
                      .recv(tagged_recv(world_.peer(1, 0), target, 7, world_.report(1, nullptr)))
                      .ok());
    };
    if (expected) receive();
    ASSERT_TRUE(
        world_[0].send(tagged_send(world_.peer(0, 1), source, 7, world_.report(0, nullptr))).ok());
    world_.progress_all(20);
    if (!expected) receive();
    ASSERT_TRUE(
        world_.until([&] { return world_.queue(0).size() > 0 && world_.queue(1).size() > 0; }));
    (void)take(world_.queue(0));
    (void)take(world_.queue(1));
    EXPECT_EQ(in, out);
  }

  TestWorld world_{
      2,
      {{"policy", "static:dc-sendrecv"}, {"credits_first", "16"}, {"rendezvous_segment", "64KiB"}}};
};

TEST_F(EndpointProfile, EachRequestIsCountedWithItsSize) {
  exchange(0, true);
  world_.progress_all(20);  // the wire-up reply
  const EndpointReport first = world_[0].report();
  EXPECT_EQ(sent(first, Traffic::data).messages, 1u);
  EXPECT_EQ(sent(first, Traffic::data).bytes, sizeof(wire::Header) + sizeof(wire::WireupRequest));
  EXPECT_EQ(sent(first, Traffic::control).messages, 0u);
  EXPECT_EQ(sent(world_[1].report(), Traffic::control).messages, 1u) << "wire-up reply";

  for (int i = 0; i < 3; ++i) exchange(100, true);
  const EndpointReport then = world_[0].report();
  const SizeCounts& data = then.profile->counts.sent[static_cast<std::size_t>(Traffic::data)];
  EXPECT_EQ(data[size_bin(100 + sizeof(wire::Header))].messages, 3u);
  EXPECT_EQ(data[size_bin(100 + sizeof(wire::Header))].bytes, 3 * (100 + sizeof(wire::Header)));
  EXPECT_EQ(data.total().messages, 4u);
}

// RTS; four reads of 64 KiB at the receiver; FIN.
TEST_F(EndpointProfile, ALargeMessageIsManySmallerOnes) {
  exchange(0, true);
  const std::uint64_t replies = sent(world_[1].report(), Traffic::control).messages;
  exchange(256 << 10, true);
  const EndpointReport sender = world_[0].report(), receiver = world_[1].report();
  EXPECT_EQ(sent(sender, Traffic::control).messages, 1u);
  EXPECT_EQ(sent(sender, Traffic::data).messages, 1u);
  EXPECT_EQ(sent(sender, Traffic::write).messages, 0u);
  EXPECT_EQ(sent(receiver, Traffic::control).messages, replies + 1);
  EXPECT_EQ(sent(receiver, Traffic::read).messages, 4u);
  EXPECT_EQ(sent(receiver, Traffic::read).bytes, 256u << 10);
}

TEST_F(EndpointProfile, UnexpectedMessagesAreCountedByTheirWholeSize) {
  exchange(50, true);
  exchange(50, false);
  exchange(256 << 10, false);
  const EndpointReport report = world_[1].report();
  const SizeCounts& unexpected = report.profile->counts.unexpected;
  EXPECT_EQ(unexpected.total().messages, 2u);
  EXPECT_EQ(unexpected[size_bin(50)].messages, 1u);
  EXPECT_EQ(unexpected[size_bin(256 << 10)].bytes, 256u << 10);
  EXPECT_EQ(world_[0].report().profile->counts.unexpected.total().messages, 0u);
}

TEST_F(EndpointProfile, BuffersHaveANumberToo) {
  const EndpointReport report = world_[0].report();
  EXPECT_EQ(objects(report, MemoryKind::receive_buffers), 64u + 256u);
  EXPECT_EQ(objects(report, MemoryKind::send_buffers), 128u + 1u + 128u) << "data, control";
  EXPECT_EQ(objects(report, MemoryKind::queue_pairs), 16u) << "8 initiators and 8 targets";
  EXPECT_EQ(objects(report, MemoryKind::rings), 0u);
  TestWorld rings(2, {{"policy", "static:rc-rdma"}});
  std::vector<std::byte> out = pattern(8, 1), in(8);
  const iovec source = piece(out), target = piece(in);
  ASSERT_TRUE(
      rings[1].recv(tagged_recv(rings.peer(1, 0), target, 7, rings.report(1, nullptr))).ok());
  ASSERT_TRUE(
      rings[0].send(tagged_send(rings.peer(0, 1), source, 7, rings.report(0, nullptr))).ok());
  EXPECT_TRUE(rings.until([&] { return objects(rings[1].report(), MemoryKind::rings) == 16; }));
  EXPECT_TRUE(
      rings.until([&] { return objects(rings[1].report(), MemoryKind::queue_pairs) == 17; }));
}

// Two sources send more than the receiver has receives for, which does nothing meanwhile.
TEST_F(EndpointProfile, RetriesForWantOfAReceiveAreToldByTheVirtualAdapter) {
  TestWorld few(3, {{"policy", "static:dc-sendrecv"},
                    {"receive_buffers", "16"},
                    {"credits", "16"},
                    {"credits_first", "16"}});
  std::vector<std::byte> out = pattern(8, 1);
  const iovec source = piece(out);
  for (int i = 0; i < 32; ++i) {
    const auto from = static_cast<std::size_t>(i % 2);
    EXPECT_EQ(few[from].report().profile->rnr_retries.value_or(1) > 0, i > 17) << i;
    ASSERT_TRUE(
        few[from].send(tagged_send(few.peer(from, 2), source, 7, few.report(from, nullptr))).ok());
  }
  EXPECT_EQ(few[2].report().profile->rnr_retries, 0u);
}

}  // namespace
}  // namespace turnout
