// SPDX-License-Identifier: BSD-3-Clause
#include "base/signal_free_thread.h"

#include <pthread.h>
#include <signal.h>

#include <cerrno>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace turnout {
namespace {

// A new thread has the mask of the one that makes it.
class BlockedSignals {
 public:
  BlockedSignals() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

Status no_thread(ThreadName name, const char* why, int error) {
  return {Code::system, "thread " + std::string(name.text()) + ": " + why, error};
}

}  // namespace

Result<std::thread> start_signal_free_thread(ThreadName name, std::function<void()> body) {
  const BlockedSignals blocked;
  try {
    return std::thread([name, main = std::move(body)] {
      (void)pthread_setname_np(pthread_self(), name.text());
      main();
    });
  } catch (const std::system_error& error) {
    return no_thread(name, error.what(), error.code().value());
  } catch (const std::bad_alloc& error) {
    return no_thread(name, error.what(), ENOMEM);
  }
}

}  // namespace turnout
