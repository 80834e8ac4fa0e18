// SPDX-License-Identifier: BSD-3-Clause
#include "core/operations/one_sided.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/support/operations_world.h"

namespace turnout {
namespace {

struct OneSidedWorld : OperationsWorld {
  [[nodiscard]] RmaRequest request(bool write) {
    RmaRequest request;
    request.peer = peer.id;
    request.write = write;
    request.local = {&part, 1};
    request.remote_address = 0x6000;
    request.key = 12;
    request.length = memory.size();
    request.report = report(this);
    return request;
  }
  Peer& peer = add_known_peer();
  std::array<std::byte, 64> memory{};
  const iovec part{memory.data(), memory.size()};
};

TEST(OneSided, CopiesASmallWriteIntoASendBuffer) {
  OneSidedWorld world;
  world.memory.fill(std::byte{3});
  const std::size_t free = world.resources.send_pool.available();
  EXPECT_TRUE(world.one_sided.rma_now(world.request(true)).ok());
  world.memory.fill(std::byte{4});
  ASSERT_EQ(world.data.posted.size(), 1u);
  const SendRecord& write = world.data.posted[0];
  EXPECT_EQ(write.opcode, IBV_WR_RDMA_WRITE);
  EXPECT_EQ(write.remote, 0x6000u);
  EXPECT_EQ(write.rkey, 12u);
  EXPECT_EQ(*reinterpret_cast<const std::byte*>(write.local), std::byte{3});
  EXPECT_EQ(world.completions.size(), 0u);
  write.transfer->in_flight = 0;
  (void)world.rdma.pump(*write.transfer);
  EXPECT_EQ(world.next_completion().flags, static_cast<std::uint32_t>(kRmaWrite));
  EXPECT_EQ(world.resources.send_pool.available(), free);
}

TEST(OneSided, ReadsIntoTheProgramsMemory) {
  OneSidedWorld world;
  EXPECT_TRUE(world.one_sided.rma_now(world.request(false)).ok());
  ASSERT_EQ(world.data.posted.size(), 1u);
  EXPECT_EQ(world.data.posted[0].opcode, IBV_WR_RDMA_READ);
  EXPECT_EQ(world.data.posted[0].local, reinterpret_cast<std::uint64_t>(world.memory.data()));
}

TEST(OneSided, HasNothingInProgressAfterARefusal) {
  OneSidedWorld world;
  RmaRequest wrong = world.request(true);
  wrong.length = 63;
  EXPECT_EQ(world.one_sided.rma_now(wrong).code(), Code::invalid);
  wrong = world.request(true);
  wrong.key = std::uint64_t{1} << 32;
  EXPECT_EQ(world.one_sided.rma_now(wrong).code(), Code::permission);
  wrong.peer = 5;
  EXPECT_EQ(world.one_sided.rma_now(wrong).code(), Code::invalid);
  world.fill(world.data);
  EXPECT_EQ(world.one_sided.rma_now(world.request(true)).code(), Code::again);
  EXPECT_EQ(world.records.transfers.in_use(), 0u);
  EXPECT_EQ(world.records.sends.in_use(), 0u);
}

TEST(OneSided, NeverLetsAnInjectedWriteReadTheProgramsMemoryLater) {
  OneSidedWorld world;
  while (world.resources.send_pool.available() > 0) (void)world.resources.send_pool.take();
  RmaRequest request = world.request(true);
  request.inject = true;
  EXPECT_EQ(world.one_sided.rma_now(request).code(), Code::again);
  EXPECT_EQ(world.records.transfers.in_use(), 0u);
  request.inject = false;
  EXPECT_TRUE(world.one_sided.rma_now(request).ok());
  ASSERT_EQ(world.data.posted.size(), 1u);
  EXPECT_EQ(world.data.posted[0].local, reinterpret_cast<std::uint64_t>(world.memory.data()));
}

TEST(OneSided, CopiesToItselfWithinARegisteredRegion) {
  OneSidedWorld world;
  world.context.default_channel = ChannelKind::ud_sendrecv;
  world.peer.self = true;
  std::array<std::byte, 64> target{};
  RmaRequest request = world.request(true);
  request.remote_address = reinterpret_cast<std::uint64_t>(target.data());
  request.key =
      world.context.domain->register_memory(target.data(), target.size(), kAccessRemoteWrite)
          .value()
          .remote;
  world.memory.fill(std::byte{3});
  EXPECT_TRUE(world.one_sided.rma_now(request).ok());
  EXPECT_EQ(target, world.memory);
  EXPECT_EQ(world.completions.size(), 1u);
  request.remote_address += 1;
  EXPECT_EQ(world.one_sided.rma_now(request).code(), Code::permission);
  EXPECT_TRUE(world.data.posted.empty());
}

}  // namespace
}  // namespace turnout
