// SPDX-License-Identifier: BSD-3-Clause
// Recordings of processes and their merging into a trace.
#include "sim/formats/recording.h"

#include <gtest/gtest.h>

#include <sstream>

namespace turnout::sim {
namespace {

using Kind = TraceEvent::Kind;

Result<Recording> read(const std::string& text) {
  std::istringstream in(text);
  return read_recording(in, "test", {});
}

Recording good(const std::string& text) {
  Result<Recording> recording = read(text);
  EXPECT_TRUE(recording.ok()) << recording.status().text();
  return recording.ok() ? std::move(recording).value() : Recording{};
}

const std::string kFirst =
    "turnout-recording 1\nendpoint 00000000000000aa\nrank 0 2\npid 10\njob j\n"
    "p 0 bb\ns 1 0 8 18446744073709551615 0\nw 1\nc 2000\n"
    "r 2 * 64 * 0\nr 3 0 64 5 0\nr 4 * 64 9 0\nm 3 0 16 5\nm 2 0 8 7\nx 4\nr 6 * 1 1 0\no 3\nend\n";
const std::string kSecond =
    "turnout-recording 1\nendpoint 00000000000000bb\nrank 1 2\npid 9\njob j\n"
    "p 7 aa\nr 1 * 100 * 0\nm 1 7 8 18446744073709551615\ns 2 7 16 5 0\ns 3 7 8 7 0\nw 3\nw 2\n"
    "end\n";

// Two senders whose tags say who they are, and one more message that nobody sent.
TEST(Recording, FindsTheSendersThatAReceiverWasNotTold) {
  const std::string receiver =
      "turnout-recording 2\nendpoint aa\nalso ab\nrank 0 3\npid 1\n"
      "r 1 * 0 * 0 1\nr 2 * 0 * 0 2\nr 3 * 0 * 0 3\nm 1 * 8 5 4\nm 2 * 16 6 5\nm 3 * 9 5 6\n"
      "r 4 * 0 * 0 7\nm 4 * 4 77 8\nend\n";
  const std::string first =
      "turnout-recording 2\nendpoint bb\nrank 1 3\npid 2\np 0 aa\n"
      "s 1 0 9 5 0 1\nw 1 2\nend\n";
  const std::string second =
      "turnout-recording 2\nendpoint cc\nrank 2 3\npid 3\np 3 ab\n"
      "s 1 3 8 5 0 1\ns 2 3 16 6 0 2\nw 1 3\nw 2 4\nend\n";
  const Result<Trace> merged =
      merge_recordings({good(receiver), good(first), good(second)}, "name");
  ASSERT_TRUE(merged.ok()) << merged.status().text();
  std::vector<std::uint32_t> from, to;
  for (const TraceEvent& event : merged.value().programs[0]) {
    if (event.kind == Kind::receive) from.push_back(event.peer);
  }
  EXPECT_EQ(from, (std::vector<std::uint32_t>{2, 2, 1}));
  for (const TraceEvent& event : merged.value().programs[2]) {
    if (event.kind == Kind::send) to.push_back(event.peer);
  }
  EXPECT_EQ(to, (std::vector<std::uint32_t>{0, 0}));
}

TEST(Recording, ANameIsOneProcesss) {
  const std::string text =
      "turnout-recording 2\nendpoint aa\nalso bb\nrank 0 2\npid 1\np 0 bb\n"
      "s 1 0 9 5 0 1\nw 1 2\nend\n";
  const std::string other =
      "turnout-recording 2\nendpoint bb\nrank 1 2\npid 2\np 0 aa\n"
      "r 1 0 9 5 0 1\nm 1 0 9 5 2\nend\n";
  const Result<Trace> merged = merge_recordings({good(text), good(other)}, "name");
  ASSERT_FALSE(merged.ok());
  EXPECT_NE(merged.status().text().find("is given twice"), std::string::npos);
  EXPECT_FALSE(read("turnout-recording 1\nendpoint aa\nalso bb\nend\n").ok());
}

TEST(Recording, Merges) {
  Recording first = good(kFirst);
  EXPECT_EQ(first.one_sided, 3u);
  EXPECT_EQ(first.unfinished, 1u);
  const Result<Trace> merged = merge_recordings({good(kSecond), first}, "name");
  ASSERT_TRUE(merged.ok()) << merged.status().text();
  const Trace& trace = merged.value();
  ASSERT_EQ(trace.ranks(), 2u);
  ASSERT_EQ(trace.programs[0].size(), 7u);
  EXPECT_EQ(trace.programs[0][0].peer, 1u);
  EXPECT_EQ(trace.programs[0][2].kind, Kind::compute);
  const TraceEvent& wildcard = trace.programs[0][3];
  EXPECT_TRUE(wildcard.any_source && wildcard.any_tag);
  EXPECT_EQ(wildcard.peer, 1u);
  EXPECT_EQ(wildcard.tag, 7u);
  EXPECT_EQ(wildcard.amount, 8u);
  EXPECT_EQ(trace.programs[0][5].request, 3u);
  EXPECT_EQ(message_counts(trace).at({1, 0}), 2u);
}

// Layout 2: every event has its time, one-sided operations are events.
TEST(Recording, HasTimesAndOneSidedOperations) {
  const std::string text =
      "turnout-recording 2\nendpoint aa\nrank 0 2\npid 10\n"
      "p 0 bb\ns 1 0 8 5 0 100\nu 2 0 4096 120\ng 3 0 64 120\nw 1 130\nc 2000 2200\n"
      "r 4 * 64 * 0 2210\nu 5 0 1 2220\nx 5 2230\nm 4 0 16 5 2300\nw 3 2400\nw 2 2500\nend\n";
  const std::string other =
      "turnout-recording 1\nendpoint bb\nrank 1 2\npid 9\np 7 aa\n"
      "r 1 7 8 5 0\nm 1 7 8 5\ns 2 7 16 5 0\nw 2\nend\n";
  const Result<Trace> merged = merge_recordings({good(text), good(other)}, "");
  ASSERT_TRUE(merged.ok()) << merged.status().text();
  const auto& events = merged.value().programs[0];
  ASSERT_EQ(events.size(), 9u);  // without what failed
  EXPECT_EQ(events[1].kind, Kind::put);
  EXPECT_EQ(events[1].amount, 4096u);
  EXPECT_EQ(events[1].peer, 1u);
  EXPECT_EQ(events[1].time, 120);
  EXPECT_EQ(events[2].kind, Kind::get);
  EXPECT_EQ(events.back().time, 2500);
  EXPECT_TRUE(merged.value().has_times(0));
  EXPECT_FALSE(merged.value().has_times(1));  // of layout 1
  // As a trace's text and back.
  std::stringstream out;
  ASSERT_TRUE(write_trace(merged.value(), out).ok());
  const Result<Trace> again = read_trace(out, "again");
  ASSERT_TRUE(again.ok()) << again.status().text();
  EXPECT_EQ(again.value(), merged.value());
}

TEST(Recording, RanksFollowTheProcessesWhenNobodyToldThem) {
  Recording first = good(kFirst), second = good(kSecond);
  second.rank = -1;
  const Result<Trace> trace = merge_recordings({first, second}, "");
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(trace.value().programs[1].size(), 7u);  // process 10 comes after 9
}

TEST(Recording, RanksWithoutMessagesDoNothing) {
  Recording first = good(kFirst), second = good(kSecond);
  first.ranks = 4;
  Recording idle = good("turnout-recording 1\nendpoint c\nrank 0 4\npid 10\njob other\nc 1\nend\n");
  const Result<Trace> trace = merge_recordings({idle, first, second}, "");
  ASSERT_TRUE(trace.ok()) << trace.status().text();
  EXPECT_EQ(trace.value().ranks(), 4u);
}

TEST(Recording, WhatDoesNotBelongTogetherIsRefused) {
  const auto says = [](std::vector<Recording> recordings) {
    const Result<Trace> trace = merge_recordings(std::move(recordings), "");
    return trace.ok() ? std::string("accepted") : trace.status().text();
  };
  const Recording first = good(kFirst), second = good(kSecond);
  Recording other = second;
  EXPECT_NE(says({}).find("TURNOUT_TRACE"), std::string::npos);
  EXPECT_NE(says({first}).find("recording is missing"), std::string::npos);
  other.job = "k";
  EXPECT_NE(says({first, other}).find("two jobs"), std::string::npos);
  other = second;
  other.rank = 0;
  EXPECT_NE(says({first, other}).find("rank 0 has two recordings"), std::string::npos);
  other.rank = 2;
  EXPECT_NE(says({first, second, other}).find("is given twice"), std::string::npos);
}

struct Refusal {
  const char* text;
  const char* says;
};

TEST(Recording, WhatIsWrongIsRefusedWithItsLine) {
  const Refusal table[] = {
      {"", "empty"},
      {"turnout-trace 1\n", "expected \"turnout-recording 2\""},
      {"turnout-recording 1\nendpoint a\np 0 b\nu 1 0 8\nend\n", "expected endpoint"},
      {"turnout-recording 2\nendpoint a\no 3\nend\n", "expected endpoint"},
      {"turnout-recording 2\nendpoint a\nc 5\nend\n", "line 3: time"},
      {"turnout-recording 2\nendpoint a\nc 5 9\nc 5 8\nend\n", "line 4: time"},
      {"turnout-recording 2\nendpoint a\nc 5 2000000000000000000\nend\n", "line 3: time"},
      {"turnout-recording 2\nendpoint a\np 0 b\nu 1 0 8\nend\n", "line 4: time"},
      {"turnout-recording 2\nendpoint a\np 0 b\ng 1 0 9999999999999 1\nend\n", "bytes"},
      {"turnout-recording 7\n", "format version 7"},
      {"turnout-recording 1\nend\n", "the endpoint is missing"},
      {"turnout-recording 1\nendpoint 0\nend\n", "line 2: endpoint"},
      {"turnout-recording 1\nendpoint xyz\nend\n", "line 2: endpoint"},
      {"turnout-recording 1\nendpoint a\n", "did not close"},
      {"turnout-recording 1\nendpoint a\nrank 5\nend\n", "number of ranks"},
      {"turnout-recording 1\nendpoint a\ns 1 0 8 7 0\nend\n", "line 3: peer: 0 needs a line"},
      {"turnout-recording 1\nendpoint a\np 0 b\np 0 c\nend\n", "line 4: peer: duplicate 0"},
      {"turnout-recording 1\nendpoint a\np 0 b\ns 1 * 8 7 0\nend\n", "line 4: peer"},
      {"turnout-recording 1\nendpoint a\np 0 b\ns 1 0 8 * 0\nend\n", "line 4: tag"},
      {"turnout-recording 1\nendpoint a\np 0 b\ns 1 0 9999999999999 1 0\nend\n", "bytes"},
      {"turnout-recording 1\nendpoint a\np 0 b\ns 1 0 8 7 0 9\nend\n", "unexpected \"9\""},
      {"turnout-recording 1\nendpoint a\np 0 b\ns 1 0 8 7 0\nr 1 0 8 7 0\nend\n", "still pending"},
      {"turnout-recording 1\nendpoint a\np 0 b\ns 1 0 8 7 0\nm 1 0 8 7\nend\n",
       "1 is not a pending receive"},
      {"turnout-recording 1\nendpoint a\np 0 b\nr 1 0 8 7 0\nw 1\nend\n",
       "1 is not a pending send"},
      {"turnout-recording 1\nendpoint a\np 0 b\nr 1 0 8 7 0\nm 1 0 8 8\nend\n", "line 5: tag"},
      {"turnout-recording 1\nendpoint a\np 0 b\np 1 c\nr 1 0 8 7 0\nm 1 1 8 7\nend\n", "from 0"},
      {"turnout-recording 1\nendpoint a\nx 1\nend\n", "1 is not a pending operation"},
      {"turnout-recording 1\nendpoint a\nq\nend\n", "expected endpoint"},
  };
  for (const Refusal& row : table) {
    const Result<Recording> recording = read(row.text);
    ASSERT_FALSE(recording.ok()) << row.text;
    EXPECT_NE(recording.status().text().find(row.says), std::string::npos)
        << row.text << recording.status().text();
  }
  EXPECT_FALSE(read_recordings({"/nonexistent/x.recording"}, "").ok());
}

}  // namespace
}  // namespace turnout::sim
