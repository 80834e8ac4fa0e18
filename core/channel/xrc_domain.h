// SPDX-License-Identifier: BSD-3-Clause
// XrcDomain: what this process shares with the others of its node so that one connection of a
// sender reaches all of them (ibv_open_xrcd(3), ibv_create_srq_ex(3); IBTA vol. 1, annex A14).
//
// The domain is named by a file that all processes of one user on a node open: a folder of the
// user's in XDG_RUNTIME_DIR or /tmp, a file per adapter. The receive queue is this process's name
// in it: senders give its number with every request, and the adapter checks their keys against its
// owner's protection domain. No receive is ever posted to it: what comes are RDMA writes.
//
// Owns both; goes after all targets of the domain. One thread.
#pragma once

#include <cstdint>
#include <memory>

#include "core/verbs/device.h"
#include "core/verbs/handles.h"

namespace turnout {

class XrcDomain {
 public:
  // `cq`: of receives; it must outlive the domain. Errors: unsupported (the adapter has no XRC),
  // permission, system.
  [[nodiscard]] static Result<std::unique_ptr<XrcDomain>> open(const verbs::Device& device,
                                                               ibv_cq* cq);
  [[nodiscard]] ibv_xrcd* get() const noexcept { return domain_.get(); }
  // Of this process's receive queue; not 0.
  [[nodiscard]] std::uint32_t srq_number() const noexcept { return srq_number_; }

 private:
  verbs::Xrcd domain_;
  verbs::Srq srq_;
  std::uint32_t srq_number_ = 0;
};

}  // namespace turnout
