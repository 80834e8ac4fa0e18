// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/one_sided_memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace turnout::sim {
namespace {

class OneSidedMemoryTest : public ::testing::Test {
 protected:
  std::vector<std::uint64_t> registered_;  // bytes
  Status refused_;
  CellCount cells_;
  OneSidedMemory memory_{5, cells_, [this](void*, std::uint64_t bytes) -> Result<MemoryKey> {
                           if (!refused_.ok()) return refused_;
                           registered_.push_back(bytes);
                           MemoryKey key;
                           key.remote = registered_.size();
                           return key;
                         }};
};

TEST_F(OneSidedMemoryTest, AWindowIsRegisteredWhenItHasToBeLarger) {
  std::byte any{};
  EXPECT_EQ(memory_.window_key(&any, 1), 1u);
  EXPECT_EQ(memory_.window_key(&any, 65536), 1u);
  EXPECT_EQ(memory_.window_key(&any, 65537), 2u);
  EXPECT_EQ(memory_.window_key(&any, 1), 2u);
  EXPECT_EQ(registered_, (std::vector<std::uint64_t>{65536, 131072}));
}

TEST_F(OneSidedMemoryTest, AGetFindsItsContentAndAPutHasToChangeEveryByte) {
  const auto get = memory_.open(100, 0x1234, false), put = memory_.open(100, 0x1234, true);
  EXPECT_NE(get.address, put.address);
  EXPECT_EQ(get.key, put.key);
  EXPECT_EQ(memory_.first_wrong(get.place, 0x1234), std::nullopt);
  EXPECT_EQ(memory_.first_wrong(put.place, 0x1234), std::optional<std::uint64_t>(0));
  memory_.close(get.place);
  EXPECT_EQ(memory_.open(100, 1, false).address, get.address);
  EXPECT_EQ(registered_.size(), 1u);
}

TEST_F(OneSidedMemoryTest, KeysOfAKilledRankAreUnknownUnlessTheyWereExchanged) {
  const auto before = memory_.open(100, 1, false);
  memory_.set_state(OneSidedMemory::State::killed);
  EXPECT_EQ(memory_.open(100, 1, false).key, before.key);
  EXPECT_THROW((void)memory_.open(1 << 20, 1, false), OperationError);
  memory_.set_state(OneSidedMemory::State::exited);
  EXPECT_THROW((void)memory_.open(100, 1, false), SimulationError);
  EXPECT_THROW((void)memory_.cells_key(), SimulationError);
}

TEST_F(OneSidedMemoryTest, CellsAreAsManyAsRequestedBeforeTheFirstAddition) {
  cells_.keep(8);
  cells_.keep(4);
  memory_.cells()[7] = 1;
  EXPECT_EQ(memory_.cells_key(), 1u);
  EXPECT_EQ(memory_.cells_key(), 1u);
  EXPECT_EQ(registered_, std::vector<std::uint64_t>{64});
  EXPECT_NO_THROW(cells_.keep(8));
  EXPECT_THROW(cells_.keep(9), SimulationError);
}

TEST_F(OneSidedMemoryTest, ARefusedRegistrationNamesTheRank) {
  refused_ = {Code::over_budget, "no memory"};
  try {
    (void)memory_.cells_key();
    FAIL();
  } catch (const SimulationError& error) {
    EXPECT_EQ(std::string(error.what()).rfind("cells of rank 5: ", 0), 0u) << error.what();
  }
}

}  // namespace
}  // namespace turnout::sim
