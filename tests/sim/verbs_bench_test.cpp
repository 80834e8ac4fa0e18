// SPDX-License-Identifier: BSD-3-Clause
// The benchmarks at the verbs level agree with closed forms of the parameters.
#include "sim/calibration/verbs_bench.h"

#include <gtest/gtest.h>

namespace turnout::sim {
namespace {

double value_of(const Result<double>& result) {
  EXPECT_TRUE(result.ok()) << result.status().text();
  return result.ok() ? result.value() : -1;
}

hca::Profile times_only() {
  hca::Profile p;
  p.processor_post = 40'000;
  p.processor_post_ud = 7'000;
  p.processor_entry = 20'000;
  p.pcie_doorbell = 300'000;
  p.pcie_read = 400'000;
  p.pcie_write = 250'000;
  p.wire_hop = 100'000;
  return p;
}

TEST(VerbsBench, SendsGoThroughEveryStageOnce) {
  const hca::Profile p = times_only();
  constexpr double kOneWay = 40 + 300 + 100 + 250 + 20;
  EXPECT_DOUBLE_EQ(value_of(send_latency(p, VerbsTransport::rc, 8, true)), kOneWay);
  EXPECT_DOUBLE_EQ(value_of(send_latency(p, VerbsTransport::rc, 8, false)), kOneWay + 400);
  EXPECT_DOUBLE_EQ(value_of(send_latency(p, VerbsTransport::ud, 8, true)), kOneWay + 7);
}

// The data are seen in memory: no completion is taken. Those of earlier writes are, while waiting.
TEST(VerbsBench, WritesAreSeenInMemory) {
  hca::Profile p = times_only();
  p.processor_entry = 0;
  EXPECT_DOUBLE_EQ(value_of(write_latency(p, 8, true)), 40 + 300 + 100 + 250);
  EXPECT_DOUBLE_EQ(value_of(write_latency(p, 8, false)), 40 + 300 + 400 + 100 + 250);
}

TEST(VerbsBench, ReadsGoThereAndBack) {
  hca::Profile p = times_only();
  EXPECT_DOUBLE_EQ(value_of(read_latency(p, 8)), 40 + 300 + 100 + 400 + 100 + 250 + 20);
  p.dc_serial = 1;
  p.dc_connect = 1'000'000;
  p.adapter_send_dc_switch = 25'000;
  p.adapter_send_dc = 10'000;
  EXPECT_DOUBLE_EQ(value_of(dc_read_latency(p, 2)) - value_of(dc_read_latency(p, 1)), 1015);
}

double time_of_writes(const hca::Profile& profile, std::uint32_t queue_pairs) {
  WriteStreams streams;
  streams.queue_pairs = queue_pairs;
  const auto times = write_times(profile, streams);
  EXPECT_TRUE(times.ok()) << times.status().text();
  return times.ok() ? times.value().back() : -1;
}

TEST(VerbsBench, StreamsFillTheAdapterAndItsContexts) {
  hca::Profile p;
  p.processor_post = 90'000;
  p.adapter_send_rc = 20'000;
  EXPECT_NEAR(time_of_writes(p, 16), 20, 0.1);
  p.cache_first_entries = 64;
  p.cache_first_miss = 6'000;
  p.cache_second_entries = 192;
  p.cache_second_miss = 400'000;
  p.cache_fetches = 8;
  EXPECT_NEAR(time_of_writes(p, 64), 20, 0.1);
  EXPECT_NEAR(time_of_writes(p, 128), 26, 0.1);
  EXPECT_NEAR(time_of_writes(p, 256), 26, 0.1);
  EXPECT_NEAR(time_of_writes(p, 512), 50, 0.5);  // eight fetches at a time
}

}  // namespace
}  // namespace turnout::sim
