// SPDX-License-Identifier: BSD-3-Clause
// Connected endpoints (FI_EP_MSG): requests, answers, data of the program, and the end.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "provider/connection_message.h"
#include "provider/service_address.h"
#include "tests/provider/node.h"

namespace turnout::testing {
namespace {

using provider::ConnectionMessage;
using provider::ServiceAddress;

struct Event {
  std::uint32_t number = 0;
  ::fid* of = nullptr;
  InfoPtr info;
  std::string data;
};

// What a program with connected endpoints has, whichever side it is.
struct Side {
  explicit Side(const char* node = nullptr, std::uint64_t flags = 0,
                fi_wait_obj wait = FI_WAIT_UNSPEC) {
    const InfoPtr hints = hints_for_all();
    hints->ep_attr->type = FI_EP_MSG;
    fi_info* found = nullptr;
    EXPECT_EQ(provider().getinfo(FI_VERSION(1, 17), node, node != nullptr ? "0" : nullptr, flags,
                                 hints.get(), &found),
              0);
    info.reset(found);
    EXPECT_EQ(provider().fabric(info->fabric_attr, &fabric, nullptr), 0);
    fabric->api_version = FI_VERSION(1, 17);
    EXPECT_EQ(fi_domain(fabric, info.get(), &domain, nullptr), 0);
    fi_eq_attr eq_attr{};
    eq_attr.wait_obj = wait;
    EXPECT_EQ(fi_eq_open(fabric, &eq_attr, &eq, nullptr), 0);
    fi_cq_attr cq_attr{};
    cq_attr.format = FI_CQ_FORMAT_TAGGED;
    EXPECT_EQ(fi_cq_open(domain, &cq_attr, &cq, nullptr), 0);
  }
  ~Side() {
    for (fid_ep* one : endpoints) EXPECT_EQ(fi_close(&one->fid), 0);
    if (pep != nullptr) {
      EXPECT_EQ(fi_close(&pep->fid), 0);
    }
    EXPECT_EQ(fi_close(&cq->fid), 0);
    EXPECT_EQ(fi_close(&eq->fid), 0);
    EXPECT_EQ(fi_close(&domain->fid), 0);
    EXPECT_EQ(fi_close(&fabric->fid), 0);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  // Listens; where.
  ServiceAddress listen() {
    EXPECT_EQ(fi_passive_ep(fabric, info.get(), &pep, nullptr), 0);
    EXPECT_EQ(fi_pep_bind(pep, &eq->fid, 0), 0);
    EXPECT_EQ(fi_listen(pep), 0);
    ServiceAddress name;
    std::size_t length = sizeof name;
    EXPECT_EQ(fi_getname(&pep->fid, &name, &length), 0);
    return name;
  }
  fid_ep* endpoint(fi_info* of = nullptr) {
    fid_ep* ep = nullptr;
    EXPECT_EQ(fi_endpoint(domain, of != nullptr ? of : info.get(), &ep, nullptr), 0);
    EXPECT_EQ(fi_ep_bind(ep, &eq->fid, 0), 0);
    EXPECT_EQ(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), 0);
    endpoints.push_back(ep);
    return ep;
  }
  void close(fid_ep* ep) {
    EXPECT_EQ(fi_close(&ep->fid), 0);
    std::erase(endpoints, ep);
  }
  Event wait() {
    std::vector<std::byte> bytes(sizeof(fi_eq_cm_entry) + ConnectionMessage::kMostData);
    Event event;
    const ssize_t n = fi_eq_sread(eq, &event.number, bytes.data(), bytes.size(), 10'000, 0);
    EXPECT_GE(n, static_cast<ssize_t>(sizeof(fi_eq_cm_entry)));
    if (n < 0) return event;
    fi_eq_cm_entry entry{};
    std::memcpy(&entry, bytes.data(), sizeof entry);
    event.of = entry.fid;
    event.info.reset(entry.info);
    event.data.assign(reinterpret_cast<const char*>(bytes.data()) + sizeof entry,
                      static_cast<std::size_t>(n) - sizeof entry);
    return event;
  }
  // An error, with the data that came with it.
  std::pair<fi_eq_err_entry, std::string> wait_error() {
    std::uint32_t number = 0;
    char byte = 0;
    EXPECT_EQ(fi_eq_sread(eq, &number, &byte, sizeof byte, 10'000, 0), -FI_EAVAIL);
    fi_eq_err_entry entry{};
    EXPECT_EQ(fi_eq_readerr(eq, &entry, 0), static_cast<ssize_t>(sizeof entry));
    return {entry, std::string(static_cast<const char*>(entry.err_data), entry.err_data_size)};
  }
  [[nodiscard]] bool quiet() {
    std::uint32_t number = 0;
    char bytes[512];
    return fi_eq_read(eq, &number, bytes, sizeof bytes, FI_PEEK) == -FI_EAGAIN;
  }

  InfoPtr info;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_eq* eq = nullptr;
  fid_cq* cq = nullptr;
  fid_pep* pep = nullptr;
  std::vector<fid_ep*> endpoints;
};

int connect(fid_ep* ep, const ServiceAddress& to, const std::string& data = {}) {
  return fi_connect(ep, &to, data.data(), data.size());
}

// Two endpoints that are connected.
struct Connected {
  Connected() {
    const ServiceAddress name = server.listen();
    b = client.endpoint();
    EXPECT_EQ(connect(b, name), 0);
    const Event request = server.wait();
    EXPECT_EQ(request.number, static_cast<std::uint32_t>(FI_CONNREQ));
    a = server.endpoint(request.info.get());
    EXPECT_EQ(fi_accept(a, nullptr, 0), 0);
    EXPECT_EQ(server.wait().number, static_cast<std::uint32_t>(FI_CONNECTED));
    EXPECT_EQ(client.wait().number, static_cast<std::uint32_t>(FI_CONNECTED));
  }
  Side server{"127.0.0.1", FI_SOURCE}, client;
  fid_ep *a = nullptr, *b = nullptr;
};

// The next completion of the queue.
fi_cq_tagged_entry next(fid_cq* cq) {
  fi_cq_tagged_entry entry{};
  ssize_t n = -FI_EAGAIN;
  for (int i = 0; i < 1000 && n == -FI_EAGAIN; ++i) n = fi_cq_read(cq, &entry, 1);
  EXPECT_EQ(n, 1);
  return entry;
}

TEST(Connection, TakesReceivesOfAContextThatAllClientsShare) {
  Side server("127.0.0.1", FI_SOURCE);
  const ServiceAddress name = server.listen();
  fid_ep* context = nullptr;
  ASSERT_EQ(fi_srx_context(server.domain, server.info->rx_attr, &context, nullptr), 0);
  std::array<Side, 3> clients;
  std::array<fid_ep*, 3> ends{};
  for (std::size_t i = 0; i < clients.size(); ++i) {
    fid_ep* const b = clients[i].endpoint();
    ASSERT_EQ(connect(b, name), 0);
    const Event request = server.wait();
    fid_ep* const a = server.endpoint(request.info.get());
    ASSERT_EQ(fi_ep_bind(a, &context->fid, 0), 0);
    ASSERT_EQ(fi_accept(a, nullptr, 0), 0);
    ASSERT_EQ(server.wait().number, static_cast<std::uint32_t>(FI_CONNECTED));
    ASSERT_EQ(clients[i].wait().number, static_cast<std::uint32_t>(FI_CONNECTED));
    ends[i] = b;
  }
  std::array<std::array<char, 8>, 3> buffers{};
  for (auto& buffer : buffers) {
    // The source means nothing: each endpoint has one.
    ASSERT_EQ(fi_recv(context, buffer.data(), buffer.size(), nullptr, 0, &buffer), 0);
  }
  const std::array<std::size_t, 3> order = {2, 0, 1};
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::string text = "from " + std::to_string(order[i]);
    ASSERT_EQ(fi_inject(ends[order[i]], text.data(), text.size(), 0), 0);
    const fi_cq_tagged_entry entry = next(server.cq);
    EXPECT_EQ(entry.op_context, &buffers[i]);
    EXPECT_EQ(std::string(buffers[i].data(), entry.len), text);
  }
  // One of them goes; the others have the context still.
  ASSERT_EQ(fi_recv(context, buffers[0].data(), 8, nullptr, 0, &buffers[0]), 0);
  server.close(server.endpoints[2]);
  ASSERT_EQ(fi_inject(ends[1], "still", 5, 0), 0);
  EXPECT_EQ(next(server.cq).len, 5U);
  server.close(server.endpoints[1]);
  server.close(server.endpoints[0]);
  EXPECT_EQ(fi_close(&context->fid), 0);
}

TEST(Connection, CarriesTheProgramsDataBothWays) {
  Side server("127.0.0.1", FI_SOURCE), client;
  const ServiceAddress name = server.listen();
  EXPECT_NE(name.port(), 0);
  fid_ep* const b = client.endpoint();
  ASSERT_EQ(connect(b, name, "who"), 0);
  const Event request = server.wait();
  ASSERT_EQ(request.number, static_cast<std::uint32_t>(FI_CONNREQ));
  EXPECT_EQ(request.of, &server.pep->fid);
  EXPECT_EQ(request.data, "who");
  ASSERT_NE(request.info, nullptr);
  EXPECT_EQ(request.info->ep_attr->type, FI_EP_MSG);
  fid_ep* const a = server.endpoint(request.info.get());
  ASSERT_EQ(fi_enable(a), 0);
  ASSERT_EQ(fi_accept(a, "me", 2), 0);
  const Event accepted = server.wait();
  EXPECT_EQ(accepted.number, static_cast<std::uint32_t>(FI_CONNECTED));
  EXPECT_EQ(accepted.of, &a->fid);
  EXPECT_EQ(accepted.data, "");
  const Event connected = client.wait();
  EXPECT_EQ(connected.number, static_cast<std::uint32_t>(FI_CONNECTED));
  EXPECT_EQ(connected.of, &b->fid);
  EXPECT_EQ(connected.data, "me");
  // Each names the other.
  Address own, peer;
  std::size_t length = sizeof own;
  EXPECT_EQ(fi_getname(&a->fid, &own, &length), 0);
  EXPECT_EQ(fi_getpeer(b, &peer, &length), 0);
  EXPECT_EQ(own, peer);
  EXPECT_EQ(request.info->dest_addrlen, sizeof peer);
  EXPECT_EQ(fi_getname(&b->fid, &own, &length), 0);
  EXPECT_EQ(std::memcmp(request.info->dest_addr, &own, sizeof own), 0);
  length = 3;
  EXPECT_EQ(fi_getpeer(b, &peer, &length), -FI_ETOOSMALL);
  EXPECT_EQ(length, sizeof peer);
}

TEST(Connection, MessagesGoToThePeer) {
  Connected c;
  char out[] = "forth", in[16] = {};
  ASSERT_EQ(fi_recv(c.a, in, sizeof in, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  ASSERT_EQ(fi_send(c.b, out, sizeof out, nullptr, 0, &c), 0);
  EXPECT_EQ(next(c.client.cq).op_context, &c);
  EXPECT_EQ(next(c.server.cq).len, sizeof out);
  EXPECT_STREQ(in, "forth");
  ASSERT_EQ(fi_trecv(c.b, in, sizeof in, nullptr, 77, 7, 0, nullptr), 0);
  ASSERT_EQ(fi_tsend(c.a, "back", 5, nullptr, FI_ADDR_UNSPEC, 7, nullptr), 0);
  EXPECT_EQ(next(c.server.cq).flags & FI_SEND, FI_SEND);
  EXPECT_EQ(next(c.client.cq).tag, 7U);
  EXPECT_STREQ(in, "back");
}

TEST(Connection, TheEndOfOneSideIsAnEventOfTheOther) {
  for (const bool closes : {true, false}) {
    Connected c;
    if (closes) {
      c.client.close(c.b);
    } else {
      EXPECT_EQ(fi_shutdown(c.b, 0), 0);
      EXPECT_EQ(fi_send(c.b, "x", 1, nullptr, 0, nullptr), -FI_ESHUTDOWN);
    }
    const Event end = c.server.wait();
    EXPECT_EQ(end.number, static_cast<std::uint32_t>(FI_SHUTDOWN));
    EXPECT_EQ(end.of, &c.a->fid);
    EXPECT_EQ(fi_send(c.a, "x", 1, nullptr, 0, nullptr), -FI_ESHUTDOWN);
    EXPECT_TRUE(c.client.quiet());
    Address peer;
    std::size_t length = sizeof peer;
    EXPECT_EQ(fi_getpeer(c.a, &peer, &length), -FI_ENOTCONN);
  }
}

TEST(Connection, ARejectionSaysWhy) {
  Side server("127.0.0.1", FI_SOURCE), client;
  const ServiceAddress name = server.listen();
  fid_ep* const b = client.endpoint();
  ASSERT_EQ(connect(b, name), 0);
  const Event request = server.wait();
  EXPECT_EQ(fi_reject(server.pep, request.info->handle, nullptr, 4), -FI_EINVAL);
  EXPECT_EQ(fi_reject(server.pep, request.info->handle, "full", 4), 0);
  const auto [error, data] = client.wait_error();
  EXPECT_EQ(error.fid, &b->fid);
  EXPECT_EQ(error.err, FI_ECONNREFUSED);
  EXPECT_EQ(data, "full");
  EXPECT_EQ(fi_reject(server.pep, request.info->handle, nullptr, 0), -FI_EINVAL);
}

TEST(Connection, NobodyListens) {
  Side server("127.0.0.1", FI_SOURCE), client;
  const ServiceAddress name = server.listen();
  EXPECT_EQ(fi_close(&server.pep->fid), 0);
  server.pep = nullptr;
  fid_ep* const b = client.endpoint();
  // The kernel may know at once.
  const int error = connect(b, name);
  if (error == 0) {
    EXPECT_EQ(client.wait_error().first.err, FI_ECONNREFUSED);
    EXPECT_EQ(fi_send(b, "x", 1, nullptr, 0, nullptr), -FI_ESHUTDOWN);
  } else {
    EXPECT_EQ(error, -FI_ECONNREFUSED);
  }
}

TEST(Connection, CallsInTheWrongOrder) {
  Side server("127.0.0.1", FI_SOURCE), client;
  fid_pep* pep = nullptr;
  ASSERT_EQ(fi_passive_ep(server.fabric, server.info.get(), &pep, nullptr), 0);
  EXPECT_EQ(fi_listen(pep), -FI_ENOEQ);
  EXPECT_EQ(fi_pep_bind(pep, &server.cq->fid, 0), -FI_EINVAL);
  EXPECT_EQ(fi_close(&pep->fid), 0);
  const ServiceAddress name = server.listen();
  EXPECT_EQ(fi_listen(server.pep), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_setname(&server.pep->fid, const_cast<ServiceAddress*>(&name), sizeof name),
            -FI_EOPBADSTATE);
  EXPECT_EQ(fi_close(&server.eq->fid), -FI_EBUSY);

  fid_ep* const b = client.endpoint();
  EXPECT_EQ(fi_accept(b, nullptr, 0), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_shutdown(b, 0), -FI_ENOTCONN);
  EXPECT_EQ(fi_send(b, "x", 1, nullptr, 0, nullptr), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_connect(b, nullptr, nullptr, 0), -FI_EINVAL);
  const std::vector<char> much(ConnectionMessage::kMostData + 1);
  EXPECT_EQ(fi_connect(b, &name, much.data(), much.size()), -FI_EINVAL);
  const Address other{};
  EXPECT_EQ(fi_connect(b, &other, nullptr, 0), -FI_EINVAL);
  ASSERT_EQ(fi_enable(b), 0);
  EXPECT_EQ(fi_send(b, "x", 1, nullptr, 0, nullptr), -FI_ENOTCONN);
  ASSERT_EQ(connect(b, name), 0);
  EXPECT_EQ(connect(b, name), -FI_EOPBADSTATE);
  const Event request = server.wait();
  EXPECT_EQ(fi_send(b, "x", 1, nullptr, 0, nullptr), -FI_ENOTCONN);
  fid_ep* const a = server.endpoint(request.info.get());
  // A request has one endpoint.
  fid_ep* second = nullptr;
  EXPECT_EQ(fi_endpoint(server.domain, request.info.get(), &second, nullptr), -FI_EINVAL);
  ASSERT_EQ(fi_accept(a, nullptr, 0), 0);
  EXPECT_EQ(fi_accept(a, nullptr, 0), -FI_EOPBADSTATE);

  fid_ep* alone = nullptr;
  ASSERT_EQ(fi_endpoint(client.domain, client.info.get(), &alone, nullptr), 0);
  EXPECT_EQ(fi_enable(alone), -FI_ENOEQ);
  EXPECT_EQ(fi_close(&alone->fid), 0);
  Node node;
  EXPECT_EQ(fi_connect(node.ep, &name, nullptr, 0), -FI_ENOSYS);
  EXPECT_EQ(fi_passive_ep(node.fabric, node.info.get(), &pep, nullptr), -FI_EINVAL);
}

TEST(Connection, WhoAskedMayHaveGone) {
  Side server("127.0.0.1", FI_SOURCE), client;
  const ServiceAddress name = server.listen();
  fid_ep* const b = client.endpoint();
  ASSERT_EQ(connect(b, name), 0);
  const Event request = server.wait();
  client.close(b);
  fid_ep* const a = server.endpoint(request.info.get());
  // Until the end is noticed an acceptance goes nowhere, and then its endpoint is told.
  const int error = fi_accept(a, nullptr, 0);
  if (error == 0) {
    EXPECT_EQ(server.wait().number, static_cast<std::uint32_t>(FI_CONNECTED));
    EXPECT_EQ(server.wait().number, static_cast<std::uint32_t>(FI_SHUTDOWN));
  } else {
    EXPECT_EQ(error, -FI_ECONNABORTED);
  }
}

TEST(Connection, RequestsOutliveWhoListened) {
  Side server("127.0.0.1", FI_SOURCE), client;
  const ServiceAddress name = server.listen();
  fid_ep* const b = client.endpoint();
  fid_ep* const unread = client.endpoint();
  ASSERT_EQ(connect(b, name), 0);
  const Event request = server.wait();
  ASSERT_EQ(connect(unread, name), 0);
  while (server.quiet()) usleep(100);  // and nobody reads it
  EXPECT_EQ(fi_close(&server.pep->fid), 0);
  server.pep = nullptr;
  fid_ep* const a = server.endpoint(request.info.get());
  ASSERT_EQ(fi_accept(a, nullptr, 0), 0);
  EXPECT_EQ(client.wait().of, &b->fid);
}

// Who has connected and asks when nobody listens any more is told so.
TEST(Connection, ARequestMayComeTooLate) {
  Side server("127.0.0.1", FI_SOURCE);
  const ServiceAddress name = server.listen();
  const Descriptor fd(::socket(AF_INET, SOCK_STREAM, 0));
  ASSERT_EQ(::connect(fd.get(), name.socket(), sizeof(sockaddr_in)), 0);
  // Another one that is seen comes after it in the queue.
  Side client;
  ASSERT_EQ(connect(client.endpoint(), name), 0);
  EXPECT_EQ(server.wait().number, static_cast<std::uint32_t>(FI_CONNREQ));
  EXPECT_EQ(fi_close(&server.pep->fid), 0);
  server.pep = nullptr;
  ConnectionMessage request;
  std::size_t length = sizeof request.address;
  EXPECT_EQ(fi_getname(&client.endpoints[0]->fid, &request.address, &length), 0);
  const std::vector<std::byte> bytes = request.encode();
  ASSERT_EQ(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  char byte = 0;
  EXPECT_EQ(::recv(fd.get(), &byte, sizeof byte, 0), 0);  // the end
}

TEST(Connection, ARequestOutlivesAnEndpointThatCannotBe) {
  Side server("127.0.0.1", FI_SOURCE), client;
  const ServiceAddress name = server.listen();
  ASSERT_EQ(connect(client.endpoint(), name), 0);
  const Event request = server.wait();
  fid_ep* ep = nullptr;
  faults().create = Status(Code::over_budget, "no memory");
  EXPECT_EQ(fi_endpoint(server.domain, request.info.get(), &ep, nullptr), -FI_ENOMEM);
  faults().reset();
  EXPECT_EQ(fi_reject(server.pep, request.info->handle, nullptr, 0), 0);
  EXPECT_EQ(client.wait_error().first.err, FI_ECONNREFUSED);
}

// A child of fork() that closes what it has inherited does not end its parent's connections.
TEST(Connection, AForksChildLeavesThemAlone) {
  Connected c;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // All but the endpoints, whose flush waits for peers.
    static_cast<void>(fi_close(&c.server.pep->fid));
    static_cast<void>(fi_shutdown(c.b, 0));
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  Side third;
  ServiceAddress name;
  std::size_t length = sizeof name;
  ASSERT_EQ(fi_getname(&c.server.pep->fid, &name, &length), 0);
  ASSERT_EQ(connect(third.endpoint(), name), 0);
  EXPECT_EQ(c.server.wait().number, static_cast<std::uint32_t>(FI_CONNREQ));
  EXPECT_TRUE(c.server.quiet());
  EXPECT_TRUE(c.client.quiet());
}

TEST(Connection, ManyAtOnce) {
  constexpr std::size_t kMany = 16;
  Side server("127.0.0.1", FI_SOURCE), client;
  const ServiceAddress name = server.listen();
  for (std::size_t i = 0; i < kMany; ++i) {
    ASSERT_EQ(connect(client.endpoint(), name, std::to_string(i)), 0);
  }
  std::vector<bool> asked(kMany);
  for (std::size_t i = 0; i < kMany;) {
    const Event event = server.wait();
    if (event.number != FI_CONNREQ) continue;
    asked.at(std::stoul(event.data)) = true;
    ASSERT_EQ(fi_accept(server.endpoint(event.info.get()), event.data.data(), event.data.size()),
              0);
    ++i;
  }
  EXPECT_EQ(asked, std::vector<bool>(kMany, true));
  for (std::size_t i = 0; i < kMany; ++i) {
    const Event event = client.wait();
    EXPECT_EQ(event.of, &client.endpoints[std::stoul(event.data)]->fid);
  }
}

TEST(Connection, OthersMayTalkToThePort) {
  Side server("127.0.0.1", FI_SOURCE), client;
  const ServiceAddress name = server.listen();
  ConnectionMessage reply;
  reply.kind = ConnectionMessage::Kind::accept;
  std::vector<std::byte> wrong_kind = reply.encode();
  const std::string http =
      "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: none\r\nAccept: everything that there "
      "is\r\n\r\n";
  const auto* const text = reinterpret_cast<const std::byte*>(http.data());
  const std::vector<std::byte> cases[] = {{text, text + http.size()}, wrong_kind, {}};
  for (const std::vector<std::byte>& bytes : cases) {
    const Descriptor fd(::socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(::connect(fd.get(), name.socket(), sizeof(sockaddr_in)), 0);
    ASSERT_EQ(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    if (bytes.empty()) ::shutdown(fd.get(), SHUT_WR);
    char byte = 0;
    EXPECT_LE(::recv(fd.get(), &byte, sizeof byte, 0), 0);  // closed
  }
  EXPECT_TRUE(server.quiet());
  ASSERT_EQ(connect(client.endpoint(), name), 0);
  EXPECT_EQ(server.wait().number, static_cast<std::uint32_t>(FI_CONNREQ));
}

TEST(Connection, OptionsAndNames) {
  Side server, client;
  const ServiceAddress name = server.listen();  // of all addresses: one that others reach
  EXPECT_NE(name.port(), 0);
  EXPECT_EQ(name.to_string().find("0.0.0.0"), std::string::npos);
  std::size_t most = 0, length = sizeof most;
  EXPECT_EQ(fi_getopt(&server.pep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &most, &length), 0);
  EXPECT_EQ(most, ConnectionMessage::kMostData);
  fid_ep* const b = client.endpoint();
  most = 0;
  EXPECT_EQ(fi_getopt(&b->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &most, &length), 0);
  EXPECT_EQ(most, ConnectionMessage::kMostData);
  fid_pep* pep = nullptr;
  ASSERT_EQ(fi_passive_ep(server.fabric, server.info.get(), &pep, nullptr), 0);
  int backlog = 3;
  EXPECT_EQ(fi_control(&pep->fid, FI_BACKLOG, &backlog), 0);
  backlog = 0;
  EXPECT_EQ(fi_control(&pep->fid, FI_BACKLOG, &backlog), -FI_EINVAL);
  EXPECT_EQ(fi_close(&pep->fid), 0);
}

TEST(Connection, AnEndpointTakesThePlaceOfAPassiveOne) {
  Side server, client;
  const ServiceAddress there = server.listen();
  sockaddr_in to{};
  std::memcpy(&to, there.socket(), sizeof to);
  const auto name_of = [](::fid* object) {
    sockaddr_in name{};
    std::size_t length = sizeof name;
    EXPECT_EQ(fi_getname(object, &name, &length), 0);
    return name;
  };
  client.info->addr_format = FI_SOCKADDR_IN;
  ASSERT_EQ(fi_passive_ep(client.fabric, client.info.get(), &client.pep, nullptr), 0);
  client.info->handle = &client.pep->fid;
  fid_ep* const ep = client.endpoint();
  const sockaddr_in before = name_of(&ep->fid);
  EXPECT_NE(before.sin_port, 0);
  EXPECT_EQ(before.sin_port, name_of(&client.pep->fid).sin_port);
  // It is gone from there.
  fid_ep* second = nullptr;
  EXPECT_EQ(fi_endpoint(client.domain, client.info.get(), &second, nullptr), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_pep_bind(client.pep, &client.eq->fid, 0), 0);
  EXPECT_EQ(fi_listen(client.pep), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_close(&client.pep->fid), 0);
  ASSERT_EQ(fi_connect(ep, &to, nullptr, 0), 0);
  const Event request = server.wait();
  ASSERT_EQ(request.number, static_cast<std::uint32_t>(FI_CONNREQ));
  EXPECT_EQ(name_of(&ep->fid).sin_port, before.sin_port);
  fid_ep* const accepted = server.endpoint(request.info.get());
  EXPECT_EQ(fi_accept(accepted, nullptr, 0), 0);
  EXPECT_EQ(server.wait().number, static_cast<std::uint32_t>(FI_CONNECTED));
  EXPECT_EQ(client.wait().number, static_cast<std::uint32_t>(FI_CONNECTED));
  EXPECT_EQ(name_of(&ep->fid).sin_port, before.sin_port);
  EXPECT_EQ(fi_shutdown(ep, 0), 0);
  EXPECT_EQ(name_of(&ep->fid).sin_port, before.sin_port);
  // A handle of nothing, and of one that listens.
  EXPECT_EQ(fi_endpoint(client.domain, client.info.get(), &second, nullptr), -FI_EINVAL);
  client.pep = nullptr;
  server.info->handle = &server.pep->fid;
  EXPECT_EQ(fi_endpoint(server.domain, server.info.get(), &second, nullptr), -FI_EOPBADSTATE);
}

TEST(Connection, EndpointTypesAreOffered) {
  const auto types = [](std::uint64_t caps, fi_ep_type type, std::uint64_t flags = 0) {
    const InfoPtr hints = hints_for_all();
    hints->caps = caps;
    hints->ep_attr->type = type;
    InfoPtr found;
    std::vector<int> all;
    if (ask(FI_VERSION(1, 17), hints.get(), found, flags) != 0) return all;
    for (const fi_info* one = found.get(); one != nullptr; one = one->next) {
      all.push_back(one->ep_attr->type);
    }
    return all;
  };
  using Types = std::vector<int>;
  EXPECT_EQ(types(0, FI_EP_UNSPEC), (Types{FI_EP_RDM, FI_EP_MSG, FI_EP_DGRAM}));
  EXPECT_EQ(types(FI_MSG, FI_EP_DGRAM), Types{FI_EP_DGRAM});
  EXPECT_EQ(types(FI_MSG | FI_RMA, FI_EP_UNSPEC), (Types{FI_EP_RDM, FI_EP_MSG}));
  EXPECT_EQ(types(FI_TAGGED, FI_EP_DGRAM), Types{});
  EXPECT_EQ(types(FI_MSG | FI_DIRECTED_RECV, FI_EP_MSG), Types{});
  EXPECT_EQ(types(0, FI_EP_SOCK_STREAM), Types{});
  // Nothing for libfabric's layers.
  constexpr std::uint64_t kCoreProviderOnly = 1ULL << 59;
  EXPECT_EQ(types(FI_MSG, FI_EP_MSG, kCoreProviderOnly), Types{});
  EXPECT_EQ(types(0, FI_EP_UNSPEC, kCoreProviderOnly), Types{FI_EP_RDM});
}

TEST(Connection, MessagesAreChecked) {
  ConnectionMessage message;
  message.address.magic = 0;
  message.data.resize(5);
  std::vector<std::byte> bytes = message.encode();
  EXPECT_EQ(ConnectionMessage::length_of(bytes).value(), bytes.size());
  EXPECT_EQ(ConnectionMessage::length_of({bytes.data(), 7}).value(), bytes.size() - 5);
  EXPECT_FALSE(ConnectionMessage::decode(bytes).ok());  // the address is none
  message.kind = ConnectionMessage::Kind::reject;
  bytes = message.encode();
  EXPECT_TRUE(ConnectionMessage::decode(bytes).ok());
  EXPECT_FALSE(ConnectionMessage::decode({bytes.data(), bytes.size() - 1}).ok());
  for (const std::size_t field : {0U, 1U, 2U, 3U, 5U}) {  // magic, version, kind, length
    std::vector<std::byte> damaged = bytes;
    damaged[field] ^= std::byte{0x40};
    EXPECT_FALSE(ConnectionMessage::length_of(damaged).ok()) << field;
  }
}

// The thread of connections waits for the mutex to signal what it reports.
TEST(Connection, MayBeMadeByWhoHoldsTheMutexOfTheirEvents) {
  Side server(nullptr, 0, FI_WAIT_MUTEX_COND), client;
  fi_mutex_cond wait{};
  ASSERT_EQ(fi_control(&server.eq->fid, FI_GETWAIT, &wait), 0);
  const ServiceAddress name = server.listen();
  pthread_mutex_lock(wait.mutex);
  ASSERT_EQ(connect(client.endpoint(), name), 0);
  const Event request = server.wait();
  ASSERT_EQ(request.number, static_cast<std::uint32_t>(FI_CONNREQ));
  EXPECT_EQ(fi_accept(server.endpoint(request.info.get()), nullptr, 0), 0);
  pthread_mutex_unlock(wait.mutex);
  EXPECT_EQ(server.wait().number, static_cast<std::uint32_t>(FI_CONNECTED));
  EXPECT_EQ(client.wait().number, static_cast<std::uint32_t>(FI_CONNECTED));
}

}  // namespace
}  // namespace turnout::testing
