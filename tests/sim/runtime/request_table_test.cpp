// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/rank_operations.h"

#include <gtest/gtest.h>

namespace turnout::sim {
namespace {

Rank::StartAwaiter operation(OperationKind kind, std::uint64_t bytes) {
  return {nullptr, 3, bytes, 7, kind, {}};
}

class RequestTableTest : public ::testing::Test {
 protected:
  std::size_t forgotten_ = 0;
  RequestTable table_{[this](const std::byte*, std::size_t bytes) { forgotten_ += bytes; }};
};

TEST_F(RequestTableTest, ARequestEndsOnce) {
  const Request request = table_.open(operation(OperationKind::receive, 100));
  EXPECT_FALSE(table_.is_done(request));
  RequestTable::Entry& entry = table_.entry(request);
  entry.done = true;
  entry.received = {3, 7, 100};
  EXPECT_TRUE(table_.is_done(request));
  EXPECT_EQ(table_.take(request).bytes, 100u);
  EXPECT_THROW((void)table_.take(request), SimulationError);
  EXPECT_THROW((void)table_.take(Request()), SimulationError);
}

TEST_F(RequestTableTest, EntriesAreUsedAgainAndStayWhereTheyAre) {
  const Request first = table_.open(operation(OperationKind::send, 8));
  const RequestTable::Entry* const entry = &table_.entry(first);
  for (int i = 0; i < 100; ++i) (void)table_.open(operation(OperationKind::send, 8));
  EXPECT_EQ(&table_.entry(first), entry);
  table_.abandon(first);
  EXPECT_EQ(table_.open(operation(OperationKind::receive, 8)).index(), first.index());
}

TEST_F(RequestTableTest, AFailureIsThrownWithTheOperation) {
  const Request request = table_.open(operation(OperationKind::put, 100));
  table_.entry(request).error = "peer lost";
  EXPECT_EQ(table_.text(request), "put to rank 3, 100 bytes, tag 7");
  try {
    (void)table_.take(request);
    FAIL();
  } catch (const OperationError& error) {
    EXPECT_STREQ(error.what(), "put to rank 3, 100 bytes, tag 7: peer lost");
  }
}

TEST_F(RequestTableTest, MemoryOfABufferIsForgottenBeforeItGrows) {
  const Request request = table_.open(operation(OperationKind::send, 100));
  RequestTable::Entry& entry = table_.entry(request);
  table_.make_room(entry);
  EXPECT_EQ(entry.content.buffer.size(), 100u);
  EXPECT_EQ(forgotten_, 0u);
  entry.bytes = 50;
  table_.make_room(entry);
  EXPECT_EQ(forgotten_, 0u);
  entry.bytes = 1000;
  table_.make_room(entry);
  EXPECT_EQ(forgotten_, 100u);
}

TEST_F(RequestTableTest, AnotherSizeIsAnotherContent) {
  RequestTable::Entry& entry = table_.entry(table_.open(operation(OperationKind::send, 100)));
  table_.make_room(entry);
  entry.content.filled = 1;
  table_.make_room(entry);
  EXPECT_EQ(entry.content.filled, 1u);
  entry.bytes = 50;
  table_.make_room(entry);
  EXPECT_EQ(entry.content.filled, 0u);
}

}  // namespace
}  // namespace turnout::sim
