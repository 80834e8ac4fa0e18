// SPDX-License-Identifier: BSD-3-Clause
// What a verb that makes an object gives when it cannot: no object, and errno. Any thread.
#pragma once

#include <cerrno>

namespace turnout::hca {

template <class T>
[[nodiscard]] inline T* failed(int error) noexcept {
  errno = error;
  return nullptr;
}

}  // namespace turnout::hca
