// SPDX-License-Identifier: BSD-3-Clause
// Handles of XRC domains and target queue pairs: which processes have one open.
//
// There are no counts: a domain or a target lives while a handle record names it, and every handle
// has an owner. So a process may die between any two stores; reaping frees its handles and then
// destroys what is named by none, also what an earlier death in the middle of this left. All with
// table_lock held.
#pragma once

#include "hca/live/fabric.h"

namespace turnout::hca {

// A record of ours; kNone: the table is full.
[[nodiscard]] std::uint32_t add_xrc_handle(const Fabric& fabric, XrcHandleKind kind,
                                           std::uint32_t of, std::uint64_t cookie,
                                           const PipeRef& async) noexcept;
// Gives it back. True: no other names the same.
[[nodiscard]] bool drop_xrc_handle(const Tables& tables, std::uint32_t handle) noexcept;
// Those of a process that has ended, and what they kept.
void reap_xrc(const Tables& tables, Token token) noexcept;

}  // namespace turnout::hca
