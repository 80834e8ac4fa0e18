// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/wire.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <vector>

#include "tests/support/made_up_address.h"

namespace turnout {
namespace {

Address valid_address() {
  return testing::made_up(42);
}

TEST(Address, RoundTrip) {
  Address address = valid_address();
  address.set_dct_number(7, 0xabcdef);
  address.seal();
  auto decoded = Address::decode(&address, sizeof address);
  ASSERT_TRUE(decoded.ok());
  EXPECT_EQ(decoded.value(), address);
  EXPECT_EQ(decoded.value().dct_number(7), 0xabcdefu);
}

TEST(Address, TellsSizesThatAreNoPowersOfTwo) {
  for (const std::uint32_t size : {512u, 576u, 640u, 3072u, 4096u, 6144u, 64512u, 65536u}) {
    for (const bool datagrams : {false, true}) {
      Address address = valid_address();
      address.set_sizes(size, 32768, datagrams);
      address.seal();
      const auto decoded = Address::decode(&address, sizeof address);
      ASSERT_TRUE(decoded.ok()) << size;
      EXPECT_EQ(decoded.value().receive_size(), size);
      EXPECT_EQ(decoded.value().credits(), 32768u);
      EXPECT_EQ(decoded.value().datagrams(), datagrams);
    }
  }
  for (const std::uint32_t size : {0u, 448u, 65600u}) {
    Address address = valid_address();
    address.set_sizes(size, 1, false);
    address.seal();
    const auto decoded = Address::decode(&address, sizeof address);
    EXPECT_EQ(decoded.status().code(), Code::invalid) << size;
    EXPECT_NE(decoded.status().text().find("receive size of"), std::string::npos);
  }
}

TEST(Address, EveryDamagedByteIsNoticed) {
  const Address address = valid_address();
  for (std::size_t i = 0; i < sizeof address; ++i) {
    std::byte bytes[sizeof address];
    std::memcpy(bytes, &address, sizeof address);
    bytes[i] ^= std::byte{0x10};
    EXPECT_FALSE(Address::decode(bytes, sizeof bytes).ok()) << "byte " << i;
  }
  EXPECT_FALSE(Address::decode(&address, sizeof address - 1).ok());
}

TEST(Address, AnotherVersionSaysSo) {
  Address address = valid_address();
  address.version = Address::kVersion + 1;
  address.seal();
  auto decoded = Address::decode(&address, sizeof address);
  EXPECT_EQ(decoded.status().code(), Code::version);
  EXPECT_NE(decoded.status().text().find("use the same libturnout-fi.so"), std::string::npos);
}

RC_GTEST_PROP(Wire, AHeaderIsWrittenAsItsCopy, ()) {
  std::array<std::byte, sizeof(wire::Header)> bytes;
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(*rc::gen::arbitrary<std::uint8_t>());
  wire::Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::array<std::byte, 1 + sizeof header> written{};
  wire::write_header(header, &written[1]);  // at any address
  RC_ASSERT(std::memcmp(&written[1], bytes.data(), sizeof header) == 0);
}

TEST(Wire, DataMessageNeedsItsExactLength) {
  std::vector<std::byte> bytes(sizeof(wire::Header) + 10);
  wire::Header header;
  header.type = wire::Type::eager;
  header.length = 10;
  std::memcpy(bytes.data(), &header, sizeof header);
  wire::Parsed parsed;
  EXPECT_TRUE(wire::parse_data(bytes.data(), bytes.size(), &parsed).ok());
  EXPECT_EQ(parsed.payload, bytes.data() + sizeof header);
  EXPECT_FALSE(wire::parse_data(bytes.data(), bytes.size() - 1, &parsed).ok());
  EXPECT_FALSE(wire::parse_data(bytes.data(), sizeof header - 1, &parsed).ok());
  header.flags = wire::kWireup;
  std::memcpy(bytes.data(), &header, sizeof header);
  EXPECT_FALSE(wire::parse_data(bytes.data(), bytes.size(), &parsed).ok());
}

TEST(Wire, UnknownTypesAndFlagsAreRefused) {
  wire::Header header;
  EXPECT_FALSE(wire::check_header(header).ok());
  header.type = static_cast<wire::Type>(99);
  EXPECT_FALSE(wire::check_header(header).ok());
  header.type = wire::Type::eager;
  header.flags = 0x80;
  EXPECT_FALSE(wire::check_header(header).ok());
}

TEST(Wire, AFinHasNoPayload) {
  wire::Header header;
  header.type = wire::Type::fin;
  EXPECT_TRUE(wire::check_header(header).ok());
  header.length = 1;
  EXPECT_FALSE(wire::check_header(header).ok());
}

TEST(Wire, ARemoteEventHasDataOrSaysWhatItWas) {
  wire::Header header;
  header.type = wire::Type::rma_data;
  EXPECT_FALSE(wire::check_header(header).ok()) << "neither";
  header.flags = wire::kRemoteData;
  EXPECT_TRUE(wire::check_header(header).ok());
  header.length = sizeof(wire::RemoteEvent);
  EXPECT_TRUE(wire::check_header(header).ok());
  header.flags = 0;
  EXPECT_TRUE(wire::check_header(header).ok());
  header.length = 1;
  EXPECT_FALSE(wire::check_header(header).ok());

  wire::RemoteEvent sent{7, 1, {}}, got;
  const auto* const bytes = reinterpret_cast<const std::byte*>(&sent);
  EXPECT_TRUE(wire::parse_remote_event(bytes, sizeof sent, &got).ok());
  EXPECT_EQ(got.rkey, 7u);
  EXPECT_EQ(got.read, 1u);
  EXPECT_FALSE(wire::parse_remote_event(bytes, sizeof sent - 1, &got).ok());
  sent.read = 2;
  EXPECT_FALSE(wire::parse_remote_event(bytes, sizeof sent, &got).ok());
}

TEST(Wire, AFirstFragmentIsShorterThanItsMessage) {
  wire::Header header;
  header.type = wire::Type::eager_first;
  header.length = wire::kTotalBytes;
  EXPECT_FALSE(wire::check_header(header).ok());  // nothing of the message
  header.length += 100;
  EXPECT_TRUE(wire::check_header(header).ok());
  for (const auto& [total, right] : {std::pair{std::uint64_t{101}, true},
                                     {wire::kMostFragmented, true},
                                     {100, false},
                                     {0, false},
                                     {wire::kMostFragmented + 1, false},
                                     {~std::uint64_t{0}, false}}) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&total);
    std::uint64_t parsed = 0;
    EXPECT_EQ(wire::parse_total(header, bytes, &parsed).ok(), right) << total;
    EXPECT_EQ(parsed, total);
  }
}

TEST(Wire, RtsSegmentsMustAddUp) {
  wire::Rts rts;
  rts.total = 100;
  rts.segments = 2;
  rts.segment[0].length = 60;
  rts.segment[1].length = 40;
  const std::size_t length = wire::kRtsBase + 2 * sizeof(wire::RtsSegment);
  wire::Rts parsed;
  const auto* bytes = reinterpret_cast<const std::byte*>(&rts);
  EXPECT_TRUE(wire::parse_rts(bytes, length, &parsed).ok());
  EXPECT_FALSE(wire::parse_rts(bytes, length - 1, &parsed).ok());
  rts.segment[1].length = 41;
  EXPECT_FALSE(wire::parse_rts(bytes, length, &parsed).ok());
  rts.segment[1].length = ~std::uint64_t{0};
  EXPECT_FALSE(wire::parse_rts(bytes, length, &parsed).ok());
  rts.segments = wire::kMaxSegments + 1;
  EXPECT_FALSE(wire::parse_rts(bytes, length, &parsed).ok());
  rts.segments = 0;  // the buffer is not registered
  EXPECT_TRUE(wire::parse_rts(bytes, wire::kRtsBase, &parsed).ok());
  EXPECT_TRUE(parsed.is_unregistered());
  EXPECT_FALSE(wire::parse_rts(bytes, length, &parsed).ok());
}

TEST(Wire, RtsNamesTheRtrItReplaces) {
  wire::Rts rts, parsed;
  rts.total = 100;
  rts.segments = 1;
  rts.segment[0].length = 100;
  rts.last = 7;
  std::array<std::byte, wire::kMostRtsBytes> bytes;
  EXPECT_EQ(wire::write_rts(rts, bytes.data()), wire::kRtsBase + sizeof(wire::RtsSegment));
  rts.has_rtr = 1;
  rts.rtr = 0x123456789;
  const std::size_t length = wire::write_rts(rts, bytes.data());
  ASSERT_TRUE(wire::parse_rts(bytes.data(), length, &parsed).ok());
  EXPECT_EQ(parsed.rtr, rts.rtr);
  EXPECT_EQ(parsed.last, 7);
  EXPECT_FALSE(wire::parse_rts(bytes.data(), length - 8, &parsed).ok());
  bytes[10 + 8] = std::byte{2};  // `instead`
  EXPECT_FALSE(wire::parse_rts(bytes.data(), length, &parsed).ok());
}

// The message as it is received, of so many bytes.
template <class Sent>
Status parse(const Sent& sent, wire::ControlMessage* message, wire::Detail* detail,
             std::size_t length = sizeof(Sent)) {
  return wire::parse_control(reinterpret_cast<const std::byte*>(&sent), length, message, detail);
}

TEST(Wire, RtrAndCtsHaveADetailAndOthersNone) {
  struct {
    wire::ControlMessage message;
    wire::Detail detail;
  } sent;
  wire::ControlMessage message;
  wire::Detail detail;
  const auto ok = [&](std::size_t length) { return parse(sent, &message, &detail, length).ok(); };
  for (const wire::Control type : {wire::Control::cts, wire::Control::rtr}) {
    sent.message.type = type;
    sent.detail.address = 4096;
    sent.detail.length = 10;
    EXPECT_TRUE(ok(sizeof sent));
    EXPECT_EQ(detail.length, 10u);
    EXPECT_FALSE(ok(sizeof sent.message));
    sent.detail.length = 0;
    EXPECT_FALSE(ok(sizeof sent));
    sent.detail.length = ~std::uint64_t{0} - 4000;
    EXPECT_FALSE(ok(sizeof sent));
  }
  sent.message.type = wire::Control::written;
  EXPECT_TRUE(ok(sizeof sent.message));
  EXPECT_FALSE(ok(sizeof sent));
}

// All that is counted and numbered is looked at before anything is done with it.
TEST(Wire, AtomicRequestsAreWhatTheySay) {
  std::array<std::byte, sizeof(wire::Atomic) + 2 * kAtomicLimit> bytes{};
  wire::Atomic sent, parsed;
  const auto ok = [&](std::size_t values) {
    std::memcpy(bytes.data(), &sent, sizeof sent);
    return wire::parse_atomic(bytes.data(), sizeof sent + values, &parsed).ok();
  };
  sent.form = AtomicForm::compare;
  sent.op = AtomicOp::swap_if_equal;
  sent.type = AtomicType::int64;
  sent.count = 2;
  EXPECT_TRUE(ok(32));
  EXPECT_EQ(wire::operand_bytes(parsed) + wire::compare_bytes(parsed), 32u);
  EXPECT_EQ(wire::fetched_bytes(parsed), 16u);
  EXPECT_FALSE(ok(31));
  EXPECT_FALSE(ok(33));
  EXPECT_FALSE(ok(0));
  EXPECT_FALSE(wire::parse_atomic(bytes.data(), sizeof sent - 1, &parsed).ok());
  sent.count = 0;
  EXPECT_FALSE(ok(0));
  sent.count = static_cast<std::uint16_t>(most_elements(sent.form, sent.type));
  EXPECT_TRUE(ok(kAtomicLimit));
  ++sent.count;
  EXPECT_FALSE(ok(kAtomicLimit + 16));
  sent.count = 0xffff;
  EXPECT_FALSE(ok(kAtomicLimit));
  sent.count = 2;
  sent.op = AtomicOp::sum;
  EXPECT_FALSE(ok(32)) << "of the wrong form";
  sent.form = AtomicForm::fetch;
  EXPECT_TRUE(ok(16));
  sent.op = AtomicOp::read;
  EXPECT_TRUE(ok(0));
  EXPECT_FALSE(ok(16));
  sent.op = static_cast<AtomicOp>(kAtomicOps);
  EXPECT_FALSE(ok(16));
  sent.op = AtomicOp::bit_or;
  sent.type = AtomicType::float64;
  EXPECT_FALSE(ok(16));
  sent.type = static_cast<AtomicType>(kAtomicTypes);
  EXPECT_FALSE(ok(16));
  sent.op = AtomicOp::sum;
  sent.type = static_cast<AtomicType>(255);
  EXPECT_FALSE(ok(16));
  sent.type = AtomicType::float64;
  sent.form = static_cast<AtomicForm>(3);
  EXPECT_FALSE(ok(16));
}

TEST(Wire, FeedbackIsRangeChecked) {
  wire::ControlMessage feedback, parsed;
  wire::Detail detail;
  feedback.type = wire::Control::feedback;
  const auto ok = [&] { return parse(feedback, &parsed, &detail).ok(); };
  feedback.credits = feedback.ring_credits = wire::kWhole;
  feedback.ring_entries = wire::kMostQueuePairs;
  EXPECT_TRUE(ok());
  feedback.credits = wire::kWhole + 1;
  EXPECT_FALSE(ok());
  feedback.credits = 0;
  feedback.ring_credits = 0xffff;
  EXPECT_FALSE(ok());
  feedback.ring_credits = 0;
  ++feedback.ring_entries;
  EXPECT_FALSE(ok());
  --feedback.ring_entries;
  feedback.refusal = wire::Refusal::budget;
  EXPECT_TRUE(ok());
  feedback.refusal = wire::Refusal::limit;
  EXPECT_FALSE(ok());
}

TEST(Wire, LeaveNamesAQueuePair) {
  wire::ControlMessage disconnect, parsed;
  wire::Detail detail;
  disconnect.type = wire::Control::disconnect;
  EXPECT_NE(parse(disconnect, &parsed, &detail).text().find("queue pair number 0"),
            std::string::npos);
  disconnect.qp_id = 77;
  EXPECT_TRUE(parse(disconnect, &parsed, &detail).ok());
  EXPECT_EQ(parsed.qp_id, 77u);
}

TEST(Wire, SegmentsAreAsLongAsTheySay) {
  std::array<std::byte, sizeof(wire::Segment) + 100> bytes{};
  wire::Segment sent, parsed;
  const auto ok = [&](wire::Type type, std::size_t data) {
    std::memcpy(bytes.data(), &sent, sizeof sent);
    return wire::parse_segment(type, bytes.data(), sizeof sent + data, &parsed).ok();
  };
  EXPECT_FALSE(ok(wire::Type::put, 0));
  EXPECT_FALSE(ok(wire::Type::get, 0));
  sent.length = 100;
  EXPECT_TRUE(ok(wire::Type::put, 100));
  EXPECT_FALSE(ok(wire::Type::put, 99));
  EXPECT_FALSE(ok(wire::Type::put, 0));
  EXPECT_TRUE(ok(wire::Type::get, 0));
  EXPECT_FALSE(ok(wire::Type::get, 100));
  EXPECT_FALSE(wire::parse_segment(wire::Type::get, bytes.data(), sizeof sent - 1, &parsed).ok());
  sent.length = wire::kMostMessage + 1;
  EXPECT_FALSE(ok(wire::Type::get, 0));
}

// Any bytes are answered, never read beyond.
TEST(Wire, RandomBytesAreAnswered) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::vector<std::byte> bytes(random() % 300);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    if (bytes.size() > 28) bytes[28] = static_cast<std::byte>(random() % 6);
    if (bytes.size() > 29) bytes[29] = static_cast<std::byte>(random() % 9);
    wire::Parsed parsed;
    if (wire::parse_data(bytes.data(), bytes.size(), &parsed).ok()) {
      ASSERT_EQ(parsed.payload + parsed.header.length, bytes.data() + bytes.size());
    }
    wire::ControlMessage control;
    wire::Detail detail;
    (void)wire::parse_control(bytes.data(), bytes.size(), &control, &detail).ok();
    wire::Atomic atomic;
    if (wire::parse_atomic(bytes.data(), bytes.size(), &atomic).ok()) {
      ASSERT_LE(wire::fetched_bytes(atomic), kAtomicLimit);
    }
    wire::Segment segment;
    if (wire::parse_segment(wire::Type::put, bytes.data(), bytes.size(), &segment).ok()) {
      ASSERT_EQ(sizeof segment + segment.length, bytes.size());
    }
    wire::PutCompletion completion;
    (void)wire::parse_put_completion(bytes.data(), bytes.size(), &completion).ok();
    wire::Rts rts;
    if (wire::parse_rts(bytes.data(), bytes.size(), &rts).ok()) {
      ASSERT_LE(rts.segments, wire::kMaxSegments);
    }
  }
}

}  // namespace
}  // namespace turnout
