// SPDX-License-Identifier: BSD-3-Clause
// XrcDomain: what the processes of a node share so that one connection of a sender reaches all of
// them (ibv_open_xrcd(3), ibv_create_srq_ex(3); IBTA vol. 1, annex A14).
//
// A file that all processes of one user on a node open names the domain: a user's folder in
// XDG_RUNTIME_DIR or /tmp, one file per adapter. The receive queue identifies this process in the
// domain: senders pass its number with every request, and the adapter checks their keys against the
// protection domain of its owner. No receive is posted to it, because only RDMA writes arrive.
//
// Owns both; must outlive all targets of the domain. One thread.
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
