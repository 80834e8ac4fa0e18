// SPDX-License-Identifier: BSD-3-Clause
// PeerCq: where the completions of a Cq go that was opened with FI_PEER: into the queue of another
// provider, its owner. Reading the Cq is how the owner drives its endpoints, and returns no entry.
//
// Part of its Cq. The owner is called without the domain's lock; its queue is written by one thread
// at a time. What is taken from an endpoint's queue is copied, so it refers neither to the endpoint
// nor to the context that has the receives: these may be closed before the owner has room for it.
// Source: fi_peer(3), "PEER CQ".
#pragma once

#include <rdma/fi_eq.h>
#include <rdma/fi_ext.h>

#include <atomic>
#include <deque>
#include <vector>

#include "core/types/completion.h"
#include "provider/compat.h"
#include "provider/peer_layout.h"

namespace turnout::provider {

struct Cq;
struct Domain;
class PeerReceives;

class PeerCq {
 public:
  explicit PeerCq(fid_peer_cq& owner) noexcept : owner_(owner) {}

  // -FI_E* of the fi_cq_attr and context that fi_cq_open was given.
  [[nodiscard]] static int check(const fi_cq_attr& attr, const void* context) noexcept;
  // Moves the endpoints once, and tells the owner what has ended.
  void drive(Cq& queue);
  // Takes what the endpoints of `queue` have reported, until so many wait here; with the domain's
  // lock. True: there may be more.
  bool take(Cq& queue, std::size_t most);
  // The owner's receive ends so; with the domain's lock. `receives` cannot be closed until it is
  // given back.
  void end(PeerReceives& receives, PeerRxEntry& receive, const ErrorCompletion& c, bool failed,
           fi_addr_t source);
  // The owner gets the entries of receives that have ended; without the lock.
  void give_back(Domain& domain);

  static fi_ops_cq ops;

 private:
  struct Ended {
    CqErrEntry120 entry{};
    bool failed = false;
  };
  struct Done {
    PeerReceives* receives;
    PeerRxEntry* receive;
  };

  [[nodiscard]] bool refill(Cq& queue);
  [[nodiscard]] bool tell(const Ended& ended);
  void add(const ErrorCompletion& c, bool failed, fi_addr_t source);
  static void release(Domain& domain, const std::vector<Done>& done);

  fid_peer_cq& owner_;
  std::atomic<bool> busy_{false};
  std::deque<Ended> telling_;    // of the thread that is busy
  std::vector<Done> releasing_;  // the same
  std::deque<Ended> ended_;      // after the other; with the domain's lock
  std::vector<Done> done_;       // the same
};

}  // namespace turnout::provider
