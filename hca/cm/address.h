// SPDX-License-Identifier: BSD-3-Clause
// Addresses and ports of the connection manager: names of end points on this host. Those of IP, and
// AF_IB's: the GID of a port, and a service id, which is a port space << 16 | a port (IBTA A11.2).
//
// An Address is a plain value that travels in messages; any thread may call. The adapter has no
// network, so an address is reachable only if it is one of the host's.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace turnout::cm {

// What of a sockaddr_ib (<infiniband/ib.h>) is not of IP.
struct IbService {
  std::uint64_t id = 0, mask = 0;  // host order; an id is what of it is in the mask
  std::uint64_t scope = 0;         // sib_scope_id: kept, without a meaning
  std::uint32_t flow = 0;          // sib_flowinfo: likewise
  std::uint16_t pkey = 0;          // host order
  std::uint16_t unused = 0;
  bool operator==(const IbService&) const = default;
};

inline constexpr std::uint16_t kFamilyIb = 27;  // AF_IB of <infiniband/ib.h>

struct Address {
  std::uint16_t family = 0;           // AF_INET, AF_INET6, AF_IB, or 0: none
  std::uint16_t port = 0;             // host order; AF_IB: the end of the service id
  std::uint32_t scope = 0;            // of a link-local IPv6 address, as in sockaddr_in6
  std::array<std::uint8_t, 16> ip{};  // network order; IPv4: the first four; AF_IB: the GID
  IbService service;                  // AF_IB
  bool operator==(const Address&) const = default;

  [[nodiscard]] bool present() const noexcept { return family != 0; }
  [[nodiscard]] bool any() const noexcept;
  [[nodiscard]] bool multicast() const noexcept;
  [[nodiscard]] bool loopback() const noexcept;  // 127.0.0.0/8, ::1
  [[nodiscard]] constexpr bool ib() const noexcept { return family == kFamilyIb; }
};

// The port space of an AF_IB address's service id that an identifier of space `ps` may have, as
// Linux chooses it: RDMA_PS_IB takes those of TCP and UDP, too. 0: none.
[[nodiscard]] std::uint16_t service_space(const Address& address, rdma_port_space ps) noexcept;
// Makes `space` and the address's port its service id.
void set_service(Address& address, std::uint16_t space) noexcept;
[[nodiscard]] Address gid_address(const ibv_gid& gid, std::uint16_t pkey) noexcept;

// False where the family is none of the three. `from` is as long as its family says.
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
