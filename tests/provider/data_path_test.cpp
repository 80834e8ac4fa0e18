// SPDX-License-Identifier: BSD-3-Clause
// DataPath alone, on the double of the core: where operations report, and when it makes progress.
#include "provider/data_path.h"

#include <gtest/gtest.h>

#include "provider/av.h"
#include "tests/provider/loopback_endpoint.h"

namespace turnout::testing {
namespace {

using namespace turnout::provider;

// An endpoint that sends to itself.
class DataPathTest : public ::testing::Test {
 protected:
  DataPathTest() {
    path.peers.bind(av);
    self = av.insert(core.address());
  }
  ~DataPathTest() override { faults().reset(); }

  ssize_t send(std::uint64_t flags) {
    SendRequest request;
    return path.start(request, {self, flags, &context});
  }

  Fabric fabric;
  Domain domain{fabric};
  AddressVector av{domain};
  LoopbackEndpoint core{{}};
  EpOptions options{0, 0};
  CompletionQueue queue;
  Counter counter;
  DataPath path{core, options, FI_SOURCE};
  fi_addr_t self = FI_ADDR_NOTAVAIL;
  int context = 0;
};

TEST_F(DataPathTest, ReportsToTheQueueWhatAsksForItAndCountsEverything) {
  path.bind_queue(queue, FI_TRANSMIT);
  path.bind_counter(counter, FI_SEND);
  ASSERT_EQ(send(0), 0);
  ASSERT_EQ(send(FI_COMPLETION), 0);
  EXPECT_EQ(queue.size(), 1u);
  EXPECT_EQ(queue.front().context, &context);
  EXPECT_EQ(counter.value.load(), 2u);
}

TEST_F(DataPathTest, CountsReadsAndWritesApart) {
  Counter reads;
  path.bind_counter(counter, FI_WRITE);
  path.bind_counter(reads, FI_READ);
  char memory[8] = {}, local[8] = {};
  const Result<MemoryKey> key =
      core.memory().register_memory(memory, sizeof(memory), kAccessRemoteRead | kAccessRemoteWrite);
  ASSERT_TRUE(key.ok());
  for (const bool write : {true, false, false}) {
    const iovec part{local, sizeof(local)};
    RmaRequest request;
    request.write = write;
    request.local = {&part, 1};
    request.length = sizeof(local);
    request.remote_address = reinterpret_cast<std::uintptr_t>(memory);
    request.key = key.value().remote;
    ASSERT_EQ(path.start(request, {self, 0}), 0);
    path.progress();
  }
  EXPECT_EQ(counter.value.load(), 1u);
  EXPECT_EQ(reads.value.load(), 2u);
}

TEST_F(DataPathTest, BackPressureMakesProgress) {
  faults().send = {Code::again, "full"};
  EXPECT_EQ(send(0), -FI_EAGAIN);
  EXPECT_EQ(core.progress_calls, 1u);
  faults().send = {Code::over_budget, "no memory"};
  EXPECT_EQ(send(0), -FI_ENOMEM);
  EXPECT_EQ(core.progress_calls, 1u);
}

TEST_F(DataPathTest, AnUnknownPeerIsRefusedBeforeTheCoreIsAsked) {
  SendRequest request;
  EXPECT_EQ(path.start(request, {self + 1, 0}), -FI_EINVAL);
  PeekRequest peek;
  EXPECT_EQ(path.start(peek, {self + 1, 0}), 0) << "the source is not looked at: not directed";
}

TEST_F(DataPathTest, OnlyTheFlushMovesAnEndpointThatIsClosed) {
  path.progress();
  EXPECT_EQ(core.progress_calls, 1u);
  EXPECT_TRUE(path.close());
  EXPECT_FALSE(path.progress());
  EXPECT_EQ(core.progress_calls, 1u);
}

}  // namespace
}  // namespace turnout::testing
