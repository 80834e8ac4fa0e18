// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/streams.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

namespace turnout::hca::test {
namespace {

struct Dci {
  Dci() {
    context.pid = getpid();
    qp.verbs.qp_base.context = &context.verbs.context;
    qp.streams.count = 4;
    qp.streams.errors_allowed = 2;
  }
  [[nodiscard]] static SendWqe request(std::uint32_t stream) {
    SendWqe wqe{};
    wqe.stream = stream;
    return wqe;
  }
  Context context;
  Qp qp{};
};

TEST(Streams, FailAloneUntilTooManyHave) {
  Dci dci;
  EXPECT_TRUE(fails_alone(dci.qp, Dci::request(1)));
  EXPECT_TRUE(stream_failed(dci.qp, Dci::request(5)));  // 5 is 1 of 4
  EXPECT_FALSE(stream_failed(dci.qp, Dci::request(2)));
  EXPECT_FALSE(fails_alone(dci.qp, Dci::request(2)));
}

TEST(Streams, WorkAgainAfterAReset) {
  Dci dci;
  EXPECT_EQ(reset_stream(dci.qp, 1), EINVAL);
  EXPECT_TRUE(fails_alone(dci.qp, Dci::request(1)));
  EXPECT_EQ(reset_stream(dci.qp, 1), 0);
  EXPECT_FALSE(stream_failed(dci.qp, Dci::request(1)));
}

TEST(Streams, AQueuePairWithoutAnyFailsWhole) {
  Dci dci;
  dci.qp.streams = {};
  EXPECT_FALSE(fails_alone(dci.qp, Dci::request(0)));
}

}  // namespace
}  // namespace turnout::hca::test
