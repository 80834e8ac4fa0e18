// SPDX-License-Identifier: BSD-3-Clause
// Stream rsockets: what a program of sockets expects of them.
#include <sys/resource.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "tests/hca/rsocket_rig.h"

namespace turnout::cm::test {
namespace {

using Stream = Rsockets;

TEST_F(Stream, KindsOfSockets) {
  EXPECT_EQ(rsocket(AF_UNIX, SOCK_STREAM, 0), -1);
  EXPECT_EQ(errno, EAFNOSUPPORT);
  EXPECT_EQ(rsocket(AF_INET, SOCK_RAW, 0), -1);
  EXPECT_EQ(errno, EPROTONOSUPPORT);
  const Sock six(SOCK_STREAM, AF_INET6);
  EXPECT_EQ(get(six, SOL_SOCKET, SO_DOMAIN), AF_INET6);
  EXPECT_EQ(get(six, SOL_SOCKET, SO_TYPE), SOCK_STREAM);
  sockaddr_in wrong = ipv4("127.0.0.1");
  EXPECT_EQ(rbind(six, generic(wrong), sizeof wrong), -1);
  EXPECT_EQ(errno, EAFNOSUPPORT);
  EXPECT_EQ(rbind(six, generic(wrong), 3), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rclose(12345), -1);
  EXPECT_EQ(errno, EBADF);
  char byte = 0;
  EXPECT_EQ(rsend(six, &byte, 1, 0), -1);
  EXPECT_EQ(errno, ENOTCONN);
  EXPECT_EQ(rrecv(six, &byte, 1, 0), -1);
  EXPECT_EQ(errno, ENOTCONN);
  EXPECT_EQ(rshutdown(six, SHUT_WR), -1);
  EXPECT_EQ(errno, ENOTCONN);
}

TEST_F(Stream, NamesAndData) {
  const Sock listener;
  listen_on_loopback(listener);
  EXPECT_EQ(get(listener, SOL_SOCKET, SO_ACCEPTCONN), 1);
  Sock active;
  sockaddr_in to = name_of(listener);
  ASSERT_EQ(rconnect(active, generic(to), sizeof to), 0);
  sockaddr_in from{};
  socklen_t length = sizeof from;
  const Sock passive = Sock::of(raccept(listener, generic(from), &length));
  EXPECT_EQ(length, sizeof from);
  EXPECT_EQ(from.sin_port, name_of(active).sin_port);
  EXPECT_EQ(name_of(passive).sin_port, to.sin_port);
  sockaddr_in peer{};
  ASSERT_EQ(rgetpeername(active, generic(peer), &length), 0);
  EXPECT_EQ(peer.sin_port, to.sin_port);
  EXPECT_EQ(rconnect(active, generic(to), sizeof to), -1);
  EXPECT_EQ(errno, EISCONN);
  give(active, "there");
  give(passive, "back");
  EXPECT_EQ(take(passive, 100), "there");
  EXPECT_EQ(take(active, 100), "back");
}

TEST_F(Stream, OverIpv6) {
  const Sock listener(SOCK_STREAM, AF_INET6);
  sockaddr_in6 a{};
  a.sin6_family = AF_INET6;
  a.sin6_addr = in6addr_loopback;
  socklen_t length = sizeof a;
  auto* const name = reinterpret_cast<sockaddr*>(&a);
  ASSERT_EQ(rbind(listener, name, sizeof a), 0);
  ASSERT_EQ(rlisten(listener, 1), 0);
  ASSERT_EQ(rgetsockname(listener, name, &length), 0);
  const Sock active(SOCK_STREAM, AF_INET6);
  ASSERT_EQ(rconnect(active, name, sizeof a), 0) << errno;
  const Sock passive = Sock::of(raccept(listener, nullptr, nullptr));
  give(active, "six");
  EXPECT_EQ(take(passive, 9), "six");
}

TEST_F(Stream, HalfClose) {
  Pair p = connected();
  give(p.active, "last");
  ASSERT_EQ(rshutdown(p.active, SHUT_WR), 0);
  EXPECT_EQ(rsend(p.active, "x", 1, 0), -1);
  EXPECT_EQ(errno, EPIPE);
  EXPECT_EQ(take(p.passive, 2), "la");
  EXPECT_EQ(take(p.passive, 9), "st");
  EXPECT_EQ(take(p.passive, 9), "");
  EXPECT_EQ(ready(p.passive, POLLIN | POLLOUT | POLLRDHUP), POLLIN | POLLOUT | POLLRDHUP);
  give(p.passive, "answer");
  EXPECT_EQ(take(p.active, 9), "answer");
  p.passive.close();
  EXPECT_EQ(take(p.active, 9), "");
  EXPECT_TRUE(hca::test::eventually([&] { return (ready(p.active, POLLIN) & POLLHUP) != 0; }));
}

TEST_F(Stream, ReadingIsShutDown) {
  Pair p = connected();
  give(p.active, "unread");
  ASSERT_EQ(rshutdown(p.passive, SHUT_RD), 0);
  EXPECT_EQ(take(p.passive, 9), "");
  // More than its ring has room for: thrown away there.
  for (int i = 0; i < 100; ++i) {
    give(p.active, std::string(10'000, 'x'));
    EXPECT_EQ(take(p.passive, 9), "");
  }
  give(p.passive, "still");
  EXPECT_EQ(take(p.active, 9), "still");
}

TEST_F(Stream, CloseDeliversWhatWasSent) {
  Pair p = connected();
  const std::string bytes = random_bytes(100'000, 1);
  give(p.active, bytes);
  p.active.close();
  EXPECT_EQ(take(p.passive, bytes.size(), MSG_WAITALL), bytes);
  EXPECT_EQ(take(p.passive, 1), "");
  // The end of the peer is found out, by whatever error comes first.
  EXPECT_TRUE(hca::test::eventually([&] { return rsend(p.passive, "x", 1, 0) < 0; }));
  EXPECT_TRUE(errno == EPIPE || errno == ECONNRESET) << errno;
}

TEST_F(Stream, PeekWaitAllAndDoNotWait) {
  Pair p = connected();
  char byte = 0;
  EXPECT_EQ(rrecv(p.passive, &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  give(p.active, "abcdef");
  EXPECT_EQ(take(p.passive, 3, MSG_PEEK), "abc");
  EXPECT_EQ(take(p.passive, 9, MSG_PEEK), "abcdef");
  EXPECT_EQ(take(p.passive, 2), "ab");
  std::thread later([&] {
    give(p.active, "gh");
    give(p.active, "ij");
  });
  EXPECT_EQ(take(p.passive, 8, MSG_PEEK | MSG_WAITALL), "cdefghij");
  EXPECT_EQ(take(p.passive, 8, MSG_WAITALL), "cdefghij");
  later.join();
  // It ends before it has all.
  give(p.active, "rest");
  p.active.close();
  EXPECT_EQ(take(p.passive, 9, MSG_WAITALL), "rest");
}

TEST_F(Stream, Vectors) {
  Pair p = connected();
  char one[] = "one", two[] = "two";
  const iovec out[] = {{one, 3}, {nullptr, 0}, {two, 3}};
  ASSERT_EQ(rwritev(p.active, out, 3), 6);
  char a[4] = {}, b[4] = {};
  const iovec in[] = {{a, 2}, {b, 4}};
  ASSERT_EQ(rreadv(p.passive, in, 2), 6);
  EXPECT_EQ(std::string(a, 2) + std::string(b, 4), "onetwo");
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(out);
  message.msg_iovlen = 3;
  ASSERT_EQ(rsendmsg(p.active, &message, 0), 6);
  message.msg_iov = const_cast<iovec*>(in);
  message.msg_iovlen = 2;
  ASSERT_EQ(rrecvmsg(p.passive, &message, 0), 6);
  char control[64] = {};
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  EXPECT_EQ(rrecvmsg(p.passive, &message, 0), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(rsendmsg(p.active, &message, 0), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(rwritev(p.active, out, -1), -1);
  EXPECT_EQ(errno, EINVAL);
}

// Both ways at once, through rings much smaller than the data, in pieces of all sizes; each end has
// one thread that sends and one that receives.
TEST_F(Stream, MoreThanTheBuffersHold) {
  for (const int ring : {4096, 10'000, 128 << 10}) {
    Sock listener, active;
    for (const int s : {static_cast<int>(listener), static_cast<int>(active)}) {
      set(s, SOL_SOCKET, SO_RCVBUF, ring);
      set(s, SOL_SOCKET, SO_SNDBUF, ring / 2);
      set(s, SOL_RDMA, RDMA_SQSIZE, 16);
      set(s, SOL_RDMA, RDMA_RQSIZE, 16);
    }
    listen_on_loopback(listener);
    const Pair p = connected(listener, std::move(active));
    EXPECT_EQ(get(p.passive, SOL_SOCKET, SO_RCVBUF), ring);
    const std::string there = random_bytes(3'000'000, 1), back = random_bytes(2'000'000, 2);
    const auto send_all = [](int socket, const std::string& bytes, std::uint64_t seed) {
      SplitMix64 random(seed);
      for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t n = std::min<std::size_t>(bytes.size() - at, random.next() % 30'000 + 1);
        ASSERT_EQ(rwrite(socket, bytes.data() + at, n), static_cast<ssize_t>(n)) << errno;
        at += n;
      }
      ASSERT_EQ(rshutdown(socket, SHUT_WR), 0);
    };
    const auto receive_all = [](int socket, const std::string& expected, std::uint64_t seed) {
      SplitMix64 random(seed);
      std::string got;
      for (;;) {
        const std::string piece = test::take(socket, random.next() % 20'000 + 1);
        if (piece.empty()) break;
        got += piece;
      }
      EXPECT_EQ(got.size(), expected.size());
      EXPECT_TRUE(got == expected);
    };
    std::thread threads[] = {
        std::thread(send_all, static_cast<int>(p.active), std::cref(there), 3),
        std::thread(send_all, static_cast<int>(p.passive), std::cref(back), 4),
        std::thread(receive_all, static_cast<int>(p.active), std::cref(back), 5),
        std::thread(receive_all, static_cast<int>(p.passive), std::cref(there), 6)};
    for (std::thread& t : threads) t.join();
  }
}

TEST_F(Stream, NonBlocking) {
  const Sock listener, active;
  listen_on_loopback(listener);
  do_not_block(listener);
  do_not_block(active);
  EXPECT_EQ(raccept(listener, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(ready(listener, POLLIN, 0), 0);
  sockaddr_in to = name_of(listener);
  EXPECT_EQ(rconnect(active, generic(to), sizeof to), -1);
  EXPECT_EQ(errno, EINPROGRESS);
  EXPECT_EQ(rconnect(active, generic(to), sizeof to), -1);
  EXPECT_EQ(errno, EALREADY);
  EXPECT_EQ(ready(active, POLLOUT), POLLOUT);
  EXPECT_EQ(get(active, SOL_SOCKET, SO_ERROR), 0);
  EXPECT_EQ(ready(listener, POLLIN), POLLIN);
  const Sock passive = Sock::of(raccept(listener, nullptr, nullptr));
  EXPECT_EQ(rfcntl(passive, F_GETFL) & O_NONBLOCK, 0);
  do_not_block(passive);
  const std::string piece(5000, 'p');
  std::size_t sent = 0;
  for (ssize_t n = 0; (n = rsend(active, piece.data(), piece.size(), 0)) >= 0;) {
    sent += static_cast<std::size_t>(n);
  }
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_GE(sent, 128U << 10);
  EXPECT_EQ(ready(active, POLLOUT, 0), 0);
  std::size_t received = 0;
  for (std::string got; !(got = take(passive, 7000)).empty();) {
    received += got.size();
    if (received == sent) break;
  }
  EXPECT_EQ(received, sent);
  EXPECT_EQ(ready(active, POLLOUT), POLLOUT);
}

TEST_F(Stream, Refused) {
  Sock listener, active, again;
  listen_on_loopback(listener);
  sockaddr_in to = name_of(listener);
  listener.close();
  EXPECT_EQ(rconnect(active, generic(to), sizeof to), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  do_not_block(again);
  const int refused = rconnect(again, generic(to), sizeof to);
  EXPECT_EQ(refused, -1);
  if (errno == EINPROGRESS) {
    EXPECT_NE(ready(again, POLLOUT) & POLLERR, 0);
    EXPECT_EQ(get(again, SOL_SOCKET, SO_ERROR), ECONNREFUSED);
  } else {
    EXPECT_EQ(errno, ECONNREFUSED);
  }
  sockaddr_in far = ipv4("192.0.2.1", 5);
  EXPECT_EQ(rconnect(active, generic(far), sizeof far), -1);
  EXPECT_EQ(errno, EHOSTUNREACH);
  // A socket that was refused can try again.
  Sock next;
  listen_on_loopback(next);
  const Pair p = connected(next, std::move(active));
  give(p.active, "now");
  EXPECT_EQ(take(p.passive, 9), "now");
  const Sock same;
  to = name_of(next);
  EXPECT_EQ(rbind(same, generic(to), sizeof to), -1);
  EXPECT_EQ(errno, EADDRINUSE);
}

TEST_F(Stream, PollAndSelectAmongDescriptors) {
  const Pair p = connected();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  pollfd fds[] = {{p.passive, POLLIN, 0}, {ends[0], POLLIN, 0}, {-1, POLLIN, 0}};
  EXPECT_EQ(rpoll(fds, 3, 10), 0);
  std::thread writes([&] { ASSERT_EQ(write(ends[1], "x", 1), 1); });
  EXPECT_EQ(rpoll(fds, 3, 20'000), 1);
  writes.join();
  EXPECT_EQ(fds[0].revents, 0);
  EXPECT_EQ(fds[1].revents, POLLIN);
  give(p.active, "y");
  EXPECT_EQ(rpoll(fds, 3, 20'000), 2);
  EXPECT_EQ(fds[0].revents, POLLIN);
  EXPECT_EQ(fds[2].revents, 0);
  fd_set in, out;
  FD_ZERO(&in);
  FD_ZERO(&out);
  FD_SET(p.passive, &in);
  FD_SET(ends[0], &in);
  FD_SET(p.active, &in);
  FD_SET(p.active, &out);
  const int count =
      std::max({static_cast<int>(p.passive), static_cast<int>(p.active), ends[0]}) + 1;
  timeval limit{20, 0};
  EXPECT_EQ(rselect(count, &in, &out, nullptr, &limit), 3);
  EXPECT_TRUE(FD_ISSET(p.passive, &in) && FD_ISSET(ends[0], &in) && FD_ISSET(p.active, &out));
  EXPECT_FALSE(FD_ISSET(p.active, &in));
  EXPECT_EQ(rselect(FD_SETSIZE + 1, &in, nullptr, nullptr, &limit), -1);
  EXPECT_EQ(errno, EINVAL);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(Stream, ManyAtOnce) {
  constexpr int kMany = 40;
  const Sock listener;
  listen_on_loopback(listener, kMany);
  std::vector<Pair> pairs;
  for (int i = 0; i < kMany; ++i) pairs.push_back(connected(listener));
  for (int i = kMany - 1; i >= 0; --i) {
    give(pairs[static_cast<std::size_t>(i)].active, std::to_string(i));
    std::vector<pollfd> fds;
    for (const Pair& p : pairs) fds.push_back({p.passive, POLLIN, 0});
    ASSERT_EQ(rpoll(fds.data(), fds.size(), 20'000), 1);
    EXPECT_EQ(fds[static_cast<std::size_t>(i)].revents, POLLIN);
    EXPECT_EQ(take(pairs[static_cast<std::size_t>(i)].passive, 9), std::to_string(i));
  }
}

TEST_F(Stream, DescriptorsRunOut) {
  const Sock listener;
  listen_on_loopback(listener);
  Pair warm = connected(listener);
  Sock active;
  do_not_block(active);
  sockaddr_in to = name_of(listener);
  EXPECT_EQ(rconnect(active, generic(to), sizeof to), -1);
  EXPECT_EQ(errno, EINPROGRESS);
  rlimit old{}, low{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
  low = old;
  const int next = dup(0);
  close(next);
  low.rlim_cur = static_cast<rlim_t>(next);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  EXPECT_EQ(rsocket(AF_INET, SOCK_STREAM, 0), -1);
  EXPECT_EQ(errno, EMFILE);
  EXPECT_EQ(raccept(listener, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EMFILE);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
  const Sock passive = Sock::of(raccept(listener, nullptr, nullptr));
  EXPECT_EQ(ready(active, POLLOUT), POLLOUT);
  give(active, "after all");
  EXPECT_EQ(take(passive, 9), "after all");
}

TEST_F(Stream, Options) {
  const Sock s;
  EXPECT_EQ(get(s, SOL_RDMA, RDMA_SQSIZE), 384);
  EXPECT_EQ(get(s, SOL_RDMA, RDMA_RQSIZE), 384);
  EXPECT_EQ(get(s, SOL_RDMA, RDMA_INLINE), 64);
  EXPECT_EQ(get(s, SOL_RDMA, RDMA_IOMAPSIZE), 0);
  for (const auto& [level, name] : {std::pair{SOL_SOCKET, SO_REUSEADDR},
                                    {SOL_SOCKET, SO_KEEPALIVE},
                                    {SOL_SOCKET, SO_OOBINLINE},
                                    {IPPROTO_TCP, 1 /* TCP_NODELAY */},
                                    {IPPROTO_IPV6, IPV6_V6ONLY}}) {
    EXPECT_EQ(get(s, level, name), 0);
    set(s, level, name, 7);
    EXPECT_EQ(get(s, level, name), 1);
  }
  set(s, SOL_SOCKET, SO_RCVBUF, 1);
  EXPECT_EQ(get(s, SOL_SOCKET, SO_RCVBUF), 4096);
  set(s, SOL_SOCKET, SO_SNDBUF, -1);
  EXPECT_EQ(get(s, SOL_SOCKET, SO_SNDBUF), 4096);
  set(s, SOL_RDMA, RDMA_SQSIZE, 1 << 30);
  EXPECT_EQ(get(s, SOL_RDMA, RDMA_SQSIZE), 8192);
  linger l{1, 3}, back{};
  ASSERT_EQ(rsetsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l), 0);
  socklen_t length = sizeof back;
  ASSERT_EQ(rgetsockopt(s, SOL_SOCKET, SO_LINGER, &back, &length), 0);
  EXPECT_EQ(back.l_linger, 3);
  int value = 1;
  EXPECT_EQ(rsetsockopt(s, SOL_SOCKET, SO_BROADCAST, &value, sizeof value), -1);
  EXPECT_EQ(errno, ENOPROTOOPT);
  EXPECT_EQ(rsetsockopt(s, SOL_SOCKET, SO_RCVBUF, &value, 1), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rsetsockopt(s, SOL_RDMA, RDMA_ROUTE, &value, sizeof value), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rfcntl(s, F_DUPFD, 0), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_NE(rfcntl(s, F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(Stream, MappedBuffers) {
  std::string target(10'000, '.'), other(100, '.');
  Sock listener;
  EXPECT_EQ(riomap(listener, target.data(), 100, PROT_WRITE, 0, 0), -1);
  EXPECT_EQ(errno, EINVAL);
  set(listener, SOL_RDMA, RDMA_IOMAPSIZE, 2);
  listen_on_loopback(listener);
  Pair p = connected(listener);
  // The active end keeps none of the peer's mappings, the passive end two.
  EXPECT_EQ(riomap(p.passive, target.data(), 100, PROT_WRITE, 0, 0), -1);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(riomap(p.active, target.data(), 0, PROT_WRITE, 0, 0), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(riomap(p.active, target.data(), target.size(), PROT_WRITE, 0, 5000), 5000);
  const off_t chosen = riomap(p.active, other.data(), other.size(), PROT_WRITE, 0, -1);
  EXPECT_EQ(chosen, static_cast<off_t>(reinterpret_cast<std::uintptr_t>(other.data())));
  EXPECT_EQ(riomap(p.active, other.data(), 1, PROT_WRITE, 0, 0), -1);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(riomap(p.active, other.data(), 1, PROT_NONE, 0, 0), 0);
  give(p.active, "mapped");
  EXPECT_EQ(take(p.passive, 9), "mapped");
  const std::string bytes = random_bytes(target.size(), 1);
  constexpr auto kFailed = static_cast<std::size_t>(-1);
  EXPECT_EQ(riowrite(p.passive, bytes.data(), bytes.size(), 5000, 0), bytes.size());
  EXPECT_EQ(riowrite(p.passive, "chosen", 6, chosen + 94, 0), 6U);
  EXPECT_EQ(riowrite(p.passive, "x", 1, 4999, 0), kFailed);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(riowrite(p.passive, "x", 1, 15'000, 0), kFailed);
  EXPECT_EQ(riowrite(p.passive, "abc", 3, 14'999, 0), 1U);  // as far as the mapping goes
  give(p.passive, "written");
  EXPECT_EQ(take(p.active, 9), "written");
  EXPECT_EQ(target.substr(0, 9999), bytes.substr(0, 9999));
  EXPECT_EQ(target.back(), 'a');
  EXPECT_EQ(other.substr(94), "chosen");
  EXPECT_EQ(riounmap(p.active, target.data(), 5), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(riounmap(p.active, target.data(), target.size()), 0);
  give(p.active, "unmapped");
  EXPECT_EQ(take(p.passive, 9), "unmapped");
  EXPECT_EQ(riowrite(p.passive, "x", 1, 5000, 0), kFailed);
  EXPECT_EQ(riomap(p.active, target.data(), 7, PROT_WRITE, 0, 0), 0);
  give(p.active, "again");
  EXPECT_EQ(take(p.passive, 9), "again");
  EXPECT_EQ(riowrite(p.passive, "0123456", 7, 0, 0), 7U);
}

using Datagram = Rsockets;

Sock datagram_socket() {
  Sock s(SOCK_DGRAM);
  sockaddr_in a = ipv4("127.0.0.1");
  EXPECT_EQ(rbind(s, generic(a), sizeof a), 0) << errno;
  return s;
}
void send_to(int from, int to, const std::string& bytes) {
  sockaddr_in a = name_of(to);
  EXPECT_EQ(rsendto(from, bytes.data(), bytes.size(), 0, generic(a), sizeof a),
            static_cast<ssize_t>(bytes.size()))
      << errno;
}
std::string take_from(int socket, int sender) {
  std::string bytes(70'000, '\0');
  sockaddr_in from{};
  socklen_t length = sizeof from;
  const ssize_t n = rrecvfrom(socket, bytes.data(), bytes.size(), 0, generic(from), &length);
  EXPECT_GE(n, 0) << errno;
  EXPECT_EQ(from.sin_port, name_of(sender).sin_port);
  bytes.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return bytes;
}

TEST_F(Datagram, MessagesToSeveral) {
  const Sock a = datagram_socket(), b = datagram_socket(), c = datagram_socket();
  for (int round = 0; round < 50; ++round) {
    const std::string text = std::to_string(round);
    send_to(a, b, text + "b");
    send_to(a, c, text + "c");
    send_to(b, a, "");
    EXPECT_EQ(take_from(b, a), text + "b");
    EXPECT_EQ(take_from(c, a), text + "c");
    EXPECT_EQ(take_from(a, b), "");
  }
  send_to(a, a, "to myself");
  EXPECT_EQ(take_from(a, a), "to myself");
}

TEST_F(Datagram, BoundariesAndSizes) {
  const Sock a = datagram_socket(), b = datagram_socket();
  for (const std::size_t size : {1UL, 4096UL, 4097UL, 30'000UL, 60'000UL, 4096UL}) {
    const std::string bytes = random_bytes(size, size);
    send_to(a, b, bytes);
    EXPECT_TRUE(take_from(b, a) == bytes) << size;
  }
  const std::string huge(66'000, 'h');
  sockaddr_in to = name_of(b);
  EXPECT_EQ(rsendto(a, huge.data(), huge.size(), 0, generic(to), sizeof to), -1);
  EXPECT_EQ(errno, EMSGSIZE);
  for (int i = 0; i < 2; ++i) send_to(a, b, "abcdef");
  EXPECT_EQ(take(b, 4, MSG_PEEK), "abcd");
  char small[3];
  iovec part{small, sizeof small};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  EXPECT_EQ(rrecvmsg(b, &message, 0), 3);
  EXPECT_EQ(message.msg_flags, MSG_TRUNC);
  EXPECT_EQ(take(b, 9), "abcdef");
  char byte = 0;
  EXPECT_EQ(rrecv(b, &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(rlisten(a, 1), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(Datagram, Connected) {
  const Sock a = datagram_socket(), b = datagram_socket(), c = datagram_socket();
  EXPECT_EQ(rsend(a, "x", 1, 0), -1);
  EXPECT_EQ(errno, EDESTADDRREQ);
  send_to(c, a, "first");  // so that both know each other's queue pair
  EXPECT_EQ(take_from(a, c), "first");
  sockaddr_in to = name_of(b);
  ASSERT_EQ(rconnect(a, generic(to), sizeof to), 0);
  for (int i = 0; i < 3; ++i) {
    send_to(c, a, "stranger's");
    give(a, "hello");
    EXPECT_EQ(take_from(b, a), "hello");
    send_to(b, a, "friend's");
    EXPECT_EQ(take_from(a, b), "friend's");
  }
  ASSERT_EQ(rshutdown(a, SHUT_WR), 0);
  EXPECT_EQ(rsend(a, "x", 1, 0), -1);
  EXPECT_EQ(errno, EPIPE);
  ASSERT_EQ(rshutdown(a, SHUT_RD), 0);
  EXPECT_EQ(take(a, 1), "");
}

TEST_F(Datagram, NobodyThere) {
  const Sock a = datagram_socket();
  Sock b = datagram_socket();
  sockaddr_in to = name_of(b);
  b.close();
  ASSERT_EQ(rconnect(a, generic(to), sizeof to), 0);
  EXPECT_EQ(rsend(a, "x", 1, 0), 1);
  char byte = 0;
  EXPECT_EQ(rrecv(a, &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  // What is not of an rsocket is thrown away.
  const Sock c = datagram_socket();
  to = name_of(c);
  const int plain = socket(AF_INET, SOCK_DGRAM, 0);
  for (const std::string& rubbish : {std::string(), std::string(5, 'r'), std::string(3000, 'r')}) {
    ASSERT_GE(sendto(plain, rubbish.data(), rubbish.size(), 0, generic(to), sizeof to), 0);
  }
  close(plain);
  EXPECT_EQ(ready(c, POLLIN, 50), 0);
}

TEST_F(Datagram, MoreThanThereIsRoomFor) {
  const Sock a = datagram_socket(), b = datagram_socket();
  // Each learns the other's queue pair: what goes through the UDP socket has the kernel's room.
  for (int i = 0; i < 2; ++i) {
    send_to(a, b, "question");
    EXPECT_EQ(take_from(b, a), "question");
    send_to(b, a, "answer");
    EXPECT_EQ(take_from(a, b), "answer");
  }
  for (int i = 0; i < 2000; ++i) send_to(a, b, std::to_string(i));
  int last = -1, count = 0;
  while (ready(b, POLLIN, 50) != 0) {
    const int number = std::stoi(take_from(b, a));
    EXPECT_GT(number, last);
    last = number;
    ++count;
  }
  EXPECT_GE(count, 300);  // its receives; the rest is lost
  EXPECT_LT(count, 2000);
  send_to(a, b, "next");
  EXPECT_EQ(take_from(b, a), "next");
}

}  // namespace
}  // namespace turnout::cm::test
