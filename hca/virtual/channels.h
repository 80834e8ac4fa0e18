// SPDX-License-Identifier: BSD-3-Clause
// Channels: the completion channels of a world (ibv_create_comp_channel(3)).
//
// A channel is its program's until destroy(). Nothing sleeps in virtual time: there is no
// descriptor to wait on, and get_event() returns EAGAIN where a live one waits. One thread.
#pragma once

#include "hca/virtual/objects.h"

namespace turnout::hca {

class Channels {
 public:
  [[nodiscard]] static Channel* create(Context& context);
  [[nodiscard]] static int destroy(Channel& channel);
  [[nodiscard]] static int get_event(Channel& channel, ibv_cq** cq, void** cq_context);
};

}  // namespace turnout::hca
