// SPDX-License-Identifier: BSD-3-Clause
// SharedReceiveQueues: the shared receive queues of a world, basic and XRC, by number.
//
// A queue is its program's until destroy(). Errors of create(): null and errno. One thread.
#pragma once

#include "hca/virtual/async_events.h"
#include "hca/virtual/number_table.h"
#include "hca/virtual/processes.h"

namespace turnout::hca {

class SharedReceiveQueues {
 public:
  SharedReceiveQueues(const Processes& processes, AsyncEvents& events)
      : processes_(processes), events_(events) {}

  // xrcd, cq: both or neither.
  [[nodiscard]] Srq* create(Pd& pd, ibv_srq_init_attr& attr, Xrcd* xrcd, Cq* cq);
  [[nodiscard]] int modify(Srq& srq, const ibv_srq_attr& attr, int mask);
  [[nodiscard]] static int query(Srq& srq, ibv_srq_attr& attr);
  [[nodiscard]] int destroy(Srq& srq);

  [[nodiscard]] VirtualSrq* find(std::uint32_t number) const noexcept;
  // The SRQ that an XRC request names, null: `target` serves no such one.
  [[nodiscard]] VirtualSrq* serving(const Operation& operation,
                                    const VirtualQp& target) const noexcept;
  // Whose memory a request is for.
  [[nodiscard]] ProcessIndex receiver_of(const Operation& operation,
                                         const VirtualQp& target) const noexcept;

 private:
  const Processes& processes_;
  AsyncEvents& events_;
  NumberTable<VirtualSrq*> table_{1, 1024};
};

}  // namespace turnout::hca
