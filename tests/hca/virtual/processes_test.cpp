// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/processes.h"

#include <gtest/gtest.h>

#include "tests/hca/virtual/adapter_parts.h"

namespace turnout::hca::test {
namespace {

TEST(Processes, EachHasATimeOfItsOwnAheadOfTheWorlds) {
  AdapterParts parts;
  parts.processes.enter(0);
  parts.processes.charge(100);
  EXPECT_EQ(parts.processes.time(), 100);
  parts.processes.enter(1);
  EXPECT_EQ(parts.processes.time(), 0);
  parts.kernel.schedule(250, EventKind::notify, nullptr);
  (void)parts.next();
  parts.processes.enter(0);  // what it did has ended
  EXPECT_EQ(parts.processes.time(), 250);
}

TEST(Processes, TheDeadHearNothing) {
  AdapterParts parts;
  parts.processes.wake(1);
  parts.processes[1].alive = false;
  parts.processes.wake(1);
  EXPECT_EQ(parts.woken, std::vector<ProcessIndex>{1});
}

TEST(Processes, ANodeIsThatOfTheQueuePairsProcess) {
  AdapterParts parts;
  VirtualQp &a = parts.add_qp(0), &b = parts.add_qp(0), &c = parts.add_qp(1);
  EXPECT_TRUE(parts.processes.same_node(a, b));
  EXPECT_FALSE(parts.processes.same_node(a, c));
  EXPECT_EQ(&parts.processes.node_of(a), &parts.processes.node_of(b));
}

TEST(Processes, StandsStillOnlyWhereTheProfileSaysSo) {
  AdapterParts parts;
  parts.processes.enter(0);
  EXPECT_FALSE(parts.processes.stand_still());
  parts.profile.fault_slow = 1'000'000;
  parts.profile.fault_slow_most = 50;
  EXPECT_TRUE(parts.processes.stand_still());
  EXPECT_GT(parts.processes.time(), 0);
  EXPECT_LE(parts.processes.time(), 50);
}

}  // namespace
}  // namespace turnout::hca::test
