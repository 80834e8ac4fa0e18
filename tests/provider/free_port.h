// SPDX-License-Identifier: BSD-3-Clause
// A port at which nobody listens, below those that the system gives away by itself.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "base/file_descriptor.h"

namespace turnout::testing {

// Each process has a few of its own, as tests run at the same time.
inline std::string free_port() {
  static int next = 12'000 + getpid() % 600 * 32;
  for (;; ++next) {
    const Descriptor fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(static_cast<std::uint16_t>(next));
    if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0)
      return std::to_string(next++);
  }
}

}  // namespace turnout::testing
