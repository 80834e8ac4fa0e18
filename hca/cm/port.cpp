// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/port.h"

#include <sys/random.h>
#include <unistd.h>

#include <cerrno>

#include "base/abstract_name.h"
#include "base/log.h"
#include "base/settings.h"
#include "hca/cm/adapter.h"

namespace turnout::cm {
namespace {

constexpr int kSocketType = SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC;
constexpr char kAnyGid[] = "anygid";
constexpr std::uint16_t kFirstFree = 32768, kLastFree = 60999;  // Linux's ip_local_port_range

// A wildcard of both families of IP, of one, of AF_IB, or a host's address. Names end with one of
// these.
std::string place_of(const Address& address, bool v6only) {
  const Address a = unmapped(address);
  if (!a.any()) return text(a);
  if (a.ib()) return kAnyGid;
  return a.family == AF_INET ? "any4" : v6only ? "any6" : "any";
}

AbstractName name_of(std::uint16_t port_space, std::uint16_t port, const std::string& place) {
  const char* const variable = environment_value("fabric");
  const std::string fabric(variable != nullptr ? variable : "",
                           variable != nullptr ? strnlen(variable, 64) : 0);
  // Readable in /proc/net/unix, unless fabric and address are too long for the kernel together.
  std::string text =
      fmt::format("turnout-cm-{}-{}-{:x}-{}-{}", geteuid(), fabric, port_space, port, place);
  if (text.size() > AbstractName::kLongest) {
    std::uint64_t h = 1469598103934665603ULL;  // FNV-1a
    for (const char c : text) h = (h ^ static_cast<std::uint8_t>(c)) * 1099511628211ULL;
    text = fmt::format("turnout-cm-{}-{:016x}-{:x}-{}", geteuid(), h, port_space, port);
  }
  return AbstractName(text);
}

int bind_name(int fd, const AbstractName& name) {
  return bind(fd, name.address(), name.length()) == 0 ? 0 : errno;
}

// Whether a name is free: it is taken for a moment. Someone else who asks at the same moment makes
// it look taken, so that is asked again.
bool is_free(const AbstractName& name) {
  for (int tries = 0; tries < 5; ++tries) {
    const Descriptor probe(socket(AF_UNIX, kSocketType, 0));
    if (!probe || bind_name(probe.get(), name) == 0) return true;
    usleep(200);
  }
  return false;
}

// The names that must be free beside an address's own (as two sockets of IP conflict).
std::vector<std::string> rivals(const Address& address, bool v6only) {
  const Address a = unmapped(address);
  if (a.ib()) {
    if (!a.any()) return {kAnyGid};
    const Adapter* const here = adapter();
    if (here == nullptr) return {};
    return {text(gid_address(here->gid, 0))};
  }
  if (!a.any()) return {a.family == AF_INET ? "any4" : "any6", "any"};
  const bool both = a.family == AF_INET6 && !v6only;
  std::vector<std::string> places{both ? "any4" : "any"};
  if (both) places.emplace_back("any6");
  for (const Address& host : host_addresses()) {
    if (both || host.family == a.family) places.push_back(text(host));
  }
  return places;
}

// Where someone may listen who is meant by an address; the nearest first.
std::vector<std::string> listening_places(const Address& a) {
  if (a.ib()) return {text(a), kAnyGid};
  std::vector<std::string> places{text(a), a.family == AF_INET ? "any4" : "any6", "any"};
  if (!a.loopback()) {
    places.push_back(text(loopback_address(a.family)));
    return places;
  }
  for (const Address& host : host_addresses()) {
    if (host.family == a.family && host.ip != a.ip) places.push_back(text(host));
  }
  return places;
}

int take(int fd, std::uint16_t port_space, const Address& address, bool v6only) {
  const AbstractName own = name_of(port_space, address.port, place_of(address, v6only));
  if (const int error = bind_name(fd, own); error != 0) return error;
  // After the own name: of two that conflict at least one sees the other.
  for (const std::string& place : rivals(address, v6only)) {
    if (!is_free(name_of(port_space, address.port, place))) return EADDRINUSE;
  }
  return 0;
}

bool same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

}  // namespace

Descriptor take_port(std::uint16_t port_space, Address& address, bool v6only) {
  constexpr unsigned kRange = kLastFree - kFirstFree + 1;
  unsigned start = 0;
  const bool chosen = address.port != 0;
  if (!chosen && getrandom(&start, sizeof start, GRND_NONBLOCK) < 0) {
    start = static_cast<unsigned>(getpid());
  }
  Address tried = address;
  for (unsigned n = 0; n < (chosen ? 1 : kRange); ++n) {
    // A socket keeps the name it was bound to, so each attempt has its own.
    Descriptor fd(socket(AF_UNIX, kSocketType, 0));
    if (!fd) return Descriptor{};
    if (!chosen) tried.port = static_cast<std::uint16_t>(kFirstFree + (start + n) % kRange);
    const int error = take(fd.get(), port_space, tried, v6only);
    if (error == 0) {
      address = tried;
      return fd;
    }
    errno = error;
    if (error != EADDRINUSE) return Descriptor{};
  }
  if (!chosen) errno = EADDRNOTAVAIL;
  return Descriptor{};
}

int connect_port(int fd, std::uint16_t port_space, const Address& to) {
  const Address a = unmapped(to);
  for (const std::string& place : listening_places(a)) {
    const AbstractName name = name_of(port_space, a.port, place);
    if (connect(fd, name.address(), name.length()) == 0) {
      if (same_user(fd)) return 0;
      TURNOUT_LOG(hca, warn,
                  "connecting failed: port {}: it belongs to another user; use another port",
                  a.port);
      return ECONNREFUSED;
    }
    if (errno != ECONNREFUSED) return errno;
  }
  return ECONNREFUSED;
}

Descriptor accept_port(int fd) {
  for (;;) {
    Descriptor peer(accept4(fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!peer) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return Descriptor{};
    }
    if (same_user(peer.get())) return peer;
    TURNOUT_LOG(
        hca, warn,
        "accepting a connection failed: it is of another user; run both processes as one user");
  }
}

}  // namespace turnout::cm
