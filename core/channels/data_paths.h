// SPDX-License-Identifier: BSD-3-Clause
// DataPaths: how the data of a large message or a one-sided operation goes to or comes from a peer
// now.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/channels/channel_selector.h"

namespace turnout {

class DataPaths : MessagingUser {
 public:
  DataPaths(EndpointState& state, Messaging& messaging, RcPool& rc, ConnectionSlots& slots,
            ChannelSelector& selector)
      : MessagingUser(state, messaging), rc_(rc), slots_(slots), selector_(selector) {}

  [[nodiscard]] DataPath data_path(Peer& peer);
  // Of a large message that has a receive; `wait` also for a record. Asked once for each start:
  // the answer may change with the clock.
  [[nodiscard]] DataPath path_of_transfer(Peer& peer) {
    return records_.transfers.ready() ? data_path(peer) : DataPath::wait;
  }
  void use_one_sided(Peer& peer);

 private:
  RcPool& rc_;
  ConnectionSlots& slots_;
  ChannelSelector& selector_;
};

}  // namespace turnout
