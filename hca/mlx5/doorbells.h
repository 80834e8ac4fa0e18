// SPDX-License-Identifier: BSD-3-Clause
// Doorbells: the pages that a program stores to when it has posted or wants an event.
//
// The pages are mapped from an empty file, so every store to one faults (SIGBUS), in the thread
// that made it and at the store: the queue is looked at right there, and the program goes on behind
// the instruction. No thread waits for doorbells, and nothing is lost: what was posted is in the
// queue's doorbell record, the store only says that it is worth looking.
//
// One for the process. store() is called from a signal handler, synchronously; the other functions
// from any thread. Queues are the caller's from add to remove.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>

#include "hca/device/objects.h"

namespace turnout::hca {

class Mlx5SendQueue;

// A completion queue as doorbells know it.
struct Mlx5Cq {
  Cq* cq = nullptr;
  std::uint64_t doorbell = 0;  // two words: consumer's index, and what is armed
  class Mlx5Queues* queues = nullptr;
  std::atomic<std::uint32_t> seen{0};  // the armed word that was acted on
  // The program wants an event.
  void arm() noexcept;
};

class Doorbells {
 public:
  static Doorbells& instance() noexcept;

  // Of a file whose mappings are doorbells.
  void add_file(dev_t device, ino_t inode) noexcept;
  // Mappings of the file may go, and others take their addresses.
  void remove_file() noexcept;
  void add(Mlx5SendQueue& queue) noexcept;
  void remove(const Mlx5SendQueue& queue) noexcept;
  void add(Mlx5Cq& queue) noexcept;
  void remove(const Mlx5Cq& queue) noexcept;

  // True: the fault was a store to a doorbell, or the first access to a page of the device's memory
  // (mapped_pages.h), or a load of its clock, and is dealt with.
  [[nodiscard]] bool store(const siginfo_t& info, void* ucontext) noexcept;

 private:
  class Look;
  // Of those who look at all queues: then nobody uses one that was removed before.
  void wait_for_looks() const noexcept;
  Doorbells() noexcept;
  enum class Page : std::uint8_t { other, doorbell, memory, clock };
  // What the page is that was accessed; memory is there from then on.
  [[nodiscard]] Page look(std::uint64_t page) noexcept;

  std::atomic<std::uint64_t> pages_[64] = {};  // known to be doorbells; 0: none
  std::atomic<std::uint64_t> device_{0}, inode_{0};
  std::atomic<Mlx5SendQueue*>* sends_ = nullptr;  // kMaxQps, by index
  std::atomic<Mlx5Cq*>* cqs_ = nullptr;           // kMaxCqs, by index
  std::atomic<std::uint32_t> send_high_{0}, cq_high_{0};
  std::atomic<std::uint32_t> looks_{0};  // at all queues, now
};

}  // namespace turnout::hca
