// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/regions.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "hca/device/common_objects.h"
#include "tests/hca/virtual/adapter_parts.h"

namespace turnout::hca::test {
namespace {

class VirtualRegions : public ::testing::Test {
 protected:
  void SetUp() override { pd_ = make_domain(parts_.contexts[0], 1); }
  void TearDown() override { EXPECT_EQ(destroy_domain(*pd_), 0); }
  AdapterParts parts_;
  Pd* pd_ = nullptr;
  std::uint8_t bytes_[64] = {};
};

TEST_F(VirtualRegions, AreFoundByKeyBoundsAndRights) {
  Mr* const mr = parts_.regions.add(*pd_, bytes_, sizeof bytes_, 1000, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  const std::uint32_t key = mr->verbs.lkey;
  EXPECT_NE(parts_.regions.find(key, 1000, 64, 0), nullptr);
  EXPECT_NE(parts_.regions.find(key, 1063, 1, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(parts_.regions.find(key, 1063, 2, 0), nullptr);
  EXPECT_EQ(parts_.regions.find(key, 999, 1, 0), nullptr);
  EXPECT_EQ(parts_.regions.find(key, 1000, 1, IBV_ACCESS_REMOTE_READ), nullptr);
  EXPECT_EQ(parts_.regions.find(key + 1, 1000, 1, 0), nullptr);
  EXPECT_EQ(parts_.regions.find(0, 1000, 1, 0), nullptr);
  EXPECT_EQ(destroy_domain(*pd_), EBUSY);
  EXPECT_EQ(parts_.regions.remove(*mr), 0);
  EXPECT_EQ(parts_.regions.find(key, 1000, 1, 0), nullptr);
  EXPECT_EQ(parts_.kernel.statistics().regions_alive, 0U);
}

TEST_F(VirtualRegions, RegistrationTakesTimeAndMayBeRefused) {
  parts_.processes.enter(0);
  parts_.profile.setup_register = 500;
  parts_.profile.setup_register_rate = {};
  parts_.profile.fault_refuse = 1'000'000;
  EXPECT_EQ(parts_.regions.add(*pd_, bytes_, 0, 0, 0), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(parts_.processes.time(), 500);
}

}  // namespace
}  // namespace turnout::hca::test
