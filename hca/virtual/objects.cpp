// SPDX-License-Identifier: BSD-3-Clause
// Contexts, protection domains, regions, completion queues, shared receive queues, address handles.
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "hca/device/address_handle.h"
#include "hca/device/failed.h"
#include "hca/device/rules.h"
#include "hca/virtual/engine.h"

namespace turnout::hca {
namespace {

Context& context_of(const Pd& pd) {
  return hca::context_of(pd.verbs.context);
}

void show_gate(VirtualCq& cq) {
  cq.gate.sequence.store(cq.entries.empty() ? 0 : 1, std::memory_order_relaxed);
}

}  // namespace

void VirtualEngine::open(Context& context) {
  context.objects = this;
  context.data_path = this;
  context.virtual_clock = true;
  context.process = current_;
  context.node = processes_[current_].node;
}

void VirtualEngine::close(Context& context) {
  Fifo<AsyncEvent> kept;
  for (std::size_t i = 0; i < async_.size(); ++i) {
    if (async_[i].context != &context) kept.push_back(async_[i]);
  }
  async_ = std::move(kept);
}

Pd* VirtualEngine::alloc_pd(Context& context) {
  auto pd = std::make_unique<Pd>();
  pd->verbs.context = &context.verbs.context;
  pd->number = next_pd_++;
  ++context.users;
  return pd.release();
}

int VirtualEngine::dealloc_pd(Pd& pd) {
  if (pd.users.load() != 0) return EBUSY;
  --context_of(pd).users;
  delete &pd;
  return 0;
}

Mr* VirtualEngine::register_memory(Pd& pd, void* address, std::uint64_t length, std::uint64_t iova,
                                   unsigned access) {
  if (!valid_access(access) || length > kMaxMrBytes) return failed<Mr>(EINVAL);
  charge(profile_.setup_register + time_of(profile_.setup_register_rate, length));
  if (chance(profile_.fault_refuse)) return failed<Mr>(ENOMEM);
  std::uint32_t index = 0;
  // The oldest free one first: a key comes back as late as can be.
  constexpr std::size_t kRested = 256;
  if (free_regions_.size() > kRested) {
    index = free_regions_.front();
    free_regions_.pop_front();
  } else {
    if (regions_.size() >= (1U << 24)) return failed<Mr>(ENOMEM);
    index = static_cast<std::uint32_t>(regions_.size());
    regions_.emplace_back();
  }
  Region& region = regions_[index];
  ++region.generation;
  region.key = index << 8 | region.generation;
  region.owner = context_of(pd).process;
  region.pd = pd.number;
  region.access = access;
  region.iova = iova;
  region.length = length;
  region.address = reinterpret_cast<std::uint64_t>(address);
  ++statistics_.regions_alive;
  auto mr = std::make_unique<Mr>();
  mr->index = index;
  mr->fd = -1;
  mr->verbs.context = pd.verbs.context;
  mr->verbs.pd = &pd.verbs;
  mr->verbs.addr = address;
  mr->verbs.length = length;
  mr->verbs.handle = index;
  mr->verbs.lkey = mr->verbs.rkey = region.key;
  ++pd.users;
  return mr.release();
}

// Pages of a file are needed between processes only; here all share one address space.
Mr* VirtualEngine::register_file(Pd&, std::uint64_t, std::uint64_t, std::uint64_t, int, unsigned) {
  return failed<Mr>(EOPNOTSUPP);
}

int VirtualEngine::deregister(Mr& mr) {
  charge(profile_.setup_deregister);
  regions_[mr.index].key = 0;
  free_regions_.push_back(mr.index);
  --statistics_.regions_alive;
  --reinterpret_cast<Pd*>(mr.verbs.pd)->users;
  delete &mr;
  return 0;
}

const Region* VirtualEngine::find_region(std::uint32_t key, std::uint64_t address,
                                         std::uint64_t length, unsigned rights) const noexcept {
  const std::uint32_t index = key >> 8;
  if (index == 0 || index >= regions_.size()) return nullptr;
  const Region& region = regions_[index];
  if (region.key != key || (region.access & rights) != rights ||
      !covers(region.iova, region.length, address, length)) {
    return nullptr;
  }
  return &region;
}

Channel* VirtualEngine::create_channel(Context& context) {
  auto channel = std::make_unique<VirtualChannel>();
  channel->verbs.context = &context.verbs.context;
  channel->verbs.fd = -1;  // nothing can sleep in virtual time: ask with get_cq_event
  channel->verbs.refcnt = 0;
  channel->write = -1;
  ++context.users;
  return channel.release();
}

int VirtualEngine::destroy_channel(Channel& channel) {
  if (channel.users.load() != 0) return EBUSY;
  --hca::context_of(channel.verbs.context).users;
  delete static_cast<VirtualChannel*>(&channel);
  return 0;
}

Cq* VirtualEngine::create_cq(Context& context, const ibv_cq_init_attr_ex& attr) {
  if (attr.cqe == 0 || attr.cqe > kMaxCqe || attr.comp_vector >= kCompletionVectors) {
    return failed<Cq>(EINVAL);
  }
  auto cq = std::make_unique<VirtualCq>();
  auto* channel = reinterpret_cast<Channel*>(attr.channel);
  cq->process = context.process;
  cq->slots = attr.cqe;
  cq->next.store(&cq->gate, std::memory_order_relaxed);
  cq->expected.store(1, std::memory_order_relaxed);
  show_gate(*cq);
  cq->single_threaded = true;
  ibv_cq_ex& v = cq->verbs;
  v.context = &context.verbs.context;
  v.channel = attr.channel;
  v.cq_context = attr.cq_context;
  v.cqe = static_cast<int>(attr.cqe);
  pthread_mutex_init(&v.mutex, nullptr);
  pthread_cond_init(&v.cond, nullptr);
  if (channel != nullptr) {
    ++channel->users;
    ++channel->verbs.refcnt;
  }
  ++context.users;
  return cq.release();
}

int VirtualEngine::resize_cq(Cq& base, int entries) {
  auto& cq = static_cast<VirtualCq&>(base);
  if (entries <= 0 || static_cast<std::uint32_t>(entries) > kMaxCqe ||
      cq.entries.size() > static_cast<std::size_t>(entries)) {
    return EINVAL;
  }
  cq.slots = static_cast<std::uint32_t>(entries);
  cq.verbs.cqe = entries;
  return 0;
}

int VirtualEngine::destroy_cq(Cq& base) {
  auto& cq = static_cast<VirtualCq&>(base);
  if (cq.users.load() != 0) return EBUSY;
  if (auto* channel = reinterpret_cast<Channel*>(cq.verbs.channel)) {
    --channel->verbs.refcnt;
    --channel->users;
  }
  --hca::context_of(cq.verbs.context).users;
  delete &cq;
  return 0;
}

bool VirtualEngine::take(Cq& base, Cqe& out) {
  auto& cq = static_cast<VirtualCq&>(base);
  while (!cq.entries.empty()) {
    const CompletionEntry entry = cq.entries.front();
    cq.entries.pop_front();
    show_gate(cq);
    if (entry.dropped) continue;
    charge(profile_.processor_entry);
    out.wr_id = entry.wr_id;
    out.timestamp = static_cast<std::uint64_t>(now_ / kNanosecond);
    out.qpn = entry.qpn;
    out.src_qp = entry.src_qp;
    out.byte_len = entry.byte_len;
    out.imm = entry.imm;
    out.sq_position = entry.sq_position;
    out.status = entry.status;
    out.opcode = entry.opcode;
    out.flags = entry.flags;
    out.vendor_err = 0;
    if (entry.send) {
      if (VirtualQp* qp = find_qp(entry.qpn); qp != nullptr) {
        qp->reclaimed.store(entry.sq_position, std::memory_order_relaxed);
      }
    }
    return true;
  }
  return false;
}

int VirtualEngine::idle(Cq& base) {
  charge(profile_.processor_poll);
  return static_cast<VirtualCq&>(base).overflowed ? -1 : 0;
}

void VirtualEngine::push(VirtualCq* cq, const CompletionEntry& entry, bool solicited) {
  if (cq == nullptr) return;
  if (cq->entries.size() >= cq->slots) {  // IBTA 11.5.3: the entry is lost, the queue unusable
    cq->overflowed = true;
    ibv_async_event event{};
    event.event_type = IBV_EVENT_CQ_ERR;
    event.element.cq = ibv_cq_ex_to_cq(&cq->verbs);
    raise(hca::context_of(cq->verbs.context), event, &cq->async_events_read);
    return;
  }
  cq->entries.push_back(entry);
  show_gate(*cq);
  if (cq->verbs.channel != nullptr &&
      (cq->armed == Armed::any ||
       (cq->armed == Armed::solicited && (solicited || entry.status != IBV_WC_SUCCESS)))) {
    cq->armed = Armed::no;
    reinterpret_cast<VirtualChannel*>(cq->verbs.channel)->events.push_back(cq);
    schedule(now_ + profile_.processor_interrupt, kNotify, nullptr, cq->process);
  }
  wake(cq->process);
}

int VirtualEngine::request_notify(Cq& base, bool solicited_only) {
  auto& cq = static_cast<VirtualCq&>(base);
  if (!solicited_only) {
    cq.armed = Armed::any;
  } else if (cq.armed == Armed::no) {
    cq.armed = Armed::solicited;
  }
  return 0;
}

int VirtualEngine::get_cq_event(Channel& base, ibv_cq** cq, void** cq_context) {
  auto& channel = static_cast<VirtualChannel&>(base);
  if (channel.events.empty()) return EAGAIN;
  VirtualCq& of = *channel.events.front();
  channel.events.pop_front();
  ++of.comp_events_read;
  *cq = ibv_cq_ex_to_cq(&of.verbs);
  *cq_context = of.verbs.cq_context;
  return 0;
}

void VirtualEngine::raise(Context& context, const ibv_async_event& event, std::uint32_t* read) {
  async_.push_back({&context, event, read, now_ + profile_.processor_interrupt});
  schedule(now_ + profile_.processor_interrupt, kNotify, nullptr, context.process);
}

int VirtualEngine::get_async_event(Context& context, ibv_async_event& event) {
  for (std::size_t i = 0; i < async_.size(); ++i) {
    if (async_[i].context != &context || async_[i].at > now_) continue;
    event = async_[i].event;
    ++*async_[i].read;
    Fifo<AsyncEvent> kept;
    for (std::size_t k = 0; k < async_.size(); ++k) {
      if (k != i) kept.push_back(async_[k]);
    }
    async_ = std::move(kept);
    return 0;
  }
  return EAGAIN;
}

Srq* VirtualEngine::create_srq(Pd& pd, ibv_srq_init_attr& attr, Xrcd* xrcd, Cq* cq) {
  if (attr.attr.max_wr > kMaxSrqWr || attr.attr.max_sge > kMaxSge) return failed<Srq>(EINVAL);
  attr.attr.max_wr = std::max(attr.attr.max_wr, 1U);
  attr.attr.max_sge = std::max(attr.attr.max_sge, 1U);
  auto srq = std::make_unique<VirtualSrq>();
  constexpr std::size_t kRested = 1024;  // a number comes back as late as can be
  if (free_srqs_.size() > kRested) {
    srq->number = free_srqs_.front();
    free_srqs_.pop_front();
  } else {
    if (srqs_.size() > 0xffffff) return failed<Srq>(ENOMEM);
    srq->number = static_cast<std::uint32_t>(srqs_.size());
    srqs_.push_back(nullptr);
  }
  srqs_[srq->number] = srq.get();
  srq->xrcd = xrcd;
  srq->cq = cq;
  if (xrcd != nullptr) {
    ++xrcd->users;
    ++cq->users;
  }
  srq->process = context_of(pd).process;
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

void VirtualEngine::raise_limit(VirtualSrq& srq) {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
  event.element.srq = &srq.verbs;
  raise(context_of(srq.verbs.context), event, &srq.events_read);
}

int VirtualEngine::modify_srq(Srq& base, const ibv_srq_attr& attr, int mask) {
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
    if (below) raise_limit(srq);
  }
  return 0;
}

int VirtualEngine::query_srq(Srq& base, ibv_srq_attr& attr) {
  const auto& srq = static_cast<VirtualSrq&>(base);
  attr = {srq.max_wr, srq.max_sge, srq.limit};
  return 0;
}

int VirtualEngine::destroy_srq(Srq& base) {
  auto& srq = static_cast<VirtualSrq&>(base);
  if (srq.users.load() != 0) return EBUSY;
  for (std::size_t i = 0; i < async_.size(); ++i) {
    if (async_[i].read == &srq.events_read) async_[i].context = nullptr;
  }
  if (srq.xrcd != nullptr) {
    --srq.xrcd->users;
    --srq.cq->users;
  }
  srqs_[srq.number] = nullptr;
  free_srqs_.push_back(srq.number);
  --reinterpret_cast<Pd*>(srq.verbs.pd)->users;
  delete &srq;
  return 0;
}

int VirtualEngine::add_receive(Fifo<VirtualReceive>& queue, std::uint32_t max_wr,
                               std::uint32_t max_sge, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  for (; wr != nullptr; wr = wr->next) {
    int error = 0;
    if (wr->num_sge < 0 || static_cast<std::uint32_t>(wr->num_sge) > max_sge) error = EINVAL;
    if (queue.size() >= max_wr) error = ENOMEM;
    if (error != 0) {
      *bad = wr;
      return error;
    }
    VirtualReceive receive;
    receive.wr_id = wr->wr_id;
    receive.count = static_cast<std::uint32_t>(wr->num_sge);
    for (int i = 0; i < wr->num_sge; ++i) {
      receive.room += wr->sg_list[i].length;
      if (i == 0) {
        receive.first = wr->sg_list[0];
      } else {
        receive.more.push_back(wr->sg_list[i]);
      }
    }
    queue.push_back(std::move(receive));
  }
  return 0;
}

int VirtualEngine::post_srq_recv(Srq& base, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  auto& srq = static_cast<VirtualSrq&>(base);
  charge(profile_.processor_post_receive);
  return add_receive(srq.receives, srq.max_wr, srq.max_sge, wr, bad);
}

int VirtualEngine::post_recv(Qp& base, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  if (base.kind == QpKind::xrc_tgt) {  // it has no receives of its own
    *bad = wr;
    return EINVAL;
  }
  auto& qp = static_cast<VirtualQp&>(base);
  charge(profile_.processor_post_receive);
  if (qp.phase == QpPhase::reset || qp.srq != nullptr || qp.max_recv_wr == 0) {
    *bad = wr;
    return EINVAL;
  }
  const int error = add_receive(qp.receives, qp.max_recv_wr, qp.max_recv_sge, wr, bad);
  if (qp.phase == QpPhase::err) fail_target(qp, IBV_EVENT_QP_FATAL);
  return error;
}

Ah* VirtualEngine::create_ah(Pd& pd, const ibv_ah_attr& attr) {
  // Every node of the world is; who is meant is told by queue pair numbers.
  return make_address_handle(pd, attr, true);
}

int VirtualEngine::destroy_ah(Ah& ah) {
  destroy_address_handle(ah);
  return 0;
}

}  // namespace turnout::hca
