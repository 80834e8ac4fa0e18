// SPDX-License-Identifier: BSD-3-Clause
// Abstract names of Unix sockets (unix(7)): names in the kernel that end with the socket. Any
// thread.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <string_view>

namespace turnout {

class AbstractName {
 public:
  static constexpr std::size_t kLongest = sizeof(sockaddr_un::sun_path) - 1;

  // Of a text of at most kLongest bytes.
  explicit AbstractName(std::string_view text) noexcept
      : length_(static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size())) {
    address_.sun_family = AF_UNIX;
    std::memcpy(address_.sun_path + 1, text.data(), text.size());
  }
  [[nodiscard]] const sockaddr* address() const noexcept {
    return reinterpret_cast<const sockaddr*>(&address_);
  }
  [[nodiscard]] socklen_t length() const noexcept { return length_; }

 private:
  sockaddr_un address_{};
  socklen_t length_;
};

}  // namespace turnout
