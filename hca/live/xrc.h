// SPDX-License-Identifier: BSD-3-Clause
// LiveXrc: XRC domains, and the target queue pairs in them, which the processes that have the
// domain open share: every process has handles, the queue pair is there while one of them is (the
// kernel's shared queue pairs, ib_open_qp).
//
// A target's record belongs to nobody (kShared); what is in it is guarded by its rq.lock, which it
// has no receives for. Whoever closes the last handle takes the record over and destroys it.
// Errors: null and errno, or an errno value. Any thread.
#pragma once

#include "hca/live/parts.h"

namespace turnout::hca {

class LiveXrc : LiveParts {
 public:
  explicit LiveXrc(const LiveParts& parts) : LiveParts(parts) {}

  // fd: -1 for a domain of this handle alone. oflags: O_CREAT, O_EXCL.
  [[nodiscard]] Xrcd* open(Context& context, int fd, int oflags);
  [[nodiscard]] int close(Xrcd& xrcd);
  [[nodiscard]] Qp* create_target(Context& context, const ibv_qp_init_attr_ex& attr);
  // A further handle.
  [[nodiscard]] Qp* open_target(Xrcd& xrcd, std::uint32_t number, void* qp_context);
  [[nodiscard]] int modify_target(Qp& qp, const ibv_qp_attr& attr, int mask);
  [[nodiscard]] int destroy_target(Qp& qp);

 private:
  // The object of a handle.
  void begin_target(Qp& qp, Context& context, const ibv_qp_init_attr_ex& attr, std::uint32_t index,
                    std::uint32_t number);
};

}  // namespace turnout::hca
