// SPDX-License-Identifier: BSD-3-Clause
// librdmacm.so.1 with AF_IB addresses: GIDs and service ids, in the port spaces that they name.
#include <infiniband/ib.h>

#include <cerrno>
#include <thread>

#include "tests/hca/cm_rig.h"

namespace turnout::cm::test {
namespace {

constexpr std::uint64_t kAll = UINT64_MAX;

std::uint64_t service(rdma_port_space space, std::uint16_t port) {
  return std::uint64_t{space} << 16 | port;
}
const sockaddr_ib& ib(const sockaddr* address) {
  EXPECT_EQ(address->sa_family, AF_IB);
  return *reinterpret_cast<const sockaddr_ib*>(address);
}
sockaddr* generic(sockaddr_ib& a) {
  return reinterpret_cast<sockaddr*>(&a);
}

class Gid : public Ends {
 protected:
  void SetUp() override {
    Ends::SetUp();
    int count = 0;
    ibv_context** const list = rdma_get_devices(&count);
    ASSERT_EQ(count, 1);
    ASSERT_EQ(ibv_query_gid(list[0], 1, 0, &gid), 0);
    rdma_free_devices(list);
  }
  // Of this port, or a wildcard.
  sockaddr_ib address(std::uint64_t id, std::uint64_t mask, bool wildcard = false) const {
    sockaddr_ib a{};
    a.sib_family = AF_IB;
    a.sib_pkey = htons(0xffff);
    if (!wildcard) std::memcpy(&a.sib_addr, &gid, sizeof gid);
    a.sib_sid = htobe64(id);
    a.sib_sid_mask = htobe64(mask);
    return a;
  }
  void listen_on(sockaddr_ib a, rdma_port_space ps) {
    ASSERT_EQ(rdma_create_id(server, &listener, this, ps), 0);
    ASSERT_EQ(rdma_bind_addr(listener, generic(a)), 0) << std::strerror(errno);
    ASSERT_EQ(rdma_listen(listener, 4), 0);
    port = ntohs(rdma_get_src_port(listener));
    ASSERT_NE(port, 0);
  }
  void resolve_to(sockaddr_ib a, rdma_port_space ps, sockaddr* from = nullptr) {
    ASSERT_EQ(rdma_create_id(client, &active, nullptr, ps), 0);
    ASSERT_EQ(rdma_resolve_addr(active, from, generic(a), 1000), 0) << std::strerror(errno);
    take(client, RDMA_CM_EVENT_ADDR_RESOLVED);
    ASSERT_EQ(rdma_resolve_route(active, 1000), 0);
    take(client, RDMA_CM_EVENT_ROUTE_RESOLVED);
    make_qp(active);
  }
  // What the call answers.
  int bind(sockaddr_ib a, rdma_port_space ps) {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_id(server, &id, nullptr, ps), 0);
    const int error = rdma_bind_addr(id, generic(a)) == 0 ? 0 : errno;
    drop(id);
    return error;
  }
  int resolve_error(sockaddr_ib a, rdma_port_space ps = RDMA_PS_IB) {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_id(client, &id, nullptr, ps), 0);
    const int error = rdma_resolve_addr(id, nullptr, generic(a), 1000) == 0 ? 0 : errno;
    drop(id);
    return error;
  }
  ibv_gid gid{};
};

TEST_F(Gid, Connection) {
  listen_on(address(service(RDMA_PS_IB, 0), RDMA_IB_IP_PS_MASK, true), RDMA_PS_IB);
  EXPECT_EQ(listener->verbs, nullptr);  // a wildcard is on no device
  EXPECT_EQ(be64toh(ib(rdma_get_local_addr(listener)).sib_sid), service(RDMA_PS_IB, port));
  EXPECT_EQ(ib(rdma_get_local_addr(listener)).sib_sid_mask, kAll);
  sockaddr_ib to = address(service(RDMA_PS_IB, port), kAll);
  to.sib_scope_id = 77;
  resolve_to(to, RDMA_PS_IB);
  EXPECT_NE(active->verbs, nullptr);
  const sockaddr_ib& own = ib(rdma_get_local_addr(active));
  EXPECT_EQ(std::memcmp(&own.sib_addr, &gid, sizeof gid), 0);
  EXPECT_EQ(own.sib_pkey, htons(0xffff));
  EXPECT_EQ(be64toh(own.sib_sid), service(RDMA_PS_IB, ntohs(rdma_get_src_port(active))));
  EXPECT_EQ(ib(rdma_get_peer_addr(active)).sib_scope_id, 77U);
  EXPECT_EQ(ntohs(rdma_get_dst_port(active)), port);
  EXPECT_EQ(std::memcmp(&active->route.addr.addr.ibaddr.dgid, &gid, sizeof gid), 0);

  // No header of IP's takes of the private data.
  const std::string most(92, 'p');
  const Taken asked = request(most);
  EXPECT_EQ(asked.data, most);
  EXPECT_EQ(std::memcmp(&ib(rdma_get_local_addr(passive)).sib_addr, &gid, sizeof gid), 0);
  EXPECT_EQ(be64toh(ib(rdma_get_local_addr(passive)).sib_sid), service(RDMA_PS_IB, port));
  EXPECT_EQ(std::memcmp(&ib(rdma_get_peer_addr(passive)).sib_addr, &gid, sizeof gid), 0);
  EXPECT_EQ(rdma_get_dst_port(passive), 0);  // which is in no request
  make_qp(passive);
  ASSERT_EQ(rdma_accept(passive, nullptr), 0);
  take(client, RDMA_CM_EVENT_ESTABLISHED);
  take(server, RDMA_CM_EVENT_ESTABLISHED);
  transfer(active, passive);
  transfer(passive, active);
  ASSERT_EQ(rdma_disconnect(active), 0);
  take(server, RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(Gid, PrivateDataHasALimit) {
  listen_on(address(0, 0, true), RDMA_PS_IB);
  resolve_to(address(service(RDMA_PS_IB, port), kAll), RDMA_PS_IB);
  const std::string more(93, 'p');
  rdma_conn_param p = with_data(more);
  EXPECT_EQ(rdma_connect(active, &p), -1);
  EXPECT_EQ(errno, EINVAL);
}

// The service id has the space: an identifier of RDMA_PS_IB may name another.
TEST_F(Gid, ServicesOfOtherSpaces) {
  listen_on(address(service(RDMA_PS_TCP, 0), RDMA_IB_IP_PS_MASK), RDMA_PS_IB);
  EXPECT_NE(listener->verbs, nullptr);
  EXPECT_EQ(listener->ps, RDMA_PS_IB);
  EXPECT_EQ(be64toh(ib(rdma_get_local_addr(listener)).sib_sid), service(RDMA_PS_TCP, port));
  sockaddr_ib from = address(0, 0, true);
  resolve_to(address(service(RDMA_PS_TCP, port), kAll), RDMA_PS_TCP, generic(from));
  connect_both();
  transfer(active, passive);
  // The same port of another space is free; of this one it is not, for both kinds of addresses.
  EXPECT_EQ(bind(address(service(RDMA_PS_IB, port), kAll), RDMA_PS_IB), 0);
  EXPECT_EQ(bind(address(service(RDMA_PS_UDP, port), kAll), RDMA_PS_UDP), 0);
  EXPECT_EQ(bind(address(service(RDMA_PS_TCP, port), kAll), RDMA_PS_TCP), EADDRINUSE);
  EXPECT_EQ(bind(address(service(RDMA_PS_TCP, port), kAll, true), RDMA_PS_IB), EADDRINUSE);
}

TEST_F(Gid, BoundToAPort) {
  const sockaddr_ib any = address(service(RDMA_PS_IB, 0), RDMA_IB_IP_PS_MASK, true);
  sockaddr_ib loopback = any, other = address(0, 0);
  loopback.sib_addr.sib_raw[15] = 1;
  other.sib_addr.sib_raw[15] ^= 1;
  EXPECT_EQ(bind(any, RDMA_PS_IB), 0);
  EXPECT_EQ(bind(loopback, RDMA_PS_IB), 0);
  EXPECT_EQ(bind(other, RDMA_PS_IB), ENODEV);
  // A space that the identifier may not have.
  EXPECT_EQ(bind(any, RDMA_PS_TCP), EPROTONOSUPPORT);
  EXPECT_EQ(bind(address(service(RDMA_PS_IPOIB, 0), RDMA_IB_IP_PS_MASK), RDMA_PS_IPOIB),
            EPROTONOSUPPORT);
  EXPECT_EQ(bind(address(service(RDMA_PS_UDP, 0), RDMA_IB_IP_PS_MASK), RDMA_PS_TCP),
            EPROTONOSUPPORT);
  EXPECT_EQ(bind(address(std::uint64_t{0x1234} << 32, kAll), RDMA_PS_IB), EPROTONOSUPPORT);
  // What the mask leaves out is not said.
  EXPECT_EQ(bind(address(service(RDMA_PS_UDP, 9), 0), RDMA_PS_TCP), 0);
}

TEST_F(Gid, OthersAreNotReached) {
  const sockaddr_ib here = address(service(RDMA_PS_IB, 7), kAll);
  sockaddr_ib subnet = here, partition = here, neighbour = here;
  subnet.sib_addr.sib_raw[7] ^= 1;
  partition.sib_pkey = htons(0x8001);
  EXPECT_EQ(resolve_error(subnet), ENODEV);
  EXPECT_EQ(resolve_error(partition), ENODEV);
  partition.sib_pkey = htons(0x7fff);  // a limited member of the same
  EXPECT_EQ(resolve_error(partition), 0);
  // In the subnet: there is no path.
  neighbour.sib_addr.sib_raw[15] ^= 1;
  ASSERT_EQ(rdma_create_id(client, &active, nullptr, RDMA_PS_IB), 0);
  ASSERT_EQ(rdma_resolve_addr(active, nullptr, generic(neighbour), 1000), 0);
  take(client, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(rdma_resolve_route(active, 1000), 0);
  EXPECT_EQ(take(client, RDMA_CM_EVENT_ROUTE_ERROR).event.status, -EINVAL);
  drop(active);
  // One family for both ends.
  sockaddr_in ip = ipv4("127.0.0.1");
  sockaddr_ib to = here;
  ASSERT_EQ(rdma_create_id(client, &active, nullptr, RDMA_PS_TCP), 0);
  EXPECT_EQ(rdma_resolve_addr(active, test::generic(ip), generic(to), 1000), -1);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(rdma_bind_addr(active, test::generic(ip)), 0);
  EXPECT_EQ(rdma_resolve_addr(active, nullptr, generic(to), 1000), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_join_multicast(active, generic(to), nullptr), -1);
}

// IP's listeners are of other names.
TEST_F(Gid, NobodyListens) {
  listen_at("0.0.0.0", RDMA_PS_IB);
  resolve_to(address(service(RDMA_PS_IB, port), kAll), RDMA_PS_IB);
  ASSERT_EQ(rdma_connect(active, nullptr), 0);
  EXPECT_EQ(take(client, RDMA_CM_EVENT_REJECTED).event.status, 8);  // invalid service id
  drop(active);
  // A service id that has no port space.
  resolve_to(address(std::uint64_t{1} << 40 | port, kAll), RDMA_PS_IB);
  ASSERT_EQ(rdma_connect(active, nullptr), 0);
  EXPECT_EQ(take(client, RDMA_CM_EVENT_REJECTED).event.status, 8);
}

std::string text_of(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  EXPECT_NE(inet_ntop(AF_INET6, gid.raw, text, sizeof text), nullptr);
  return text;
}

TEST_F(Gid, OfANumber) {
  rdma_addrinfo hints{}, *found = nullptr;
  hints.ai_flags = RAI_NUMERICHOST | RAI_FAMILY;
  hints.ai_family = AF_IB;
  hints.ai_port_space = RDMA_PS_IB;
  ASSERT_EQ(rdma_getaddrinfo(text_of(gid).c_str(), "7471", &hints, &found), 0);
  EXPECT_EQ(found->ai_family, AF_IB);
  EXPECT_EQ(found->ai_qp_type, IBV_QPT_RC);
  EXPECT_EQ(found->ai_port_space, RDMA_PS_IB);
  EXPECT_EQ(found->ai_src_len, 0U);
  ASSERT_EQ(found->ai_dst_len, sizeof(sockaddr_ib));
  const sockaddr_ib& a = ib(found->ai_dst_addr);
  EXPECT_EQ(std::memcmp(&a.sib_addr, &gid, sizeof gid), 0);
  EXPECT_EQ(a.sib_pkey, htons(0xffff));
  EXPECT_EQ(be64toh(a.sib_sid), service(RDMA_PS_IB, 7471));
  EXPECT_EQ(be64toh(a.sib_sid_mask), kAll);
  rdma_freeaddrinfo(found);
  // A server that names neither its address nor a space; any port.
  hints = {};
  hints.ai_flags = RAI_PASSIVE | RAI_FAMILY;
  hints.ai_family = AF_IB;
  ASSERT_EQ(rdma_getaddrinfo(nullptr, "0", &hints, &found), 0);
  ASSERT_EQ(found->ai_src_len, sizeof(sockaddr_ib));
  EXPECT_TRUE(ib_addr_any(&ib(found->ai_src_addr).sib_addr));
  EXPECT_EQ(be64toh(ib(found->ai_src_addr).sib_sid), service(RDMA_PS_TCP, 0));
  EXPECT_EQ(be64toh(ib(found->ai_src_addr).sib_sid_mask), RDMA_IB_IP_PS_MASK);
  rdma_freeaddrinfo(found);
  EXPECT_NE(rdma_getaddrinfo("127.0.0.1", "7471", &hints, &found), 0);  // no GID
}

class GidEndpoints : public Gid, public ::testing::WithParamInterface<rdma_port_space> {};

TEST_P(GidEndpoints, Connect) {
  const rdma_port_space space = GetParam();
  const bool datagram = space == RDMA_PS_UDP;
  rdma_addrinfo hints{}, *found = nullptr;
  hints.ai_flags = RAI_PASSIVE | RAI_FAMILY;
  hints.ai_family = AF_IB;
  hints.ai_port_space = space;
  ASSERT_EQ(rdma_getaddrinfo(nullptr, "0", &hints, &found), 0);
  ibv_qp_init_attr attr = small_qp(datagram ? IBV_QPT_UD : IBV_QPT_RC);
  ASSERT_EQ(rdma_create_ep(&listener, found, nullptr, &attr), 0) << std::strerror(errno);
  rdma_freeaddrinfo(found);
  ASSERT_EQ(rdma_listen(listener, 1), 0);
  port = ntohs(rdma_get_src_port(listener));
  std::thread other([&] {
    ASSERT_EQ(rdma_get_request(listener, &passive), 0) << std::strerror(errno);
    if (datagram) {
      EXPECT_EQ(passive->event->param.ud.private_data_len, 216);
    }
    ASSERT_EQ(rdma_accept(passive, nullptr), 0);
  });
  hints.ai_flags = RAI_FAMILY;
  ASSERT_EQ(rdma_getaddrinfo(text_of(gid).c_str(), std::to_string(port).c_str(), &hints, &found),
            0);
  attr = small_qp(datagram ? IBV_QPT_UD : IBV_QPT_RC);
  ASSERT_EQ(rdma_create_ep(&active, found, nullptr, &attr), 0) << std::strerror(errno);
  rdma_freeaddrinfo(found);
  ASSERT_EQ(rdma_connect(active, nullptr), 0) << std::strerror(errno);
  other.join();
  if (datagram) {
    EXPECT_EQ(active->event->param.ud.qp_num, passive->qp->qp_num);
    EXPECT_EQ(active->event->param.ud.qkey, static_cast<std::uint32_t>(RDMA_UDP_QKEY));
  } else {
    transfer(active, passive);
  }
  rdma_destroy_ep(active);
  rdma_destroy_ep(passive);
  rdma_destroy_ep(listener);
  active = passive = listener = nullptr;
}
INSTANTIATE_TEST_SUITE_P(Spaces, GidEndpoints,
                         ::testing::Values(RDMA_PS_IB, RDMA_PS_TCP, RDMA_PS_UDP));

}  // namespace
}  // namespace turnout::cm::test
