// SPDX-License-Identifier: BSD-3-Clause
// PeerLoss: what is done about a peer that is lost: every component's part in it, in order.
#pragma once

#include "core/endpoint/components.h"

namespace turnout {

class PeerLoss : ComponentsUser {
 public:
  using ComponentsUser::ComponentsUser;

  void lose_peer(Peer& peer, const Status& why);
};

}  // namespace turnout
