// SPDX-License-Identifier: BSD-3-Clause
// Endpoints that are named by host and port, and who listens there.
#include "provider/service_address.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "provider/address_server.h"
#include "tests/provider/free_port.h"
#include "tests/support/made_up_address.h"

namespace turnout::provider {
namespace {

using namespace std::chrono_literals;
using testing::free_port;
using testing::made_up;

ServiceAddress at(const char* node, const std::string& port, bool source = false) {
  return ServiceAddress::look_up(node, port.c_str(), {.source = source}).value();
}

std::chrono::steady_clock::time_point within(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

// Listens and answers each with these bytes, or with nothing at all.
class Stranger {
 public:
  Stranger(const std::string& port, std::string answer, bool silent = false)
      : answer_(std::move(answer)), silent_(silent), fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const ServiceAddress place = at("127.0.0.1", port, true);
    EXPECT_EQ(::bind(fd_.get(), place.socket(), length_of(place.socket())), 0);
    EXPECT_EQ(::listen(fd_.get(), 8), 0);
    thread_ = std::thread([this] {
      std::vector<Descriptor> open;
      for (;;) {
        Descriptor client(accept(fd_.get(), nullptr, nullptr));
        if (!client) return;
        if (send(client.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL) < 0) continue;
        if (silent_) open.push_back(std::move(client));
      }
    });
  }
  ~Stranger() {
    ::shutdown(fd_.get(), SHUT_RDWR);
    thread_.join();
  }

 private:
  const std::string answer_;
  const bool silent_;
  const Descriptor fd_;
  std::thread thread_;
};

TEST(ServiceAddress, IsLookedUp) {
  const ServiceAddress four = at("127.0.0.1", "7471");
  EXPECT_EQ(four.count, 1u);
  EXPECT_EQ(four.socket()->sa_family, AF_INET);
  EXPECT_EQ(four.port(), 7471u);
  EXPECT_EQ(four.to_string(), "turnout://127.0.0.1:7471");
  const ServiceAddress six = at("::1", "7471");
  EXPECT_EQ(six.socket()->sa_family, AF_INET6);
  EXPECT_EQ(six.port(), 7471u);
  EXPECT_EQ(six.to_string(), "turnout://[::1]:7471");
  EXPECT_EQ(at(nullptr, "7471", true).count, 1u) << "one place to listen at";
  EXPECT_EQ(at("127.0.0.1", "0").port(), 0u);
}

TEST(ServiceAddress, SaysWhatCannotBeLookedUp) {
  const auto numeric = ServiceAddress::look_up("localhost", "7471", {.numeric = true});
  EXPECT_EQ(numeric.status().code(), Code::invalid);
  const auto service = ServiceAddress::look_up("127.0.0.1", "no such service", {});
  EXPECT_EQ(service.status().code(), Code::invalid);
  EXPECT_NE(service.status().text().find("no such service"), std::string::npos);
}

TEST(ServiceAddress, IsCheckedFieldByField) {
  const ServiceAddress good = at("127.0.0.1", "7471");
  EXPECT_TRUE(ServiceAddress::is_one(&good));
  EXPECT_TRUE(ServiceAddress::decode(&good, sizeof good).ok());
  EXPECT_FALSE(ServiceAddress::decode(&good, sizeof good - 1).ok());
  const auto refused = [&](auto&& damage) {
    ServiceAddress bad = good;
    damage(bad);
    return ServiceAddress::decode(&bad, sizeof bad).status().code() == Code::invalid;
  };
  EXPECT_TRUE(refused([](ServiceAddress& a) { a.magic = Address::kMagic; }));
  EXPECT_TRUE(refused([](ServiceAddress& a) { ++a.version; }));
  EXPECT_TRUE(refused([](ServiceAddress& a) { a.count = 0; }));
  EXPECT_TRUE(refused([](ServiceAddress& a) { a.count = 3; }));
  EXPECT_TRUE(refused([](ServiceAddress& a) { a.sockets[0].fill(0xff); }));
  EXPECT_TRUE(refused([](ServiceAddress& a) { a.count = 2; })) << "the second is none";
  const Address other = made_up(1);
  EXPECT_FALSE(ServiceAddress::is_one(&other));
}

TEST(AddressServer, TellsAllWhoAsk) {
  const std::string port = free_port();
  const Address own = made_up(42);
  auto server = AddressServer::start(at(nullptr, port, true), own);
  ASSERT_TRUE(server.ok()) << server.status().text();
  std::vector<std::thread> clients;
  std::array<int, 16> good{};
  for (int& one : good) {
    clients.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const auto answer = at("localhost", port).ask(within(10s));
        one += answer.ok() && answer.value() == own;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  for (const int one : good) EXPECT_EQ(one, 50);
}

TEST(AddressServer, HasItsPortForItself) {
  const std::string port = free_port();
  auto first = AddressServer::start(at("127.0.0.1", port, true), made_up(1));
  ASSERT_TRUE(first.ok());
  const auto second = AddressServer::start(at("127.0.0.1", port, true), made_up(2));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().sys_errno(), EADDRINUSE);
  EXPECT_NE(second.status().text().find(port), std::string::npos);
  first.value().reset();
  EXPECT_TRUE(AddressServer::start(at("127.0.0.1", port, true), made_up(2)).ok());
}

TEST(AddressServer, IsFoundWhenItStartsLater) {
  const std::string port = free_port();
  const Address own = made_up(42);
  std::thread client([&] {
    const auto answer = at("localhost", port).ask(within(60s));
    EXPECT_TRUE(answer.ok() && answer.value() == own);
  });
  std::this_thread::sleep_for(50ms);
  const auto server = AddressServer::start(at("localhost", port, true), own);
  EXPECT_TRUE(server.ok());
  client.join();
}

TEST(ServiceAddress, SaysThatNobodyListens) {
  const auto answer = at("127.0.0.1", free_port()).ask(within(50ms));
  EXPECT_EQ(answer.status().code(), Code::system);
  EXPECT_EQ(answer.status().sys_errno(), ECONNREFUSED);
}

TEST(ServiceAddress, SaysThatAnotherProgramListens) {
  const std::string port = free_port();
  const Stranger http(port, std::string(100, 'x'));
  const auto answer = at("127.0.0.1", port).ask(within(10s));
  EXPECT_EQ(answer.status().code(), Code::invalid);
  EXPECT_NE(answer.status().text().find(port), std::string::npos);
  const std::string short_port = free_port();
  const Stranger few(short_port, "SSH-2.0");
  EXPECT_EQ(at("127.0.0.1", short_port).ask(within(10s)).status().code(), Code::invalid);
}

TEST(ServiceAddress, ASocketThatCannotBeReachedDoesNotHideTheOther) {
  const std::string port = free_port();
  const Address own = made_up(42);
  ServiceAddress name = at("127.0.0.1", port);
  // 240.0.0.1 is of no network (RFC 1112): unreachable, or nobody answers.
  const ServiceAddress lost = at("240.0.0.1", port);
  name.sockets = {lost.sockets[0], name.sockets[0]};
  name.count = 2;
  const auto server = AddressServer::start(at("127.0.0.1", port, true), own);
  ASSERT_TRUE(server.ok());
  EXPECT_EQ(name.ask(within(20s)).value(), own);
  // Nor does the one that comes last end the wait for the first.
  std::swap(name.sockets[0], name.sockets[1]);
  const std::string later = free_port();
  ServiceAddress starting = at("127.0.0.1", later);
  starting.sockets[1] = lost.sockets[0];
  starting.count = 2;
  std::thread client([&] { EXPECT_TRUE(starting.ask(within(20s)).ok()); });
  std::this_thread::sleep_for(50ms);
  const auto second = AddressServer::start(at("127.0.0.1", later, true), own);
  EXPECT_TRUE(second.ok());
  client.join();
}

TEST(ServiceAddress, WithoutAPortNobodyIsAsked) {
  EXPECT_EQ(at("127.0.0.1", "0").ask(within(20s)).status().code(), Code::invalid);
}

TEST(ServiceAddress, WaitsForNobodyWithoutEnd) {
  const std::string port = free_port();
  const Stranger silent(port, "x", true);
  const auto answer = at("127.0.0.1", port).ask(within(50ms));
  EXPECT_EQ(answer.status().sys_errno(), ETIMEDOUT);
  const std::string other = free_port();
  const Stranger closing(other, "");
  EXPECT_EQ(at("127.0.0.1", other).ask(within(50ms)).status().sys_errno(), ECONNRESET);
}

RC_GTEST_PROP(AddressText, SaysAllOfAnAddress, ()) {
  Address address = made_up(*rc::gen::arbitrary<std::uint64_t>());
  address.lid = *rc::gen::arbitrary<std::uint16_t>();
  address.pid = *rc::gen::arbitrary<std::uint32_t>();
  address.gid =
      *rc::gen::container<std::array<std::uint8_t, 16>>(rc::gen::arbitrary<std::uint8_t>());
  address.set_dct_number(*rc::gen::inRange<std::size_t>(0, 8), *rc::gen::inRange(0u, 1u << 24));
  address.seal();
  const std::string text = text_of(address);
  RC_ASSERT(is_address_text(text.c_str()));
  RC_ASSERT(address_of(text).value() == address);
  // With another character it is no address, or a digit in capitals.
  std::string damaged = text;
  const auto place = *rc::gen::inRange(text.rfind('#') + 1, text.size());
  damaged[place] = *rc::gen::arbitrary<char>();
  const auto other = address_of(damaged);
  if (other.ok()) RC_ASSERT(other.value() == address);
}

TEST(AddressText, RefusesOtherText) {
  for (const char* const text : {"", "#", "turnout://", "turnout://lid-1/1/pid-1", "turnout://x#",
                                 "turnout://x#00", "http://x#00"}) {
    EXPECT_EQ(address_of(text).status().code(), Code::invalid) << text;
  }
  EXPECT_FALSE(is_address_text("127.0.0.1"));
}

}  // namespace
}  // namespace turnout::provider
