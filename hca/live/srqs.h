// SPDX-License-Identifier: BSD-3-Clause
// LiveSrqs: shared receive queues, basic and XRC.
//
// A queue is its program's until destroy(). Errors: null and errno, or an errno value. Any thread.
#pragma once

#include <cerrno>
#include <memory>

#include "hca/device/common_objects.h"
#include "hca/live/fork_guard.h"
#include "hca/live/hazards.h"
#include "hca/live/mlx5_queues.h"
#include "hca/live/receives.h"

namespace turnout::hca {

class LiveSrqs : LiveParts {
 public:
  explicit LiveSrqs(const LiveParts& parts) : LiveParts(parts) {}

  // xrcd, cq: both or neither.
  [[nodiscard]] Srq* create(Pd& pd, ibv_srq_init_attr& attr, Xrcd* xrcd, Cq* cq) {
    Context& context = context_of(pd.verbs.context);
    if (const int error = refuse_child(context); error != 0) return failed(error);
    if (const int error = check_creation(attr); error != 0) return failed(error);
    auto srq = std::make_unique<Srq>();
    std::uint32_t index = kNone;
    {
      const TableGuard guard(fabric);
      index = fabric.find_free(&Tables::srq, kMaxSrqs, fabric.header().srq_high,
                               slot_of(fabric.me()) * 4);
      if (index == kNone) return failed(ENOMEM);
      fabric.srq(index).owner.store(fabric.me(), std::memory_order_release);
    }
    SrqRecord& r = fabric.srq(index);
    ++r.generation;
    r.cq = cq != nullptr ? cq->index : kNone;
    r.cookie = reinterpret_cast<std::uint64_t>(srq.get());
    r.async = context.async;
    if (const int error = receives.create_queue(r.rq, attr.attr.max_wr, attr.attr.max_sge,
                                                pd.number, srq->own_ring);
        error != 0) {
      r.owner.store(0, std::memory_order_release);
      return failed(error);
    }
    r.phase.store(ObjectPhase::live, std::memory_order_release);
    srq->index = index;
    srq->number = srq_number(index, r.generation);
    srq->record = &r;
    begin_srq(*srq, pd, attr, xrcd, cq);
    srq->verbs.handle = index;
    if (xrcd != nullptr)
      r.name.store(srq_name(xrcd->number, srq->number), std::memory_order_release);
    const std::lock_guard lock(objects.mutex);
    objects.srqs[index] = srq.get();
    return srq.release();
  }
  [[nodiscard]] int modify(Srq& srq, const ibv_srq_attr& attr, int mask) {
    if (const int error = refuse_child(srq.verbs.context); error != 0) return error;
    if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return EINVAL;
    if ((mask & IBV_SRQ_MAX_WR) != 0) return EOPNOTSUPP;  // not in device_cap_flags either
    if ((mask & IBV_SRQ_LIMIT) == 0) return 0;
    SrqRecord& r = *srq.record;
    bool below = false;
    {
      const SharedGuard guard(fabric, r.rq.lock);
      if (attr.srq_limit > r.rq.max_wr) return EINVAL;
      if (r.rq.mlx5 != 0 && !mlx5_queues.fetch_beyond(attr.srq_limit, r.rq,
                                                      fabric.mlx5_srq(srq.index), fabric.me())) {
        return EINVAL;
      }
      below = attr.srq_limit != 0 && r.rq.tail - r.rq.head < attr.srq_limit;
      r.rq.limit = below ? 0 : attr.srq_limit;
    }
    if (below) {
      events.raise(fabric.me(), r.async,
                   {r.cookie, srq.index, r.generation, IBV_EVENT_SRQ_LIMIT_REACHED, kSrqEvent});
    }
    return 0;
  }
  [[nodiscard]] int query(Srq& srq, ibv_srq_attr& attr) {
    if (const int error = refuse_child(srq.verbs.context); error != 0) return error;
    const SharedGuard guard(fabric, srq.record->rq.lock);
    attr.max_wr = srq.record->rq.max_wr;
    attr.max_sge = srq.record->rq.max_sge;
    attr.srq_limit = srq.record->rq.limit;
    return 0;
  }
  [[nodiscard]] int destroy(Srq& srq) {
    if (const int error = refuse_child(srq.verbs.context); error != 0) return error;
    if (srq.users.load() != 0) return EBUSY;
    srq.record->name.store(0, std::memory_order_seq_cst);
    std::uint32_t read = 0;
    {
      const std::lock_guard lock(objects.mutex);
      objects.srqs.erase(srq.index);
      read = srq.events_read;
    }
    wait_acknowledged(srq.verbs, srq.verbs.events_completed, read);
    srq.record->phase.store(ObjectPhase::free, std::memory_order_release);
    receives.destroy_queue(srq.record->rq, srq.own_ring);
    if (srq.xrcd != nullptr) {
      // The queue pairs that receive into it live on: what they have taken completes first, for
      // after this the completion queue may go.
      hazards.wait_untaken(srq.index);
    }
    srq.record->owner.store(0, std::memory_order_release);
    end_srq(srq);
    delete &srq;
    return 0;
  }
};

}  // namespace turnout::hca
