// SPDX-License-Identifier: BSD-3-Clause
// Mlx5Queues: queues whose entries lie in their programs' memory in an mlx5's format (hca/mlx5/).
//
// Who completes something writes the entry into the memory of the queue's owner, and who needs a
// receive fetches what the owner has posted there: no thread of the owner takes part. The rings of
// the fabric stay what everybody's locks and repairs are about. A process that dies in between
// leaves entries that the next one moves, or the owner's firmware thread.
//
// With the lock of the queue's record, except where a function says otherwise. What lies in a
// program's memory is checked here.
#pragma once

#include <mutex>
#include <vector>

#include "hca/device/mlx5_format.h"
#include "hca/live/memory.h"
#include "hca/live/parts.h"

namespace turnout::hca {

class Mlx5Queues : LiveParts {
 public:
  explicit Mlx5Queues(const LiveParts& parts) : LiveParts(parts) {}

  // Before anybody uses the queue; takes its lock. `where` without what is counted.
  void attach(const Cq& cq, const Mlx5CqRecord& where) noexcept;
  void attach(Qp& qp, const Mlx5ReceiveRecord& where);
  void attach(const Srq& srq, const Mlx5ReceiveRecord& where) noexcept;
  // The queue pair ends; its receives begin anew (RESET). Without a lock.
  void detach(const Qp& qp) noexcept;
  void restart(const Qp& qp) noexcept;
  // The completions go on in another buffer. False: more wait for the program than it would hold,
  // or the old one has no room to say so. Takes the queue's lock.
  [[nodiscard]] bool resize(const Cq& cq, std::uint64_t buffer, std::uint32_t entries,
                            std::uint32_t stride) noexcept;
  // The program has armed the queue. An entry behind `consumed`, the low 24 bits of what it has
  // polled, that is there already is told at once. Takes the queue's lock.
  void tell_of_entry_behind(const Cq& cq, std::uint32_t consumed) noexcept;

  // Has the program polled so little that no entry fits at `tail`?
  [[nodiscard]] bool is_full(std::uint32_t index, const CqRecord& cq, std::uint64_t tail) noexcept;
  // Moves what is in the ring.
  void move_entries(std::uint32_t index, CqRecord& cq) noexcept;
  // The same of all queues of this process. Takes their locks.
  void move_own() noexcept;

  // Fetches receives into the ring. False: their memory is gone, or says what cannot be.
  [[nodiscard]] bool fetch(ReceiveQueue& queue, Mlx5ReceiveRecord& record, Token owner) noexcept;
  // Goes on until more than `limit` of them are in the ring, or all that are posted: a limit is of
  // what is posted.
  [[nodiscard]] bool fetch_beyond(std::uint32_t limit, ReceiveQueue& queue,
                                  Mlx5ReceiveRecord& record, Token owner) noexcept {
    for (;;) {
      const std::uint32_t before = queue.tail;
      if (!fetch(queue, record, owner)) return false;
      if (queue.tail == before || queue.tail - queue.head > limit) return true;
    }
  }

  // Flushes what was posted to queue pairs of this process that are in error: no doorbell tells of
  // a receive. Returns when to look again, CLOCK_MONOTONIC ns; UINT64_MAX: there are none. Without
  // a lock; of the firmware thread.
  [[nodiscard]] std::uint64_t flush_posted() noexcept;

 private:
  // Memory of a process. False: it cannot be reached.
  [[nodiscard]] bool place_of(Token owner, std::uint64_t address, Place& place) noexcept;
  [[nodiscard]] bool write(Token owner, std::uint64_t address, const void* from,
                           std::size_t bytes) noexcept;
  [[nodiscard]] bool read(Token owner, std::uint64_t address, void* to, std::size_t bytes) noexcept;
  // Takes over how far the program says that it has polled, of what was there up to `position`.
  void look_at_consumed(Mlx5CqRecord& record, Token owner, std::uint64_t position) noexcept;
  // Of this process: has its program not given the memory back? It may, of a queue pair in error.
  [[nodiscard]] bool is_there(const Mlx5ReceiveRecord& record) noexcept;
  void put_entry(const Mlx5CqRecord& where, Token owner, std::uint64_t position,
                 const mlx5_cqe64& entry) noexcept;
  [[nodiscard]] std::uint32_t user_index_of(const Completion& done) const noexcept;

  std::mutex mutex_;
  std::vector<Qp*> own_;  // queue pairs of this process with receives of their own
};

}  // namespace turnout::hca
