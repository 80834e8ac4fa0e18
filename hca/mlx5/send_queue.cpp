// SPDX-License-Identifier: BSD-3-Clause
#include "hca/mlx5/send_queue.h"

#include <endian.h>

#include <mutex>

#include "base/log.h"
#include "hca/device/common_objects.h"
#include "hca/device/data_path.h"
#include "hca/device/rules.h"

namespace turnout::hca {

void Mlx5SendQueue::run() noexcept {
  if (place_.buffer == 0) return;
  const std::lock_guard lock(qp_.sq_lock);
  Context& context = context_of(qp_.verbs.qp_base.context);
  const Mlx5Ring ring{reinterpret_cast<const std::byte*>(place_.buffer), place_.blocks};   // NOLINT
  const auto* const posted = reinterpret_cast<const std::uint32_t*>(place_.doorbell) + 1;  // NOLINT
  for (;;) {
    // An SQD queue takes them, too, and keeps them.
    if (qp_.record->phase() < QpPhase::rts) return;
    const auto until =
        static_cast<std::uint16_t>(be32toh(__atomic_load_n(posted, __ATOMIC_ACQUIRE)));
    const auto available = static_cast<std::uint16_t>(until - taken_);
    if (available == 0) return;
    SendWqe& wqe = qp_.scratch;
    Mlx5Request request = parse_send(ring, taken_, available, qp_.kind, place_.user_index, wqe);
    if (available >
        place_.blocks) {  // more than there can be: nothing in the ring is to be trusted
      request.blocks = available;
      wqe.opcode = kMalformed;
    }
    taken_ = static_cast<std::uint16_t>(taken_ + request.blocks);
    if (wqe.opcode == kChangeKey) wqe.bind_pd = qp_.record->pd;
    if (request.addressed) {
      const ibv_ah_attr& to = request.address;
      wqe.global = to.is_global != 0;
      wqe.multicast = qp_.kind == QpKind::ud && wqe.global && is_multicast(to.grh.dgid);
      wqe.reachable = names_this_port(to, context);
      if (wqe.multicast) __builtin_memcpy(wqe.group, to.grh.dgid.raw, sizeof wqe.group);
      // IBTA 10.2.5: the top bit asks for the queue pair's own key.
      if (qp_.kind == QpKind::ud && (wqe.qkey & 0x8000'0000U) != 0) wqe.qkey = qp_.attr.qkey;
    }
    // The program counts its own room.
    qp_.reclaimed.store(qp_.posted, std::memory_order_relaxed);
    if (context.data_path->send(qp_, wqe) != 0) {
      TURNOUT_LOG(hca, debug,
                  "work queue entry failed: queue pair {:#x}: opcode {:#x} is not for it",
                  qp_.number, unpack(wqe.wr_id).opcode);
      wqe.opcode = kMalformed;
      (void)context.data_path->send(qp_, wqe);
    }
  }
}

void Mlx5SendQueue::restart() noexcept {
  const std::lock_guard lock(qp_.sq_lock);
  taken_ = 0;
}

}  // namespace turnout::hca
