// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Tests during which the process is watched for memory that goes, as far as that is possible:
// sanitizers bring an allocator of their own, which does not tell.

#include <gtest/gtest.h>

#include "core/memory/unmap_monitor.h"

namespace turnout {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kOwnAllocator = true;
#else
inline constexpr bool kOwnAllocator = false;
#endif

class WatchedMemory : public testing::Test {
 protected:
  void SetUp() override {
#if !defined(__x86_64__)
    GTEST_SKIP() << "no registration cache on this processor";
#endif
    const Status status = watch_unmapping(kOwnAllocator ? Watch::mappings : Watch::all);
    ASSERT_TRUE(status.ok()) << status.text();
    ASSERT_TRUE(watching_unmapping());
  }
};

}  // namespace turnout
