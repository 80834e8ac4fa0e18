// SPDX-License-Identifier: BSD-3-Clause
// The result of a verb that fails to create an object: null, and errno. Any thread.
#pragma once

#include <cerrno>

namespace turnout::hca {

template <class T>
[[nodiscard]] inline T* failed(int error) noexcept {
  errno = error;
  return nullptr;
}

}  // namespace turnout::hca
