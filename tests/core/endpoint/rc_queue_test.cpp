// SPDX-License-Identifier: BSD-3-Clause
// RC queue pairs on adapters that have less than is asked for.
#include "core/transport/rc_queue.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "core/memory/account.h"
#include "tests/support/test_world.h"

namespace turnout {
namespace {

// The virtual adapter takes 512 bytes inline; some real ones take less than 100, and refuse a queue
// pair that shall have more.
TEST(RcQueue, TakesAsManyBytesInlineAsTheAdapterHasRoomFor) {
  setenv("TURNOUT_FABRIC", ("core-test-" + std::to_string(getpid())).c_str(), 1);
  Settings settings = Settings::defaults();
  ASSERT_TRUE(settings.set("device", "virtual").ok());
  auto device = verbs::Device::open(settings);
  ASSERT_TRUE(device.ok()) << device.status().text();
  const verbs::Cq cq(ibv_create_cq(device.value()->context(), 64, nullptr, nullptr, 0));
  ASSERT_NE(cq, nullptr);
  MemoryAccount account(1 << 20);
  UnsignalledBuffers buffers;
  for (const std::uint32_t asked : {256u, 4096u}) {
    RcQueue queue(0, 16, buffers, 0, 0, account);
    QpTuning tuning;
    tuning.max_inline = asked;
    const Status status = queue.create(*device.value(), cq.get(), cq.get(), nullptr, 4, 16, tuning);
    ASSERT_TRUE(status.ok()) << status.text();
    EXPECT_TRUE(queue.takes_inline(256));
    EXPECT_EQ(queue.takes_inline(512), asked > 512);
    EXPECT_FALSE(queue.takes_inline(513));
  }
}

}  // namespace
}  // namespace turnout
