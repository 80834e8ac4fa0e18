// SPDX-License-Identifier: BSD-3-Clause
// Completion channels of the live adapter: pipes (ibv_create_comp_channel(3)).
//
// A channel is its program's until it is destroyed. Errors: null and errno, or an errno value. Any
// thread.
#pragma once

#include "hca/device/objects.h"

namespace turnout::hca {

class LiveChannels {
 public:
  [[nodiscard]] static Channel* create(Context& context);
  [[nodiscard]] static int destroy(Channel& channel);
};

}  // namespace turnout::hca
