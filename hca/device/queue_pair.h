// SPDX-License-Identifier: BSD-3-Clause
// The parts of a queue pair that do not depend on the engine: its kind, the arguments of its
// creation, the verbs object, its attributes, and which work requests may be posted.
//
// Accesses no engine state and takes no lock; the caller holds the queue pair's lock. Sources:
// ibv_create_qp(3), ibv_create_qp_ex(3), ibv_modify_qp(3), ibv_post_send(3), mlx5dv_create_qp(3).
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "hca/device/objects.h"

namespace turnout::hca {

// dc: null for a kind of InfiniBand's own. QpKind::none: a type that is not supported.
[[nodiscard]] QpKind kind_of(const ibv_qp_init_attr_ex& attr,
                             const mlx5dv_qp_init_attr* dc) noexcept;

// Receives are posted to the queue pair itself, not to a shared queue or to none.
[[nodiscard]] bool has_own_receives(QpKind kind, const ibv_qp_init_attr_ex& attr) noexcept;

// 0, or EINVAL: a queue is missing, or a capacity is above the device's.
[[nodiscard]] int check_creation(QpKind kind, const ibv_qp_init_attr_ex& attr) noexcept;

// The attributes without those that an XRC queue pair has no use for: there they may be anything
// (the kernel's create_qp in ib_uverbs looks at an initiator's PD and send queue and at a target's
// domain).
[[nodiscard]] ibv_qp_init_attr_ex used_attributes(QpKind kind,
                                                  const ibv_qp_init_attr_ex& attr) noexcept;

// Fills the verbs part of a fresh queue pair in RESET and counts it as a user of what it uses.
void begin_qp(Qp& qp, Context& context, const ibv_qp_init_attr_ex& attr, QpKind kind,
              std::uint32_t index, std::uint32_t number) noexcept;
// The opposite of the counting.
void end_qp(Qp& qp) noexcept;

// Takes over the attributes of `mask`, which were checked.
void remember_attributes(ibv_qp_attr& kept, const ibv_qp_attr& attr, int mask) noexcept;

// check_modification() of a queue pair that is in phase `from`, with a line in the log where it is
// refused. `to`: the phase that `attr` asks for. 0 or EINVAL.
[[nodiscard]] int checked_phase(const Qp& qp, QpPhase from, const ibv_qp_attr& attr, int mask,
                                QpPhase& to);

// It becomes ready to send: a connection of its own, `connection` of all that its number has had.
inline void begin_connection(Qp& qp, std::uint32_t connection) noexcept {
  qp.connection = connection;
  qp.spoke = false;
}
// IBTA 9.7.2: the packet sequence numbers of a connection's two ends agree. A target takes the
// first request with the number that it was told, and from then on those that follow. An end that
// went through RESET begins anew; the other, if it did not, takes what comes for old or too new.
// Short of the standard: where a sequence stands is not counted, so an end that begins anew just
// where the former left off is refused, too. Called for each request of RC and XRC.
[[nodiscard]] inline bool in_sequence(Qp& qp, PacketSequence& target) noexcept {
  const std::uint32_t follows = target.follows.load(std::memory_order_relaxed);
  if (follows == qp.connection) [[likely]]
    return true;
  if (follows != 0 || qp.spoke || target.first != qp.attr.sq_psn) return false;
  target.follows.store(qp.connection, std::memory_order_relaxed);
  qp.spoke = true;
  return true;
}

// Has the send queue room for a request?
[[nodiscard]] inline bool has_room(const Qp& qp) noexcept {
  return qp.posted - qp.reclaimed.load(std::memory_order_acquire) < qp.init.cap.max_send_wr;
}
// Does its success complete, as its failure does in any case?
[[nodiscard]] inline bool is_signaled(const Qp& qp, const SendWqe& wqe) noexcept {
  return qp.signal_all || (wqe.flags & IBV_SEND_SIGNALED) != 0;
}
// May this request be posted to the queue pair in this phase? 0 or errno.
[[nodiscard]] int check_request(const Qp& qp, QpPhase phase, const SendWqe& wqe) noexcept;

// The completion of a request of the queue pair with this number; of a receive that is flushed.
[[nodiscard]] Completion completion_of(const SendWqe& wqe, std::uint32_t number,
                                       ibv_wc_status status) noexcept;
[[nodiscard]] Completion flushed_receive(std::uint64_t id, std::uint32_t number,
                                         ibv_wc_opcode opcode) noexcept;

}  // namespace turnout::hca
