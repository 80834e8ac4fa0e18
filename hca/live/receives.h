// SPDX-License-Identifier: BSD-3-Clause
// LiveReceives: receive queues: posting by their owner, taking by initiators, flushing in error.
//
// The queues are parts of the records of queue pairs and SRQs; their locks are taken here. Any
// thread of any process.
#pragma once

#include "hca/live/completions.h"

namespace turnout::hca {

// Who answers a request: the queue pair at the other end, and whose receives and memory it has.
struct RequestTarget {
  QpRecord* record = nullptr;  // null: nobody answers
  std::uint32_t number = 0;
  std::uint32_t pd = 0;        // of the memory that remote keys name
  std::uint32_t srq = 0;       // index; kNone: the queue pair's own receives
  std::uint32_t cq = 0;        // where receives complete
  Token owner = 0;             // of the two
  std::uint64_t srq_name = 0;  // XRC: what the SRQ's record must keep saying
};

// A receive taken from a queue.
struct TakenReceive {
  std::uint64_t wr_id;
  std::uint32_t num_sge;
  std::uint32_t pd;
  std::uint64_t room;
  std::uint32_t cq;
  Token owner;
  ReceiveSge sge[kMaxSge];
};
enum class Taken : std::uint8_t { yes, empty, gone, damaged };

class LiveReceives : LiveParts {
 public:
  explicit LiveReceives(const LiveParts& parts) : LiveParts(parts) {}

  // 0 or ENOMEM.
  [[nodiscard]] int create_queue(ReceiveQueue& queue, std::uint32_t max_wr, std::uint32_t max_sge,
                                 std::uint32_t pd, OwnRing& own) noexcept;
  void destroy_queue(ReceiveQueue& queue, const OwnRing& own) noexcept;

  // 0, or errno with *bad.
  [[nodiscard]] int post_own(Qp& qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
  [[nodiscard]] int post_shared(Srq& srq, ibv_recv_wr* wr, ibv_recv_wr** bad);
  // For a request of `qp`, whose sq_lock is held.
  [[nodiscard]] Taken take(Qp& qp, const RequestTarget& target, TakenReceive& out) noexcept;
  void flush(QpRecord& record, std::uint32_t number) noexcept;
  // The same, where nobody has died.
  void flush_what_is_there(QpRecord& record, std::uint32_t number) noexcept;
  // Moves a QP (ours or a peer's) to err, completes its receives, tells its owner.
  void fail_target(QpRecord& target, std::uint32_t number, ibv_event_type event) noexcept;

 private:
  [[nodiscard]] int post(ReceiveQueue& queue, ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept;
};

}  // namespace turnout::hca
