// SPDX-License-Identifier: BSD-3-Clause
// VirtualDataPath: DataPath under the virtual clock: posting makes operations, the events of the
// world carry them on.
//
// Each call takes the time that the profile says. One thread.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "hca/device/data_path.h"
#include "hca/device/queue_pair.h"
#include "hca/device/rules.h"
#include "hca/virtual/work_queues.h"

namespace turnout::hca {

class VirtualDataPath final : public DataPath, EngineParts {
 public:
  explicit VirtualDataPath(const EngineParts& parts) : EngineParts(parts) {}

  int check(const Qp& base, const SendWqe& w) override {
    if (base.kind == QpKind::xrc_tgt) return EINVAL;  // it never sends
    // No windows under the virtual clock.
    if (is_local(w.opcode) || w.opcode == IBV_WR_SEND_WITH_INV) return EOPNOTSUPP;
    const auto& qp = static_cast<const VirtualQp&>(base);
    return check_request(qp, qp.phase, w);
  }
  int send(Qp& base, SendWqe& wqe) override {
    if (const int error = check(base, wqe); error != 0) return error;
    auto& qp = static_cast<VirtualQp&>(base);
    wqe.position = ++qp.posted;
    processes.charge(profile.processor_post + profile.processor_doorbell +
                     (qp.kind == QpKind::dci  ? profile.processor_post_dc
                      : qp.kind == QpKind::ud ? profile.processor_post_ud
                                              : 0));
    Operation* const operation = operations.create();
    copy_request(operation->wqe, wqe);
    SendWqe& w = operation->wqe;
    operation->qp = &qp;
    operation->source = qp.number;
    operation->target = sends_to_one(qp.kind) ? qp.attr.dest_qp_num : w.dest_qpn;
    operation->xrc = qp.kind == QpKind::xrc_ini;
    operation->signalled = qp.signal_all || (w.flags & IBV_SEND_SIGNALED) != 0;
    const bool fetches = is_fetch(w.opcode);
    std::uint64_t length = w.length;
    if (!w.is_inline) {
      length = 0;
      for (std::uint32_t i = 0; i < w.num_sge; ++i) {
        length += w.sge[i].length;
        if (w.sge[i].length > 0 &&
            regions.find(w.sge[i].lkey, w.sge[i].addr, w.sge[i].length,
                         fetches ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0U) == nullptr) {
          operation->status = IBV_WC_LOC_PROT_ERR;
        }
      }
      w.length = static_cast<std::uint32_t>(length);
    }
    if (length > (qp.kind == QpKind::ud ? kMtu : kMaxMessage))
      operation->status = IBV_WC_LOC_LEN_ERR;
    ++kernel.statistics().operations;
    kernel.statistics().bytes += length;
    qp.operations.push_back(operation);
    if (qp.phase == QpPhase::err || qp.phase == QpPhase::sqe) {
      work_queues.fail(qp, qp.phase);
      return 0;
    }
    Picoseconds ready = processes.time() + profile.pcie_doorbell;
    if (!w.is_inline && !fetches && length > 0) ready += profile.pcie_read;
    // The adapter takes the requests of a queue in their order.
    qp.last_ready = operation->ready = std::max(ready, qp.last_ready);
    trace.note(Trace::Kind::post, qp, *operation, length);
    operations.schedule(operation->ready, EventKind::ready, *operation);
    return 0;
  }
  int post_recv(Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad) override {
    return receives.post(qp, wr, bad);
  }
  int post_srq_recv(Srq& srq, ibv_recv_wr* wr, ibv_recv_wr** bad) override {
    return receives.post_shared(srq, wr, bad);
  }
  bool take(Cq& cq, Completion& out) override { return completions.take(cq, out); }
  int idle(Cq& cq) override { return completions.idle(cq); }
  int request_notify(Cq& cq, bool solicited_only) override {
    return Completions::request_notify(cq, solicited_only);
  }
  int get_cq_event(Channel& channel, ibv_cq** cq, void** cq_context) override {
    return Completions::get_event(channel, cq, cq_context);
  }

 private:
  // Copies what a request uses of its largest size.
  static void copy_request(SendWqe& to, const SendWqe& from) {
    constexpr std::size_t head = offsetof(SendWqe, sge);
    const std::size_t tail = from.is_inline ? from.length : from.num_sge * sizeof(ibv_sge);
    std::memcpy(static_cast<void*>(&to), static_cast<const void*>(&from), head + tail);
  }
};

}  // namespace turnout::hca
