// SPDX-License-Identifier: BSD-3-Clause
// Settings with which tests load the virtual adapter before they change its functions. Any thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/settings.h"

namespace turnout {

inline Settings adapter_settings() {
  Settings settings = Settings::defaults();
  EXPECT_TRUE(settings.set("device", "virtual").ok());
  if (const char* path = std::getenv("TURNOUT_VERBS_PATH")) {
    EXPECT_TRUE(settings.set("verbs_path", path).ok());
  }
  return settings;
}

}  // namespace turnout
