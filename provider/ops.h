// SPDX-License-Identifier: BSD-3-Clause
// Helpers for all libfabric objects: an optional lock, and entries for the calls of an operations
// table that an object does not implement (libfabric does not check most of them).
#pragma once

#include <rdma/fi_errno.h>

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
class Guard {
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
  DomainLock* lock_;
};

// Converts to a function of any signature that answers this number.
template <int kAnswer>
struct Answers {
  template <class R, class... Arguments>
  using Function = R (*)(Arguments...);

  template <class R, class... Arguments>
  constexpr operator Function<R, Arguments...>() const noexcept {  // NOLINT
    return [](Arguments...) -> R { return static_cast<R>(kAnswer); };
  }
};

inline constexpr Answers<-FI_ENOSYS> kNotHere;           // this object has no such call
inline constexpr Answers<-FI_EOPNOTSUPP> kNotSupported;  // this provider cannot do it
inline constexpr Answers<-FI_EOPBADSTATE> kNotEnabled;   // before fi_enable

}  // namespace turnout::provider
