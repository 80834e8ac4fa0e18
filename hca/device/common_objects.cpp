// SPDX-License-Identifier: BSD-3-Clause
#include "hca/device/common_objects.h"

#include <algorithm>
#include <cassert>
#include <memory>

namespace turnout::hca {

Pd* make_domain(Context& context, std::uint32_t number) {
  auto pd = std::make_unique<Pd>();
  pd->verbs.context = &context.verbs.context;
  pd->number = pd->verbs.handle = number;
  ++context.users;
  return pd.release();
}

int destroy_domain(Pd& pd) {
  if (pd.users.load() != 0) return EBUSY;
  --context_of(pd.verbs.context).users;
  delete &pd;
  return 0;
}

Ah* make_address_handle(Pd& pd, const ibv_ah_attr& attr, bool reachable) {
  if (attr.port_num != kPort || (attr.is_global != 0 && attr.grh.sgid_index != 0)) {
    return failed(EINVAL);
  }
  auto ah = std::make_unique<Ah>();
  ah->verbs.context = pd.verbs.context;
  ah->verbs.pd = &pd.verbs;
  ah->attr = attr;
  ah->multicast = attr.is_global != 0 && is_multicast(attr.grh.dgid);
  ah->reachable = reachable;
  ++pd.users;
  return ah.release();
}

void destroy_address_handle(Ah& ah) noexcept {
  --pd_of(ah.verbs.pd).users;
  delete &ah;
}

bool names_this_port(const ibv_ah_attr& attr, const Context& context) noexcept {
  if (attr.dlid != 0 && attr.dlid != kLid) return false;
  if (attr.is_global == 0) return attr.dlid == kLid;
  const auto* device = reinterpret_cast<const Device*>(context.verbs.context.device);
  const std::uint64_t prefix = htobe64(0xfe80'0000'0000'0000ULL), guid = htobe64(device->guid);
  return attr.grh.dgid.global.subnet_prefix == prefix && attr.grh.dgid.global.interface_id == guid;
}

void begin_region(Mr& mr, Pd& pd, void* address, std::uint64_t length, std::uint32_t index,
                  std::uint32_t key) noexcept {
  mr.index = index;
  mr.verbs.context = pd.verbs.context;
  mr.verbs.pd = &pd.verbs;
  mr.verbs.addr = address;
  mr.verbs.length = length;
  mr.verbs.handle = index;
  mr.verbs.lkey = mr.verbs.rkey = key;
  ++pd.users;
}

int check_creation(const ibv_cq_init_attr_ex& attr) noexcept {
  const bool valid = attr.cqe != 0 && attr.cqe <= kMaxCqe && attr.comp_vector < kCompletionVectors;
  return valid ? 0 : EINVAL;
}

void begin_cq(Cq& cq, Context& context, const ibv_cq_init_attr_ex& attr, std::uint32_t entries) {
  ibv_cq_ex& v = cq.verbs;
  v.context = &context.verbs.context;
  v.channel = attr.channel;
  v.cq_context = attr.cq_context;
  v.cqe = static_cast<int>(entries);
  pthread_mutex_init(&v.mutex, nullptr);
  pthread_cond_init(&v.cond, nullptr);
  if (auto* channel = reinterpret_cast<Channel*>(attr.channel)) {
    ++channel->users;
    ++channel->verbs.refcnt;
  }
  ++context.users;
}

void end_cq(Cq& cq) noexcept {
  if (auto* channel = reinterpret_cast<Channel*>(cq.verbs.channel)) {
    --channel->verbs.refcnt;
    --channel->users;
  }
  --context_of(cq.verbs.context).users;
}

int check_creation(ibv_srq_init_attr& attr) noexcept {
  if (attr.attr.max_wr > kMaxSrqWr || attr.attr.max_sge > kMaxSge) return EINVAL;
  attr.attr.max_wr = std::max(attr.attr.max_wr, 1U);
  attr.attr.max_sge = std::max(attr.attr.max_sge, 1U);
  return 0;
}

void begin_srq(Srq& srq, Pd& pd, const ibv_srq_init_attr& attr, Xrcd* xrcd, Cq* cq) {
  assert((xrcd == nullptr) == (cq == nullptr));
  srq.xrcd = xrcd;
  srq.cq = cq;
  if (xrcd != nullptr) {
    ++xrcd->users;
    ++cq->users;
  }
  ibv_srq& v = srq.verbs;
  v.context = pd.verbs.context;
  v.srq_context = attr.srq_context;
  v.pd = &pd.verbs;
  pthread_mutex_init(&v.mutex, nullptr);
  pthread_cond_init(&v.cond, nullptr);
  ++pd.users;
}

void end_srq(Srq& srq) noexcept {
  if (srq.xrcd != nullptr) {
    --srq.xrcd->users;
    --srq.cq->users;
  }
  --pd_of(srq.verbs.pd).users;
}

}  // namespace turnout::hca
