// SPDX-License-Identifier: BSD-3-Clause
// EpOptions alone: what programs may set, and the flags that calls get from it.
#include "provider/endpoint_options.h"

#include <gtest/gtest.h>
#include <rdma/fi_errno.h>

namespace turnout::testing {
namespace {

using provider::EpOptions;

TEST(EpOptions, CallsUseTheOperationFlagsAndReportUnlessSelective) {
  EpOptions options(FI_DELIVERY_COMPLETE, FI_MULTI_RECV);
  options.bind_queue(FI_TRANSMIT | FI_RECV);
  EXPECT_EQ(options.tx_flags(), FI_DELIVERY_COMPLETE | FI_COMPLETION);
  EXPECT_EQ(options.tx_msg_flags(), FI_COMPLETION);
  EXPECT_EQ(options.rx_flags(), FI_MULTI_RECV | FI_COMPLETION);
  EXPECT_EQ(options.rx_msg_flags(), FI_COMPLETION);
  options.bind_queue(FI_TRANSMIT | FI_SELECTIVE_COMPLETION);
  EXPECT_EQ(options.tx_flags(), FI_DELIVERY_COMPLETE);
  EXPECT_EQ(options.tx_msg_flags(), 0u);
  EXPECT_EQ(options.rx_flags(), FI_MULTI_RECV | FI_COMPLETION);
  options.bind_queue(FI_RECV | FI_SELECTIVE_COMPLETION);
  EXPECT_EQ(options.rx_flags(), FI_MULTI_RECV);
  EXPECT_EQ(options.rx_msg_flags(), 0u);
}

TEST(EpOptions, InjectedOperationsHaveACompletionLevelOnlyIfTheyAreCounted) {
  EpOptions options(FI_DELIVERY_COMPLETE | FI_COMPLETION, 0);
  EXPECT_EQ(options.tx_inject_flags(), FI_INJECT);
  options.bind_counter(FI_RECV | FI_READ);
  EXPECT_EQ(options.tx_inject_flags(), FI_INJECT);
  options.bind_counter(FI_WRITE);
  EXPECT_EQ(options.tx_inject_flags(), FI_INJECT | FI_DELIVERY_COMPLETE);
}

TEST(EpOptions, OperationFlagsAreSetAndReadByDirection) {
  EpOptions options(0, 0);
  std::uint64_t flags = FI_TRANSMIT | FI_DELIVERY_COMPLETE;
  EXPECT_EQ(options.control(FI_SETOPSFLAG, &flags), 0);
  flags = FI_RECV | FI_MULTI_RECV;
  EXPECT_EQ(options.control(FI_SETOPSFLAG, &flags), 0);
  flags = FI_TRANSMIT;
  EXPECT_EQ(options.control(FI_GETOPSFLAG, &flags), 0);
  EXPECT_EQ(flags, FI_DELIVERY_COMPLETE);
  flags = FI_RECV;
  EXPECT_EQ(options.control(FI_GETOPSFLAG, &flags), 0);
  EXPECT_EQ(flags, FI_MULTI_RECV);
  EXPECT_EQ(options.tx_flags(), FI_DELIVERY_COMPLETE | FI_COMPLETION);
  EXPECT_EQ(options.rx_flags(), FI_MULTI_RECV | FI_COMPLETION);
}

TEST(EpOptions, OperationFlagsThatMakeNoSenseAreRefused) {
  EpOptions options(FI_INJECT, 0);
  EXPECT_EQ(options.control(FI_SETOPSFLAG, nullptr), -FI_EINVAL);
  EXPECT_EQ(options.control(FI_GETOPSFLAG, nullptr), -FI_EINVAL);
  std::uint64_t flags = FI_TRANSMIT | FI_RECV;
  EXPECT_EQ(options.control(FI_SETOPSFLAG, &flags), -FI_EINVAL) << "exactly one direction";
  EXPECT_EQ(options.control(FI_GETOPSFLAG, &flags), -FI_EINVAL);
  flags = FI_COMPLETION;
  EXPECT_EQ(options.control(FI_SETOPSFLAG, &flags), -FI_EINVAL);
  flags = FI_TRANSMIT | FI_MULTI_RECV;
  EXPECT_EQ(options.control(FI_SETOPSFLAG, &flags), -FI_EBADFLAGS) << "of the other direction";
  flags = FI_RECV | FI_INJECT;
  EXPECT_EQ(options.control(FI_SETOPSFLAG, &flags), -FI_EBADFLAGS);
  EXPECT_EQ(options.control(FI_BACKLOG, &flags), -FI_ENOSYS);
  EXPECT_EQ(options.tx_flags(), FI_INJECT | FI_COMPLETION) << "unchanged";
}

TEST(EpOptions, TheLeastRoomOfAMultiReceiveBufferIsAnOption) {
  EpOptions options(0, 0);
  EXPECT_EQ(options.min_multi_recv(), 192u);
  std::size_t value = 4000, length = sizeof(value);
  EXPECT_EQ(options.set(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, length), 0);
  EXPECT_EQ(options.min_multi_recv(), 4000u);
  value = 0;
  EXPECT_EQ(options.get(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &length), 0);
  EXPECT_EQ(value, 4000u);
  EXPECT_EQ(options.set(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, nullptr, length), -FI_EINVAL);
  EXPECT_EQ(options.get(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, nullptr), -FI_EINVAL);
  EXPECT_EQ(options.get(FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &value, &length), -FI_ENOPROTOOPT);
  EXPECT_EQ(options.set(99, FI_OPT_MIN_MULTI_RECV, &value, length), -FI_ENOPROTOOPT);
  length = 4;
  EXPECT_EQ(options.get(FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &length), -FI_ETOOSMALL);
  EXPECT_EQ(length, sizeof(value));
}

}  // namespace
}  // namespace turnout::testing
