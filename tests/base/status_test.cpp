// SPDX-License-Identifier: BSD-3-Clause
#include "base/status.h"

#include <gtest/gtest.h>

#include <set>

namespace turnout {
namespace {

TEST(Status, SuccessIsEmpty) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), Code::ok);
  EXPECT_EQ(status.text(), "");
  EXPECT_EQ(status.sys_errno(), 0);
  EXPECT_TRUE(Status(Code::ok, "words nobody needs").ok());
}

TEST(Status, FailureKeepsCodeErrnoAndWords) {
  const Status status(Code::system, "ibv_reg_mr of 4096 bytes", 12);
  const Status copy = status;
  EXPECT_FALSE(copy.ok());
  EXPECT_EQ(copy.code(), Code::system);
  EXPECT_EQ(copy.sys_errno(), 12);
  EXPECT_EQ(copy.text(), "ibv_reg_mr of 4096 bytes");
}

TEST(Status, EveryCodeHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int c = 0; c <= static_cast<int>(Code::internal); ++c) {
    EXPECT_TRUE(names.insert(code_name(static_cast<Code>(c))).second) << c;
  }
  EXPECT_FALSE(names.contains("?"));
}

TEST(Result, ValueOrStatus) {
  const Result<int> good(3);
  EXPECT_TRUE(good.ok());
  EXPECT_EQ(good.value(), 3);
  EXPECT_TRUE(good.status().ok());
  const Result<int> bad(Status(Code::again, "later"));
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), Code::again);
}

}  // namespace
}  // namespace turnout
