// SPDX-License-Identifier: BSD-3-Clause
// RendezvousReceiver: what a receive does about a message that comes later than its beginning:
// where in its buffer the data goes, and whether that of a large one (RTS) is read, written by the
// peer after a CTS, or comes in fragments as that of an eager one does. Source: Takagi et al.,
// EuroMPI 2013.
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
  void start_eager(RecvOperation& receive, Peer& peer, const wire::Header& header, Place place,
                   std::uint64_t total, std::span<const std::byte> arrived);

 private:
  [[nodiscard]] Completion completion_in(const RecvOperation& receive, const Peer& peer,
                                         const wire::Header& header, Place place) const;

  PostedReceives& posted_;
  RdmaEngine& rdma_;
  FragmentEngine& fragments_;
  RputEngine& rput_;
};

}  // namespace turnout
