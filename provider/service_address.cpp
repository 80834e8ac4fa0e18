// SPDX-License-Identifier: BSD-3-Clause
#include "provider/service_address.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <string_view>
#include <thread>

#include "base/log.h"

namespace turnout::provider {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::string_view kScheme = "turnout://";

struct FreeAddresses {
  void operator()(addrinfo* list) const noexcept { freeaddrinfo(list); }
};

int milliseconds_until(Clock::time_point end) noexcept {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<decltype(left)>(left, 0, 1 << 30));
}

// 0, or the errno of what failed.
int wait_for(int fd, short events, Clock::time_point end) noexcept {
  for (;;) {
    pollfd wanted{fd, events, 0};
    const int ready = poll(&wanted, 1, milliseconds_until(end));
    if (ready > 0) return 0;
    if (ready == 0) return ETIMEDOUT;
    if (errno != EINTR) return errno;
  }
}

// One attempt. 0 and the bytes, or the errno of what failed.
int ask_once(const sockaddr* at, Clock::time_point end, Address& out,
             std::size_t& received) noexcept {
  received = 0;
  const Descriptor fd(::socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno;
  if (connect(fd.get(), at, length_of(at)) != 0) {
    if (errno != EINPROGRESS) return errno;
    if (const int error = wait_for(fd.get(), POLLOUT, end); error != 0) return error;
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
    if (error != 0) return error;
  }
  while (received < sizeof out) {
    if (const int error = wait_for(fd.get(), POLLIN, end); error != 0) return error;
    const ssize_t n =
        recv(fd.get(), reinterpret_cast<char*>(&out) + received, sizeof out - received, 0);
    if (n == 0) return 0;
    if (n > 0) {
      received += static_cast<std::size_t>(n);
    } else if (errno != EAGAIN && errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

// A server that is not there yet, or ends and starts again.
bool may_come(int error) noexcept {
  return error == ECONNREFUSED || error == ECONNRESET;
}

// Of a host without IPv6 getaddrinfo(3) may tell addresses of it all the same.
bool has_ipv6() noexcept {
  return static_cast<bool>(Descriptor(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)));
}

bool is_any(const sockaddr* at) noexcept {
  if (at->sa_family == AF_INET) {
    sockaddr_in four{};
    std::memcpy(&four, at, sizeof four);
    return four.sin_addr.s_addr == htonl(INADDR_ANY);
  }
  sockaddr_in6 six{};
  std::memcpy(&six, at, sizeof six);
  return IN6_IS_ADDR_UNSPECIFIED(&six.sin6_addr) != 0;
}

// An address that others may use without more: not one of a link, which needs an interface.
bool is_global(const sockaddr* at) noexcept {
  if (at->sa_family == AF_INET) return true;
  sockaddr_in6 six{};
  std::memcpy(&six, at, sizeof six);
  return IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr) == 0;
}

// Where others reach who listens at all addresses of this host: at the first that is not a loopback
// address, if there is one.
ServiceAddress reachable(std::uint16_t port, int family) {
  struct Free {
    void operator()(ifaddrs* list) const noexcept { freeifaddrs(list); }
  };
  ServiceAddress name;
  name.count = 1;
  std::byte* const place = reinterpret_cast<std::byte*>(name.sockets[0].data());
  if (family == AF_INET6) {
    const sockaddr_in6 loopback{.sin6_family = AF_INET6,
                                .sin6_port = 0,
                                .sin6_flowinfo = 0,
                                .sin6_addr = IN6ADDR_LOOPBACK_INIT,
                                .sin6_scope_id = 0};
    std::memcpy(place, &loopback, sizeof loopback);
  } else {
    sockaddr_in loopback{};
    loopback.sin_family = AF_INET;
    loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    std::memcpy(place, &loopback, sizeof loopback);
  }
  ifaddrs* first = nullptr;
  const int error = getifaddrs(&first);
  const std::unique_ptr<ifaddrs, Free> list(error == 0 ? first : nullptr);
  for (const ifaddrs* one = list.get(); one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != name.socket()->sa_family) continue;
    if ((one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    if (!is_global(one->ifa_addr)) continue;
    std::memcpy(place, one->ifa_addr, length_of(one->ifa_addr));
    break;
  }
  const std::uint16_t in_network_order = htons(port);  // at the same place in both, see port()
  std::memcpy(place + offsetof(sockaddr_in, sin_port), &in_network_order, sizeof in_network_order);
  return name;
}

}  // namespace

Result<ServiceAddress> ServiceAddress::look_up(const char* node, const char* service, Lookup how) {
  addrinfo hints{};
  hints.ai_family = how.family;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = (how.source ? AI_PASSIVE : 0) | (how.numeric ? AI_NUMERICHOST : 0);
  addrinfo* first = nullptr;
  const int error = getaddrinfo(node, service != nullptr ? service : "0", &hints, &first);
  const std::unique_ptr<addrinfo, FreeAddresses> list(first);
  if (error != 0) {
    return Status{Code::invalid,
                  fmt::format("node {}, service {}: {}", node != nullptr ? node : "(none)",
                              service != nullptr ? service : "(none)", gai_strerror(error))};
  }
  // All addresses of this host: a socket of IPv6 takes connections over IPv4, too.
  const bool only_six = how.source && node == nullptr && how.family != AF_INET && has_ipv6();
  ServiceAddress found;
  for (const addrinfo* one = list.get(); one != nullptr; one = one->ai_next) {
    const int family = one->ai_family;
    if (family != AF_INET6 && (family != AF_INET || only_six)) continue;
    if (found.count == 1 && found.socket()->sa_family == family) continue;
    std::memcpy(found.sockets[found.count].data(), one->ai_addr, one->ai_addrlen);
    if (++found.count == (how.source ? 1 : 2)) break;
  }
  if (found.count != 0) return found;
  return Status{Code::invalid,
                fmt::format("node {}: no internet address", node != nullptr ? node : "(none)")};
}

bool ServiceAddress::is_one(const void* bytes) noexcept {
  std::uint16_t magic = 0;
  std::memcpy(&magic, bytes, sizeof magic);
  return magic == kMagic;
}

Result<ServiceAddress> ServiceAddress::decode(const void* bytes, std::size_t length) {
  ServiceAddress decoded;
  if (length < sizeof decoded) {
    return Status{Code::invalid, fmt::format("address of a service: {} bytes, {} expected", length,
                                             sizeof decoded)};
  }
  std::memcpy(&decoded, bytes, sizeof decoded);
  if (decoded.magic != kMagic || decoded.version != kVersion) {
    return Status{Code::invalid, fmt::format("address of a service: magic {:#06x}, version {}",
                                             decoded.magic, decoded.version)};
  }
  if (decoded.count < 1 || decoded.count > decoded.sockets.size()) {
    return Status{Code::invalid, fmt::format("address of a service: {} sockets", decoded.count)};
  }
  for (std::size_t i = 0; i < decoded.count; ++i) {
    const sa_family_t family = decoded.socket(i)->sa_family;
    if (family != AF_INET && family != AF_INET6)
      return Status{Code::invalid, fmt::format("address of a service: family {}", family)};
  }
  return decoded;
}

std::uint16_t ServiceAddress::port() const noexcept {
  sockaddr_in place{};  // the port is at the same place in both
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  std::memcpy(&place, socket(), sizeof place);
  return ntohs(place.sin_port);
}

std::string ServiceAddress::to_string() const {
  char host[NI_MAXHOST] = "?";
  static_cast<void>(
      getnameinfo(socket(), length_of(socket()), host, sizeof host, nullptr, 0, NI_NUMERICHOST));
  const bool six = socket()->sa_family == AF_INET6;
  return fmt::format("{}{}{}{}:{}", kScheme, six ? "[" : "", host, six ? "]" : "", port());
}

Result<Descriptor> ServiceAddress::bound_socket() const {
  const auto failed = [this](const char* what, int error) {
    return Status{Code::system,
                  fmt::format("{} at {}: {}", what, to_string(), strerrordesc_np(error)), error};
  };
  Descriptor fd(::socket(socket()->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return failed("creating a socket", errno);
  // A server that ends and starts again finds connections of the former one, which are closing.
  const int on = 1;
  static_cast<void>(setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
  const int off = 0;
  if (socket()->sa_family == AF_INET6)
    static_cast<void>(setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off));
  if (::bind(fd.get(), socket(), length_of(socket())) != 0) return failed("binding", errno);
  return fd;
}

Result<Descriptor> ServiceAddress::bind(int family) {
  Result<Descriptor> made = bound_socket();
  if (!made.ok()) return made;
  ServiceAddress bound;
  bound.count = 1;
  socklen_t length = sizeof(sockaddr_in6);
  if (getsockname(made->get(), reinterpret_cast<sockaddr*>(bound.sockets[0].data()), &length) != 0)
    return Status{Code::system, to_string() + ": getsockname failed", errno};
  *this = is_any(bound.socket()) ? reachable(bound.port(), family) : bound;
  return made;
}

Result<Address> ServiceAddress::ask(std::chrono::steady_clock::time_point end) const {
  constexpr std::chrono::milliseconds kBetween{20};
  // Of one socket of two: who does not answer must not use up the other's time.
  constexpr std::chrono::seconds kOne{1};
  if (port() == 0) return Status{Code::invalid, to_string() + ": no port"};
  for (;;) {
    int error = 0, waits_for = 0;  // of this round: the last one, and one that may go away
    for (std::size_t i = 0; i < count; ++i) {
      Address answer;
      std::size_t received = 0;
      const bool last = i + 1U == count;
      error =
          ask_once(socket(i), last ? end : std::min(end, Clock::now() + kOne), answer, received);
      if (error == 0 && received != 0) {
        Result<Address> address = Address::decode(&answer, received);
        if (address.ok()) return address;
        return Status{address.status().code(),
                      fmt::format("{}: {}", to_string(), address.status().text())};
      }
      if (error == 0) error = ECONNRESET;  // it ended meanwhile
      if (may_come(error)) waits_for = error;
    }
    if (waits_for == 0 || Clock::now() + kBetween >= end) {
      if (waits_for != 0) error = waits_for;
      return Status{Code::system, fmt::format("{}: {}", to_string(), strerrordesc_np(error)),
                    error};
    }
    std::this_thread::sleep_for(kBetween);
  }
}

std::string text_of(const Address& address) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&address);
  return fmt::format("{}#{:02x}", address.to_string(),
                     fmt::join(bytes, bytes + sizeof address, ""));
}

bool is_address_text(const char* text) noexcept {
  const std::string_view view(text);
  return view.starts_with(kScheme) && view.find('#') != view.npos;
}

Result<Address> address_of(const std::string& text) {
  const std::string_view digits =
      std::string_view(text).substr(std::min(text.size(), text.rfind('#') + 1));
  std::uint8_t bytes[sizeof(Address)];
  if (!is_address_text(text.c_str()) || digits.size() != 2 * sizeof bytes) {
    return Status{Code::invalid,
                  fmt::format("address {}: not the text of a Turnout address", text)};
  }
  for (std::size_t i = 0; i < sizeof bytes; ++i) {
    const char* const at = digits.data() + 2 * i;
    const auto [stop, error] = std::from_chars(at, at + 2, bytes[i], 16);
    if (error != std::errc{} || stop != at + 2) {
      return Status{Code::invalid,
                    fmt::format("address {}: digit {} is not hexadecimal", text, 2 * i + 1)};
    }
  }
  return Address::decode(bytes, sizeof bytes);
}

}  // namespace turnout::provider
