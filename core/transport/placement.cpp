// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/placement.h"

#include "base/log.h"
#include "core/verbs/library.h"

namespace turnout {
namespace {

bool in_order(ibv_qp* qp, ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE) noexcept {
  const auto query = verbs::functions().ibv_query_qp_data_in_order_fn;
  return query != nullptr && query(qp, opcode, 0) == 1;
}

void tell(std::string_view kind, bool ordered) {
  TURNOUT_LOG(channel, info, "RDMA writes over {} are placed {}", kind,
              ordered ? "in order" : "in an unknown order; their rings use checksums");
}

}  // namespace

Placement::Placement(std::string_view ring_order) noexcept {
  if (ring_order != "auto") dc_in_order_ = rc_in_order_ = reads_in_order_ = ring_order == "trust";
}

void Placement::ask_dc(const DcTarget& target) noexcept {
  if (dc_in_order_) return;
  dc_in_order_ = in_order(target.qp());
  tell("DC", *dc_in_order_);
}

void Placement::ask_reads(ibv_qp* initiator) noexcept {
  if (!reads_in_order_) reads_in_order_ = in_order(initiator, IBV_WR_RDMA_READ);
}

void Placement::ask_rc(RcQueue& queue, const verbs::Device& device) noexcept {
  if (rc_in_order_) return;
  rc_in_order_ = in_order(queue.qp());
  // mlx5 answers for queue pairs that are ready to send only: for the answer it is its own peer.
  if (!*rc_in_order_ && queue.connect(queue.qp_id(), device.port().lid, device.gid()).ok()) {
    rc_in_order_ = in_order(queue.qp());
  }
  if (queue.connected_to() != 0) (void)queue.reset();  // a failure shows when it is connected
  tell("RC", *rc_in_order_);
}

}  // namespace turnout
