// SPDX-License-Identifier: BSD-3-Clause
// Threads of Turnout inside programs. They block all signals, so the program's signal handlers only
// run in its own threads.
//
// The thread blocks all signals from its first instruction on. The caller's signal mask is
// unchanged. ps -L and gdb show the name.
//
// The caller owns the thread and joins or detaches it; everything `body` refers to must outlive it.
// Any thread may call this; it allocates. Errors: system (with errno) if the thread cannot be
// created; not logged here, because the consequence depends on the caller.
#pragma once

#include <cstddef>
#include <functional>
#include <thread>

#include "base/status.h"

namespace turnout {

// Of at most 15 characters: Linux takes no longer ones (pthread_setname_np(3)).
class ThreadName {
 public:
  template <std::size_t kSize>
  requires(kSize <= 16) consteval ThreadName(const char (&text)[kSize]) noexcept  // NOLINT
      : text_(text) {}
  [[nodiscard]] const char* text() const noexcept { return text_; }

 private:
  const char* text_;
};

[[nodiscard]] Result<std::thread> start_signal_free_thread(ThreadName name,
                                                           std::function<void()> body);

}  // namespace turnout
