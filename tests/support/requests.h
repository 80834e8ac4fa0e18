// SPDX-License-Identifier: BSD-3-Clause
// What tests of endpoints send and receive, in one line each.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "core/endpoint.h"

namespace turnout {

inline std::vector<std::byte> pattern(std::size_t n, unsigned seed) {
  std::vector<std::byte> bytes(n);
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(i * 131 + seed * 17 + 3);
  return bytes;
}

inline iovec piece(std::vector<std::byte>& bytes) {
  return {bytes.data(), bytes.size()};
}

inline SendRequest tagged_send(PeerId peer, const iovec& data, std::uint64_t tag,
                               const Report& report) {
  SendRequest request;
  request.peer = peer;
  request.data = {&data, 1};
  request.tagged = true;
  request.tag = tag;
  request.report = report;
  return request;
}

inline RecvRequest tagged_recv(PeerId peer, const iovec& buffer, std::uint64_t tag,
                               const Report& report) {
  RecvRequest request;
  request.peer = peer;
  request.buffer = {&buffer, 1};
  request.tagged = true;
  request.tag = tag;
  request.report = report;
  return request;
}

inline PeekRequest tagged_peek(std::uint64_t tag, const Report& report) {
  PeekRequest request;
  request.tag = tag;
  request.report = report;
  return request;
}

inline Completion take(CompletionQueue& queue) {
  EXPECT_GT(queue.size(), 0u);
  const Completion c = queue.front();
  queue.pop();
  return c;
}

}  // namespace turnout
