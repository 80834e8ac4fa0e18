// SPDX-License-Identifier: BSD-3-Clause
// SharedReceiveQueues: the shared receive queues of a world, basic and XRC, by number.
//
// A queue is its program's until destroy(). Errors of create(): null and errno. One thread.
#pragma once

#include <cerrno>
#include <memory>

#include "hca/device/common_objects.h"
#include "hca/virtual/async_events.h"
#include "hca/virtual/engine_parts.h"

namespace turnout::hca {

class SharedReceiveQueues : EngineParts {
 public:
  explicit SharedReceiveQueues(const EngineParts& parts) : EngineParts(parts) {}

  // xrcd, cq: both or neither.
  [[nodiscard]] Srq* create(Pd& pd, ibv_srq_init_attr& attr, Xrcd* xrcd, Cq* cq) {
    if (const int error = check_creation(attr); error != 0) return failed(error);
    auto srq = std::make_unique<VirtualSrq>();
    srq->number = table_.reserve();
    if (srq->number == 0) return failed(ENOMEM);
    table_[srq->number] = srq.get();
    begin_srq(*srq, pd, attr, xrcd, cq);
    srq->process = context_of(pd.verbs.context).process;
    srq->pd = pd.number;
    srq->max_wr = attr.attr.max_wr;
    srq->max_sge = attr.attr.max_sge;
    return srq.release();
  }
  [[nodiscard]] int modify(Srq& base, const ibv_srq_attr& attr, int mask) {
    auto& srq = static_cast<VirtualSrq&>(base);
    if ((mask & IBV_SRQ_MAX_WR) != 0) {
      if (attr.max_wr > kMaxSrqWr || attr.max_wr < srq.receives.size()) return EINVAL;
      srq.max_wr = attr.max_wr;
    }
    if ((mask & IBV_SRQ_LIMIT) != 0) {
      if (attr.srq_limit > srq.max_wr) return EINVAL;
      // Armed when fewer are left already: the event comes at once (IBTA 10.2.9.3).
      const bool below = srq.receives.size() < attr.srq_limit;
      srq.limit = below ? 0 : attr.srq_limit;
      if (below) events.raise_limit(srq);
    }
    return 0;
  }
  [[nodiscard]] static int query(Srq& base, ibv_srq_attr& attr) {
    const auto& srq = static_cast<VirtualSrq&>(base);
    attr = {srq.max_wr, srq.max_sge, srq.limit};
    return 0;
  }
  [[nodiscard]] int destroy(Srq& base) {
    auto& srq = static_cast<VirtualSrq&>(base);
    if (srq.users.load() != 0) return EBUSY;
    events.forget(&srq.events_read);
    end_srq(srq);
    table_[srq.number] = nullptr;
    table_.release(srq.number);
    delete &srq;
    return 0;
  }

  [[nodiscard]] VirtualSrq* find(std::uint32_t number) const noexcept {
    return table_.find(number);
  }
  // The SRQ that an XRC request names, null: `target` serves no such one.
  [[nodiscard]] VirtualSrq* serving(const Operation& operation,
                                    const VirtualQp& target) const noexcept {
    VirtualSrq* const srq = find(operation.wqe.srqn);
    if (srq == nullptr || srq->xrcd == nullptr || !processes[srq->process].alive) return nullptr;
    const bool same = static_cast<const VirtualXrcd*>(srq->xrcd)->domain ==
                      static_cast<const VirtualTarget&>(target).domain;
    return same ? srq : nullptr;
  }
  // Whose memory a request is for.
  [[nodiscard]] ProcessIndex receiver_of(const Operation& operation,
                                         const VirtualQp& target) const noexcept {
    if (!operation.xrc) return target.process;
    const VirtualSrq* const srq = find(operation.wqe.srqn);
    return srq != nullptr ? srq->process : target.process;
  }

 private:
  NumberTable<VirtualSrq*> table_{1, 1024};
};

}  // namespace turnout::hca
