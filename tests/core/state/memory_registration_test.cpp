// SPDX-License-Identifier: BSD-3-Clause
#include "core/state/memory_registration.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <array>

#include "tests/support/messaging_world.h"

namespace turnout {
namespace {

struct RegistrationWorld : MessagingWorld {
  // The key of a region of the buffer, which is used and released.
  std::uint32_t key_of_next_use() {
    Registration region;
    EXPECT_TRUE(registration.register_buffer(part, IBV_ACCESS_LOCAL_WRITE, &region).ok());
    return region.rkey();
  }
  std::array<std::byte, 64> buffer{};
  const iovec part{buffer.data(), buffer.size()};
};

TEST(MemoryRegistration, KeepsARegionForTheNextOperation) {
  RegistrationWorld world;
  EXPECT_FALSE(world.registration.is_registered(world.part, IBV_ACCESS_LOCAL_WRITE));
  const std::uint32_t first = world.key_of_next_use();
  EXPECT_TRUE(world.registration.is_registered(world.part, IBV_ACCESS_LOCAL_WRITE));
  EXPECT_FALSE(world.registration.is_registered(world.part, IBV_ACCESS_REMOTE_WRITE));
  EXPECT_EQ(world.key_of_next_use(), first);
}

TEST(MemoryRegistration, RegistersForgottenMemoryAgain) {
  RegistrationWorld world;
  const std::uint32_t first = world.key_of_next_use();
  world.registration.forget_memory(&world.buffer[10], 1);
  EXPECT_FALSE(world.registration.is_registered(world.part, IBV_ACCESS_LOCAL_WRITE));
  EXPECT_NE(world.key_of_next_use(), first);
}

TEST(MemoryRegistration, InvalidatesTheKeysOfAFailedTransfer) {
  RegistrationWorld world;
  for (const bool failed : {false, true}) {
    const std::uint32_t first = world.key_of_next_use();
    Transfer transfer;
    ASSERT_TRUE(
        world.registration.register_buffer(world.part, IBV_ACCESS_LOCAL_WRITE, &transfer.regions[0])
            .ok());
    if (failed) transfer.status = {Code::peer_lost, "lost"};
    MemoryRegistration::release_regions(transfer);
    EXPECT_EQ(world.key_of_next_use() != first, failed);
  }
}

}  // namespace
}  // namespace turnout
