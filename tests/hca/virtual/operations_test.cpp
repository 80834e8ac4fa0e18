// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/operations.h"

#include <gtest/gtest.h>

#include "tests/hca/virtual/adapter_parts.h"

namespace turnout::hca::test {
namespace {

TEST(Operations, OneThatWasFreedComesBackClean) {
  AdapterParts parts;
  Operation* const first = parts.operations.create();
  first->status = IBV_WC_FATAL_ERR;
  first->lost = first->xrc = true;
  first->copy.resize(8);
  parts.operations.free(first);
  Operation* const again = parts.operations.create();
  EXPECT_EQ(again, first);
  EXPECT_EQ(again->status, IBV_WC_SUCCESS);
  EXPECT_FALSE(again->lost || again->xrc);
  EXPECT_TRUE(again->copy.empty());
  EXPECT_EQ(again->qp, nullptr);
}

TEST(Operations, CountsTheEventsThatNameIt) {
  AdapterParts parts;
  Operation& operation = *parts.operations.create();
  parts.operations.answer(operation, 30);
  parts.operations.schedule(20, EventKind::land, operation);
  EXPECT_EQ(operation.events, 2U);
  EXPECT_EQ(parts.next().kind, EventKind::land);
  const Event answer = parts.next();
  EXPECT_EQ(answer.kind, EventKind::answer);
  EXPECT_EQ(answer.object, &operation);
  EXPECT_EQ(answer.time, 30);
}

}  // namespace
}  // namespace turnout::hca::test
