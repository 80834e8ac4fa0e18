// SPDX-License-Identifier: BSD-3-Clause
// Threads of Turnout's own inside programs that know nothing of them: what the program wants to
// hear by signals, it hears on threads of its own.
//
// The thread blocks all signals from its first instruction on, so none that is meant for the
// program is ever handled there; the mask of the caller is the same before and after. The name is
// what ps -L and gdb show.
//
// The caller owns the thread and joins or detaches it, and what `body` refers to outlives it. Any
// thread may call this; it allocates. Errors: system (with errno), where the system has no thread
// or no memory for one; that is not logged here, as only the caller knows what follows from it.
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
