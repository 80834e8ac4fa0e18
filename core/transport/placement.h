// SPDX-License-Identifier: BSD-3-Clause
// Placement: whether the adapter places the bytes of an RDMA write in order, so that the last byte
// of a ring entry proves that the entry is complete (ibv_query_qp_data_in_order(3),
// docs/decisions/007).
//
// Queried once for each kind of queue pair that writes to our rings, about our side: order is a
// property of the receiver. A library without the query (rdma-core before 36), or an unknown
// answer, means no. Owner: the endpoint; one thread.
#pragma once

#include <infiniband/verbs.h>

#include <optional>
#include <string_view>

#include "base/log.h"
#include "core/transport/rc_queue.h"
#include "core/verbs/device.h"
#include "core/verbs/library.h"

namespace turnout {

class Placement {
 public:
  // Setting ring_order: auto, trust (in order, whatever the adapter says) or check (never).
  explicit Placement(std::string_view ring_order) noexcept {
    if (ring_order != "auto") dc_in_order_ = rc_in_order_ = reads_in_order_ = ring_order == "trust";
  }

  // A target that may be written to.
  void ask_dc(const DcTarget& target) noexcept {
    if (dc_in_order_) return;
    dc_in_order_ = in_order(target.qp());
    tell("DC", *dc_in_order_);
  }
  // A queue pair that reads.
  void ask_reads(ibv_qp* initiator) noexcept {
    if (!reads_in_order_) reads_in_order_ = in_order(initiator, IBV_WR_RDMA_READ);
  }
  // Of a queue pair without a connection; it has none afterwards. Any thread: changing its states
  // takes milliseconds.
  [[nodiscard]] static bool ask_rc(RcQueue& queue, const verbs::Device& device) noexcept {
    bool ordered = in_order(queue.qp());
    // mlx5 answers for queue pairs that are ready to send only: for the answer it is its own peer.
    if (!ordered && queue.connect(queue.qp_id(), device.port().lid, device.gid()).ok()) {
      ordered = in_order(queue.qp());
    }
    if (queue.connected_to() != 0) (void)queue.reset();  // a failure shows when it is connected
    return ordered;
  }
  // What it answered.
  void set_rc(bool ordered) {
    if (rc_in_order_) return;
    rc_in_order_ = ordered;
    tell("RC", ordered);
  }

  // Must a ring that is made now carry checksums? What is not known yet does not count.
  [[nodiscard]] bool checks() const noexcept {
    return !dc_in_order_.value_or(true) || !rc_in_order_.value_or(true);
  }
  // Of writes by the peer, and of our reads, over DC: may the last byte be looked for?
  [[nodiscard]] bool dc_in_order() const noexcept { return dc_in_order_.value_or(false); }
  [[nodiscard]] bool reads_in_order() const noexcept { return reads_in_order_.value_or(false); }
  // Unknown until set_rc().
  [[nodiscard]] std::optional<bool> rc_in_order() const noexcept { return rc_in_order_; }

 private:
  static bool in_order(ibv_qp* qp, ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE) noexcept {
    const auto query = verbs::functions().ibv_query_qp_data_in_order_fn;
    return query != nullptr && query(qp, opcode, 0) == 1;
  }

  static void tell(std::string_view kind, bool ordered) {
    TURNOUT_LOG(channel, info, "RDMA writes over {} are placed {}", kind,
                ordered ? "in order" : "in an unknown order; their rings use checksums");
  }

  std::optional<bool> dc_in_order_, rc_in_order_;
  std::optional<bool> reads_in_order_;
};

}  // namespace turnout
