// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/async_events.h"

#include <cerrno>
#include <utility>

namespace turnout::hca {

void AsyncEvents::raise(Context& context, const ibv_async_event& event, std::uint32_t* read) {
  entries_.push_back({&context, event, read, kernel_.now() + profile_.processor_interrupt});
  kernel_.schedule(kernel_.now() + profile_.processor_interrupt, EventKind::notify, nullptr,
                   context.process);
}

void AsyncEvents::raise_limit(VirtualSrq& srq) {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
  event.element.srq = &srq.verbs;
  raise(context_of(srq.verbs.context), event, &srq.events_read);
}

void AsyncEvents::raise_qp(VirtualQp& qp, ibv_event_type type) {
  const auto tell = [&](Qp& whom) {
    ibv_async_event event{};
    event.event_type = type;
    event.element.qp = &whom.verbs.qp_base;
    raise(context_of(whom.verbs.qp_base.context), event, &whom.events_read);
  };
  if (qp.kind != QpKind::xrc_tgt) {
    tell(qp);
    return;
  }
  for (TargetHandle* handle : static_cast<VirtualTarget&>(qp).handles) tell(*handle);
}

int AsyncEvents::take(Context& context, ibv_async_event& event) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].context != &context || entries_[i].at > kernel_.now()) continue;
    event = entries_[i].event;
    ++*entries_[i].read;
    Fifo<Entry> kept;
    for (std::size_t k = 0; k < entries_.size(); ++k) {
      if (k != i) kept.push_back(entries_[k]);
    }
    entries_ = std::move(kept);
    return 0;
  }
  return EAGAIN;
}

void AsyncEvents::forget(const Context& context) {
  Fifo<Entry> kept;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].context != &context) kept.push_back(entries_[i]);
  }
  entries_ = std::move(kept);
}

void AsyncEvents::forget(const std::uint32_t* read) noexcept {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].read == read) entries_[i].context = nullptr;
  }
}

}  // namespace turnout::hca
