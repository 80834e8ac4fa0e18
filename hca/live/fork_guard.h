// SPDX-License-Identifier: BSD-3-Clause
// After fork() the child has this process's mappings but no slot in the fabric. There, every call
// on an object opened before the fork fails with EPERM and logs one line with the remedy. The child
// can open the device again.
//
// The fork handler replaces the child's data-path functions, so the parent pays nothing.
#pragma once

#include "hca/device/objects.h"

namespace turnout::hca {

// Installs the handler, once.
void watch_forks();
// Contexts and queue pairs whose functions are replaced in a child.
void fork_guard_add(Context& context);
void fork_guard_remove(Context& context);
void fork_guard_add(Qp& qp);
void fork_guard_remove(Qp& qp);
// EPERM in a child of the process that opened `context`, else 0. Control path: one system call.
[[nodiscard]] int refuse_child(const Context& context) noexcept;
[[nodiscard]] inline int refuse_child(ibv_context* context) noexcept {
  return refuse_child(context_of(context));
}

}  // namespace turnout::hca
