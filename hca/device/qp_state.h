// SPDX-License-Identifier: BSD-3-Clause
// The queue-pair state machine: the transitions of each kind, with their required and optional
// attributes. Pure.
//
// Sources: ibv_modify_qp(3) for RC, UC and UD (IBTA vol. 1, 11.2.5.2); for XRC the Linux kernel's
// ib_modify_qp_is_ok; for DCI and DCT its mlx5 driver. DCT: reset -> init -> rtr, then only
// destruction.
#pragma once

#include <infiniband/verbs.h>

#include "hca/device/layout.h"

namespace turnout::hca {

[[nodiscard]] ibv_qp_state to_verbs(QpPhase phase) noexcept;
// False when `state` is none of the enumeration.
[[nodiscard]] bool from_verbs(ibv_qp_state state, QpPhase& phase) noexcept;

// The mask of ibv_modify_qp without what the kernel ignores for XRC (modify_qp_mask in ib_uverbs):
// programs give an initiator what only a target has, and the other way round.
[[nodiscard]] int used_mask(QpKind kind, int mask) noexcept;

// 0, or EINVAL with `why` naming the attribute or transition.
[[nodiscard]] int check_transition(QpKind kind, QpPhase from, QpPhase to, int mask,
                                   const char** why) noexcept;
// 0, or EINVAL: the values of the attributes in `mask` that have a range.
[[nodiscard]] int check_values(const ibv_qp_attr& attr, int mask, const char** why) noexcept;
// Both, for ibv_modify_qp of a queue pair in phase `from`; on success `to` is what it asks for.
[[nodiscard]] int check_modification(QpKind kind, QpPhase from, const ibv_qp_attr& attr, int mask,
                                     QpPhase& to, const char** why) noexcept;

// May its send queue, its receive side do anything in this state?
[[nodiscard]] constexpr bool can_receive(QpPhase p) noexcept {
  return p == QpPhase::rtr || p == QpPhase::rts || p == QpPhase::sqd || p == QpPhase::sqe;
}

}  // namespace turnout::hca
