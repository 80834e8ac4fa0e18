// SPDX-License-Identifier: BSD-3-Clause
// AsyncEvents: the asynchronous events of all contexts of a world (ibv_get_async_event(3)).
//
// Owns what has not been read. A process can know of an event after an interrupt. One thread.
#pragma once

#include <algorithm>
#include <cerrno>
#include <vector>

#include "hca/virtual/engine_parts.h"

namespace turnout::hca {

class AsyncEvents : EngineParts {
 public:
  explicit AsyncEvents(const EngineParts& parts) : EngineParts(parts) {}

  // read: the counter of the object that the event is of.
  void raise(Context& context, const ibv_async_event& event, std::uint32_t* read) {
    entries_.push_back({&context, event, read, kernel.now() + profile.processor_interrupt});
    kernel.schedule(kernel.now() + profile.processor_interrupt, EventKind::notify, nullptr,
                    context.process);
  }
  void raise_limit(VirtualSrq& srq) {
    ibv_async_event event{};
    event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
    event.element.srq = &srq.verbs;
    raise(context_of(srq.verbs.context), event, &srq.events_read);
  }
  // To every handle of an XRC target.
  void raise_qp(VirtualQp& qp, ibv_event_type type) {
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
  // EAGAIN: the context has none that its process can know of.
  [[nodiscard]] int take(Context& context, ibv_async_event& event) {
    const auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
      return e.context == &context && e.at <= kernel.now();
    });
    if (entry == entries_.end()) return EAGAIN;
    event = entry->event;
    ++*entry->read;
    entries_.erase(entry);
    return 0;
  }
  // Those of a context that is closed; those of the object with this counter, which is destroyed.
  void forget(const Context& context) {
    std::erase_if(entries_, [&](const Entry& e) { return e.context == &context; });
  }
  void forget(const std::uint32_t* read) noexcept {
    std::erase_if(entries_, [&](const Entry& e) { return e.read == read; });
  }

 private:
  struct Entry {
    Context* context;
    ibv_async_event event;
    std::uint32_t* read;
    Picoseconds at;
  };
  std::vector<Entry> entries_;
};

}  // namespace turnout::hca
