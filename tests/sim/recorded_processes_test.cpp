// SPDX-License-Identifier: BSD-3-Clause
// Two processes over libturnout-fi.so with TURNOUT_TRACE: what they recorded makes a trace with
// the messages that they exchanged.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "sim/formats/recording.h"
#include "tests/support/process.h"
#include "tests/support/scratch.h"

namespace turnout::testing {
namespace {

using Kind = sim::TraceEvent::Kind;

constexpr std::uint64_t kRounds = 50;
constexpr std::size_t kLarge = 100000;

// Ways to send and to receive, each with messages that others leave alone.
void exchange(int role, int socket) {
  Process p(role, socket);
  std::vector<char> small(64), large(kLarge);
  for (std::uint64_t i = 0; i < kRounds; ++i) {
    if (role == 0) {
      p.send(small.data(), 8, 1);
      p.receive(large.data(), large.size(), 2);
    } else {
      p.receive(small.data(), small.size(), 1);
      p.send(large.data(), large.size(), 2);
    }
  }
  if (role == 0) {
    p.post([&] { return fi_tinject(p.ep, small.data(), 16, p.peer, 3); });
    p.send(small.data(), 24, 4);
    p.barrier();  // the message of tag 5 waits to be claimed
    p.post([&] { return fi_tinject(p.ep, small.data(), 5, p.peer, 5); });
    p.post([&] { return fi_inject(p.ep, small.data(), 6, p.peer); });
    p.barrier();
    return;
  }
  int cancelled = 0;
  p.post([&] { return fi_trecv(p.ep, small.data(), 8, nullptr, p.peer, 99, 0, &cancelled); });
  CHECK_EQ(fi_cancel(&p.ep->fid, &cancelled), 0);
  CHECK_EQ(p.next_error().err, FI_ECANCELED);
  int any = 0;  // any source, any tag: the two messages in their order
  for (int i = 0; i < 2; ++i) {
    p.post([&] {
      return fi_trecv(p.ep, small.data(), small.size(), nullptr, FI_ADDR_UNSPEC, 0,
                      ~std::uint64_t{0}, &any);
    });
    p.finish({&any});
  }
  p.barrier();
  fi_msg_tagged msg{};
  iovec buffer{small.data(), small.size()};
  int claim = 0;
  msg.addr = FI_ADDR_UNSPEC;
  msg.tag = 5;
  msg.context = &claim;
  for (;;) {  // until it has come
    p.post([&] { return fi_trecvmsg(p.ep, &msg, FI_PEEK | FI_CLAIM); });
    fi_cq_tagged_entry entry{};
    ssize_t n = 0;
    while ((n = fi_cq_read(p.cq, &entry, 1)) == -FI_EAGAIN) {
    }
    if (n == 1) break;
    CHECK_EQ(p.next_error().err, FI_ENOMSG);
  }
  msg.msg_iov = &buffer;
  msg.iov_count = 1;
  p.post([&] { return fi_trecvmsg(p.ep, &msg, FI_CLAIM); });
  p.finish({&claim});
  int untagged = 0;
  p.post([&] { return fi_recv(p.ep, small.data(), small.size(), nullptr, p.peer, &untagged); });
  p.finish({&untagged});
  p.barrier();
}

const bool registered = [] {
  cases()["exchange"] = exchange;
  return true;
}();

struct Recorded {
  test::Folder scratch;
  std::filesystem::path path = scratch.path() / "recordings";
  test::Variable variable{"TURNOUT_TRACE", path.string() + "/"};
};

TEST(RecordedProcesses, MakeATrace) {
  const Recorded folder;
  ASSERT_EQ(run_case("exchange"), "");
  const Result<sim::Trace> merged = sim::read_recordings({folder.path.string()}, "exchange");
  ASSERT_TRUE(merged.ok()) << merged.status().text();
  const sim::Trace& trace = merged.value();
  ASSERT_EQ(trace.ranks(), 2u);
  // Ranks follow the process numbers here; the first role sends more messages.
  auto counts = sim::message_counts(trace);
  const std::uint32_t first = counts[{0, 1}] > counts[{1, 0}] ? 0 : 1;
  EXPECT_EQ((counts[{first, 1 - first}]), kRounds + 4);
  EXPECT_EQ((counts[{1 - first, first}]), kRounds);
  std::multiset<std::uint64_t> sent, received;
  std::size_t wildcards = 0, receives = 0, waits = 0, starts = 0;
  for (const auto& program : trace.programs) {
    for (const sim::TraceEvent& event : program) {
      if (event.kind == Kind::wait) ++waits;
      if (event.kind != Kind::send && event.kind != Kind::receive) continue;
      ++starts;
      const std::uint64_t message = event.amount << 32 | event.communicator << 16 | event.tag;
      (event.kind == Kind::send ? sent : received).insert(message);
      if (event.kind == Kind::receive) ++receives;
      if (event.any_source && event.any_tag) ++wildcards;
    }
  }
  EXPECT_EQ(sent, received);
  EXPECT_EQ(receives, 2 * kRounds + 4);
  EXPECT_EQ(wildcards, 3u);  // two receives and the claimed message
  EXPECT_EQ(waits, starts);
}

TEST(RecordedProcesses, NothingIsWrittenWithoutTheSetting) {
  std::filesystem::path path;
  {
    const Recorded folder;
    path = folder.path;
  }
  ASSERT_EQ(run_case("exchange"), "");
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace turnout::testing

int main(int argc, char** argv) {
  return turnout::testing::run(argc, argv);
}
