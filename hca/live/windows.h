// SPDX-License-Identifier: BSD-3-Clause
// LiveWindows: memory windows: parts of a region with keys and rights of their own, that come and
// go as fast as other requests. A window is a record of the table of regions whose owner is the
// region's.
//
// Sources: ibv_alloc_mw(3), ibv_bind_mw(3), ibv_post_send(3); IBTA 10.6.7. Type 2 windows answer
// the queue pair they were bound over and no other (2B).
// A window is its program's until dealloc(). Errors: null and errno, or an errno value. Any thread;
// bind() and invalidate() with the queue pair's sq_lock.
#pragma once

#include "hca/live/hazards.h"
#include "hca/live/memory.h"
#include "hca/live/receives.h"

namespace turnout::hca {

class LiveWindows : LiveParts {
 public:
  explicit LiveWindows(const LiveParts& parts) : LiveParts(parts) {}

  [[nodiscard]] Mw* alloc(Pd& pd, ibv_mw_type type);
  [[nodiscard]] int dealloc(Mw& mw);
  [[nodiscard]] ibv_wc_status bind(const Qp& qp, const SendWqe& wqe) noexcept;
  [[nodiscard]] ibv_wc_status invalidate(const Qp& qp, const SendWqe& wqe) noexcept;
  // Is it a bound window of type 2 that a request to `target` may invalidate?
  [[nodiscard]] bool may_invalidate(std::uint32_t key, const RequestTarget& target) const noexcept;
};

}  // namespace turnout::hca
