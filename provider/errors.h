// SPDX-License-Identifier: BSD-3-Clause
// Errors: maps a Status of the core to a return value of libfabric's API. Any thread.
//
// The text of a Status is not lost: it was logged where the failure was detected, and the text of a
// failed operation stays with its error entry for fi_cq_strerror.
#pragma once

#include <rdma/fi_errno.h>

#include <new>
#include <string_view>

#include "base/status.h"

namespace turnout::provider {

// The positive FI_E* of a failure; 0 for Code::ok.
[[nodiscard]] int fi_error(const Status& status) noexcept;
// What prov_errno tells: the errno of the call that failed, else the Code.
[[nodiscard]] int provider_errno(const Status& status) noexcept;
// Words for a prov_errno whose Status is no longer at hand.
[[nodiscard]] std::string_view provider_error_text(int prov_errno) noexcept;

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
[[nodiscard]] auto contain(F&& f) noexcept -> decltype(f()) {
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
