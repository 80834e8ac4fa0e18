// SPDX-License-Identifier: BSD-3-Clause
// What the tests of librdmacm.so.1 share: events taken with a time limit, and a listener and a
// client in one process, each on a channel of its own. Helpers fail the running gtest. One thread.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <cstring>
#include <string>
#include <string_view>

#include "tests/hca/rig.h"

namespace turnout::cm::test {

inline sockaddr_in ipv4(const char* text, std::uint16_t port = 0) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET, text, &a.sin_addr), 1);
  return a;
}
inline sockaddr* generic(sockaddr_in& a) {
  return reinterpret_cast<sockaddr*>(&a);
}

// A copy of an event that was acknowledged.
struct Taken {
  rdma_cm_event event{};
  std::string data;
};

inline Taken take(rdma_event_channel* channel, rdma_cm_event_type type) {
  Taken t;
  pollfd p{channel->fd, POLLIN, 0};
  EXPECT_EQ(poll(&p, 1, 20'000), 1) << "no event instead of " << rdma_event_str(type);
  if (p.revents == 0) return t;
  rdma_cm_event* e = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel, &e), 0);
  if (e == nullptr) return t;
  EXPECT_EQ(std::string(rdma_event_str(e->event)), rdma_event_str(type)) << "status " << e->status;
  t.event = *e;
  const bool datagram = e->id->qp_type == IBV_QPT_UD;
  const auto* data = datagram ? e->param.ud.private_data : e->param.conn.private_data;
  const auto size = datagram ? e->param.ud.private_data_len : e->param.conn.private_data_len;
  if (size != 0) t.data.assign(static_cast<const char*>(data), size);
  EXPECT_EQ(rdma_ack_cm_event(e), 0);
  return t;
}

inline bool nothing(rdma_event_channel* channel) {
  pollfd p{channel->fd, POLLIN, 0};
  return poll(&p, 1, 0) == 0;
}

inline ibv_qp_init_attr small_qp(ibv_qp_type type) {
  ibv_qp_init_attr a{};
  a.qp_type = type;
  a.cap = {4, 4, 1, 1, 0};
  a.sq_sig_all = 1;
  return a;
}

// `data` is referred to, not copied.
inline rdma_conn_param with_data(std::string_view data) {
  rdma_conn_param p{};
  p.private_data = data.data();
  p.private_data_len = static_cast<std::uint8_t>(data.size());
  p.responder_resources = 2;
  p.initiator_depth = 3;
  p.retry_count = p.rnr_retry_count = 5;
  return p;
}

class Ends : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { hca::test::use_own_fabric(); }

  void SetUp() override {
    server = rdma_create_event_channel();
    client = rdma_create_event_channel();
    ASSERT_NE(server, nullptr);
    ASSERT_NE(client, nullptr);
  }
  void TearDown() override {
    for (rdma_cm_id** id : {&active, &passive, &listener}) drop(*id);
    if (server != nullptr) rdma_destroy_event_channel(server);
    if (client != nullptr) rdma_destroy_event_channel(client);
  }

  static void drop(rdma_cm_id*& id) {
    if (id == nullptr) return;
    if (id->qp != nullptr) rdma_destroy_qp(id);
    EXPECT_EQ(rdma_destroy_id(id), 0);
    id = nullptr;
  }

  void listen_at(const char* address = "0.0.0.0", rdma_port_space ps = RDMA_PS_TCP) {
    sockaddr_in a = ipv4(address);
    ASSERT_EQ(rdma_create_id(server, &listener, this, ps), 0);
    ASSERT_EQ(rdma_bind_addr(listener, generic(a)), 0);
    ASSERT_EQ(rdma_listen(listener, 4), 0);
    port = ntohs(rdma_get_src_port(listener));
    ASSERT_NE(port, 0);
  }
  void resolve(rdma_port_space ps = RDMA_PS_TCP, bool with_qp = true) {
    sockaddr_in a = ipv4("127.0.0.1", port);
    ASSERT_EQ(rdma_create_id(client, &active, nullptr, ps), 0);
    ASSERT_EQ(rdma_resolve_addr(active, nullptr, generic(a), 1000), 0);
    take(client, RDMA_CM_EVENT_ADDR_RESOLVED);
    ASSERT_EQ(rdma_resolve_route(active, 1000), 0);
    take(client, RDMA_CM_EVENT_ROUTE_RESOLVED);
    if (with_qp) make_qp(active);
  }
  static void make_qp(rdma_cm_id* id) {
    ibv_qp_init_attr a = small_qp(id->qp_type);
    ASSERT_EQ(rdma_create_qp(id, nullptr, &a), 0);
    ASSERT_NE(id->qp, nullptr);
  }
  Taken request(std::string_view data = {}) {
    rdma_conn_param p = with_data(data);
    EXPECT_EQ(rdma_connect(active, &p), 0);
    Taken t = take(server, RDMA_CM_EVENT_CONNECT_REQUEST);
    passive = t.event.id;
    return t;
  }
  void connect_both() {
    request();
    make_qp(passive);
    ASSERT_EQ(rdma_accept(passive, nullptr), 0);
    take(client, RDMA_CM_EVENT_ESTABLISHED);
    take(server, RDMA_CM_EVENT_ESTABLISHED);
  }

  rdma_event_channel *server = nullptr, *client = nullptr;
  rdma_cm_id *listener = nullptr, *active = nullptr, *passive = nullptr;
  std::uint16_t port = 0;
};

// One message from one identifier's queue pair to another's.
inline void transfer(rdma_cm_id* from, rdma_cm_id* to) {
  char out[64] = "over the connection", in[64] = {};
  ibv_mr* const source = rdma_reg_msgs(from, out, sizeof out);
  ibv_mr* const target = rdma_reg_msgs(to, in, sizeof in);
  ASSERT_EQ(rdma_post_recv(to, in, in, sizeof in, target), 0);
  ASSERT_EQ(rdma_post_send(from, out, out, sizeof out, source, 0), 0);
  ibv_wc wc{};
  EXPECT_EQ(rdma_get_send_comp(from, &wc), 1);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(rdma_get_recv_comp(to, &wc), 1);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_STREQ(in, out);
  rdma_dereg_mr(source);
  rdma_dereg_mr(target);
}

}  // namespace turnout::cm::test
