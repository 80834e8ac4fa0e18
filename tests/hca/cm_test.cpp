// SPDX-License-Identifier: BSD-3-Clause
// Connections over librdmacm.so.1: events, states, private data, ends of peers.
#include <fcntl.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "tests/hca/cm_rig.h"

// What later versions than this header's have: names that are resolved by an event, and events of
// the user's own.
extern "C" {
int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                          const rdma_addrinfo* hints);
int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info);
// Their numbers are beyond this header's type.
int write_event(rdma_cm_id* id, int event, int status, uint64_t arg) asm("rdma_write_cm_event");
const char* name_of_event(int event) asm("rdma_event_str");
}

namespace turnout::cm::test {
namespace {

using Connection = Ends;

ibv_qp_attr query(ibv_qp* qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
  return attr;
}

TEST_F(Connection, FromRequestToTimewait) {
  listen_at();
  resolve();
  const Taken asked = request("hello");
  EXPECT_EQ(asked.event.listen_id, listener);
  EXPECT_EQ(passive->context, this);
  EXPECT_EQ(passive->channel, server);
  EXPECT_EQ(passive->verbs, active->verbs);
  EXPECT_EQ(passive->pd, active->pd);
  EXPECT_EQ(rdma_get_src_port(passive), htons(port));
  EXPECT_EQ(rdma_get_dst_port(passive), rdma_get_src_port(active));
  EXPECT_EQ(passive->route.num_paths, 1);
  EXPECT_EQ(asked.event.param.conn.qp_num, active->qp->qp_num);
  // What one side may start the other must hold resources for.
  EXPECT_EQ(asked.event.param.conn.responder_resources, 3);
  EXPECT_EQ(asked.event.param.conn.initiator_depth, 2);
  EXPECT_EQ(asked.event.param.conn.retry_count, 5);
  EXPECT_EQ(asked.data, "hello" + std::string(51, '\0'));

  make_qp(passive);
  rdma_conn_param answer = with_data("welcome");
  ASSERT_EQ(rdma_accept(passive, &answer), 0);
  const Taken done = take(client, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(done.data, "welcome" + std::string(189, '\0'));
  EXPECT_EQ(done.event.param.conn.qp_num, passive->qp->qp_num);
  take(server, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(query(active->qp).qp_state, IBV_QPS_RTS);
  EXPECT_EQ(query(active->qp).max_dest_rd_atomic, 3);
  EXPECT_EQ(query(active->qp).max_rd_atomic, 2);
  transfer(active, passive);
  transfer(passive, active);

  ASSERT_EQ(rdma_disconnect(active), 0);
  EXPECT_EQ(query(active->qp).qp_state, IBV_QPS_ERR);
  take(server, RDMA_CM_EVENT_DISCONNECTED);
  take(client, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(rdma_disconnect(passive), 0);
  EXPECT_EQ(query(passive->qp).qp_state, IBV_QPS_ERR);
  take(server, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  take(client, RDMA_CM_EVENT_TIMEWAIT_EXIT);
  EXPECT_TRUE(nothing(server) && nothing(client));
}

TEST_F(Connection, BothDisconnectAtOnce) {
  listen_at();
  resolve();
  connect_both();
  ASSERT_EQ(rdma_disconnect(active), 0);
  ASSERT_EQ(rdma_disconnect(passive), 0);
  take(server, RDMA_CM_EVENT_DISCONNECTED);
  take(client, RDMA_CM_EVENT_DISCONNECTED);
}

TEST_F(Connection, QueuePairsOfTheUser) {
  listen_at();
  resolve(RDMA_PS_TCP, false);
  const auto make = [](rdma_cm_id* id, ibv_cq* cq) {
    ibv_qp_init_attr a = small_qp(IBV_QPT_RC);
    a.send_cq = a.recv_cq = cq;
    return ibv_create_qp(id->pd, &a);
  };
  const auto modify = [](rdma_cm_id* id, ibv_qp* qp) {
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      ibv_qp_attr attr{};
      attr.qp_state = state;
      int mask = 0;
      ASSERT_EQ(rdma_init_qp_attr(id, &attr, &mask), 0);
      ASSERT_EQ(ibv_modify_qp(qp, &attr, mask), 0);
    }
  };
  ibv_cq* const cq = ibv_create_cq(active->verbs, 16, nullptr, nullptr, 0);
  ibv_qp* const ours = make(active, cq);
  ibv_qp* const theirs = make(active, cq);
  std::uint8_t timeout = 21;
  ASSERT_EQ(rdma_set_option(active, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1), 0);
  ibv_qp_attr early{};
  early.qp_state = IBV_QPS_RTR;
  int mask = 0;
  EXPECT_EQ(rdma_init_qp_attr(active, &early, &mask), -1);
  EXPECT_EQ(errno, EINVAL);

  rdma_conn_param p = with_data("");
  p.qp_num = ours->qp_num;
  ASSERT_EQ(rdma_connect(active, &p), 0);
  passive = take(server, RDMA_CM_EVENT_CONNECT_REQUEST).event.id;
  modify(passive, theirs);
  p.qp_num = theirs->qp_num;
  ASSERT_EQ(rdma_accept(passive, &p), 0);
  const Taken answer = take(client, RDMA_CM_EVENT_CONNECT_RESPONSE);
  EXPECT_EQ(answer.event.param.conn.qp_num, theirs->qp_num);
  modify(active, ours);
  EXPECT_EQ(query(ours).timeout, 21);
  EXPECT_EQ(query(ours).dest_qp_num, theirs->qp_num);
  EXPECT_TRUE(nothing(server));
  ASSERT_EQ(rdma_establish(active), 0);
  take(server, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(rdma_notify(passive, IBV_EVENT_COMM_EST), -1);
  EXPECT_EQ(errno, EISCONN);
  ibv_destroy_qp(ours);
  ibv_destroy_qp(theirs);
  ibv_destroy_cq(cq);
}

TEST_F(Connection, PrivateDataHasLimits) {
  listen_at();
  resolve();
  const std::string long_request(57, 'x'), long_answer(197, 'x');
  rdma_conn_param p = with_data(long_request);
  EXPECT_EQ(rdma_connect(active, &p), -1);
  EXPECT_EQ(errno, EINVAL);
  const std::string longest(56, 'y');
  EXPECT_EQ(request(longest).data, longest);
  make_qp(passive);
  p = with_data(long_answer);
  EXPECT_EQ(rdma_accept(passive, &p), -1);
  EXPECT_EQ(errno, EINVAL);
  p = with_data("");
  p.responder_resources = 200;  // more than the device has
  EXPECT_EQ(rdma_accept(passive, &p), -1);
  EXPECT_EQ(errno, EINVAL);
  const std::string text(149, 'z');
  EXPECT_EQ(rdma_reject(passive, text.data(), 149), -1);
  EXPECT_EQ(rdma_reject(passive, text.data(), 148), 0);
  const Taken no = take(client, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(no.event.status, 28);
  EXPECT_EQ(no.data, text.substr(1));
  EXPECT_EQ(query(active->qp).qp_state, IBV_QPS_ERR);
}

TEST_F(Connection, NobodyListens) {
  listen_at();
  drop(listener);
  resolve();
  ASSERT_EQ(rdma_connect(active, nullptr), 0);
  EXPECT_EQ(take(client, RDMA_CM_EVENT_REJECTED).event.status, 8);
  drop(active);
  resolve(RDMA_PS_UDP);
  ASSERT_EQ(rdma_connect(active, nullptr), 0);
  EXPECT_EQ(take(client, RDMA_CM_EVENT_UNREACHABLE).event.status, 1);
}

TEST_F(Connection, ListenerComesLate) {
  listen_at();
  resolve();
  drop(listener);
  ASSERT_EQ(rdma_connect(active, nullptr), 0);
  sockaddr_in a = ipv4("127.0.0.1", port);
  ASSERT_EQ(rdma_create_id(server, &listener, this, RDMA_PS_TCP), 0);
  ASSERT_EQ(rdma_bind_addr(listener, generic(a)), 0);
  ASSERT_EQ(rdma_listen(listener, 4), 0);
  rdma_cm_event* e = nullptr;
  ASSERT_EQ(fcntl(client->fd, F_SETFL, O_NONBLOCK), 0);
  // The client asks again when it looks for events.
  EXPECT_TRUE(hca::test::eventually([&] {
    EXPECT_EQ(rdma_get_cm_event(client, &e), -1);
    return !nothing(server);
  }));
  passive = take(server, RDMA_CM_EVENT_CONNECT_REQUEST).event.id;
}

TEST_F(Connection, EndsBeforeItIsAnswered) {
  listen_at();
  resolve();
  request();
  drop(active);
  EXPECT_EQ(take(server, RDMA_CM_EVENT_REJECTED).event.status, 4);
  EXPECT_EQ(rdma_accept(passive, nullptr), -1);
  drop(passive);
  resolve();
  ASSERT_EQ(rdma_connect(active, nullptr), 0);
  pollfd p{server->fd, POLLIN, 0};
  ASSERT_EQ(poll(&p, 1, 10'000), 1);
  drop(listener);  // with a request that nobody took
  EXPECT_EQ(take(client, RDMA_CM_EVENT_REJECTED).event.status, 28);
}

TEST_F(Connection, OfAnotherKindIsRejected) {
  listen_at();
  rdma_addrinfo hints{}, *found = nullptr;
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_qp_type = IBV_QPT_XRC_SEND;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", std::to_string(port).c_str(), &hints, &found), 0);
  ASSERT_EQ(rdma_create_ep(&active, found, nullptr, nullptr), 0);
  rdma_freeaddrinfo(found);
  ASSERT_EQ(rdma_migrate_id(active, client), 0);
  ASSERT_EQ(rdma_connect(active, nullptr), 0);
  ASSERT_EQ(fcntl(server->fd, F_SETFL, O_NONBLOCK), 0);
  rdma_cm_event* e = nullptr;
  EXPECT_TRUE(hca::test::eventually([&] {
    EXPECT_EQ(rdma_get_cm_event(server, &e), -1);
    return !nothing(client);
  }));
  EXPECT_EQ(take(client, RDMA_CM_EVENT_REJECTED).event.status, 28);
}

TEST_F(Connection, DatagramService) {
  listen_at("127.0.0.1", RDMA_PS_UDP);
  resolve(RDMA_PS_UDP);
  EXPECT_EQ(query(active->qp).qp_state, IBV_QPS_RTS);
  const std::string longest(180, 'q');
  EXPECT_EQ(request(longest).data, longest);
  make_qp(passive);
  rdma_conn_param p = with_data("udp");
  ASSERT_EQ(rdma_accept(passive, &p), 0);
  const Taken found = take(client, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(found.data, "udp" + std::string(133, '\0'));
  EXPECT_EQ(found.event.param.ud.qp_num, passive->qp->qp_num);
  EXPECT_EQ(found.event.param.ud.qkey, static_cast<std::uint32_t>(RDMA_UDP_QKEY));
  EXPECT_TRUE(nothing(server) && nothing(client));

  char out[8] = "datagra", in[64] = {};
  ibv_ah_attr to = found.event.param.ud.ah_attr;
  ibv_ah* const ah = ibv_create_ah(active->pd, &to);
  ASSERT_NE(ah, nullptr);
  ibv_mr* const source = rdma_reg_msgs(active, out, sizeof out);
  ibv_mr* const target = rdma_reg_msgs(passive, in, sizeof in);
  ASSERT_EQ(rdma_post_recv(passive, nullptr, in, sizeof in, target), 0);
  ASSERT_EQ(rdma_post_ud_send(active, nullptr, out, sizeof out, source, 0, ah,
                              found.event.param.ud.qp_num),
            0);
  ibv_wc wc{};
  EXPECT_EQ(rdma_get_recv_comp(passive, &wc), 1);
  EXPECT_STREQ(in + 40, out);
  EXPECT_EQ(rdma_get_send_comp(active, &wc), 1);
  rdma_dereg_mr(source);
  rdma_dereg_mr(target);
  ibv_destroy_ah(ah);

  drop(active);
  drop(passive);
  resolve(RDMA_PS_UDP);
  request();
  ASSERT_EQ(rdma_reject(passive, nullptr, 0), 0);
  EXPECT_EQ(take(client, RDMA_CM_EVENT_UNREACHABLE).event.status, 2);
}

TEST_F(Connection, ChannelThatDoesNotBlock) {
  ASSERT_EQ(fcntl(client->fd, F_SETFL, fcntl(client->fd, F_GETFL) | O_NONBLOCK), 0);
  rdma_cm_event* e = nullptr;
  EXPECT_EQ(rdma_get_cm_event(client, &e), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_TRUE(nothing(client));
  listen_at();
  resolve();
  EXPECT_EQ(rdma_get_cm_event(client, &e), -1);
  EXPECT_EQ(errno, EAGAIN);
  connect_both();
  EXPECT_TRUE(nothing(client));
}

// Who looks at its completions and then here has found the last one first.
TEST_F(Connection, EndIsToldAtTheSecondLook) {
  ASSERT_EQ(fcntl(client->fd, F_SETFL, fcntl(client->fd, F_GETFL) | O_NONBLOCK), 0);
  for (const bool says_so : {true, false}) {
    if (listener == nullptr) listen_at();
    resolve();
    connect_both();
    if (says_so) {
      ASSERT_EQ(rdma_disconnect(passive), 0);
    } else {
      drop(passive);
    }
    rdma_cm_event* e = nullptr;
    EXPECT_EQ(rdma_get_cm_event(client, &e), -1);
    EXPECT_EQ(errno, EAGAIN);
    take(client, RDMA_CM_EVENT_DISCONNECTED);
    if (says_so) take(server, RDMA_CM_EVENT_DISCONNECTED);
    drop(active);
    drop(passive);
  }
}

TEST_F(Connection, SignalEndsTheWaiting) {
  struct sigaction action {};
  action.sa_handler = [](int) {};  // no SA_RESTART
  ASSERT_EQ(sigaction(SIGUSR1, &action, nullptr), 0);
  int result = 0, error = 0;
  std::atomic<bool> over = false;
  std::thread waiter([&] {
    rdma_cm_event* e = nullptr;
    result = rdma_get_cm_event(client, &e);
    error = errno;
    over = true;
    if (result == 0) rdma_ack_cm_event(e);
  });
  EXPECT_TRUE(turnout::hca::test::eventually([&] {
    pthread_kill(waiter.native_handle(), SIGUSR1);
    usleep(1000);
    return over.load();
  }));
  listen_at();
  resolve();
  waiter.join();
  EXPECT_EQ(result, -1);
  EXPECT_EQ(error, EINTR);
}

// The destruction frees the port, and then waits. In rounds, because a destruction that does not
// wait might be slower than the acknowledgement.
TEST_F(Connection, DestructionWaitsForAcknowledgement) {
  listen_at();
  sockaddr_in to = ipv4("127.0.0.1", port);
  for (int round = 0; round < 20; ++round) {
    sockaddr_in from = ipv4("127.0.0.1");
    ASSERT_EQ(rdma_create_id(client, &active, nullptr, RDMA_PS_TCP), 0);
    ASSERT_EQ(rdma_bind_addr(active, generic(from)), 0);
    from.sin_port = rdma_get_src_port(active);
    ASSERT_EQ(rdma_resolve_addr(active, nullptr, generic(to), 1000), 0);
    rdma_cm_event* e = nullptr;
    ASSERT_EQ(rdma_get_cm_event(client, &e), 0);
    rdma_cm_id* next = nullptr;
    ASSERT_EQ(rdma_create_id(client, &next, nullptr, RDMA_PS_TCP), 0);
    EXPECT_EQ(rdma_bind_addr(next, generic(from)), -1);
    EXPECT_EQ(errno, EADDRINUSE);
    std::atomic<bool> acknowledged = false;
    bool waited = false;
    std::thread other([&] {
      EXPECT_EQ(rdma_destroy_id(active), 0);
      waited = acknowledged;
    });
    EXPECT_TRUE(
        turnout::hca::test::eventually([&] { return rdma_bind_addr(next, generic(from)) == 0; }));
    acknowledged = true;
    EXPECT_EQ(rdma_ack_cm_event(e), 0);
    other.join();
    active = nullptr;
    EXPECT_TRUE(waited) << round;
    drop(next);
  }
}

TEST_F(Connection, MigrationTakesEventsAlong) {
  listen_at();
  resolve();
  connect_both();
  rdma_event_channel* const other = rdma_create_event_channel();
  ASSERT_EQ(rdma_migrate_id(passive, other), 0);
  EXPECT_EQ(passive->channel, other);
  ASSERT_EQ(rdma_disconnect(active), 0);
  take(other, RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_TRUE(nothing(server));
  drop(active);
  resolve();
  ASSERT_EQ(rdma_migrate_id(active, other), 0);
  ASSERT_EQ(rdma_disconnect(passive), 0);
  drop(passive);
  ASSERT_EQ(rdma_migrate_id(active, client), 0);
  drop(active);
  rdma_destroy_event_channel(other);
}

TEST_F(Connection, SynchronousEndpoints) {
  rdma_addrinfo hints{}, *found = nullptr;
  hints.ai_flags = RAI_PASSIVE;
  hints.ai_port_space = RDMA_PS_TCP;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", "0", &hints, &found), 0);
  EXPECT_EQ(found->ai_qp_type, IBV_QPT_RC);
  ibv_qp_init_attr attr = small_qp(IBV_QPT_RC);
  ASSERT_EQ(rdma_create_ep(&listener, found, nullptr, &attr), 0);
  rdma_freeaddrinfo(found);
  ASSERT_EQ(rdma_listen(listener, 1), 0);
  port = ntohs(rdma_get_src_port(listener));
  std::thread other([&] {
    ASSERT_EQ(rdma_get_request(listener, &passive), 0);
    ASSERT_NE(passive->qp, nullptr);
    ASSERT_NE(passive->event, nullptr);
    ASSERT_EQ(rdma_accept(passive, nullptr), 0);
    EXPECT_EQ(passive->event->event, RDMA_CM_EVENT_ESTABLISHED);
  });
  hints.ai_flags = 0;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", std::to_string(port).c_str(), &hints, &found), 0);
  attr = small_qp(IBV_QPT_RC);
  ASSERT_EQ(rdma_create_ep(&active, found, nullptr, &attr), 0);
  rdma_freeaddrinfo(found);
  ASSERT_EQ(rdma_connect(active, nullptr), 0);
  other.join();
  transfer(active, passive);
  std::thread ends([&] { EXPECT_EQ(rdma_disconnect(passive), 0); });
  EXPECT_EQ(rdma_disconnect(active), 0);
  ends.join();
  rdma_destroy_ep(active);
  rdma_destroy_ep(passive);
  rdma_destroy_ep(listener);
  active = passive = listener = nullptr;
}

// The next event, acknowledged: its number, status and parameters.
struct Later {
  explicit Later(rdma_event_channel* channel) {
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(channel, &event), 0);
    if (event == nullptr) return;
    std::memcpy(&type, &event->event, sizeof type);
    std::memcpy(&argument, &event->param, sizeof argument);
    id = event->id;
    status = event->status;
    EXPECT_EQ(rdma_ack_cm_event(event), 0);
  }
  int type = -1, status = -1;
  std::uint64_t argument = 0;
  rdma_cm_id* id = nullptr;
};

TEST_F(Connection, ResolvesNamesByAnEvent) {
  constexpr int kResolved = 16;
  EXPECT_STREQ(name_of_event(kResolved), "RDMA_CM_EVENT_ADDRINFO_RESOLVED");
  ASSERT_EQ(rdma_create_id(client, &active, this, RDMA_PS_TCP), 0);
  rdma_addrinfo hints{}, *found = nullptr;
  hints.ai_port_space = RDMA_PS_TCP;
  const auto fails = [](int result, int error) { return result == -1 && errno == error; };
  EXPECT_TRUE(fails(rdma_query_addrinfo(active, &found), ENOENT));
  EXPECT_TRUE(fails(rdma_resolve_addrinfo(nullptr, "127.0.0.1", "1", &hints), EINVAL));
  EXPECT_TRUE(fails(rdma_resolve_addrinfo(active, nullptr, nullptr, nullptr), EINVAL));
  EXPECT_TRUE(fails(rdma_resolve_addrinfo(active, "127.0.0.1", "none", &hints), EADDRNOTAVAIL));
  hints.ai_flags = 0x10;  // RAI_SA
  EXPECT_TRUE(fails(rdma_resolve_addrinfo(active, nullptr, "1", &hints), ENOTSUP));
  hints.ai_flags = 0;
  ASSERT_EQ(rdma_resolve_addrinfo(active, "127.0.0.1", "4711", &hints), 0);
  EXPECT_TRUE(fails(rdma_resolve_addrinfo(active, "127.0.0.1", "1", &hints), EBUSY));
  const Later told(client);
  EXPECT_EQ(told.type, kResolved);
  EXPECT_EQ(told.id, active);
  EXPECT_EQ(told.status, 0);
  ASSERT_EQ(rdma_query_addrinfo(active, &found), 0);
  ASSERT_EQ(found->ai_dst_len, sizeof(sockaddr_in));
  EXPECT_EQ(reinterpret_cast<sockaddr_in*>(found->ai_dst_addr)->sin_port, htons(4711));
  rdma_freeaddrinfo(found);
  EXPECT_TRUE(fails(rdma_query_addrinfo(active, &found), ENOENT));
  // Once more, and nobody asks for the answer: it ends with the identifier.
  ASSERT_EQ(rdma_resolve_addrinfo(active, "127.0.0.1", "4712", &hints), 0);
  EXPECT_EQ(Later(client).type, kResolved);

  rdma_cm_id* waiting = nullptr;  // of no channel: the call waits for the event
  ASSERT_EQ(rdma_create_id(nullptr, &waiting, this, RDMA_PS_TCP), 0);
  ASSERT_EQ(rdma_resolve_addrinfo(waiting, "127.0.0.1", "4713", &hints), 0);
  ASSERT_NE(waiting->event, nullptr);
  EXPECT_EQ(std::memcmp(&waiting->event->event, &kResolved, sizeof kResolved), 0);
  ASSERT_EQ(rdma_query_addrinfo(waiting, &found), 0);
  rdma_freeaddrinfo(found);
  EXPECT_EQ(rdma_destroy_id(waiting), 0);
}

TEST_F(Connection, EventsOfTheUser) {
  constexpr int kUser = 18;
  EXPECT_STREQ(name_of_event(kUser), "RDMA_CM_EVENT_USER");
  for (const int type : {-1, 19}) EXPECT_STREQ(name_of_event(type), "UNKNOWN EVENT");
  ASSERT_EQ(rdma_create_id(client, &active, this, RDMA_PS_TCP), 0);
  for (const int type : {0, 9, 16, 17, 19, 20, -1}) {
    EXPECT_EQ(write_event(active, type, 0, 1), -1) << type;
    EXPECT_EQ(errno, EINVAL);
  }
  ASSERT_EQ(write_event(active, kUser, 7, 0x1122334455667788), 0);
  const Later told(client);
  EXPECT_EQ(told.type, kUser);
  EXPECT_EQ(told.id, active);
  EXPECT_EQ(told.status, 7);
  EXPECT_EQ(told.argument, 0x1122334455667788U);
}

TEST_F(Connection, SynchronousConnectIsRefused) {
  listen_at();
  drop(listener);
  rdma_addrinfo hints{}, *found = nullptr;
  hints.ai_port_space = RDMA_PS_TCP;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", std::to_string(port).c_str(), &hints, &found), 0);
  ibv_qp_init_attr attr = small_qp(IBV_QPT_RC);
  ASSERT_EQ(rdma_create_ep(&active, found, nullptr, &attr), 0);
  rdma_freeaddrinfo(found);
  EXPECT_EQ(rdma_connect(active, nullptr), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
}

// A process that is killed, on either side of a connection.
TEST(Death, OfThePeer) {
  hca::test::use_own_fabric();
  hca::test::Exchange* x = hca::test::exchange();
  hca::test::run(3, [&](unsigned rank) {
    rdma_event_channel* const channel = rdma_create_event_channel();
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
    if (rank == 0) {
      sockaddr_in any = ipv4("0.0.0.0");
      ASSERT_EQ(rdma_bind_addr(id, generic(any)), 0);
      ASSERT_EQ(rdma_listen(id, 4), 0);
      hca::test::set(x, 0, rdma_get_src_port(id));
      rdma_cm_id* dead = take(channel, RDMA_CM_EVENT_CONNECT_REQUEST).event.id;
      ASSERT_EQ(rdma_accept(dead, nullptr), 0);
      take(channel, RDMA_CM_EVENT_ESTABLISHED);
      EXPECT_EQ(take(channel, RDMA_CM_EVENT_DISCONNECTED).event.id, dead);
      rdma_destroy_id(dead);
      hca::test::set(x, 1, 1);
      rdma_cm_id* last = take(channel, RDMA_CM_EVENT_CONNECT_REQUEST).event.id;
      ASSERT_EQ(rdma_accept(last, nullptr), 0);
      take(channel, RDMA_CM_EVENT_ESTABLISHED);
      hca::test::kill_self();
    }
    if (rank == 2) hca::test::get(x, 1);  // after the other client
    sockaddr_in to = ipv4("127.0.0.1", ntohs(static_cast<std::uint16_t>(hca::test::get(x, 0))));
    ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(to), 1000), 0);
    take(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    ASSERT_EQ(rdma_resolve_route(id, 1000), 0);
    take(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    ibv_qp_init_attr attr = small_qp(IBV_QPT_RC);
    ASSERT_EQ(rdma_create_qp(id, nullptr, &attr), 0);
    ASSERT_EQ(rdma_connect(id, nullptr), 0);
    take(channel, RDMA_CM_EVENT_ESTABLISHED);
    if (rank == 1) hca::test::kill_self();
    take(channel, RDMA_CM_EVENT_DISCONNECTED);
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
  });
}

// Identifiers of one channel in several threads' hands.
TEST_F(Connection, Threads) {
  constexpr int kThreads = 4, kRounds = 10;
  listen_at();
  std::thread accepting([&] {
    for (int left = kThreads * kRounds; left > 0;) {
      rdma_cm_event* e = nullptr;
      ASSERT_EQ(rdma_get_cm_event(server, &e), 0);
      const rdma_cm_event copy = *e;
      ASSERT_EQ(rdma_ack_cm_event(e), 0);
      if (copy.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        EXPECT_EQ(rdma_accept(copy.id, nullptr), 0);
      } else if (copy.event == RDMA_CM_EVENT_DISCONNECTED) {
        EXPECT_EQ(rdma_destroy_id(copy.id), 0);
        --left;
      }
    }
  });
  std::vector<std::thread> clients;
  for (int t = 0; t < kThreads; ++t) {
    clients.emplace_back([&] {
      for (int round = 0; round < kRounds; ++round) {
        rdma_cm_id* id = nullptr;
        sockaddr_in a = ipv4("127.0.0.1", port);
        ASSERT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
        ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(a), 1000), 0);
        ASSERT_EQ(rdma_resolve_route(id, 1000), 0);
        make_qp(id);
        ASSERT_EQ(rdma_connect(id, nullptr), 0);
        ASSERT_EQ(rdma_disconnect(id), 0);
        rdma_destroy_qp(id);
        EXPECT_EQ(rdma_destroy_id(id), 0);
      }
    });
  }
  for (std::thread& c : clients) c.join();
  accepting.join();
}

}  // namespace
}  // namespace turnout::cm::test
