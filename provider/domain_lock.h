// SPDX-License-Identifier: BSD-3-Clause
// DomainLock and Guard: the mutex of a domain, and holding it for a scope where there is one. Owned
// by the domain. Any thread.
#pragma once

#include <atomic>
#include <mutex>

namespace turnout::provider {

// A mutex that tells its holder when somebody waits for it; that costs only who waits.
class DomainLock {
 public:
  void lock() {
    if (mutex_.try_lock()) [[likely]]
      return;
    waiting_.fetch_add(1, std::memory_order_relaxed);
    mutex_.lock();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }
  [[nodiscard]] bool try_lock() { return mutex_.try_lock(); }
  void unlock() { mutex_.unlock(); }
  [[nodiscard]] bool is_wanted() const noexcept {
    return waiting_.load(std::memory_order_relaxed) != 0;
  }

 private:
  std::mutex mutex_;
  std::atomic<unsigned> waiting_{0};
};

// Holds the lock of a domain that has one; with FI_THREAD_DOMAIN the program serializes its calls
// and there is none, unless a thread of ours makes progress beside it.
class [[nodiscard]] Guard {
 public:
  explicit Guard(DomainLock* lock) : lock_(lock) {
    if (lock_ != nullptr) lock_->lock();
  }
  ~Guard() {
    if (lock_ != nullptr) lock_->unlock();
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  DomainLock* const lock_;
};

}  // namespace turnout::provider
