// SPDX-License-Identifier: BSD-3-Clause
// AsyncEvents: the asynchronous events of all contexts of a world (ibv_get_async_event(3)).
//
// Owns what has not been read. A process can know of an event after an interrupt. One thread.
#pragma once

#include <vector>

#include "hca/virtual/kernel.h"
#include "hca/virtual/objects.h"

namespace turnout::hca {

class AsyncEvents {
 public:
  AsyncEvents(Kernel& kernel, const Profile& profile) : kernel_(kernel), profile_(profile) {}

  // read: the counter of the object that the event is of.
  void raise(Context& context, const ibv_async_event& event, std::uint32_t* read);
  void raise_limit(VirtualSrq& srq);
  // To every handle of an XRC target.
  void raise_qp(VirtualQp& qp, ibv_event_type type);
  // EAGAIN: the context has none that its process can know of.
  [[nodiscard]] int take(Context& context, ibv_async_event& event);
  // Those of a context that is closed; those of the object with this counter, which is destroyed.
  void forget(const Context& context);
  void forget(const std::uint32_t* read) noexcept;

 private:
  struct Entry {
    Context* context;
    ibv_async_event event;
    std::uint32_t* read;
    Picoseconds at;
  };
  Kernel& kernel_;
  const Profile& profile_;
  std::vector<Entry> entries_;
};

}  // namespace turnout::hca
