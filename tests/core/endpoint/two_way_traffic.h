// SPDX-License-Identifier: BSD-3-Clause
// Messages that two endpoints of a TestWorld send each other at the same time, for tests of what
// carries them.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "tests/support/requests.h"
#include "tests/support/test_world.h"

namespace turnout {

class TwoWayTraffic : public testing::Test {
 protected:
  // One message of that size from each of two to the other; content is checked.
  void swap(TestWorld& world, std::size_t size, std::size_t a = 0, std::size_t b = 1) {
    const std::size_t ends[2] = {a, b};
    std::vector<std::byte> out[2], in[2];
    iovec from[2], to[2];
    for (std::size_t i = 0; i < 2; ++i) {
      out[i] = pattern(size, seed_++);
      in[i].resize(size);
      from[i] = piece(out[i]);
      to[i] = piece(in[i]);
      const PeerId source = world.peer(ends[i], ends[1 - i]);
      ASSERT_TRUE(
          world[ends[i]].recv(tagged_recv(source, to[i], 1, world.report(ends[i], &to[i]))).ok());
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const PeerId target = world.peer(ends[i], ends[1 - i]);
      ASSERT_TRUE(world[ends[i]]
                      .send(tagged_send(target, from[i], 1, world.report(ends[i], nullptr)))
                      .ok());
    }
    ASSERT_TRUE(world.until([&] {
      look_at(world);
      return world.queue(a).size() == 2 && world.queue(b).size() == 2;
    })) << size;
    for (std::size_t i = 0; i < 2; ++i) {
      take(world.queue(ends[i]));
      take(world.queue(ends[i]));
      EXPECT_EQ(in[i], out[1 - i]) << size;
    }
  }
  // Many from the first to the second, as many at a time as go; they come whole and in order.
  // `meanwhile` is called with how many have come, again and again.
  template <class Meanwhile>
  void send_many(TestWorld& world, Meanwhile&& meanwhile) {
    constexpr std::size_t kMessages = 400;
    std::vector<std::vector<std::byte>> out, in;
    std::vector<iovec> from(kMessages), to(kMessages);
    for (std::size_t n = 0; n < kMessages; ++n) {
      const std::size_t size = n % 3 == 0 ? 2000 : 40;
      out.push_back(pattern(size, static_cast<unsigned>(n)));
      in.emplace_back(size);
    }
    for (std::size_t n = 0; n < kMessages; ++n) {
      from[n] = piece(out[n]);
      to[n] = piece(in[n]);
      ASSERT_TRUE(
          world[1].recv(tagged_recv(world.peer(1, 0), to[n], 1, world.report(1, &in[n]))).ok());
    }
    std::size_t sent = 0, received = 0;
    ASSERT_TRUE(world.until([&] {
      while (sent < kMessages &&
             world[0]
                 .send(tagged_send(world.peer(0, 1), from[sent], 1, world.report(0, nullptr)))
                 .ok()) {
        ++sent;
      }
      while (world.queue(0).size() > 0) take(world.queue(0));
      while (world.queue(1).size() > 0) {
        EXPECT_EQ(take(world.queue(1)).context, &in[received++]);
      }
      meanwhile(received);
      return received == kMessages;
    }));
    EXPECT_EQ(in, out);
  }
  // Called again and again while messages are under way.
  virtual void look_at(TestWorld& /*world*/) {}
  // `count` times a message each way of all sizes that differ on their way.
  void swap_every_size(TestWorld& world, int count) {
    for (int n = 0; n < count; ++n) {
      for (const std::size_t size : {0u, 8u, 200u, 300u, 4000u, 20000u}) {
        swap(world, size);
        if (HasFatalFailure()) return;
      }
    }
  }

 private:
  unsigned seed_ = 1;
};

}  // namespace turnout
