// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/content_checker.h"

#include <fmt/format.h>

namespace turnout::sim {

constexpr std::size_t kNumberBytes = 4;  // a message begins with its number

void ContentChecker::fill(std::uint32_t peer, std::uint64_t tag, MessageContent* send) {
  send->number = sent_[key_of(peer, tag)];
  std::vector<std::byte>& buffer = send->buffer;
  const std::uint64_t key = content_key(rank_, peer, tag, send->number);
  if (send->filled == key) return;
  send->filled = key;
  const std::size_t from = buffer.size() < kNumberBytes ? 0 : kNumberBytes;
  if (from > 0) std::memcpy(buffer.data(), &send->number, kNumberBytes);
  fill_content(buffer.data(), from, buffer.size(), key);
  if (last_byte_ >= 0 && buffer.size() > from) buffer.back() = static_cast<std::byte>(last_byte_);
}

void ContentChecker::expect(std::uint32_t source, std::uint64_t tag, MessageContent* receive) {
  std::fill(receive->buffer.begin(), receive->buffer.end(), std::byte{0});
  wild_ = wild_ || source == kAnySource || tag == kAnyTag;
  receive->ordered = !wild_;
  if (receive->ordered) receive->number = posted_[key_of(source, tag)];
}

bool ContentChecker::note(Checked* checked, std::uint32_t number) {
  std::vector<std::uint32_t>& beyond = checked->beyond;
  if (number < checked->below || std::find(beyond.begin(), beyond.end(), number) != beyond.end()) {
    return false;
  }
  beyond.push_back(number);
  for (auto next = beyond.end();
       (next = std::find(beyond.begin(), beyond.end(), checked->below)) != beyond.end();) {
    *next = beyond.back();
    beyond.pop_back();
    ++checked->below;
  }
  return true;
}

void ContentChecker::check(const MessageContent& receive, const Received& received) {
  std::uint32_t number = receive.number;
  std::size_t at = 0;
  if (received.bytes >= kNumberBytes) {
    std::memcpy(&number, receive.buffer.data(), kNumberBytes);
    at = kNumberBytes;
  } else if (!receive.ordered) {
    return;
  }
  const auto fail = [&](const std::string& what, const std::string& why = {}) {
    throw SimulationError(fmt::format("{} {} from rank {} (tag {}{}", what, number, received.source,
                                      received.tag, why));
  };
  if (receive.ordered && number != receive.number) {
    fail("message", fmt::format(") arrived out of MPI order, expected {}", receive.number));
  }
  if (!note(&checked_[key_of(received.source, received.tag)], number)) {
    fail("message", ") arrived twice");
  }
  const std::uint64_t key = content_key(received.source, rank_, received.tag, number);
  const std::size_t length = received.bytes;
  const bool last_is_set = last_byte_ >= 0 && length > at;
  const std::size_t end = last_is_set ? length - 1 : length;
  std::size_t other = std::min(first_other(receive.buffer.data(), at, end, key), end);
  if (other == end && last_is_set && receive.buffer[end] == static_cast<std::byte>(last_byte_)) {
    other = length;
  }
  if (other < length) {
    fail(fmt::format("wrong byte {} of message", other), fmt::format(", {} bytes)", length));
  }
}

}  // namespace turnout::sim
