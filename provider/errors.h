// SPDX-License-Identifier: BSD-3-Clause
// Errors: maps a Status of the core to a return value of libfabric's API. Any thread.
//
// The text of a Status is not lost: it was logged where the failure was detected, and the text of a
// failed operation stays with its error entry for fi_cq_strerror.
#pragma once

#include <rdma/fi_errno.h>

#include <cstring>
#include <iterator>
#include <new>
#include <string_view>

#include "base/status.h"

namespace turnout::provider {

// Codes are small and lie above every errno, so that one number tells which of the two it is.
inline constexpr int kCodeBase = 1 << 16;

// The positive FI_E* of a failure; 0 for Code::ok.
[[nodiscard]] inline int fi_error(const Status& status) noexcept {
  if (status.code() == Code::system && status.sys_errno() > 0) return status.sys_errno();
  constexpr int kErrors[] = {// by Code
                             FI_SUCCESS,    FI_EAGAIN,     FI_ENOMSG, FI_ECANCELED, FI_ETRUNC,
                             FI_ECONNRESET, FI_ENOMEM,     FI_ENODEV, FI_EINVAL,    FI_EOPNOTSUPP,
                             FI_EACCES,     FI_EOPNOTSUPP, FI_EIO,    FI_EOTHER};
  static_assert(std::size(kErrors) == static_cast<std::size_t>(Code::internal) + 1);
  return kErrors[static_cast<std::size_t>(status.code())];
}

// What prov_errno tells: the errno of the call that failed, else the Code.
[[nodiscard]] inline int provider_errno(const Status& status) noexcept {
  if (status.sys_errno() > 0) return status.sys_errno();
  return kCodeBase + static_cast<int>(status.code());
}

// Words for a prov_errno whose Status is no longer at hand.
[[nodiscard]] inline std::string_view provider_error_text(int prov_errno) noexcept {
  if (prov_errno >= kCodeBase && prov_errno <= kCodeBase + static_cast<int>(Code::internal)) {
    return code_name(static_cast<Code>(prov_errno - kCodeBase));
  }
  const char* text = prov_errno > 0 ? strerrordesc_np(prov_errno) : nullptr;
  return text != nullptr ? text : "unknown error";
}

// The answer of fi_cq_strerror and its like: the text in the buffer, itself where there is none.
// Precondition: the text is terminated.
[[nodiscard]] inline const char* put_text(std::string_view text, char* buffer,
                                          std::size_t length) noexcept {
  if (buffer == nullptr || length == 0) return text.data();
  buffer[text.copy(buffer, length - 1)] = '\0';
  return buffer;
}

// No exception may leave through a C interface: runs f, turns what it throws into -FI_E*.
template <class F>
[[nodiscard, gnu::always_inline]] inline auto contain(F&& f) noexcept -> decltype(f()) {
  using Answer = decltype(f());
  try {
    return f();
  } catch (const std::bad_alloc&) {
    return static_cast<Answer>(-FI_ENOMEM);
  } catch (...) {
    return static_cast<Answer>(-FI_EOTHER);
  }
}

}  // namespace turnout::provider
