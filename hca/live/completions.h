// SPDX-License-Identifier: BSD-3-Clause
// LiveCompletions: completion queues: rings of whole entries, many producers under a lock, one
// consumer without.
//
// A queue is its program's until destroy(). Errors: null and errno, or an errno value. Any thread;
// take() with the queue's poll_lock.
#pragma once

#include "hca/live/events.h"

namespace turnout::hca {

class LiveCompletions : LiveParts {
 public:
  explicit LiveCompletions(const LiveParts& parts) : LiveParts(parts) {}

  [[nodiscard]] Cq* create(Context& context, const ibv_cq_init_attr_ex& attr);
  [[nodiscard]] int resize(Cq& cq, int entries);
  [[nodiscard]] int destroy(Cq& cq);

  // False: the queue is full or gone. taker: whose taken receive this completes, or null.
  bool push(std::uint32_t cq, Token owner, const Completion& entry, bool solicited,
            Qp* taker) noexcept;
  // Takes the next entry; false: empty.
  [[nodiscard]] bool take(Cq& cq, Completion& out);
  [[nodiscard]] static int request_notify(Cq& cq, bool solicited_only);
  // Drops the entries of a queue pair.
  void drop(const Qp& qp) noexcept;
};

}  // namespace turnout::hca
