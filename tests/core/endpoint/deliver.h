// SPDX-License-Identifier: BSD-3-Clause
// One message between two endpoints of a TestWorld, from its receive to both ends' completions.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "tests/support/requests.h"
#include "tests/support/test_world.h"

namespace turnout {

// `out` from one to the other, whose receive stands before, from this peer or any; `in` has its
// length. The queues are empty before and afterwards.
[[nodiscard]] inline testing::AssertionResult deliver(TestWorld& world, std::size_t from,
                                                      std::size_t to, std::vector<std::byte>& out,
                                                      std::vector<std::byte>& in, PeerId source,
                                                      std::uint64_t tag = 1) {
  const iovec sent = piece(out), received = piece(in);
  std::fill(in.begin(), in.end(), std::byte{0});
  if (!world[to].recv(tagged_recv(source, received, tag, world.report(to, nullptr))).ok()) {
    return testing::AssertionFailure() << "the receive is refused";
  }
  const PeerId target = world.peer(from, to);
  if (!world[from].send(tagged_send(target, sent, tag, world.report(from, nullptr))).ok()) {
    return testing::AssertionFailure() << "the send is refused";
  }
  if (!world.until([&] { return world.queue(from).size() == 1 && world.queue(to).size() == 1; })) {
    return testing::AssertionFailure() << world.queue(from).size() << " sends and "
                                       << world.queue(to).size() << " receives have ended";
  }
  take(world.queue(from));
  take(world.queue(to));
  if (in != out) return testing::AssertionFailure() << "the content differs";
  return testing::AssertionSuccess();
}

}  // namespace turnout
