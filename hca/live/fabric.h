// SPDX-License-Identifier: BSD-3-Clause
// Fabric: this process's attachment to the shared memory of a fabric (directory.h).
//
// One per process and fabric name (the child of a fork creates its own), shared by all contexts
// opened on it (Fabric::open counts). Owns the mapping, the process's slot, its name in the
// directory and its wake pipe. The memory is sparse and private to the user; it ends with the last
// process that uses it. A process that finds only exiting processes creates new memory.
//
// Another process may have damaged the memory, so accessors check indices and offsets and return
// null. Any thread may call anything. Lock order: table_lock, then a receive queue's, then a CQ's.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "hca/device/objects.h"
#include "hca/live/peer_pipes.h"
#include "hca/live/tables.h"

namespace turnout::hca {

class Fabric : public Tables {
 public:
  // Errors: permission (a process of it refuses to be looked at), version, unsupported (another
  // namespace of processes), invalid (name, size, damaged), system.
  static Result<std::shared_ptr<Fabric>> open(const std::string& name, std::uint64_t size);
  ~Fabric();

  [[nodiscard]] Token me() const noexcept { return me_; }
  [[nodiscard]] int pid() const noexcept { return pid_; }
  // Its name and whose it is: no two of a process have the same.
  [[nodiscard]] const std::string& label() const noexcept { return label_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] int wake_read() const noexcept { return wake_read_.get(); }

  // Is the process behind `token` attached and running? A system call or three.
  [[nodiscard]] bool alive(Token token) const noexcept;
  // Has it ended, or is it about to: its memory is gone, its files may be? Such a process still
  // counts as running for a moment.
  [[nodiscard]] bool is_ending(Token token) const noexcept;

  // Locks in shared memory; see lock.cpp. lock() steals from a dead holder.
  void lock(Lock& l) const noexcept {
    std::uint32_t expected = 0;
    if (!l.owner.compare_exchange_strong(expected, me_, std::memory_order_acquire)) lock_slow(l);
  }
  void unlock(Lock& l) const noexcept { l.owner.store(0, std::memory_order_release); }

  // A free record of a table, from `start` on: each process begins at a place of its own, because
  // neighbours in a cache line have one owner. None has an index below `first`. kNone: the table is
  // full. table_lock held.
  template <class Record>
  [[nodiscard]] std::uint32_t find_free(Record& (Tables::*table)(std::uint32_t) const noexcept,
                                        std::uint32_t size, std::atomic<std::uint32_t>& high,
                                        std::uint32_t start,
                                        std::uint32_t first = 0) const noexcept {
    for (std::uint32_t n = 0; n < size; ++n) {
      const std::uint32_t index = (start + n) % size;
      const Record& record = (this->*table)(index);
      if (index < first || record.owner.load(std::memory_order_acquire) != 0) continue;
      if (high.load() < index + 1) high.store(index + 1);
      return index;
    }
    return kNone;
  }

  // Whole pages for a ring, zeroed, tagged as ours. 0 and errno ENOMEM when the heap or the
  // machine's memory is full. Takes table_lock.
  [[nodiscard]] std::uint64_t allocate(std::uint64_t bytes) noexcept;
  void release(std::uint64_t offset, std::uint64_t bytes) noexcept;

  // Destroys everything a dead process left (nothing when it lives). Takes table_lock.
  void reap(Token token) noexcept;
  // All dead processes of the table. True if any was found.
  bool reap_dead() noexcept;

  // The descriptors of its processes.
  [[nodiscard]] const PeerPipes& pipes() const noexcept { return pipes_; }
  [[nodiscard]] PeerPipes& pipes() noexcept { return pipes_; }
  // A full memory barrier in this thread and in all that run in attached processes, unless
  // Header::full_barriers. A system call, some microseconds.
  void barrier() const noexcept;

  // Wakes the firmware thread of a process, of all attached processes.
  void wake(Token token) noexcept;
  void wake_all() noexcept;

  // What open() locks: to be held over a fork, so that the child can open.
  static std::mutex& open_mutex() noexcept;
  // At process exit: this process no longer counts as attached.
  static void leave_all_at_exit() noexcept;

 private:
  Fabric() = default;
  Status attach(std::uint64_t size);
  // Maps the memory of those who are attached, if anybody is. permission: somebody seems to be.
  Status find_memory(std::set<std::string>& ours);
  Status make_memory(std::uint64_t size);
  Status map(Descriptor fd, std::uint64_t size);
  void unmap() noexcept;
  Status initialise(int fd, std::uint64_t size) const;
  Status check(int fd, std::uint64_t& size) const;
  Status join();
  [[nodiscard]] bool others_attached() const noexcept;
  void lock_slow(Lock& l) const noexcept;
  void reap_locked(std::uint32_t slot, Token token) noexcept;
  void free_pages(std::uint64_t first, std::uint64_t pages) noexcept;

  std::string label_, name_;
  Descriptor fd_, name_socket_, wake_read_, wake_write_;
  Token me_ = 0;
  int pid_ = 0;
  bool left_ = false;  // at exit
  bool has_membarrier_ = false;
  PeerPipes pipes_{*this};
};

// Holds one lock of the shared state.
class SharedGuard {
 public:
  SharedGuard(const Fabric& fabric, Lock& lock) noexcept : fabric_(fabric), lock_(lock) {
    fabric_.lock(lock_);
  }
  ~SharedGuard() { fabric_.unlock(lock_); }
  SharedGuard(const SharedGuard&) = delete;
  SharedGuard& operator=(const SharedGuard&) = delete;

 private:
  const Fabric& fabric_;
  Lock& lock_;
};

// Holds Header::table_lock.
class TableGuard : SharedGuard {
 public:
  explicit TableGuard(const Fabric& fabric) noexcept
      : SharedGuard(fabric, fabric.header().table_lock) {}
};

// CLOCK_MONOTONIC in nanoseconds: the one clock of all processes of a host.
[[nodiscard]] inline std::uint64_t monotonic() noexcept {
  return clock_ns(CLOCK_MONOTONIC);
}

}  // namespace turnout::hca
