// SPDX-License-Identifier: BSD-3-Clause
// Settings that ask for more than an adapter's queues hold.
#include "core/verbs/device_limits.h"

#include <gtest/gtest.h>

#include <string>

namespace turnout {
namespace {

constexpr std::uint64_t kInitiators = 8, kDepth = 128;

// Soft-RoCE of Linux 6.1, but for the shared receive queue of an older one.
ibv_device_attr soft_roce() {
  ibv_device_attr device{};
  device.max_cqe = 32767;
  device.max_srq_wr = 32768;
  device.max_qp_wr = 1 << 20;
  return device;
}

Settings with(std::initializer_list<std::pair<const char*, const char*>> values) {
  Settings settings = Settings::defaults();
  for (const auto& [name, value] : values) EXPECT_TRUE(settings.set(name, value).ok());
  return settings;
}

TEST(DeviceLimits, TheDefaultsFitSoftRoce) {
  Settings settings = Settings::defaults();
  ASSERT_TRUE(fit_device(soft_roce(), "rxe0", kInitiators, kDepth, &settings).ok());
  EXPECT_EQ(settings.receive_buffers, Settings::defaults().receive_buffers);
  EXPECT_EQ(settings.rc_pool, Settings::defaults().rc_pool);
}

TEST(DeviceLimits, ReceivesAreAsManyAsHaveRoomForTheirCompletions) {
  Settings settings = with({{"receive_buffers", "32768"}});
  ASSERT_TRUE(fit_device(soft_roce(), "rxe0", kInitiators, kDepth, &settings).ok());
  EXPECT_EQ(settings.receive_buffers, 32767 - settings.control_buffers);
  ibv_device_attr little = soft_roce();
  little.max_srq_wr = 300;
  settings = with({{"receive_buffers", "32768"}});
  ASSERT_TRUE(fit_device(little, "rxe0", kInitiators, kDepth, &settings).ok());
  EXPECT_EQ(settings.receive_buffers, 300u);
}

TEST(DeviceLimits, EveryRequestUnderWayHasRoomForItsCompletion) {
  Settings settings = with({{"max_active_rc", "4000"}, {"rc_pool", "5000"}});
  ASSERT_TRUE(fit_device(soft_roce(), "rxe0", kInitiators, kDepth, &settings).ok());
  EXPECT_EQ(settings.max_active_rc, 32767 / kDepth - kInitiators);
  EXPECT_EQ(settings.rc_pool, settings.max_active_rc);
}

TEST(DeviceLimits, WhatCannotBeLoweredIsRefusedWithWhatToDo) {
  Settings settings = with({{"control_buffers", "32768"}});
  Status status = fit_device(soft_roce(), "rxe0", kInitiators, kDepth, &settings);
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_NE(status.text().find("control_buffers=32768 in TURNOUT_TUNING: rxe0"), std::string::npos);
  ibv_device_attr tiny = soft_roce();
  tiny.max_qp_wr = 64;
  settings = Settings::defaults();
  EXPECT_EQ(fit_device(tiny, "tiny", kInitiators, kDepth, &settings).code(), Code::unsupported);
  tiny = soft_roce();
  tiny.max_cqe = 1000;
  EXPECT_EQ(fit_device(tiny, "tiny", kInitiators, kDepth, &settings).code(), Code::unsupported);
}

}  // namespace
}  // namespace turnout
