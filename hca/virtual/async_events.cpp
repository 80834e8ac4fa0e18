// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/async_events.h"

#include <algorithm>
#include <cerrno>

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
  const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return e.context == &context && e.at <= kernel_.now();
  });
  if (entry == entries_.end()) return EAGAIN;
  event = entry->event;
  ++*entry->read;
  entries_.erase(entry);
  return 0;
}

void AsyncEvents::forget(const Context& context) {
  std::erase_if(entries_, [&](const Entry& e) { return e.context == &context; });
}

void AsyncEvents::forget(const std::uint32_t* read) noexcept {
  std::erase_if(entries_, [&](const Entry& e) { return e.read == read; });
}

}  // namespace turnout::hca
