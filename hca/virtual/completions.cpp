// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/completions.h"

#include <cerrno>
#include <memory>

#include "hca/device/common_objects.h"

namespace turnout::hca {

namespace {

void show_gate(VirtualCq& cq) {
  cq.gate.sequence.store(cq.entries.empty() ? 0 : 1, std::memory_order_relaxed);
}

}  // namespace

Channel* Completions::create_channel(Context& context) {
  auto channel = std::make_unique<VirtualChannel>();
  channel->verbs.context = &context.verbs.context;
  channel->verbs.fd = -1;  // nothing can sleep in virtual time: ask with get_event()
  channel->write = -1;
  ++context.users;
  return channel.release();
}

int Completions::destroy_channel(Channel& channel) {
  if (channel.users.load() != 0) return EBUSY;
  --context_of(channel.verbs.context).users;
  delete static_cast<VirtualChannel*>(&channel);
  return 0;
}

int Completions::get_event(Channel& base, ibv_cq** cq, void** cq_context) {
  auto& channel = static_cast<VirtualChannel&>(base);
  if (channel.events.empty()) return EAGAIN;
  VirtualCq& of = *channel.events.front();
  channel.events.pop_front();
  ++of.comp_events_read;
  *cq = ibv_cq_ex_to_cq(&of.verbs);
  *cq_context = of.verbs.cq_context;
  return 0;
}

Cq* Completions::create(Context& context, const ibv_cq_init_attr_ex& attr) {
  if (const int error = check_creation(attr); error != 0) return failed(error);
  auto cq = std::make_unique<VirtualCq>();
  cq->process = context.process;
  cq->slots = attr.cqe;
  cq->next.store(&cq->gate, std::memory_order_relaxed);
  cq->expected.store(1, std::memory_order_relaxed);
  show_gate(*cq);
  cq->single_threaded = true;
  begin_cq(*cq, context, attr, attr.cqe);
  return cq.release();
}

int Completions::resize(Cq& base, int entries) {
  auto& cq = static_cast<VirtualCq&>(base);
  if (entries <= 0 || static_cast<std::uint32_t>(entries) > kMaxCqe ||
      cq.entries.size() > static_cast<std::size_t>(entries)) {
    return EINVAL;
  }
  cq.slots = static_cast<std::uint32_t>(entries);
  cq.verbs.cqe = entries;
  return 0;
}

int Completions::destroy(Cq& base) {
  auto& cq = static_cast<VirtualCq&>(base);
  if (cq.users.load() != 0) return EBUSY;
  end_cq(cq);
  delete &cq;
  return 0;
}

bool Completions::take(Cq& base, Completion& out) {
  auto& cq = static_cast<VirtualCq&>(base);
  while (!cq.entries.empty()) {
    out = cq.entries.front();
    cq.entries.pop_front();
    show_gate(cq);
    if (out.dropped != 0) continue;
    processes.charge(profile.processor_entry);
    out.timestamp = static_cast<std::uint64_t>(kernel.now() / kNanosecond);
    if (out.send != 0) {
      if (VirtualQp* qp = qps.find(out.qpn); qp != nullptr) {
        qp->reclaimed.store(out.sq_position, std::memory_order_relaxed);
      }
    }
    return true;
  }
  return false;
}

int Completions::idle(Cq& base) {
  processes.charge(profile.processor_poll);
  return static_cast<VirtualCq&>(base).overflowed ? -1 : 0;
}

void Completions::push(VirtualCq* cq, const Completion& entry, bool solicited) {
  if (cq == nullptr) return;
  if (cq->entries.size() >= cq->slots) {  // IBTA 11.5.3: the entry is lost, the queue unusable
    cq->overflowed = true;
    ibv_async_event event{};
    event.event_type = IBV_EVENT_CQ_ERR;
    event.element.cq = ibv_cq_ex_to_cq(&cq->verbs);
    events.raise(context_of(cq->verbs.context), event, &cq->async_events_read);
    return;
  }
  cq->entries.push_back(entry);
  show_gate(*cq);
  if (cq->verbs.channel != nullptr &&
      (cq->armed == Armed::any ||
       (cq->armed == Armed::solicited && (solicited || entry.status != IBV_WC_SUCCESS)))) {
    cq->armed = Armed::no;
    reinterpret_cast<VirtualChannel*>(cq->verbs.channel)->events.push_back(cq);
    kernel.schedule(kernel.now() + profile.processor_interrupt, EventKind::notify, nullptr,
                    cq->process);
  }
  processes.wake(cq->process);
}

int Completions::request_notify(Cq& base, bool solicited_only) {
  auto& cq = static_cast<VirtualCq&>(base);
  if (!solicited_only) {
    cq.armed = Armed::any;
  } else if (cq.armed == Armed::no) {
    cq.armed = Armed::solicited;
  }
  return 0;
}

void Completions::forget(const VirtualQp& qp) {
  for (VirtualCq* const cq : {qp.send_cq, qp.recv_cq}) {
    for (std::size_t i = 0; cq != nullptr && i < cq->entries.size(); ++i) {
      if (cq->entries[i].qpn == qp.number) cq->entries[i].dropped = 1;
    }
  }
}

}  // namespace turnout::hca
