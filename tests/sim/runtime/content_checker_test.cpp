// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/content_checker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace turnout::sim {
namespace {

constexpr std::uint32_t kSource = 1, kDestination = 2;
constexpr std::uint64_t kTag = 7;

class ContentCheckerTest : public ::testing::Test {
 protected:
  MessageContent sent(std::size_t bytes) {
    MessageContent message;
    message.buffer.resize(bytes);
    sender_.fill(kDestination, kTag, &message);
    sender_.sent(kDestination, kTag);
    return message;
  }
  MessageContent posted(std::size_t bytes, std::uint32_t source = kSource) {
    MessageContent receive;
    receive.buffer.resize(bytes);
    receiver_.expect(source, kTag, &receive);
    receiver_.posted(source, kTag, receive);
    return receive;
  }
  // Empty: nothing is wrong.
  std::string arrive(MessageContent receive, const MessageContent& message) {
    std::copy(message.buffer.begin(), message.buffer.end(), receive.buffer.begin());
    try {
      receiver_.check(receive, {kSource, kTag, message.buffer.size()});
    } catch (const SimulationError& error) {
      return error.what();
    }
    return "";
  }
  int last_byte_ = -1;
  ContentChecker sender_{kSource, last_byte_}, receiver_{kDestination, last_byte_};
};

TEST_F(ContentCheckerTest, MessagesInOrderAreRight) {
  for (const std::size_t bytes : {0u, 3u, 4u, 5u, 2000u, 70'000u}) {
    EXPECT_EQ(arrive(posted(bytes), sent(bytes)), "") << bytes;
  }
}

TEST_F(ContentCheckerTest, EveryWrongByteIsFound) {
  const MessageContent right = sent(300);
  for (std::size_t at = 4; at < 300; at += 37) {
    MessageContent wrong = right;
    wrong.buffer[at] ^= std::byte{1};
    ContentChecker fresh(kDestination, last_byte_);
    MessageContent receive = wrong;
    receive.ordered = true;
    receive.number = 0;
    try {
      fresh.check(receive, {kSource, kTag, 300});
      FAIL() << at;
    } catch (const SimulationError& error) {
      EXPECT_EQ(error.what(), "wrong byte " + std::to_string(at) +
                                  " of message 0 from rank 1 (tag 7, 300 bytes)");
    }
  }
}

TEST_F(ContentCheckerTest, OvertakingIsFound) {
  const MessageContent first = sent(8), second = sent(8);
  EXPECT_EQ(arrive(posted(8), second),
            "message 1 from rank 1 (tag 7) arrived out of MPI order, expected 0");
}

TEST_F(ContentCheckerTest, ASecondArrivalIsFoundBehindAWildcard) {
  const MessageContent first = sent(8), second = sent(8);
  EXPECT_EQ(arrive(posted(8, kAnySource), second), "");  // the order is not known any more
  EXPECT_EQ(arrive(posted(8), first), "");
  EXPECT_EQ(arrive(posted(8), second), "message 1 from rank 1 (tag 7) arrived twice");
}

TEST_F(ContentCheckerTest, ASendThatWaitsForRoomIsTheSameMessage) {
  MessageContent message;
  message.buffer.resize(8);
  sender_.fill(kDestination, kTag, &message);
  sender_.fill(kDestination, kTag, &message);
  EXPECT_EQ(message.number, 0u);
  sender_.sent(kDestination, kTag);
  sender_.fill(kDestination, kTag, &message);
  EXPECT_EQ(message.number, 1u);
}

TEST_F(ContentCheckerTest, TheLastByteIsChecked) {
  last_byte_ = 0x55;
  MessageContent message = sent(100);
  EXPECT_EQ(message.buffer.back(), std::byte{0x55});
  EXPECT_EQ(arrive(posted(100), message), "");
  message = sent(100);
  message.buffer.back() = std::byte{0};
  EXPECT_THAT(arrive(posted(100), message), ::testing::StartsWith("wrong byte 99"));
}

}  // namespace
}  // namespace turnout::sim
