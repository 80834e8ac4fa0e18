// SPDX-License-Identifier: BSD-3-Clause
// What the tests of rsockets share: an owned rsocket, and two connected ones in one thread. Helpers
// fail the running gtest. Any thread.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rdma/rsocket.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "base/split_mix.h"
#include "tests/hca/cm_rig.h"

namespace turnout::cm::test {

class Sock {
 public:
  explicit Sock(int type = SOCK_STREAM, int domain = AF_INET) : fd_(rsocket(domain, type, 0)) {
    EXPECT_GE(fd_, 0) << errno;
  }
  static Sock of(int fd) { return Sock(nullptr, fd); }
  Sock(Sock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Sock& operator=(Sock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Sock() { close(); }
  void close() {
    if (fd_ >= 0) {
      EXPECT_EQ(rclose(fd_), 0) << errno;
    }
    fd_ = -1;
  }
  operator int() const { return fd_; }  // NOLINT: used where a descriptor is

 private:
  Sock(std::nullptr_t, int fd) : fd_(fd) {}
  int fd_;
};

inline sockaddr_in name_of(int socket) {
  sockaddr_in a{};
  socklen_t length = sizeof a;
  EXPECT_EQ(rgetsockname(socket, generic(a), &length), 0);
  EXPECT_EQ(length, sizeof a);
  return a;
}

inline void set(int socket, int level, int name, int value) {
  EXPECT_EQ(rsetsockopt(socket, level, name, &value, sizeof value), 0) << errno;
}
inline int get(int socket, int level, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  EXPECT_EQ(rgetsockopt(socket, level, name, &value, &length), 0) << errno;
  return value;
}

inline void do_not_block(int socket) {
  EXPECT_EQ(rfcntl(socket, F_SETFL, O_NONBLOCK), 0);
  EXPECT_NE(rfcntl(socket, F_GETFL) & O_NONBLOCK, 0);
}

// revents, within a generous time.
inline short ready(int socket, int events, int timeout_ms = 20'000) {
  pollfd p{socket, static_cast<short>(events), 0};
  EXPECT_GE(rpoll(&p, 1, timeout_ms), 0) << errno;
  return p.revents;
}

inline std::string take(int socket, std::size_t most, int flags = 0) {
  std::string bytes(most, '\0');
  const ssize_t n = rrecv(socket, bytes.data(), most, flags);
  EXPECT_GE(n, 0) << errno;
  bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return bytes;
}
inline void give(int socket, const std::string& bytes) {
  EXPECT_EQ(rsend(socket, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()))
      << errno;
}

inline std::string random_bytes(std::size_t size, std::uint64_t seed) {
  SplitMix64 random(seed);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random.next());
  return bytes;
}

inline void listen_on_loopback(int socket, int backlog = 8) {
  sockaddr_in a = ipv4("127.0.0.1");
  ASSERT_EQ(rbind(socket, generic(a), sizeof a), 0) << errno;
  ASSERT_EQ(rlisten(socket, backlog), 0) << errno;
}

struct Pair {
  Sock active, passive;
};

// Both in one thread: the listener answers while rconnect() waits.
inline Pair connected(const Sock& listener, Sock active = Sock()) {
  sockaddr_in to = name_of(listener);
  EXPECT_EQ(rconnect(active, generic(to), sizeof to), 0) << errno;
  const int fd = raccept(listener, nullptr, nullptr);
  EXPECT_GE(fd, 0) << errno;
  return {std::move(active), Sock::of(fd)};
}
inline Pair connected() {
  const Sock listener;
  listen_on_loopback(listener);
  return connected(listener);
}

class Rsockets : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { hca::test::use_own_fabric(); }
};

}  // namespace turnout::cm::test
