// SPDX-License-Identifier: BSD-3-Clause
// Endpoints that record, in one process on the virtual adapter: what the layer above sees is what
// it would see without, and what is written makes a trace.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <vector>

#include "core/recording/computed_time.h"
#include "core/recording/recording_file.h"
#include "sim/formats/recording.h"
#include "tests/support/scratch.h"
#include "tests/support/test_world.h"

namespace turnout {
namespace {

using Kind = sim::TraceEvent::Kind;

class RecordingEndpoints : public ::testing::Test {
 protected:
  std::vector<std::pair<std::string, std::string>> setting() const {
    return {{"trace", folder_.string() + "/"}};
  }
  sim::Trace merged() const {
    const Result<sim::Trace> trace = sim::read_recordings({folder_.string()}, "");
    EXPECT_TRUE(trace.ok()) << trace.status().text();
    return trace.ok() ? trace.value() : sim::Trace{};
  }

  test::Folder scratch_;
  std::filesystem::path folder_ = scratch_.path() / "recordings";  // made by the endpoints
};

Status send(TestWorld& world, std::vector<char>& data, std::size_t length, std::uint64_t tag,
            bool tagged, void* context) {
  iovec piece{data.data(), length};
  SendRequest request;
  request.peer = world.peer(0, 1);
  request.data = {&piece, 1};
  request.tagged = tagged;
  request.tag = tag;
  request.report = world.report(0, context);
  return world[0].send(request);
}

TEST_F(RecordingEndpoints, HandOnEveryCompletion) {
  std::vector<char> out(20000), in(65536);
  int sent = 0, multi = 0, cut = 0, cancelled = 0, left = 0;
  {
    TestWorld world(2, setting());
    const auto receive = [&](std::size_t length, std::uint64_t tag, void* context, bool many) {
      iovec piece{in.data(), length};
      RecvRequest request;
      request.buffer = {&piece, 1};
      request.tagged = !many;
      request.tag = tag;
      request.multi = many;
      request.min_free = 1000;
      request.report = world.report(1, context);
      ASSERT_TRUE(world[1].recv(request).ok());
    };
    receive(4000, 0, &multi, true);
    receive(10, 7, &cut, false);
    receive(10, 8, &cancelled, false);
    receive(10, 9, &left, false);  // pending to the end
    ASSERT_TRUE(world[1].cancel(&cancelled));
    EXPECT_FALSE(world[1].cancel(&sent));
    ASSERT_TRUE(world.queue(1).has_error());
    const ErrorCompletion gone = world.queue(1).pop_error();
    EXPECT_EQ(gone.context, &cancelled);
    EXPECT_EQ(gone.status.code(), Code::canceled);

    for (int i = 0; i < 3; ++i) ASSERT_TRUE(send(world, out, 1100, 0, false, &sent).ok());
    ASSERT_TRUE(send(world, out, 20, 7, true, &sent).ok());
    ASSERT_TRUE(world.until([&] {
      return world.queue(0).size() == 4 && world.queue(1).size() == 3 && world.queue(1).has_error();
    }));
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(world.queue(0).front().context, &sent);
      world.queue(0).pop();
    }
    for (int i = 0; i < 3; ++i) {
      const Completion& completion = world.queue(1).front();
      EXPECT_EQ(completion.context, &multi);
      EXPECT_EQ(completion.length, 1100u);
      EXPECT_EQ((completion.flags & kMultiRecvDone) != 0, i == 2);
      world.queue(1).pop();
    }
    const ErrorCompletion truncated = world.queue(1).pop_error();
    EXPECT_EQ(truncated.context, &cut);
    EXPECT_EQ(truncated.overflow, 10u);
  }
  const sim::Trace trace = merged();
  ASSERT_EQ(trace.ranks(), 2u);
  std::multiset<std::uint64_t> sends, receives;
  for (const auto& program : trace.programs) {
    for (const sim::TraceEvent& event : program) {
      if (event.kind == Kind::send) sends.insert(event.amount);
      if (event.kind == Kind::receive) receives.insert(event.amount);
    }
  }
  EXPECT_EQ(sends, (std::multiset<std::uint64_t>{20, 1100, 1100, 1100}));
  EXPECT_EQ(receives, sends);
}

TEST_F(RecordingEndpoints, WriteDownOneSidedOperationsAndTimes) {
  std::vector<char> out(5000, 'x'), in(5000), there(5000, 'y');
  int wrote = 0, read = 0;
  {
    TestWorld world(2, setting());
    const Result<MemoryKey> key = world[1].memory().register_memory(
        there.data(), there.size(), kAccessRemoteRead | kAccessRemoteWrite);
    ASSERT_TRUE(key.ok()) << key.status().text();
    ASSERT_TRUE(send(world, out, 20, 7, true, nullptr).ok());
    iovec to{in.data(), in.size()};
    RecvRequest receive;
    receive.buffer = {&to, 1};
    receive.tagged = true;
    receive.tag = 7;
    receive.report = world.report(1, nullptr);
    ASSERT_TRUE(world[1].recv(receive).ok());
    RmaRequest request;
    iovec piece{out.data(), 3000};
    request.peer = world.peer(0, 1);
    request.write = true;
    request.local = {&piece, 1};
    request.length = piece.iov_len;
    request.remote_address = reinterpret_cast<std::uint64_t>(there.data());
    request.key = key.value().remote;
    request.report = world.report(0, &wrote);
    ASSERT_TRUE(world[0].rma(request).ok());
    piece = {in.data(), 100};
    request.write = false;
    request.length = 100;
    request.report = world.report(0, &read);
    ASSERT_TRUE(world[0].rma(request).ok());
    ASSERT_TRUE(
        world.until([&] { return world.queue(0).size() == 3 && world.queue(1).size() == 1; }));
    std::set<void*> contexts;
    for (; world.queue(0).size() > 0; world.queue(0).pop()) {
      contexts.insert(world.queue(0).front().context);
    }
    EXPECT_EQ(contexts, (std::set<void*>{nullptr, &wrote, &read}));
    EXPECT_EQ(there[2999], 'x');
    world[1].memory().deregister_memory(key.value());
  }
  const sim::Trace trace = merged();
  ASSERT_EQ(trace.ranks(), 2u);
  std::multiset<std::uint64_t> put, got;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(trace.has_times(rank));
    for (const sim::TraceEvent& event : trace.programs[rank]) {
      if (event.kind == Kind::put) put.insert(event.amount);
      if (event.kind == Kind::get) got.insert(event.amount);
    }
  }
  EXPECT_EQ(put, (std::multiset<std::uint64_t>{3000}));
  EXPECT_EQ(got, (std::multiset<std::uint64_t>{100}));
}

// A peer that is gone before the end, operations of which nobody hears again.
TEST_F(RecordingEndpoints, EndInAnyOrder) {
  std::vector<char> out(300000);
  int context = 0;
  {
    TestWorld world(2, setting());
    ASSERT_TRUE(send(world, out, out.size(), 1, true, &context).ok());
    world.progress_all(100);
    world.close(1);
    world.progress_all(100);
  }
  EXPECT_FALSE(sim::read_recordings({folder_.string()}, "").ok());  // one rank recorded nothing
}

TEST_F(RecordingEndpoints, WithoutMessagesLeaveNoFile) {
  { TestWorld world(2, setting()); }
  EXPECT_FALSE(std::filesystem::exists(folder_));
}

TEST_F(RecordingEndpoints, GoOnWhenNothingCanBeWritten) {
  std::vector<char> out(10);
  int context = 0;
  TestWorld world(2, {{"trace", "/proc/nowhere/%p.%r.%e"}});
  ASSERT_TRUE(send(world, out, out.size(), 1, true, &context).ok());
  EXPECT_TRUE(world.until([&] { return world.queue(0).size() == 1; }));
}

TEST(ComputedTime, LeavesOutWhatLiesBetweenPolls) {
  using enum ComputedTime::Call;
  ComputedTime time;
  time.begin(0, 0, 1, acts);
  time.end(100, 100, 1);
  time.begin(5'100, 5'100, 1, polls);  // 5 us before a poll
  time.end(5'200, 5'200, 1);
  time.begin(10'200, 10'200, 1, polls);  // a yield
  time.end(10'300, 10'300, 1);
  time.begin(60'300, 60'300, 1, polls);  // 50 us in which it tests
  time.end(60'400, 60'400, 1);
  time.begin(110'400, 900'000, 1, polls);  // others had the processor
  time.end(110'500, 900'100, 1);
  time.begin(113'500, 903'100, 1, acts);  // 3 us behind a wait
  EXPECT_EQ(time.take(), 58'000);
  EXPECT_EQ(time.take(), 0);
  time.end(113'600, 903'200, 1);
  time.begin(114'500, 904'100, 1, acts);  // the library's own way
  time.end(114'600, 904'200, 1);
  time.begin(999'999, 999'999, 2, acts);  // another thread
  EXPECT_EQ(time.take(), 0);
}

// What follows a wait in which others had the processor is less by what such a wait's polls show.
TEST(ComputedTime, LeavesOutWhatColdCachesCost) {
  using enum ComputedTime::Call;
  ComputedTime time;
  Nanoseconds processor = 0, wall = 0;
  const auto poll_after = [&](Nanoseconds gap, Nanoseconds others) {
    processor += gap;
    wall += gap + others;
    time.begin(processor, wall, 1, polls);
    time.end(processor, wall, 1);
  };
  const auto act_after = [&](Nanoseconds gap) {
    processor += gap;
    wall += gap;
    time.begin(processor, wall, 1, acts);
    time.end(processor, wall, 1);
    return time.take();
  };
  poll_after(300, 0);
  for (const Nanoseconds cold : {4'000, 6'000, 5'000}) poll_after(cold, 80'000);
  EXPECT_EQ(act_after(45'000), 40'000);
  EXPECT_EQ(act_after(45'000), 45'000);  // no wait before
  poll_after(300, 0);
  poll_after(5'000, 80'000);
  EXPECT_EQ(act_after(6'000), 0);
  poll_after(300, 0);
  EXPECT_EQ(act_after(6'000), 6'000);  // a wait that kept the processor
}

TEST(RecordingPath, FillsInWhoItIs) {
  Address self;
  self.pid = 12;
  self.id = 0xab;
  EXPECT_EQ(RecordingFile::path_of("./x/", 3, self), "./x/rank-3.12.00000000000000ab.recording");
  EXPECT_EQ(RecordingFile::path_of("/a/%p-%r-%e", -1, self), "/a/12-x-00000000000000ab");
  Settings settings = Settings::defaults();
  for (const char* good : {"", "./x/", "/a/%p", "/a/%r%e"}) {
    ASSERT_TRUE(settings.set("trace", good).ok());
    EXPECT_TRUE(settings.validate().ok()) << good;
  }
  for (const char* bad : {"x", "1", "./%", "./%d", "./%%p"}) {
    ASSERT_TRUE(settings.set("trace", bad).ok());
    EXPECT_NE(settings.validate().text().find("TURNOUT_TRACE"), std::string::npos) << bad;
  }
}

}  // namespace
}  // namespace turnout
