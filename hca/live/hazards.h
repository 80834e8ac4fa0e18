// SPDX-License-Identifier: BSD-3-Clause
// Hazards: waits until no initiator uses what the caller has invalidated.
//
// Before it relies on a region or a queue pair an initiator names it in its hazard word with a full
// barrier; the owner first invalidates, then waits here: see executor.h. Any thread; may sleep.
#pragma once

#include "hca/live/fabric.h"
#include "hca/live/local_objects.h"

namespace turnout::hca {

class Hazards {
 public:
  Hazards(Fabric& fabric, LocalObjects& objects) : fabric_(fabric), objects_(objects) {}

  // Waits until no initiator touches this region or queue pair. 0: not asked about. held: the queue
  // pair of ours whose sq_lock the caller has, if any.
  void wait_unused(std::uint32_t key, std::uint32_t number, const Qp* held = nullptr) noexcept;
  // Waits until no initiator has a receive of this SRQ of ours. Nobody can take another.
  void wait_untaken(std::uint32_t srq) noexcept;

 private:
  // May somebody execute a request of the queue pair with this index now?
  [[nodiscard]] bool executes(std::uint32_t index) noexcept;

  Fabric& fabric_;
  LocalObjects& objects_;
};

}  // namespace turnout::hca
