// SPDX-License-Identifier: BSD-3-Clause
// RendezvousReceiver: what a receive does about a large message that was announced (RTS): where in
// its buffer the data goes, and whether it is read, written by the peer after a CTS, or comes in
// fragments. Source: Takagi et al., EuroMPI 2013.
//
// The endpoint owns it; the thread that drives the endpoint calls it. Sizes are bytes.
#pragma once

#include "core/operations/rput_engine.h"

namespace turnout {

class RendezvousReceiver : Component {
 public:
  RendezvousReceiver(EndpointState& state, PostedReceives& posted, RdmaEngine& rdma,
                     FragmentEngine& fragments, RputEngine& rput)
      : Component(state), posted_(posted), rdma_(rdma), fragments_(fragments), rput_(rput) {}

  [[nodiscard]] Place place_in(RecvOperation& receive, std::uint64_t total);
  void start_get(RecvOperation& receive, Peer& peer, const wire::Header& header,
                 const wire::Rts& rts, Place place, DataPath path);

 private:
  PostedReceives& posted_;
  RdmaEngine& rdma_;
  FragmentEngine& fragments_;
  RputEngine& rput_;
};

}  // namespace turnout
