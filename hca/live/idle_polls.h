// SPDX-License-Identifier: BSD-3-Clause
// IdlePolls: when a process that polls completion queues in vain lets others have the processor.
//
// A real adapter works while its host polls. Here the peer needs a processor for that, and there
// may be fewer of them than processes that poll. A process that posts or finds something is not
// idle, whichever queue it polls besides: messages written to its memory complete in none.
//
// One for each process and fabric. Any thread: the count is a hint.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>

namespace turnout::hca {

class IdlePolls {
 public:
  // The process posted a request or found a completion.
  void found_work() noexcept { vain_.store(0, std::memory_order_relaxed); }
  // It posts a request. True: one of the first since it polled in vain, so it may be that the peer
  // waits for this one; others follow each other.
  [[nodiscard]] bool posts_first() noexcept {
    found_work();
    const std::uint32_t left = first_posts_.load(std::memory_order_relaxed);
    if (left == 0) return false;
    first_posts_.store(left - 1, std::memory_order_relaxed);
    return true;
  }
  // A poll found nothing.
  void found_nothing() noexcept {
    first_posts_.store(kFirstPosts, std::memory_order_relaxed);
    const std::uint32_t vain = vain_.load(std::memory_order_relaxed) + 1;
    if (vain < kPatience) [[likely]]
      return vain_.store(vain, std::memory_order_relaxed);
    vain_.store(kPatience - kBetween, std::memory_order_relaxed);
    sched_yield();
  }

 private:
  // Polls in a row before the first yield, some 20 us, and between two: an answer takes less.
  static constexpr std::uint32_t kPatience = 512, kBetween = 64;
  // An answer, and what ends a large message before it.
  static constexpr std::uint32_t kFirstPosts = 2;

  std::atomic<std::uint32_t> vain_{0};
  std::atomic<std::uint32_t> first_posts_{0};
};

}  // namespace turnout::hca
