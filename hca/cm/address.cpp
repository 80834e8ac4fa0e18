// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <infiniband/ib.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace turnout::cm {

static_assert(kFamilyIb == AF_IB);

bool Address::any() const noexcept {
  return present() && std::all_of(ip.begin(), ip.end(), [](std::uint8_t b) { return b == 0; });
}

bool Address::multicast() const noexcept {
  return family == AF_INET ? (ip[0] & 0xf0) == 0xe0 : family == AF_INET6 && ip[0] == 0xff;
}

bool from_sockaddr(const sockaddr* from, Address& to) noexcept {
  to = {};
  if (from == nullptr) return false;
  if (from->sa_family == AF_INET) {
    sockaddr_in in;
    std::memcpy(&in, from, sizeof in);
    to.family = AF_INET;
    to.port = ntohs(in.sin_port);
    std::memcpy(to.ip.data(), &in.sin_addr, sizeof in.sin_addr);
    return true;
  }
  if (from->sa_family == AF_INET6) {
    sockaddr_in6 in;
    std::memcpy(&in, from, sizeof in);
    to.family = AF_INET6;
    to.port = ntohs(in.sin6_port);
    to.scope = in.sin6_scope_id;
    std::memcpy(to.ip.data(), &in.sin6_addr, sizeof in.sin6_addr);
    return true;
  }
  if (from->sa_family == AF_IB) {
    sockaddr_ib in;
    std::memcpy(&in, from, sizeof in);
    to.family = AF_IB;
    std::memcpy(to.ip.data(), &in.sib_addr, sizeof in.sib_addr);
    to.service.id = be64toh(in.sib_sid);
    to.service.mask = be64toh(in.sib_sid_mask);
    to.service.scope = in.sib_scope_id;
    to.service.flow = ntohl(in.sib_flowinfo);
    to.service.pkey = ntohs(in.sib_pkey);
    to.port = static_cast<std::uint16_t>(to.service.id & to.service.mask);
    return true;
  }
  return false;
}

void to_sockaddr(const Address& from, sockaddr_storage& to) noexcept {
  to = {};
  if (from.family == AF_INET) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(from.port);
    std::memcpy(&in.sin_addr, from.ip.data(), sizeof in.sin_addr);
    std::memcpy(&to, &in, sizeof in);
  } else if (from.family == AF_INET6) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = htons(from.port);
    in.sin6_scope_id = from.scope;
    std::memcpy(&in.sin6_addr, from.ip.data(), sizeof in.sin6_addr);
    std::memcpy(&to, &in, sizeof in);
  } else if (from.family == AF_IB) {
    sockaddr_ib in{};
    in.sib_family = AF_IB;
    in.sib_pkey = htons(from.service.pkey);
    in.sib_flowinfo = htonl(from.service.flow);
    std::memcpy(&in.sib_addr, from.ip.data(), sizeof in.sib_addr);
    in.sib_sid = htobe64(from.service.id);
    in.sib_sid_mask = htobe64(from.service.mask);
    in.sib_scope_id = from.service.scope;
    std::memcpy(&to, &in, sizeof in);
  }
}

std::uint16_t service_space(const Address& address, rdma_port_space ps) noexcept {
  const std::uint64_t mask = RDMA_IB_IP_PS_MASK & address.service.mask;
  for (const auto space : {RDMA_PS_IB, RDMA_PS_TCP, RDMA_PS_UDP}) {
    const std::uint64_t wanted = std::uint64_t{space} << 16;
    if ((ps == RDMA_PS_IB || ps == space) && (address.service.id & mask) == (wanted & mask)) {
      return space;
    }
  }
  return 0;
}

void set_service(Address& address, std::uint16_t space) noexcept {
  address.service.id = std::uint64_t{space} << 16 | address.port;
  address.service.mask = UINT64_MAX;
}

Address gid_address(const ibv_gid& gid, std::uint16_t pkey) noexcept {
  Address a = any_address(AF_IB);
  std::copy(std::begin(gid.raw), std::end(gid.raw), a.ip.begin());
  a.service.pkey = pkey;
  return a;
}

Address any_address(std::uint16_t family) noexcept {
  Address a;
  a.family = family;
  return a;
}

Address loopback_address(std::uint16_t family) noexcept {
  Address a = any_address(family);
  if (family == AF_INET) a.ip[0] = 127;
  a.ip[family == AF_INET ? 3 : 15] = 1;
  return a;
}

Address unmapped(Address a) noexcept {
  static constexpr std::uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (a.family != AF_INET6 || std::memcmp(a.ip.data(), kPrefix, sizeof kPrefix) != 0) return a;
  Address v4 = any_address(AF_INET);
  v4.port = a.port;
  std::copy(a.ip.begin() + 12, a.ip.end(), v4.ip.begin());
  return v4;
}

bool Address::loopback() const noexcept {
  const Address a = unmapped(*this);
  if (a.family == AF_INET) return a.ip[0] == 127;  // RFC 1122: all of 127/8
  return (a.family == AF_INET6 || a.ib()) && a.ip == loopback_address(AF_INET6).ip;
}

std::vector<Address> host_addresses() {
  std::vector<Address> all{loopback_address(AF_INET), loopback_address(AF_INET6)};
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return all;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    Address a;
    if (!from_sockaddr(i->ifa_addr, a)) continue;
    if (std::find(all.begin(), all.end(), a) == all.end()) all.push_back(a);
  }
  freeifaddrs(list);
  return all;
}

bool is_local(const Address& address) {
  const Address wanted = unmapped(address);
  if (wanted.loopback()) return true;
  // Programs often leave the scope of a link-local address out.
  const auto all = host_addresses();
  return std::any_of(all.begin(), all.end(), [&](const Address& a) {
    return a.family == wanted.family && a.ip == wanted.ip;
  });
}

std::string text(const Address& address) {
  char buffer[INET6_ADDRSTRLEN] = "?";
  inet_ntop(address.ib() ? AF_INET6 : address.family, address.ip.data(), buffer, sizeof buffer);
  return address.ib() ? std::string("gid-") + buffer : buffer;
}

}  // namespace turnout::cm
