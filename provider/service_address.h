// SPDX-License-Identifier: BSD-3-Clause
// ServiceAddress: an endpoint named by host and port, for programs that give fi_getinfo a node and
// a service and exchange no addresses themselves.
//
// It has the size of an Address, so that both can be in one array of fi_av_insert. It names an
// endpoint that was opened with it as its source: such an endpoint listens there (AddressServer)
// and tells its Address to all who connect. So a ServiceAddress is good where the hosts have a
// TCP connection to each other, whatever the adapters are connected by.
//
// A value without owned memory; any thread. Programs hold it in fi_info and hand it in, so decode()
// checks every field. Source: fi_getinfo(3), getaddrinfo(3).
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/file_descriptor.h"
#include "base/status.h"
#include "core/types/address.h"

namespace turnout::provider {

struct ServiceAddress {
  static constexpr std::uint16_t kMagic = 0x5453;  // "ST", another than an Address has
  static constexpr std::uint8_t kVersion = 1;

  std::uint16_t magic = kMagic;
  std::uint8_t version = kVersion;
  std::uint8_t count = 0;  // sockets: one to listen at; to ask, perhaps one of either family
  std::uint32_t reserved = 0;
  // Each a sockaddr_in or a sockaddr_in6.
  std::array<std::array<std::uint8_t, sizeof(sockaddr_in6)>, 2> sockets{};

  struct Lookup {
    bool source = false;   // to listen at: no node means all addresses of this host
    bool numeric = false;  // FI_NUMERICHOST
    int family = AF_UNSPEC;
  };
  // Null: no node, or no service. Errors: invalid, with what getaddrinfo(3) says. May ask a name
  // server.
  [[nodiscard]] static Result<ServiceAddress> look_up(const char* node, const char* service,
                                                      Lookup how);
  [[nodiscard]] static bool is_one(const void* bytes) noexcept;
  // Errors: invalid (version, count, family).
  [[nodiscard]] static Result<ServiceAddress> decode(const void* bytes, std::size_t length);

  [[nodiscard]] const sockaddr* socket(std::size_t i = 0) const noexcept {
    return reinterpret_cast<const sockaddr*>(sockets[i].data());
  }
  [[nodiscard]] std::uint16_t port() const noexcept;
  [[nodiscard]] std::string to_string() const;  // turnout://host:port

  // A socket to listen at, which blocks nobody. Errors: system, with the errno of bind(2)
  // (EADDRINUSE, EACCES, ...) or of what else failed.
  [[nodiscard]] Result<Descriptor> bound_socket() const;

  // The same; from then on this says where peers reach the socket: with the port that the system
  // chose, and at an address of this host, of the family, where it is bound to all of them.
  [[nodiscard]] Result<Descriptor> bind(int family);

  // The Address of the endpoint that listens there. Tries again while nobody does, as a server may
  // be starting, until `end`. Errors: invalid (no port); system, with the errno of
  // connect(2) or recv(2) or ETIMEDOUT; those of Address::decode, if somebody else listens there.
  // Blocks.
  [[nodiscard]] Result<Address> ask(std::chrono::steady_clock::time_point end) const;
};
static_assert(sizeof(ServiceAddress) == sizeof(Address));

[[nodiscard]] inline socklen_t length_of(const sockaddr* socket) noexcept {
  return socket->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

// The text of fi_av_straddr for an Address, which contains all of it, and back. Errors of the
// latter: invalid, and those of Address::decode.
[[nodiscard]] std::string text_of(const Address& address);
[[nodiscard]] Result<Address> address_of(const std::string& text);
// Does the text have the form of text_of()?
[[nodiscard]] bool is_address_text(const char* text) noexcept;

}  // namespace turnout::provider
