// Small things that every libfabric object here needs: a lock that may be absent, and entries for
// the calls of an operations table that an object does not have (libfabric calls most of them
// unchecked).
#pragma once

#include <rdma/fi_errno.h>

#include <mutex>

namespace turnout::provider {

// Holds the mutex of a domain whose program asked for thread safety; with FI_THREAD_DOMAIN the
// program serializes its calls and there is no mutex.
class Guard {
 public:
  explicit Guard(std::mutex* mutex) : mutex_(mutex) {
    if (mutex_ != nullptr) mutex_->lock();
  }
  ~Guard() {
    if (mutex_ != nullptr) mutex_->unlock();
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  std::mutex* mutex_;
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
