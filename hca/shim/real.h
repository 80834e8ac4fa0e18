// SPDX-License-Identifier: BSD-3-Clause
// The C library's functions behind those of the shim, and how a call is handed on to them.
//
// All are looked up when the library is loaded, so that calls from signal handlers and from
// children of threads that forked do not look up anything; a call before that looks up its own.
// Nothing is allocated, except for the files of counters (counters.h). A function that this C
// library does not have answers ENOSYS.
#pragma once

#include <fcntl.h>

#include <type_traits>

#include "hca/shim/counters.h"
#include "hca/shim/redirect.h"

namespace turnout::shim {

enum class Function : unsigned {
#define SHIM_PATH(result, name, ...) name,
#define SHIM_AT(result, name, ...) name,
#define SHIM_OTHER(name) name,
#include "hca/shim/functions.def"
#undef SHIM_PATH
#undef SHIM_AT
#undef SHIM_OTHER
};

[[nodiscard]] void* real_address(Function function) noexcept;
// Null or -1 with errno, as the C library's functions fail.
void set_no_such_function() noexcept;

template <class Result>
[[nodiscard]] Result failure() noexcept {
  if constexpr (std::is_pointer_v<Result>) {
    return nullptr;
  } else {
    return static_cast<Result>(-1);
  }
}

template <class Result, class... Arguments>
Result call_real(Function function, Arguments... arguments) noexcept {
  auto* const real = reinterpret_cast<Result (*)(Arguments...)>(real_address(function));
  if (real == nullptr) {
    set_no_such_function();
    return failure<Result>();
  }
  return real(arguments...);
}

// Its own frame: the buffer is large for a signal handler's stack, and few paths need it.
template <class Call>
[[gnu::noinline]] auto with_place(int folder, const char* path, const Call& call) noexcept {
  Place place;
  const char* const instead = place_of(folder, path, place);
  if (instead == nullptr) return failure<decltype(call(path))>();
  if (instead == place.text) renew_counter(instead);
  return call(instead);
}

// `call` with the path, or with that of the tree.
template <class Call>
auto redirect(int folder, const char* path, const Call& call) noexcept {
  return may_be_ours(path) ? with_place(folder, path, call) : call(path);
}

// `function` with the path, or with that of the tree, and what follows it.
template <class Result, class... Rest>
Result call_path(Function function, const char* path, Rest... rest) noexcept {
  return redirect(AT_FDCWD, path,
                  [=](const char* p) { return call_real<Result>(function, p, rest...); });
}

// The same of a function that takes the folder of relative paths.
template <class Result, class... Rest>
Result call_path_at(Function function, int folder, const char* path, Rest... rest) noexcept {
  return redirect(folder, path,
                  [=](const char* p) { return call_real<Result>(function, folder, p, rest...); });
}

}  // namespace turnout::shim

// Begins a definition under the name by which the dynamic linker finds the function. The sources
// call theirs otherwise: the C library's declarations promise things (no null pointer, no
// exceptions) that nobody checked yet.
#define TURNOUT_SHIM(result, name, parameters)                                         \
  result shim_##name parameters __asm__(#name) __attribute__((visibility("default"))); \
  result shim_##name parameters
