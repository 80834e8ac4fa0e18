// SPDX-License-Identifier: BSD-3-Clause
// PeerCq: where the completions of a Cq go that was opened with FI_PEER: into the queue of another
// provider, its owner. Reading the Cq is how the owner drives its endpoints, and returns no entry.
//
// Part of its Cq. The owner is called without the domain's lock, and by one thread at a time.
// Source: fi_peer(3), "PEER CQ".
#pragma once

#include <rdma/fi_eq.h>
#include <rdma/fi_ext.h>

#include <atomic>
#include <deque>

#include "provider/compat.h"
#include "provider/peer_layout.h"

namespace turnout::provider {

struct Cq;
class PeerReceives;

class PeerCq {
 public:
  explicit PeerCq(fid_peer_cq& owner) noexcept : owner_(owner) {}

  // -FI_E* of the fi_cq_attr and context that fi_cq_open was given.
  [[nodiscard]] static int check(const fi_cq_attr& attr, const void* context) noexcept;
  // Moves the endpoints once, and tells the owner what has ended.
  void drive(Cq& queue);
  // These will not be there any more; with the domain's lock.
  void forget(const PeerReceives& receives) noexcept;

  static fi_ops_cq ops;

 private:
  struct Ended {
    CqErrEntry120 entry{};
    bool failed = false;
    // Of a receive that the owner matched.
    PeerRxEntry* receive = nullptr;
    PeerReceives* receives = nullptr;
  };

  [[nodiscard]] bool take(Cq& queue);
  [[nodiscard]] bool tell(const Ended& ended);

  fid_peer_cq& owner_;
  std::atomic<bool> busy_{false};
  std::deque<Ended> ended_;  // not told yet
};

}  // namespace turnout::provider
