// SPDX-License-Identifier: BSD-3-Clause
// IP addresses and ports of the connection manager: names of end points on this host.
//
// An Address is a plain value that travels in messages; any thread may call. The adapter has no
// network, so an address is reachable only if it is one of the host's.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace turnout::cm {

struct Address {
  std::uint16_t family = 0;           // AF_INET, AF_INET6, or 0: none
  std::uint16_t port = 0;             // host order
  std::uint32_t scope = 0;            // of a link-local IPv6 address, as in sockaddr_in6
  std::array<std::uint8_t, 16> ip{};  // network order; IPv4: the first four
  bool operator==(const Address&) const = default;

  [[nodiscard]] bool present() const noexcept { return family != 0; }
  [[nodiscard]] bool any() const noexcept;
  [[nodiscard]] bool multicast() const noexcept;
  [[nodiscard]] bool loopback() const noexcept;  // 127.0.0.0/8, ::1
};

// False where the family is neither of the two. `from` is as long as its family says.
[[nodiscard]] bool from_sockaddr(const sockaddr* from, Address& to) noexcept;
void to_sockaddr(const Address& from, sockaddr_storage& to) noexcept;

[[nodiscard]] Address any_address(std::uint16_t family) noexcept;
[[nodiscard]] Address loopback_address(std::uint16_t family) noexcept;
// An IPv4 address that was written as an IPv6 one (RFC 4291, 2.5.5.2), as IPv4; others unchanged.
[[nodiscard]] Address unmapped(Address address) noexcept;

// Of the interfaces of this host, loopback included. Asks the kernel each time: they may change.
[[nodiscard]] std::vector<Address> host_addresses();
// Wildcards are not: they name no one.
[[nodiscard]] bool is_local(const Address& address);

// Without the port.
[[nodiscard]] std::string text(const Address& address);

}  // namespace turnout::cm
