// SPDX-License-Identifier: BSD-3-Clause
// Untagged messages, multi-receive buffers, selective completion and completion levels.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/provider/node.h"

namespace turnout::testing {
namespace {

TEST(Message, EveryWayToSendArrives) {
  PairOfNodes pair;
  char data[4] = {'a', 'b', 'c', 'd'};
  const iovec halves[2] = {{data, 2}, {data + 2, 2}};
  fi_msg msg{};
  msg.msg_iov = halves;
  msg.iov_count = 2;
  msg.addr = pair.to_b;
  msg.data = 3;
  ASSERT_EQ(fi_send(pair.a.ep, data, 4, nullptr, pair.to_b, nullptr), 0);
  ASSERT_EQ(fi_sendv(pair.a.ep, halves, nullptr, 2, pair.to_b, nullptr), 0);
  ASSERT_EQ(fi_sendmsg(pair.a.ep, &msg, FI_REMOTE_CQ_DATA), 0);
  ASSERT_EQ(fi_inject(pair.a.ep, data, 4, pair.to_b), 0);
  ASSERT_EQ(fi_senddata(pair.a.ep, data, 4, nullptr, 5, pair.to_b, nullptr), 0);
  ASSERT_EQ(fi_injectdata(pair.a.ep, data, 4, 6, pair.to_b), 0);
  for (std::uint64_t i = 1; i <= 6; ++i) {
    char in[4] = {};
    const iovec part{in, 4};
    fi_msg receive{};
    receive.msg_iov = &part;
    receive.iov_count = 1;
    receive.addr = pair.to_a;
    if (i % 3 == 0) {
      ASSERT_EQ(fi_recv(pair.b.ep, in, 4, nullptr, pair.to_a, nullptr), 0);
    } else if (i % 3 == 1) {
      ASSERT_EQ(fi_recvv(pair.b.ep, &part, nullptr, 1, pair.to_a, nullptr), 0);
    } else {
      ASSERT_EQ(fi_recvmsg(pair.b.ep, &receive, FI_COMPLETION), 0);
    }
    auto got = pair.b.next();
    ASSERT_NE(got, nullptr) << i;
    EXPECT_EQ(got->flags & ~FI_REMOTE_CQ_DATA, FI_RECV | FI_MSG);
    EXPECT_EQ(std::memcmp(in, data, 4), 0);
    if (i == 3 || i >= 5) {
      EXPECT_EQ(got->data, i);
    }
  }
}

TEST(Message, TaggedAndUntaggedDoNotMeet) {
  PairOfNodes pair;
  char in[4] = {};
  ASSERT_EQ(fi_recv(pair.b.ep, in, 3, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  ASSERT_EQ(fi_tinject(pair.a.ep, "tag", 3, pair.to_b, 0), 0);
  EXPECT_EQ(pair.b.next(), nullptr);
  ASSERT_EQ(fi_inject(pair.a.ep, "msg", 3, pair.to_b), 0);
  ASSERT_NE(pair.b.next(), nullptr);
  EXPECT_STREQ(in, "msg");
}

TEST(Message, MultiReceiveFillsOneBufferUntilTooLittleIsLeft) {
  PairOfNodes pair;
  std::size_t least = 8;
  ASSERT_EQ(
      fi_setopt(&pair.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &least, sizeof(least)), 0);
  std::size_t back = 0, length = sizeof(back);
  ASSERT_EQ(fi_getopt(&pair.b.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &back, &length), 0);
  EXPECT_EQ(back, least);
  char buffer[32];
  const iovec part{buffer, sizeof(buffer)};
  fi_msg msg{};
  msg.msg_iov = &part;
  msg.iov_count = 1;
  msg.addr = FI_ADDR_UNSPEC;
  int context = 0;
  msg.context = &context;
  ASSERT_EQ(fi_recvmsg(pair.b.ep, &msg, FI_MULTI_RECV | FI_COMPLETION), 0);
  for (int i = 0; i < 3; ++i) {
    const std::string text(9, static_cast<char>('a' + i));
    ASSERT_EQ(fi_inject(pair.a.ep, text.data(), text.size(), pair.to_b), 0);
  }
  for (int i = 0; i < 3; ++i) {
    const auto got = pair.b.next();
    ASSERT_NE(got, nullptr);
    EXPECT_EQ(got->op_context, &context);
    EXPECT_EQ(got->buf, buffer + 9 * i);
    EXPECT_EQ(got->len, 9u);
    EXPECT_EQ(*static_cast<char*>(got->buf), 'a' + i);
    EXPECT_EQ((got->flags & FI_MULTI_RECV) != 0, i == 2) << "32 - 27 is less than 8";
  }
}

TEST(Message, OptionsThatAreNotThereSaySo) {
  Node node;
  std::size_t value = 0, length = sizeof(value);
  EXPECT_EQ(fi_getopt(&node.ep->fid, FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, &value, &length),
            -FI_ENOPROTOOPT);
  EXPECT_EQ(fi_setopt(&node.ep->fid, FI_OPT_ENDPOINT, FI_OPT_BUFFERED_LIMIT, &value, length),
            -FI_ENOPROTOOPT);
  EXPECT_EQ(fi_setopt(&node.ep->fid, 7, FI_OPT_MIN_MULTI_RECV, &value, length), -FI_ENOPROTOOPT);
  EXPECT_EQ(fi_setopt(&node.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, 4),
            -FI_EINVAL);
  length = 4;
  EXPECT_EQ(fi_getopt(&node.ep->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &value, &length),
            -FI_ETOOSMALL);
  EXPECT_EQ(length, sizeof(value));
}

TEST(Message, SelectiveCompletionReportsWhatIsAskedFor) {
  NodeOptions options;
  options.tx_bind = FI_TRANSMIT | FI_SELECTIVE_COMPLETION;
  options.rx_bind = FI_RECV | FI_SELECTIVE_COMPLETION;
  PairOfNodes pair(options);
  int ca = 0, cb = 0;
  char in[4] = {};
  const iovec part{in, 3};
  fi_msg msg{};
  msg.msg_iov = &part;
  msg.iov_count = 1;
  // Without FI_COMPLETION nothing is reported, though the data moves.
  ASSERT_EQ(fi_recv(pair.b.ep, in, 3, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  ASSERT_EQ(fi_send(pair.a.ep, "one", 3, nullptr, pair.to_b, nullptr), 0);
  EXPECT_EQ(pair.a.next(), nullptr);
  EXPECT_EQ(pair.b.next(), nullptr);
  EXPECT_STREQ(in, "one");
  // With it, both ends report.
  msg.addr = FI_ADDR_UNSPEC;
  msg.context = &cb;
  ASSERT_EQ(fi_recvmsg(pair.b.ep, &msg, FI_COMPLETION), 0);
  char out[] = "two";
  const iovec from{out, 3};
  fi_msg send = msg;
  send.msg_iov = &from;
  send.addr = pair.to_b;
  send.context = &ca;
  ASSERT_EQ(fi_sendmsg(pair.a.ep, &send, FI_COMPLETION), 0);
  const auto sent = pair.a.next();
  ASSERT_NE(sent, nullptr);
  EXPECT_EQ(sent->op_context, &ca);
  const auto got = pair.b.next();
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(got->op_context, &cb);
  // Errors are reported always.
  ASSERT_EQ(fi_recv(pair.b.ep, in, 3, nullptr, FI_ADDR_UNSPEC, &cb), 0);
  ASSERT_EQ(fi_cancel(&pair.b.ep->fid, &cb), 0);
  EXPECT_EQ(pair.b.next_error().err, FI_ECANCELED);
  // The default of calls without flags can be set.
  std::uint64_t flags = FI_TRANSMIT | FI_COMPLETION;
  ASSERT_EQ(fi_control(&pair.a.ep->fid, FI_SETOPSFLAG, &flags), 0);
  flags = FI_TRANSMIT;
  ASSERT_EQ(fi_control(&pair.a.ep->fid, FI_GETOPSFLAG, &flags), 0);
  EXPECT_EQ(flags, FI_COMPLETION);
  ASSERT_EQ(fi_send(pair.a.ep, "one", 3, nullptr, pair.to_b, &ca), 0);
  EXPECT_NE(pair.a.next(), nullptr);
  flags = FI_COMPLETION;
  EXPECT_EQ(fi_control(&pair.a.ep->fid, FI_SETOPSFLAG, &flags), -FI_EINVAL) << "no direction";
  flags = FI_TRANSMIT | FI_COMMIT_COMPLETE;
  EXPECT_EQ(fi_control(&pair.a.ep->fid, FI_SETOPSFLAG, &flags), -FI_EBADFLAGS);
}

TEST(Message, OpFlagsOfTheInfoAreTheDefault) {
  NodeOptions options;
  options.tx_bind = FI_TRANSMIT | FI_SELECTIVE_COMPLETION;
  options.tx_op_flags = FI_COMPLETION | FI_DELIVERY_COMPLETE;
  PairOfNodes pair(options);
  ASSERT_EQ(fi_send(pair.a.ep, "one", 3, nullptr, pair.to_b, nullptr), 0);
  EXPECT_TRUE(pair.a.core->last_delivery_complete);
  EXPECT_EQ(pair.a.next(), nullptr) << "it has not been received";
  char in[4] = {};
  ASSERT_EQ(fi_recv(pair.b.ep, in, 3, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  EXPECT_NE(pair.b.next(), nullptr);
  EXPECT_NE(pair.a.next(), nullptr);
  // Calls with flags have only those.
  char out[] = "two";
  const iovec from{out, 3};
  fi_msg send{};
  send.msg_iov = &from;
  send.iov_count = 1;
  send.addr = pair.to_b;
  ASSERT_EQ(fi_sendmsg(pair.a.ep, &send, 0), 0);
  EXPECT_FALSE(pair.a.core->last_delivery_complete);
  ASSERT_EQ(fi_sendmsg(pair.a.ep, &send, FI_INJECT | FI_DELIVERY_COMPLETE), 0);
  EXPECT_TRUE(pair.a.core->last_delivery_complete);
  EXPECT_FALSE(pair.a.core->last_match_complete);
  ASSERT_EQ(fi_sendmsg(pair.a.ep, &send, FI_MATCH_COMPLETE), 0);
  EXPECT_TRUE(pair.a.core->last_match_complete);
}

TEST(Endpoint, NothingMovesBeforeEnable) {
  NodeOptions options;
  options.before_enable = [](fid_domain*, fid_ep* ep) {
    char x = 0;
    EXPECT_EQ(fi_send(ep, &x, 1, nullptr, 0, nullptr), -FI_EOPBADSTATE);
    EXPECT_EQ(fi_tinject(ep, &x, 1, 0, 0), -FI_EOPBADSTATE);
    EXPECT_EQ(fi_read(ep, &x, 1, nullptr, 0, 0, 0, nullptr), -FI_EOPBADSTATE);
    Address address;
    std::size_t length = 0;
    EXPECT_EQ(fi_getname(&ep->fid, nullptr, &length), -FI_ETOOSMALL) << "Open MPI asks like this";
    EXPECT_EQ(length, sizeof(address));
    EXPECT_EQ(fi_getname(&ep->fid, &address, &length), 0);
  };
  Node node(options);
  EXPECT_EQ(fi_enable(node.ep), -FI_EOPBADSTATE) << "once";
  fid_cq* cq = nullptr;
  fi_cq_attr attr{};
  ASSERT_EQ(fi_cq_open(node.domain, &attr, &cq, nullptr), 0);
  EXPECT_EQ(fi_ep_bind(node.ep, &cq->fid, FI_TRANSMIT), -FI_EOPBADSTATE);
  EXPECT_EQ(fi_close(&cq->fid), 0);
}

TEST(Endpoint, NeedsItsVectorAndQueues) {
  Node node;
  InfoPtr info(fi_dupinfo(node.info.get()));
  fid_ep* ep = nullptr;
  ASSERT_EQ(fi_endpoint(node.domain, info.get(), &ep, nullptr), 0);
  EXPECT_EQ(fi_enable(ep), -FI_ENOAV);
  ASSERT_EQ(fi_ep_bind(ep, &node.av->fid, 0), 0);
  EXPECT_EQ(fi_ep_bind(ep, &node.av->fid, 0), -FI_EINVAL);
  EXPECT_EQ(fi_enable(ep), -FI_ENOCQ);
  EXPECT_EQ(fi_ep_bind(ep, &node.cq->fid, 0), -FI_EINVAL);
  EXPECT_EQ(fi_ep_bind(ep, &node.cq->fid, FI_TRANSMIT | FI_READ), -FI_EBADFLAGS);
  ASSERT_EQ(fi_ep_bind(ep, &node.cq->fid, FI_TRANSMIT), 0);
  EXPECT_EQ(fi_enable(ep), -FI_ENOCQ) << "receives have none yet";
  ASSERT_EQ(fi_ep_bind(ep, &node.cq->fid, FI_RECV), 0);
  Node other;
  EXPECT_EQ(fi_ep_bind(ep, &other.cq->fid, FI_RECV), -FI_EDOMAIN);
  EXPECT_EQ(fi_enable(ep), 0);
  EXPECT_EQ(fi_close(&ep->fid), 0);
  EXPECT_EQ(fi_scalable_ep(node.domain, info.get(), &ep, nullptr), -FI_ENOSYS);
  info->ep_attr->type = FI_EP_SOCK_STREAM;
  EXPECT_EQ(fi_endpoint(node.domain, info.get(), &ep, nullptr), -FI_EINVAL);
}

TEST(Endpoint, AFailureOfTheDeviceIsAnError) {
  Node node;
  fid_ep* ep = nullptr;
  faults().create = Status(Code::no_device, "there is no adapter mlx5_9");
  EXPECT_EQ(fi_endpoint(node.domain, node.info.get(), &ep, nullptr), -FI_ENODEV);
  NodeOptions options;
  faults().reset();
  InfoPtr info;
  fid_domain* unopened = nullptr;
  ASSERT_EQ(ask(options.api, node.info.get(), info), 0);
  ASSERT_EQ(fi_domain(node.fabric, info.get(), &unopened, nullptr), 0);
  faults().open = Status(Code::no_device, "there is no adapter mlx5_9");
  EXPECT_EQ(fi_endpoint(unopened, info.get(), &ep, nullptr), -FI_ENODEV);
  char memory[8];
  fid_mr* mr = nullptr;
  EXPECT_EQ(fi_mr_reg(unopened, memory, 8, FI_REMOTE_READ, 0, 0, 0, &mr, nullptr), -FI_ENODEV);
  faults().reset();
  EXPECT_EQ(fi_close(&unopened->fid), 0);
  faults().create = Status(Code::over_budget, "64 KiB are too little for one connection");
  EXPECT_EQ(fi_endpoint(node.domain, node.info.get(), &ep, nullptr), -FI_ENOMEM);
  faults().reset();
}

TEST(Endpoint, ClosingLeavesUnreadCompletions) {
  PairOfNodes pair;
  char in[4] = {};
  ASSERT_EQ(fi_recv(pair.b.ep, in, 3, nullptr, FI_ADDR_UNSPEC, nullptr), 0);
  ASSERT_EQ(fi_inject(pair.a.ep, "abc", 3, pair.to_b), 0);
  pair.b.core->progress();
  ASSERT_EQ(fi_close(&pair.b.ep->fid), 0);
  pair.b.ep = nullptr;
  fi_cq_tagged_entry entry;
  fi_addr_t source = 0;
  EXPECT_EQ(fi_cq_readfrom(pair.b.cq, &entry, 1, &source), 1);
  EXPECT_EQ(source, FI_ADDR_NOTAVAIL);
  EXPECT_EQ(fi_cq_read(pair.b.cq, &entry, 1), -FI_EAGAIN);
}

}  // namespace
}  // namespace turnout::testing
