// SPDX-License-Identifier: BSD-3-Clause
// Ports of the RDMA port spaces and their listeners: sockets in Linux's abstract namespace.
//
// A bound identifier holds its port by a SOCK_SEQPACKET socket bound to a name made of user,
// fabric, port space, port and address; the kernel frees the name when the process ends. The same
// socket then listens or connects. Any process on the host can connect to an abstract name, so both
// ends check the peer's user id and reject other users.
//
// The caller owns the sockets. Any thread may call; with AF_IB under state_lock(), as the adapter
// is asked for its GID. Errors are errno values (rdma_bind_addr(3)).
#pragma once

#include <cstdint>

#include "base/file_descriptor.h"
#include "hca/cm/address.h"

namespace turnout::cm {

// Takes `address` of a port space; port 0 means any free one, which is written back. v6only: an
// IPv6 wildcard leaves the IPv4 one to others. An empty Descriptor and errno: EADDRINUSE,
// EADDRNOTAVAIL when there is no free port.
[[nodiscard]] Descriptor take_port(std::uint16_t port_space, Address& address, bool v6only);

// Connects the socket of take_port() to whoever listens on the address itself or on a wildcard;
// then to who listens on loopback, which Linux's connection manager takes for a wildcard, too; and
// from loopback to any address of the host, since all of them are the one adapter's. 0;
// ECONNREFUSED: nobody of our user; EAGAIN: the listener's queue is full; or another errno.
[[nodiscard]] int connect_port(int fd, std::uint16_t port_space, const Address& to);

// The next connection of a listening socket as a non-blocking socket, empty when there is none.
// Connections of other users are closed.
[[nodiscard]] Descriptor accept_port(int fd);

}  // namespace turnout::cm
