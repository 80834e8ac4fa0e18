// SPDX-License-Identifier: BSD-3-Clause
// Owning handles of verbs objects. Each object is destroyed once, in the reverse order of the
// members that hold the handles (a queue pair before its queues, a region before its domain). A
// failure to destroy is logged; the owner cannot do more. Not thread-safe per handle.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <memory>
#include <string>

#include "base/status.h"

namespace turnout::verbs {

void log_destroy_failure(const char* verb, int error) noexcept;

template <class Object, int (*Destroy)(Object*)>
struct Destroyer {
  void operator()(Object* object) const noexcept {
    const int error = Destroy(object);
    if (error != 0) log_destroy_failure(__PRETTY_FUNCTION__, error > 0 ? error : errno);
  }
};

using Pd = std::unique_ptr<ibv_pd, Destroyer<ibv_pd, &ibv_dealloc_pd>>;
using Mr = std::unique_ptr<ibv_mr, Destroyer<ibv_mr, &ibv_dereg_mr>>;
using Cq = std::unique_ptr<ibv_cq, Destroyer<ibv_cq, &ibv_destroy_cq>>;
using Srq = std::unique_ptr<ibv_srq, Destroyer<ibv_srq, &ibv_destroy_srq>>;
using Ah = std::unique_ptr<ibv_ah, Destroyer<ibv_ah, &ibv_destroy_ah>>;
using Qp = std::unique_ptr<ibv_qp, Destroyer<ibv_qp, &ibv_destroy_qp>>;
// ibv_close_xrcd, which has no address that is the same everywhere.
int close_xrcd(ibv_xrcd* domain) noexcept;
using Xrcd = std::unique_ptr<ibv_xrcd, Destroyer<ibv_xrcd, &close_xrcd>>;

// A Status for a verb that failed: what was called, on what, errno in words, what to do about the
// usual causes (locked memory, limits).
[[nodiscard]] Status failure(const char* verb, const std::string& object, int error);

}  // namespace turnout::verbs
