// SPDX-License-Identifier: BSD-3-Clause
// The link over datagrams: what acknowledgements say, and when something is sent again.
#include "core/flow/ud_reliability.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/memory/slot_table.h"
#include "core/transport/ud_queue.h"

namespace turnout {
namespace {

struct Sender {
  UdReliability link;
  std::vector<std::uint32_t> released;
  std::uint32_t next = 0;

  explicit Sender(std::uint32_t first) : next(first) {}
  void send(std::uint32_t n) {
    for (; n > 0; --n, ++next) link.keep({next, next & 0xff, 10});
  }
  bool ack(std::uint32_t data_ack, std::uint32_t held = 0) {
    wire::Datagram datagram;
    datagram.data_ack = data_ack;
    datagram.sack = held;
    return link.take_data_ack(datagram, next,
                              [this](std::uint32_t buffer) { released.push_back(buffer); });
  }
};

TEST(UdReliability, CumulativeAcknowledgementsReleaseInOrderAcrossTheWrap) {
  Sender sender(0xfffffffeu);
  sender.send(4);  // ...fe, ...ff, 0, 1
  EXPECT_TRUE(sender.ack(0));
  EXPECT_EQ(sender.released, (std::vector<std::uint32_t>{0xfe, 0xff}));
  EXPECT_FALSE(sender.ack(0xffffffffu)) << "an old one says nothing new";
  EXPECT_TRUE(sender.ack(2));
  EXPECT_TRUE(sender.link.settled());
  EXPECT_TRUE(sender.link.sent.empty());
}

TEST(UdReliability, WhatThePeerHoldsNeedsNoBufferAnyMore) {
  Sender sender(10);
  sender.send(5);
  EXPECT_TRUE(sender.ack(11, 0b1010));  // 12 and 14
  EXPECT_EQ(sender.released, (std::vector<std::uint32_t>{10, 12, 14}));
  EXPECT_EQ(sender.link.outstanding, 2u);
  EXPECT_FALSE(sender.ack(11, 0b1010));
  EXPECT_TRUE(sender.ack(15));
  EXPECT_EQ(sender.released, (std::vector<std::uint32_t>{10, 12, 14, 11, 13}));
  EXPECT_FALSE(sender.link.waits());
}

TEST(UdReliability, AcknowledgementsOfWhatWasNeverSentAreIgnored) {
  Sender sender(10);
  sender.send(2);
  EXPECT_FALSE(sender.ack(13, 0xffffffffu));
  EXPECT_EQ(sender.link.outstanding, 2u);
  sender.link.control.push_back({});
  sender.link.control.push_back({});
  sender.link.control_sent = 1;
  EXPECT_TRUE(sender.link.take_control_ack(100));
  EXPECT_EQ(sender.link.control.size(), 1u) << "only what was sent";
  EXPECT_EQ(sender.link.control_first, 1u);
}

TEST(RoundTrip, TheTimeOutFollowsTheSamplesAndBacksOff) {
  RoundTrip trip;
  EXPECT_EQ(trip.timeout(0), 10'000'000);
  for (int i = 0; i < 50; ++i) trip.sample(5000);
  EXPECT_EQ(trip.timeout(0), 1'000'000);
  EXPECT_EQ(trip.timeout(3), 8'000'000);
  EXPECT_EQ(trip.timeout(1000), 200'000'000);
  for (int i = 0; i < 50; ++i) trip.sample(50'000'000);
  EXPECT_GT(trip.timeout(0), 50'000'000);
}

TEST(GrowingQueue, KeepsOrderWhileItGrows) {
  GrowingQueue<int> queue;
  int in = 0, out = 0;
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 3; ++i) queue.push_back(in++);
    ASSERT_EQ(queue[0], out);
    ASSERT_EQ(queue[queue.size() - 1], in - 1);
    queue.pop_front();
    ++out;
  }
  EXPECT_EQ(queue.size(), static_cast<std::size_t>(in - out));
}

TEST(SlotTable, ANumberThatIsUsedUpNamesNothing) {
  SlotTable<int> table;
  int a = 1, b = 2;
  const std::uint64_t first = table.add(&a);
  EXPECT_NE(first, 0u);
  EXPECT_EQ(table.find(first), &a);
  table.remove(first);
  EXPECT_EQ(table.find(first), nullptr);
  const std::uint64_t second = table.add(&b);
  EXPECT_EQ(table.find(first), nullptr);
  EXPECT_EQ(table.find(second), &b);
  EXPECT_EQ(table.find(77), nullptr);
}

TEST(Datagram, KindsAreCheckedAgainstTheirLength) {
  std::byte bytes[sizeof(wire::Datagram) + sizeof(wire::ControlMessage)] = {};
  wire::Datagram datagram, parsed;
  const auto parse = [&](std::size_t body) {
    std::memcpy(bytes, &datagram, sizeof datagram);
    return wire::parse_datagram(bytes, sizeof datagram + body, &parsed).ok();
  };
  EXPECT_TRUE(parse(0));
  EXPECT_FALSE(parse(1));
  datagram.kind = wire::DatagramKind::control;
  EXPECT_TRUE(parse(sizeof(wire::ControlMessage)));
  EXPECT_FALSE(parse(0));
  datagram.kind = static_cast<wire::DatagramKind>(9);
  EXPECT_FALSE(parse(0));
  EXPECT_FALSE(wire::parse_datagram(bytes, sizeof datagram - 1, &parsed).ok());
}

// The highest bit of a key would mean the sender's own (IBTA 10.2.5).
TEST(UdQueue, KeysHaveTheHighestBitClear) {
  for (std::uint64_t id = 1; id != 0; id <<= 1) EXPECT_LT(datagram_key(id), 0x80000000u);
}

}  // namespace
}  // namespace turnout
