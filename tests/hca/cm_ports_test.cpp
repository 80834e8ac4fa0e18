// SPDX-License-Identifier: BSD-3-Clause
// librdmacm.so.1: addresses, ports, options, multicast groups, and peers that send what is no
// message.
#include <fcntl.h>
#include <ifaddrs.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <vector>

#include "hca/cm/message.h"
#include "tests/hca/cm_rig.h"

namespace turnout::cm::test {
namespace {

class Ports : public Ends {
 protected:
  // What rdma_bind_addr() answers; the identifier is `id`.
  int bind(rdma_cm_id*& id, const char* address, std::uint16_t at,
           rdma_port_space ps = RDMA_PS_TCP) {
    sockaddr_in a = ipv4(address, at);
    EXPECT_EQ(rdma_create_id(server, &id, nullptr, ps), 0);
    return rdma_bind_addr(id, generic(a)) == 0 ? 0 : errno;
  }
};

TEST_F(Ports, HaveOneOwner) {
  listen_at();
  rdma_cm_id *second = nullptr, *other_space = nullptr;
  EXPECT_EQ(bind(second, "0.0.0.0", port), EADDRINUSE);
  drop(second);
  EXPECT_EQ(bind(second, "127.0.0.1", port), EADDRINUSE);
  drop(second);
  EXPECT_EQ(bind(other_space, "0.0.0.0", port, RDMA_PS_UDP), 0);
  drop(other_space);
  drop(listener);
  listen_at("127.0.0.1");
  EXPECT_EQ(bind(second, "127.0.0.2", port), 0);  // another address of the host
  drop(second);
  EXPECT_EQ(bind(second, "0.0.0.0", port), EADDRINUSE);
  drop(second);
  const std::uint16_t former = port;
  drop(listener);
  EXPECT_EQ(bind(second, "0.0.0.0", former), 0);
  EXPECT_EQ(second->verbs, nullptr);  // a wildcard is on no device
  drop(second);
}

TEST_F(Ports, LoopbackIsAWildcard) {
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(bind(id, "127.0.0.1", 0), 0);
  EXPECT_NE(id->verbs, nullptr);  // the interface that the adapter shows
  drop(id);
  sockaddr_in own = ipv4("127.0.0.1");
  ASSERT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
  EXPECT_EQ(rdma_bind_addr(id, generic(own)), 0);
  EXPECT_EQ(id->verbs, nullptr);
  drop(id);
  listen_at("127.0.0.1");
  sockaddr_in a = ipv4("127.0.0.2", port);  // another address of the host
  ASSERT_EQ(rdma_create_id(client, &active, nullptr, RDMA_PS_TCP), 0);
  ASSERT_EQ(rdma_resolve_addr(active, nullptr, generic(a), 1000), 0);
  take(client, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(rdma_resolve_route(active, 1000), 0);
  take(client, RDMA_CM_EVENT_ROUTE_RESOLVED);
  make_qp(active);
  request();
  EXPECT_NE(passive->verbs, nullptr);
}

// All of them are the one adapter's: a client of this host need not know which.
TEST_F(Ports, LoopbackFindsWhoListensOnAnyAddress) {
  ifaddrs* list = nullptr;
  ASSERT_EQ(getifaddrs(&list), 0);
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_in own{};
    std::memcpy(&own, i->ifa_addr, sizeof own);
    char text[INET_ADDRSTRLEN];
    ASSERT_NE(inet_ntop(AF_INET, &own.sin_addr, text, sizeof text), nullptr);
    SCOPED_TRACE(text);
    listen_at(text);
    resolve();
    request();
    for (rdma_cm_id** id : {&active, &passive, &listener}) drop(*id);
  }
  freeifaddrs(list);
}

TEST_F(Ports, MayBeSharedUntilSomeoneListens) {
  listen_at();
  const std::uint16_t shared = port;
  drop(listener);
  int yes = 1;
  sockaddr_in a = ipv4("0.0.0.0", shared);
  rdma_cm_id* ids[2] = {};
  for (rdma_cm_id*& id : ids) {
    ASSERT_EQ(rdma_create_id(server, &id, nullptr, RDMA_PS_TCP), 0);
    ASSERT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes), 0);
    EXPECT_EQ(rdma_bind_addr(id, generic(a)), 0);
  }
  EXPECT_EQ(rdma_listen(ids[0], 1), 0);
  EXPECT_EQ(rdma_listen(ids[1], 1), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  drop(ids[0]);
  drop(ids[1]);
}

TEST_F(Ports, AddressesOfOthersAreNotReached) {
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(bind(id, "198.51.100.7", 0), EADDRNOTAVAIL);
  sockaddr_in far = ipv4("198.51.100.7", 7471), near = ipv4("127.0.0.1", 7471);
  EXPECT_EQ(rdma_resolve_addr(id, nullptr, generic(far), 100), 0);
  EXPECT_EQ(take(server, RDMA_CM_EVENT_ADDR_ERROR).event.status, -EHOSTUNREACH);
  EXPECT_EQ(rdma_resolve_route(id, 100), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_resolve_addr(id, nullptr, generic(near), 100), 0);  // it may try again
  take(server, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_NE(id->verbs, nullptr);
  EXPECT_EQ(id->port_num, 1);
  EXPECT_EQ(rdma_connect(id, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_disconnect(id), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_listen(id, 1), -1);
  EXPECT_EQ(errno, EINVAL);
  sockaddr unix{};
  unix.sa_family = AF_UNIX;
  EXPECT_EQ(rdma_resolve_addr(id, nullptr, &unix, 100), -1);
  EXPECT_EQ(errno, EAFNOSUPPORT);
  drop(id);
}

TEST_F(Ports, Ipv6AndTheWildcardOfBoth) {
  sockaddr_in6 any{}, one{};
  any.sin6_family = one.sin6_family = AF_INET6;
  one.sin6_addr = in6addr_loopback;
  ASSERT_EQ(rdma_create_id(server, &listener, nullptr, RDMA_PS_TCP), 0);
  ASSERT_EQ(rdma_bind_addr(listener, reinterpret_cast<sockaddr*>(&any)), 0);
  ASSERT_EQ(rdma_listen(listener, 4), 0);
  port = ntohs(rdma_get_src_port(listener));
  resolve();  // by IPv4
  request();
  drop(passive);
  drop(active);
  one.sin6_port = htons(port);
  ASSERT_EQ(rdma_create_id(client, &active, nullptr, RDMA_PS_TCP), 0);
  ASSERT_EQ(rdma_resolve_addr(active, nullptr, reinterpret_cast<sockaddr*>(&one), 100), 0);
  take(client, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(rdma_resolve_route(active, 100), 0);
  take(client, RDMA_CM_EVENT_ROUTE_RESOLVED);
  request();
  EXPECT_EQ(rdma_get_local_addr(passive)->sa_family, AF_INET6);
}

TEST_F(Ports, Options) {
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(bind(id, "127.0.0.1", 0), 0);
  std::uint8_t byte = 8;
  EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 1), 0);
  EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &byte, 4), -1);
  EXPECT_EQ(errno, EINVAL);
  byte = 32;
  EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, 77, &byte, 1), -1);
  EXPECT_EQ(errno, ENOSYS);
  drop(id);
  EXPECT_EQ(rdma_create_id(server, &id, nullptr, static_cast<rdma_port_space>(1)), -1);
  EXPECT_EQ(errno, EPROTONOSUPPORT);
  int count = 0;
  ibv_context** const list = rdma_get_devices(&count);
  ASSERT_EQ(count, 1);
  EXPECT_NE(list[0], nullptr);
  EXPECT_EQ(list[1], nullptr);
  rdma_free_devices(list);
}

// Without a queue pair: the group's address.
TEST_F(Ports, MulticastGroups) {
  sockaddr_in group = ipv4("239.1.2.3"), one = ipv4("127.0.0.1");
  ASSERT_EQ(rdma_create_id(client, &active, nullptr, RDMA_PS_UDP), 0);
  ASSERT_EQ(rdma_resolve_addr(active, generic(one), generic(group), 100), 0);
  take(client, RDMA_CM_EVENT_ADDR_RESOLVED);
  int context = 0;
  ASSERT_EQ(rdma_join_multicast(active, generic(group), &context), 0);
  rdma_cm_event* e = nullptr;
  ASSERT_EQ(rdma_get_cm_event(client, &e), 0);
  EXPECT_EQ(e->event, RDMA_CM_EVENT_MULTICAST_JOIN);
  EXPECT_EQ(e->param.ud.private_data, &context);
  EXPECT_EQ(e->param.ud.qp_num, 0xffffffU);
  EXPECT_EQ(e->param.ud.qkey, static_cast<std::uint32_t>(RDMA_UDP_QKEY));
  EXPECT_GE(e->param.ud.ah_attr.dlid, 0xc000);
  EXPECT_EQ(e->param.ud.ah_attr.is_global, 1);
  static constexpr std::uint8_t kGid[16] = {0xff, 0x12, 0x40, 0x01, 0xff, 0xff, 0, 0,
                                            0,    0,    0,    0,    0x0f, 1,    2, 3};
  EXPECT_EQ(std::memcmp(e->param.ud.ah_attr.grh.dgid.raw, kGid, 16), 0);
  EXPECT_EQ(rdma_ack_cm_event(e), 0);
  EXPECT_EQ(rdma_leave_multicast(active, generic(group)), 0);
  EXPECT_EQ(rdma_leave_multicast(active, generic(group)), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
  EXPECT_EQ(rdma_join_multicast(active, generic(one), nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(rdma_join_multicast(active, generic(group), nullptr), 0);
  EXPECT_EQ(rdma_leave_multicast(active, generic(group)), 0);
  EXPECT_TRUE(nothing(client));
}

// Peers of our user that do not keep to the protocol: a socket in the place of a library.
class Hostile : public Ends {
 protected:
  sockaddr_un name(const char* place, socklen_t& length) const {
    const std::string text = "turnout-cm-" + std::to_string(geteuid()) + "-" +
                             std::getenv("TURNOUT_FABRIC") + "-106-" + std::to_string(port) + "-" +
                             place;
    sockaddr_un a{};
    a.sun_family = AF_UNIX;
    std::memcpy(a.sun_path + 1, text.data(), text.size());
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    return a;
  }
  int intrude() const {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    socklen_t length = 0;
    const sockaddr_un a = name("any4", length);
    EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&a), length), 0);
    return fd;
  }
  static Message good() {
    Message m;
    m.kind = Kind::req;
    m.port_space = RDMA_PS_TCP;
    m.qp_type = IBV_QPT_RC;
    m.source.family = m.destination.family = AF_INET;
    return m;
  }
  static bool closed(int fd) {
    pollfd p{fd, POLLIN, 0};
    char byte;
    return poll(&p, 1, 10'000) == 1 && recv(fd, &byte, 1, 0) <= 0;
  }
  // Works off what has come; there must be no event of it.
  void expect_no_event(rdma_event_channel* channel) {
    const int flags = fcntl(channel->fd, F_GETFL);
    fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK);
    rdma_cm_event* e = nullptr;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(rdma_get_cm_event(channel, &e), -1);
    fcntl(channel->fd, F_SETFL, flags);
  }
};

TEST_F(Hostile, RequestsAreDropped) {
  listen_at();
  std::vector<std::vector<std::uint8_t>> packets;
  const auto add = [&](auto change) {
    Message m = good();
    change(m);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&m);
    packets.emplace_back(bytes, bytes + sizeof m);
  };
  add([](Message& m) { m.magic = 7; });
  add([](Message& m) { m.kind = static_cast<Kind>(0); });
  add([](Message& m) { m.kind = static_cast<Kind>(99); });
  add([](Message& m) { m.kind = Kind::rtu; });
  add([](Message& m) { m.private_length = 57; });
  add([](Message& m) { m.private_length = 255; });
  add([](Message& m) { m.qpn = 0x1000000; });
  add([](Message& m) { m.psn = 0xffffffff; });
  add([](Message& m) { m.retry_count = 8; });
  add([](Message& m) { m.source.family = 77; });
  add([](Message& m) { m.source.family = 27; });  // AF_IB, and IP the other
  add([](Message& m) { m.qp_type = 55; });
  packets.push_back(packets.front());
  packets.back().resize(3);
  packets.emplace_back(5000, std::uint8_t{1});
  for (const auto& packet : packets) {
    const int fd = intrude();
    EXPECT_EQ(::send(fd, packet.data(), packet.size(), 0), static_cast<ssize_t>(packet.size()));
    expect_no_event(server);
    EXPECT_TRUE(closed(fd));
    close(fd);
  }
  const int silent = intrude(), gone = intrude();
  close(gone);
  expect_no_event(server);
  resolve();  // others are served all the same
  connect_both();
  close(silent);
}

TEST_F(Hostile, MessagesOutOfTurnEndTheConnection) {
  listen_at();
  for (const Kind second : {Kind::req, Kind::drep, Kind::sidr_rep}) {
    const int fd = intrude();
    Message m = good();
    ASSERT_EQ(::send(fd, &m, sizeof m, 0), static_cast<ssize_t>(sizeof m));
    rdma_cm_id* id = take(server, RDMA_CM_EVENT_CONNECT_REQUEST).event.id;
    m.kind = second;
    ASSERT_EQ(::send(fd, &m, sizeof m, 0), static_cast<ssize_t>(sizeof m));
    EXPECT_EQ(take(server, RDMA_CM_EVENT_REJECTED).event.id, id);
    EXPECT_TRUE(closed(fd));
    drop(id);
    close(fd);
  }
}

TEST_F(Hostile, AnswersAreRefused) {
  listen_at();
  drop(listener);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  socklen_t length = 0;
  const sockaddr_un a = name("any4", length);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&a), length), 0);
  ASSERT_EQ(listen(fd, 4), 0);
  resolve();
  ASSERT_EQ(rdma_connect(active, nullptr), 0);
  const int peer = accept(fd, nullptr, nullptr);
  Message m;
  ASSERT_EQ(recv(peer, &m, sizeof m, 0), static_cast<ssize_t>(sizeof m));
  EXPECT_EQ(m.qpn, active->qp->qp_num);
  ASSERT_EQ(::send(peer, "?", 1, 0), 1);
  EXPECT_EQ(take(client, RDMA_CM_EVENT_REJECTED).event.status, 28);
  EXPECT_TRUE(closed(peer));
  close(peer);
  close(fd);
}

}  // namespace
}  // namespace turnout::cm::test
