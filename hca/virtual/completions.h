// SPDX-License-Identifier: BSD-3-Clause
// Completions: the completion queues and channels of a world (ibv_create_comp_channel(3)).
//
// Both are their program's until they are destroyed. Nothing sleeps in virtual time: a channel has
// no descriptor to wait on, and get_event() returns EAGAIN where a live one waits. Polling takes
// the time that the profile says. A full queue loses the entry and is unusable (IBTA 11.5.3). One
// thread.
#pragma once

#include "hca/virtual/async_events.h"
#include "hca/virtual/engine_parts.h"

namespace turnout::hca {

class Completions : EngineParts {
 public:
  explicit Completions(const EngineParts& parts) : EngineParts(parts) {}

  [[nodiscard]] static Channel* create_channel(Context& context);
  [[nodiscard]] static int destroy_channel(Channel& channel);
  [[nodiscard]] static int get_event(Channel& channel, ibv_cq** cq, void** cq_context);
  [[nodiscard]] static Cq* create(Context& context, const ibv_cq_init_attr_ex& attr);
  [[nodiscard]] static int resize(Cq& cq, int entries);
  [[nodiscard]] static int destroy(Cq& cq);

  // Takes the next entry; false: empty.
  [[nodiscard]] bool take(Cq& cq, Completion& out);
  // A poll found nothing. -1: the queue is in error.
  [[nodiscard]] int idle(Cq& cq);
  [[nodiscard]] static int request_notify(Cq& cq, bool solicited_only);
  // cq: null for a queue pair that has none: nothing.
  void push(VirtualCq* cq, const Completion& entry, bool solicited);
  // Drops the entries of a queue pair.
  static void forget(const VirtualQp& qp);
};

}  // namespace turnout::hca
