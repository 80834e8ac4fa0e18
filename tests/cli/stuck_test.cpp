// SPDX-License-Identifier: BSD-3-Clause
// What `turnout stuck` says of made-up reports: tags, who waits for whom, cycles, and the text.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "cli/mpi_tag.h"
#include "cli/stuck_model.h"
#include "cli/stuck_text.h"
#include "tests/support/sample.h"

namespace turnout::cli {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

WaitReport receive(std::uint32_t from, std::uint64_t tag) {
  return {WaitKind::receive, WaitFor::message, from, true, tag, 0, 64, 9 * kSecond};
}
WaitReport receive_any(std::uint64_t tag) {
  return {WaitKind::receive, WaitFor::message, {}, true, tag, 0, 64, 9 * kSecond};
}
WaitReport unexpected(std::uint32_t from, std::uint64_t tag) {
  return {WaitKind::unexpected, WaitFor::receive, from, true, tag, 0, 8, 9 * kSecond};
}
WaitReport send(std::uint32_t to, std::uint64_t tag, WaitFor what) {
  return {WaitKind::send, what, to, true, tag, 0, 1 << 20, 9 * kSecond};
}

// Processes that have been quiet for ten seconds; peers are numbered as the ranks are.
class Stuck : public ::testing::Test {
 protected:
  void make(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      seen_.reports.push_back({test::sample_report(rank, ranks), 0.5});
      waits(rank).list.clear();
      waits(rank).quiet = 10 * kSecond;
      waits(rank).mpi.clear();
    }
  }
  WaitsReport& waits(int rank) {
    return *seen_.reports[static_cast<std::size_t>(rank)].report.waits;
  }
  void pending(int rank, std::initializer_list<WaitReport> list) {
    WaitsReport& all = waits(rank);
    all.list.insert(all.list.end(), list);
  }
  StuckJob job() {
    std::vector<StuckJob> jobs = stuck_jobs(seen_);
    EXPECT_EQ(jobs.size(), 1u);
    return jobs.empty() ? StuckJob{} : std::move(jobs.front());
  }
  // It has `words` in one line, wrapped or not.
  static void expect_said(const StuckJob& job, const std::string& words) {
    std::string text = stuck_text(job, 3), flat;
    std::unique_copy(text.begin(), text.end(), std::back_inserter(flat), [](char a, char b) {
      return (a == ' ' || a == '\n') && (b == ' ' || b == '\n');
    });
    std::ranges::replace(flat, '\n', ' ');
    EXPECT_NE(flat.find(words), std::string::npos) << words << "\nin\n" << text;
  }

  Observation seen_;
};

TEST(MpiTag, OfMpich) {
  const auto text = [](std::uint64_t tag, std::uint64_t ignore) {
    return tag_text({.tagged = true, .tag = tag, .ignore = ignore}, "MPICH Version: 5.0.2");
  };
  EXPECT_EQ(text(5, 0x00c0000000000000), "MPI tag 5 (MPICH)");
  EXPECT_EQ(text(0, 0x00c000007fffffff), "any MPI tag (MPICH)");
  EXPECT_EQ(text(0x80000001, 0), "MPI_Barrier (MPICH)");
  EXPECT_EQ(text(0x400000000e + 0x80000000, 0), "MPI_Allreduce on context 128 (MPICH)");
  EXPECT_EQ(text(0x0008000000000008, 0), "answer to MPI_Ssend, MPI tag 8 (MPICH)");
  EXPECT_EQ(text(0x8000000000000008, 0), "tag 0x8000000000000008");  // outside the layout
  EXPECT_EQ(text(0, 0xff), "tag 0x0, ignoring 0xff");
}

TEST(MpiTag, OfOpenMpi) {
  const auto text = [](std::uint64_t tag, std::uint64_t ignore) {
    return tag_text({.tagged = true, .tag = tag, .ignore = ignore}, "Open MPI v4.1.4, package: x");
  };
  EXPECT_EQ(text(7, 0x0000000300000000), "MPI tag 7 (Open MPI)");
  EXPECT_EQ(text(0, 0x000000037fffffff), "any MPI tag (Open MPI)");
  EXPECT_EQ(text(0x0000000cfffffff0, 0), "MPI_Barrier on communicator 3 (Open MPI)");
  EXPECT_EQ(text(0x0000000200000009, 0), "answer to MPI_Ssend, MPI tag 9 (Open MPI)");
}

TEST(MpiTag, IsHexadecimalWhereTheLayoutIsNotKnown) {
  const WaitReport wait{.tagged = true, .tag = 0x80000001, .ignore = 0};
  for (const char* const mpi : {"", "MPICH Version: 3.3", "MPICH Version: 6.0",
                                "Intel(R) MPI Library 2021.10", "Open MPI v6.0.0"}) {
    EXPECT_EQ(tag_text(wait, mpi), "tag 0x80000001") << mpi;
    EXPECT_FALSE(answered_tag(wait, mpi).has_value());
  }
  EXPECT_EQ(tag_text({.tagged = false}, ""), "no tag");
  EXPECT_EQ(tag_text({.tagged = true, .ignore = UINT64_MAX}, ""), "any tag");
}

TEST_F(Stuck, TwoThatReceiveFirstAreACycle) {
  make(2);
  pending(0, {receive(1, 5)});
  pending(1, {receive(0, 5)});
  const StuckJob found = job();
  ASSERT_EQ(found.cycles.size(), 1u);
  EXPECT_EQ(found.cycles[0], (std::vector<std::size_t>{0, 1}));
  EXPECT_TRUE(found.roots.empty());
  EXPECT_EQ(found.waits[0].detail, "rank 1 has sent no such message");
  expect_said(found, "Deadlock: ranks 0 and 1 wait for each other");
  expect_said(found, "rank 0 (pid 5000) waits for rank 1: receive, tag 0x5, at most 64 B; for 9 s");
}

TEST_F(Stuck, AMessageWithAnotherTagIsNamed) {
  make(3);
  pending(0, {receive(1, 5), unexpected(1, 6), unexpected(2, 7)});
  pending(1, {send(2, 1, WaitFor::match)});
  const StuckJob found = job();
  ASSERT_EQ(found.waits.size(), 2u);
  EXPECT_EQ(found.waits[0].detail, "rank 1 sent tag 0x6, 8 B, instead");
  EXPECT_TRUE(found.cycles.empty());
  EXPECT_EQ(found.roots, (std::vector<std::size_t>{2}));
  expect_said(found, "rank 2 (pid 5002) calls the library, but has no operation pending");
  expect_said(found, "ranks 0 and 1 wait for it");
}

TEST_F(Stuck, LargeSendsInARing) {
  make(4);
  pending(0, {send(2, 7, WaitFor::match)});
  pending(2, {send(3, 7, WaitFor::match), unexpected(0, 7), receive(0, 8)});
  pending(3, {send(0, 7, WaitFor::match)});
  pending(1, {receive(3, 1)});
  const StuckJob found = job();
  ASSERT_EQ(found.cycles.size(), 1u);
  ASSERT_EQ(found.cycles[0].size(), 2u) << "the shortest: ranks 0 and 2";
  expect_said(found, "rank 2 has posted no receive for it; it receives tag 0x8 instead");
  waits(2).list.pop_back();
  const StuckJob ring = job();
  ASSERT_EQ(ring.cycles.size(), 1u);
  EXPECT_EQ(ring.cycles[0].size(), 3u);
  expect_said(ring, "Deadlock: ranks 0, 2 and 3 wait for each other in a circle");
  expect_said(ring, "Other waits: rank 1 (pid 5001) waits for rank 3");
}

TEST_F(Stuck, WhoDoesNotCallTheLibraryIsTheCause) {
  make(4);
  pending(0, {receive(1, 1)});
  pending(1, {receive(2, 1)});
  pending(3, {receive(2, 1)});
  seen_.reports.erase(seen_.reports.begin() + 2);
  seen_.processes = {{5002, 2, 4, "sample", "it computes (98 % of a core)"}};
  const StuckJob found = job();
  ASSERT_EQ(found.processes.size(), 4u);
  EXPECT_FALSE(found.processes[2].answers);
  EXPECT_EQ(found.roots, (std::vector<std::size_t>{2}));
  EXPECT_TRUE(found.cycles.empty());
  expect_said(found,
              "Cause: rank 2 (pid 5002) does not call the library: it computes (98 % of a core); "
              "ranks 0, 1 and 3 wait for it");
}

// What was pending when it last called the library is pending still.
TEST_F(Stuck, AStaleReportStillTells) {
  make(2);
  pending(0, {receive(1, 1)});
  pending(1, {receive(0, 1)});
  seen_.reports[1].age = 60;
  seen_.processes = {{5001, 1, 2, "sample", "it is stopped by a signal"}};
  const StuckJob found = job();
  EXPECT_EQ(found.cycles.size(), 1u);
  EXPECT_EQ(found.roots, (std::vector<std::size_t>{1}));
  EXPECT_DOUBLE_EQ(found.waits[1].age, 69);
  expect_said(found, "(last report 1 min 0 s ago): it is stopped by a signal");
  seen_.live = false;  // saved at different times
  seen_.processes.clear();
  const StuckJob saved = job();
  EXPECT_TRUE(saved.roots.empty());
  EXPECT_DOUBLE_EQ(saved.waits[1].age, 9);
}

// Receives that are posted before a computation are nothing that anybody waits for.
TEST_F(Stuck, WhoComputesDoesNotWait) {
  make(2);
  pending(0, {receive(1, 1)});
  pending(1, {receive(0, 1)});
  for (Watched& one : seen_.reports) one.age = 60;
  seen_.processes = {{5000, 0, 2, "sample", "it computes (99 % of a core)", true},
                     {5001, 1, 2, "sample", "it computes (99 % of a core)", true}};
  EXPECT_FALSE(job().hangs());
  seen_.processes[0].computes = seen_.processes[1].computes = false;
  EXPECT_TRUE(job().hangs());
  EXPECT_EQ(job().cycles.size(), 1u);
}

TEST_F(Stuck, AWildcardIsNoCycleWhileSomebodyMaySend) {
  make(3);
  pending(0, {receive_any(1)});
  pending(1, {receive(0, 1)});
  StuckJob found = job();
  EXPECT_TRUE(found.cycles.empty());
  EXPECT_TRUE(found.knot.empty());
  pending(2, {receive(0, 1)});
  found = job();
  EXPECT_TRUE(found.cycles.empty());
  EXPECT_EQ(found.knot, (std::vector<std::size_t>{0, 1, 2}));
  expect_said(found, "ranks 0, 1 and 2 can only go on with messages of each other");
  expect_said(found, "rank 0 (pid 5000) waits for any process");
}

// Open MPI's linear barrier: rank 0 receives of any source.
TEST_F(Stuck, AWildcardWaitsForWhoCouldSend) {
  make(3);
  pending(0, {receive_any(1)});
  pending(2, {receive(0, 1)});
  seen_.reports.erase(seen_.reports.begin() + 1);
  seen_.processes = {{5001, 1, 3, "sample", "it sleeps"}};
  expect_said(job(),
              "Cause: rank 1 (pid 5001) does not call the library: it sleeps; ranks 0 and 2 "
              "wait for it");
}

TEST_F(Stuck, WhoPollsWithoutAnOperationIsNamedWhereNobodyWaits) {
  make(2);
  waits(1).quiet = 0;
  const StuckJob found = job();
  EXPECT_FALSE(found.hangs());
  EXPECT_EQ(found.roots, (std::vector<std::size_t>{0}));
  expect_said(found, "Note: rank 0 (pid 5000) calls the library, but has no operation pending");
}

TEST_F(Stuck, WhyASenderIsOutOfCredits) {
  make(3);
  pending(1,
          {send(0, 1, WaitFor::credits), send(0, 1, WaitFor::order), send(0, 1, WaitFor::order)});
  pending(0, {receive(2, 9)});
  for (int i = 0; i < 20; ++i) pending(0, {unexpected(1, 1)});
  pending(0, {{WaitKind::incoming, WaitFor::memory, 1u, false, 0, 0, 0, kSecond}});
  const StuckJob found = job();
  ASSERT_EQ(found.waits.size(), 2u);
  expect_said(found, "no receive credit of the peer is left; for 9 s or more; 2 messages or more");
  expect_said(found,
              "rank 0 has 20 unexpected messages of rank 1 (160 B) and posts no receive for "
              "them; its memory for them is full");
}

TEST_F(Stuck, WhoSendsOrReceivesIsNotStuck) {
  make(2);
  pending(0, {receive(1, 1)});
  waits(0).quiet = kSecond;
  EXPECT_FALSE(job().hangs());
  expect_said(job(), "no operation of a process that makes no progress has been pending for 3 s");
  waits(0).quiet = 10 * kSecond;
  waits(0).list[0].age = 2 * kSecond;
  EXPECT_FALSE(job().hangs());
  waits(0).list[0] = unexpected(1, 1);
  EXPECT_FALSE(job().hangs());
}

TEST_F(Stuck, RanksWithoutAProcessAreMissing) {
  make(3);
  seen_.reports.pop_back();
  pending(0, {receive(2, 1)});
  const StuckJob found = job();
  ASSERT_EQ(found.processes.size(), 3u);
  EXPECT_TRUE(found.processes[2].gone);
  expect_said(found, "Missing: rank 2");
  expect_said(found, "rank 0 (pid 5000) waits for process 5002, which does not report");
}

TEST_F(Stuck, ALargeJobFitsOneScreen) {
  make(300);
  for (int rank = 0; rank < 300; ++rank) {
    const auto next = static_cast<std::uint32_t>((rank + 1) % 300);
    for (std::uint64_t tag = 0; tag < 8; ++tag) pending(rank, {receive(next, tag)});
  }
  const StuckJob found = job();
  ASSERT_EQ(found.cycles.size(), 1u);
  EXPECT_EQ(found.cycles[0].size(), 300u);
  const std::string text = stuck_text(found, 3);
  EXPECT_LE(std::ranges::count(text, '\n'), static_cast<std::ptrdiff_t>(kStuckLines));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), kStuckColumns) << line;
  expect_said(found, "--json prints all");
}

TEST_F(Stuck, TextOfReportsStaysText) {
  make(2);
  const std::string evil = "\x1b[2J\r\n\xff" + std::string(300, 'w');
  for (Watched& one : seen_.reports) {
    one.report.job = one.report.host = one.report.waits->mpi = evil;
    one.report.rank = one.report.ranks = -1;
  }
  pending(0, {receive(1, 5)});
  pending(1, {receive(77, 5)});  // a peer that it does not list
  seen_.processes = {{5001, -1, -1, evil, evil}};
  const StuckJob found = job();
  const std::string text = stuck_text(found, 3);
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << text;
  const auto json = nlohmann::json::parse(stuck_json({&found, 1}), nullptr, false);
  ASSERT_FALSE(json.is_discarded());
  EXPECT_EQ(json["jobs"][0]["waits"].size(), 2u);
  EXPECT_TRUE(json["jobs"][0]["hangs"].get<bool>());
  EXPECT_TRUE(json["jobs"][0]["waits"][1]["target"].is_null());
}

}  // namespace
}  // namespace turnout::cli
