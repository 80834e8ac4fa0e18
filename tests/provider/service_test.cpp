// SPDX-License-Identifier: BSD-3-Clause
// Endpoints that find each other by host and port, as clients of libfabric that exchange no
// addresses do.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "provider/service_address.h"
#include "tests/provider/free_port.h"
#include "tests/provider/node.h"

namespace turnout::testing {
namespace {

using provider::ServiceAddress;

ServiceAddress named(const std::string& port, bool source = false) {
  return ServiceAddress::look_up("127.0.0.1", port.c_str(), {.source = source}).value();
}
// With an endpoint of this name.
NodeOptions listening_at(const std::string& port) {
  NodeOptions options;
  options.before_enable = [port](fid_domain*, fid_ep* ep) {
    ServiceAddress name = named(port, true);
    EXPECT_EQ(fi_setname(&ep->fid, &name, sizeof name), 0);
  };
  return options;
}
Address at(const Node& node, fi_addr_t index) {
  Address address;
  std::size_t length = sizeof address;
  EXPECT_EQ(fi_av_lookup(node.av, index, &address, &length), 0);
  return address;
}

TEST(Service, FindsTheEndpointThatListensThere) {
  const std::string port = free_port();
  Node server(listening_at(port)), client;
  const ServiceAddress name = named(port);
  fi_addr_t out = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(fi_av_insert(client.av, &name, 1, &out, 0, nullptr), 1);
  EXPECT_EQ(at(client, out), server.name());
  EXPECT_EQ(fi_av_insertsvc(client.av, "127.0.0.1", port.c_str(), &out, 0, nullptr), 1);
  EXPECT_EQ(at(client, out), server.name());
}

TEST(Service, TakesTheSourceOfTheInfo) {
  const std::string port = free_port();
  fi_info* raw = nullptr;
  ASSERT_EQ(
      provider().getinfo(FI_VERSION(1, 17), "127.0.0.1", port.c_str(), FI_SOURCE, nullptr, &raw),
      0);
  const InfoPtr info(raw);
  Node node;
  fid_ep* ep = nullptr;
  ASSERT_EQ(fi_endpoint(node.domain, info.get(), &ep, nullptr), 0);
  Address address;
  std::size_t length = sizeof address;
  EXPECT_EQ(fi_getname(&ep->fid, &address, &length), 0);
  EXPECT_EQ(fi_ep_bind(ep, &node.av->fid, 0), 0);
  EXPECT_EQ(fi_ep_bind(ep, &node.cq->fid, FI_TRANSMIT | FI_RECV), 0);
  ASSERT_EQ(fi_enable(ep), 0);
  fi_addr_t out = FI_ADDR_NOTAVAIL;
  const ServiceAddress name = named(port);
  EXPECT_EQ(fi_av_insert(node.av, &name, 1, &out, 0, nullptr), 1);
  EXPECT_EQ(at(node, out), address);
  EXPECT_EQ(fi_close(&ep->fid), 0);
}

TEST(Service, AddressesOfBothKindsMix) {
  const std::string port = free_port();
  Node server(listening_at(port)), client;
  Address damaged = server.name();
  damaged.lid ^= 1;
  std::vector<Address> mixed(4, server.name());
  const ServiceAddress name = named(port);
  std::memcpy(static_cast<void*>(&mixed[1]), &name, sizeof name);
  mixed[2] = damaged;
  ServiceAddress bad = name;
  bad.count = 9;
  std::memcpy(static_cast<void*>(&mixed[3]), &bad, sizeof bad);
  fi_addr_t out[4] = {};
  int errors[4] = {};
  EXPECT_EQ(fi_av_insert(client.av, mixed.data(), 4, out, FI_SYNC_ERR, errors), 2);
  EXPECT_EQ(at(client, out[0]), server.name());
  EXPECT_EQ(at(client, out[1]), server.name());
  EXPECT_EQ(out[2], FI_ADDR_NOTAVAIL);
  EXPECT_EQ(errors[1], 0);
  EXPECT_EQ(errors[2], FI_EINVAL);
  EXPECT_EQ(errors[3], FI_EINVAL);
}

TEST(Service, ANumberOfServicesAtOnce) {
  const std::string port = free_port(), next = free_port();
  ASSERT_EQ(std::stoi(next), std::stoi(port) + 1);
  Node first(listening_at(port)), second(listening_at(next)), client;
  fi_addr_t out[2] = {};
  ASSERT_EQ(fi_av_insertsym(client.av, "127.0.0.1", 1, port.c_str(), 2, out, 0, nullptr), 2);
  EXPECT_EQ(at(client, out[0]), first.name());
  EXPECT_EQ(at(client, out[1]), second.name());
}

TEST(Service, NamesCountOn) {
  Node client;
  fi_addr_t out[2] = {};
  EXPECT_EQ(fi_av_insertsym(client.av, "localhost", 2, "7471", 1, out, 0, nullptr), -FI_EINVAL);
  EXPECT_EQ(fi_av_insertsym(client.av, "localhost", 1, "ssh", 2, out, 0, nullptr), -FI_EINVAL);
  // 127.0.0.255, then 127.0.1.0: both are this host.
  const std::string port = free_port();
  NodeOptions options;
  options.before_enable = [&](fid_domain*, fid_ep* ep) {
    ServiceAddress name =
        ServiceAddress::look_up("0.0.0.0", port.c_str(), {.source = true}).value();
    EXPECT_EQ(fi_setname(&ep->fid, &name, sizeof name), 0);
  };
  Node server(options);
  ASSERT_EQ(fi_av_insertsym(client.av, "127.0.0.255", 2, port.c_str(), 1, out, 0, nullptr), 2);
  EXPECT_EQ(at(client, out[1]), server.name());
}

TEST(Service, HasOneEndpoint) {
  const std::string port = free_port();
  Node first(listening_at(port)), other;
  fid_ep* ep = nullptr;
  ASSERT_EQ(fi_endpoint(other.domain, other.info.get(), &ep, nullptr), 0);
  EXPECT_EQ(fi_ep_bind(ep, &other.av->fid, 0), 0);
  EXPECT_EQ(fi_ep_bind(ep, &other.cq->fid, FI_TRANSMIT | FI_RECV), 0);
  ServiceAddress name = named(port, true);
  ASSERT_EQ(fi_setname(&ep->fid, &name, sizeof name), 0);
  EXPECT_EQ(fi_enable(ep), -FI_EADDRINUSE);
  // Under another name it is enabled all the same.
  name = named(free_port(), true);
  ASSERT_EQ(fi_setname(&ep->fid, &name, sizeof name), 0);
  EXPECT_EQ(fi_enable(ep), 0);
  EXPECT_EQ(fi_setname(&ep->fid, &name, sizeof name), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_close(&ep->fid), 0);
}

TEST(Service, AnEndpointTakesNoOtherName) {
  Node node;
  fid_ep* ep = nullptr;
  ASSERT_EQ(fi_endpoint(node.domain, node.info.get(), &ep, nullptr), 0);
  Address address = node.name();
  EXPECT_EQ(fi_setname(&ep->fid, &address, sizeof address), -FI_EINVAL);
  EXPECT_EQ(fi_setname(&ep->fid, &address, 3), -FI_EINVAL);
  EXPECT_EQ(fi_close(&ep->fid), 0);
}

TEST(Service, TextGoesBothWays) {
  Node server, client;
  const Address address = server.name();
  char text[256];
  std::size_t length = sizeof text;
  fi_av_straddr(client.av, &address, text, &length);
  ASSERT_LE(length, sizeof text);
  fi_addr_t out = FI_ADDR_NOTAVAIL;
  ASSERT_EQ(fi_av_insertsvc(client.av, text, nullptr, &out, 0, nullptr), 1);
  EXPECT_EQ(at(client, out), address);
  const ServiceAddress name = named("7471");
  length = sizeof text;
  fi_av_straddr(client.av, &name, text, &length);
  EXPECT_STREQ(text, "turnout://127.0.0.1:7471");
}

}  // namespace
}  // namespace turnout::testing
