// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/srqs.h"

#include <pthread.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <memory>

namespace turnout::hca {

Srq* SharedReceiveQueues::create(Pd& pd, ibv_srq_init_attr& attr, Xrcd* xrcd, Cq* cq) {
  assert((xrcd == nullptr) == (cq == nullptr));
  if (attr.attr.max_wr > kMaxSrqWr || attr.attr.max_sge > kMaxSge) return failed(EINVAL);
  attr.attr.max_wr = std::max(attr.attr.max_wr, 1U);
  attr.attr.max_sge = std::max(attr.attr.max_sge, 1U);
  auto srq = std::make_unique<VirtualSrq>();
  srq->number = table_.reserve();
  if (srq->number == 0) return failed(ENOMEM);
  table_[srq->number] = srq.get();
  srq->xrcd = xrcd;
  srq->cq = cq;
  if (xrcd != nullptr) {
    ++xrcd->users;
    ++cq->users;
  }
  srq->process = context_of(pd.verbs.context).process;
  srq->pd = pd.number;
  srq->max_wr = attr.attr.max_wr;
  srq->max_sge = attr.attr.max_sge;
  ibv_srq& v = srq->verbs;
  v.context = pd.verbs.context;
  v.srq_context = attr.srq_context;
  v.pd = &pd.verbs;
  pthread_mutex_init(&v.mutex, nullptr);
  pthread_cond_init(&v.cond, nullptr);
  ++pd.users;
  return srq.release();
}

int SharedReceiveQueues::modify(Srq& base, const ibv_srq_attr& attr, int mask) {
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
    if (below) events_.raise_limit(srq);
  }
  return 0;
}

int SharedReceiveQueues::query(Srq& base, ibv_srq_attr& attr) {
  const auto& srq = static_cast<VirtualSrq&>(base);
  attr = {srq.max_wr, srq.max_sge, srq.limit};
  return 0;
}

int SharedReceiveQueues::destroy(Srq& base) {
  auto& srq = static_cast<VirtualSrq&>(base);
  if (srq.users.load() != 0) return EBUSY;
  events_.forget(&srq.events_read);
  if (srq.xrcd != nullptr) {
    --srq.xrcd->users;
    --srq.cq->users;
  }
  table_[srq.number] = nullptr;
  table_.release(srq.number);
  --pd_of(srq.verbs.pd).users;
  delete &srq;
  return 0;
}

VirtualSrq* SharedReceiveQueues::find(std::uint32_t number) const noexcept {
  return table_.find(number);
}

VirtualSrq* SharedReceiveQueues::serving(const Operation& operation,
                                         const VirtualQp& target) const noexcept {
  VirtualSrq* const srq = find(operation.wqe.srqn);
  if (srq == nullptr || srq->xrcd == nullptr || !processes_[srq->process].alive) return nullptr;
  const bool same = static_cast<const VirtualXrcd*>(srq->xrcd)->domain ==
                    static_cast<const VirtualTarget&>(target).domain;
  return same ? srq : nullptr;
}

ProcessIndex SharedReceiveQueues::receiver_of(const Operation& operation,
                                              const VirtualQp& target) const noexcept {
  if (!operation.xrc) return target.process;
  const VirtualSrq* const srq = find(operation.wqe.srqn);
  return srq != nullptr ? srq->process : target.process;
}

}  // namespace turnout::hca
