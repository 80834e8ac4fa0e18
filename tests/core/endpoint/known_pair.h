// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// Two endpoints that have exchanged a message, so that RTRs can be sent: what the tests of
// large messages begin with.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/core/endpoint/deliver.h"
#include "tests/support/requests.h"
#include "tests/support/test_world.h"

namespace turnout {

// The tests of large messages run with UD in DC's place, too.
inline bool over_dc() {
  const char* const start = std::getenv("TURNOUT_DEFAULT_TRANSPORT");
  return start == nullptr || std::string_view(start) != "ud";
}

class KnownPair {
 public:
  explicit KnownPair(std::string_view protocol, Overrides more = {})
      : world_(2, with(protocol, std::move(more))) {
    exchange(0, 1);
    exchange(1, 0);
  }
  TestWorld& world() { return world_; }

  void send(std::vector<std::byte>& bytes, std::uint64_t tag, std::uint64_t context = 0) {
    const iovec out = piece(bytes);
    ASSERT_TRUE(world_[0]
                    .send(tagged_send(world_.peer(0, 1), out, tag,
                                      world_.report(0, reinterpret_cast<void*>(context))))
                    .ok());
  }
  void recv(std::vector<std::byte>& bytes, std::uint64_t tag, std::uint64_t context = 0,
            bool from_any = false) {
    const iovec in = piece(bytes);
    RecvRequest request = tagged_recv(from_any ? kAnyPeer : world_.peer(1, 0), in, tag,
                                      world_.report(1, reinterpret_cast<void*>(context)));
    ASSERT_TRUE(world_[1].recv(request).ok());
  }
  bool sent() {
    return world_.until([&] { return world_.queue(0).size() > 0 || error(0); });
  }
  bool received() {
    return world_.until([&] { return world_.queue(1).size() > 0 || error(1); });
  }
  // Of the next message sent, and of the next receive.
  void expect_arrival() {
    ASSERT_TRUE(sent());
    ASSERT_TRUE(received());
    ASSERT_FALSE(error(0));
    ASSERT_FALSE(error(1));
    (void)take(world_.queue(0));
    (void)take(world_.queue(1));
  }
  // A message to a receive that was posted in time for an RTR.
  void meet(std::vector<std::byte>& out, std::vector<std::byte>& in, std::uint64_t tag) {
    recv(in, tag);
    settle();
    send(out, tag);
    expect_arrival();
  }
  bool error(std::size_t i) { return world_.queue(i).has_error(); }
  void settle() { world_.progress_all(50); }
  EndpointReport sender() { return world_[0].report(); }
  EndpointReport receiver() { return world_[1].report(); }

 private:
  static Overrides with(std::string_view protocol, Overrides more) {
    more.emplace_back("rendezvous", protocol);
    more.emplace_back("policy", over_dc() ? "static:dc-sendrecv" : "static:ud-sendrecv");
    return more;
  }
  void exchange(std::size_t from, std::size_t to) {
    std::vector<std::byte> out(8), in(8);
    ASSERT_TRUE(deliver(world_, from, to, out, in, world_.peer(to, from), 99));
    settle();
  }
  TestWorld world_;
};

}  // namespace turnout
