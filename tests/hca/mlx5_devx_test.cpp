// SPDX-License-Identifier: BSD-3-Clause
// Commands of the emulated mlx5's firmware (DevX), with every byte in the test's own hand: good
// ones, too short ones, such of objects that are not there, and such in a wrong state.
#include <fcntl.h>
#include <poll.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl.h>

#include <atomic>
#include <thread>
#include <vector>

#include "hca/device/limits.h"
#include "hca/mlx5/prm.h"
#include "tests/hca/mlx5_devx.h"

namespace turnout::hca::test {
namespace {

namespace cap = prm::cap;
using prm::Answer;
using prm::field;
using prm::Opcode;

// Commands that make queues, good as they are: a test changes what it is about. Memory: the first
// page has doorbells, the queue lies behind it.
struct Memory {
  explicit Memory(Devx& devx) : pages(devx.library.keep(kBytes)), umem(devx.umem(pages, kBytes)) {}
  static constexpr std::uint64_t kBytes = 1U << 15, kQueue = 4096;
  Pages& pages;
  std::uint32_t umem;
};

Box cq_command(const Memory& memory, std::uint32_t log_size = 4) {
  namespace cq = prm::cq;
  Box box = command(Opcode::create_cq, cq::kBytes);
  const prm::Out context = prm::behind(prm::Out(box), cq::kContext);
  prm::set(box, cq::kUmem, memory.umem);
  prm::set64(box, cq::kUmemOffset, Memory::kQueue);
  prm::set(context, cq::kDoorbellUmem, memory.umem);
  prm::set64(context, cq::kDoorbellOffset, 64);
  prm::set(context, cq::kLogSize, log_size);
  prm::set(context, cq::kEqn, 1);
  return box;
}

Box qp_command(const Devx& devx, const Memory& memory, std::uint32_t cqn) {
  namespace qp = prm::qp;
  Box box = command(Opcode::create_qp, qp::kBytes);
  const prm::Out context = prm::behind(prm::Out(box), qp::kContext);
  prm::set(box, qp::kUmem, memory.umem);
  prm::set64(box, qp::kUmemOffset, Memory::kQueue);
  prm::set(context, qp::kDoorbellUmem, memory.umem);
  prm::set64(context, qp::kDoorbellOffset, 128);
  prm::set(context, qp::kPd, devx.pdn);
  prm::set(context, qp::kSendCq, cqn);
  prm::set(context, qp::kReceiveCq, cqn);
  prm::set(context, qp::kLogReceives, 4);
  prm::set(context, qp::kLogSends, 4);
  prm::set(context, qp::kUserIndex, 0x1234);
  return box;
}

Box rmp_command(const Devx& devx, const Memory& memory, std::uint32_t type) {
  namespace rmp = prm::rmp;
  Box box = command(Opcode::create_rmp, rmp::kBytes);
  prm::set(prm::behind(prm::Out(box), rmp::kContext), rmp::kState, rmp::kReady);
  const prm::Out queue = prm::behind(prm::Out(box), rmp::kQueue);
  prm::set(queue, rmp::kType, type);
  prm::set(queue, rmp::kPd, devx.pdn);
  prm::set(queue, rmp::kLogStride, 5);
  prm::set(queue, rmp::kLogSize, 4);
  prm::set(queue, rmp::kUmem, memory.umem);
  prm::set64(queue, rmp::kUmemOffset, Memory::kQueue);
  prm::set(queue, rmp::kDoorbellUmem, memory.umem);
  return box;
}

Box dct_command(const Devx& devx, std::uint32_t cqn, std::uint32_t rmpn) {
  namespace dct = prm::dct;
  Box box = command(Opcode::create_dct, dct::kBytes);
  const prm::Out context = prm::behind(prm::Out(box), dct::kContext);
  prm::set(context, dct::kPd, devx.pdn);
  prm::set(context, dct::kCq, cqn);
  prm::set(context, dct::kShared, rmpn);
  prm::set(context, dct::kMtu, IBV_MTU_4096);
  prm::set(context, dct::kRemoteWrite, 1);
  prm::set64(context, dct::kAccessKey, 0x1122);
  return box;
}

// A change of a queue pair; `set` fills its context.
template <class Set>
Box change(Opcode opcode, std::uint32_t qpn, const Set& set) {
  Box box = command(opcode, prm::qp::kBytes);
  prm::set(box, prm::kNumber, qpn);
  set(prm::behind(prm::Out(box), prm::qp::kContext));
  return box;
}
Box to_init(std::uint32_t qpn) {
  return change(Opcode::rst2init_qp, qpn, [](prm::Out c) {
    prm::set(c, prm::qp::kPort, 1);
    prm::set(c, prm::qp::kRemoteWrite, 1);
  });
}
Box to_rtr(std::uint32_t qpn, std::uint32_t peer) {
  return change(Opcode::init2rtr_qp, qpn, [peer](prm::Out c) {
    prm::set(c, prm::qp::kMtu, IBV_MTU_4096);
    prm::set(c, prm::qp::kRemoteQpn, peer);
    prm::set(c, prm::qp::kLid, kLid);
    prm::set(c, prm::qp::kRnrTimer, 1);
  });
}
Box to_rts(std::uint32_t qpn) {
  return change(Opcode::rtr2rts_qp, qpn, [](prm::Out c) {
    prm::set(c, prm::qp::kAckTimeout, 8);
    prm::set(c, prm::qp::kRetries, 2);
    prm::set(c, prm::qp::kRnrRetries, 2);
  });
}

class Mlx5Devx : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }
  void TearDown() override { EXPECT_FALSE(fabric_exists()); }
};

TEST_F(Mlx5Devx, AContextWithoutItHasNoCommandsOfIt) {
  Devx d(false);
  EXPECT_EQ(d.general(command(Opcode::query_hca_cap), cap::kBytes).error, EINVAL);
  std::uint32_t number = 0, handle = 0;
  EXPECT_EQ(d.umem(d.library.memory.address(), 64, number, handle), EINVAL);
}

TEST_F(Mlx5Devx, Capabilities) {
  Devx d;
  Box in = command(Opcode::query_hca_cap);
  const auto ask = [&](std::uint32_t group) {
    prm::set(in, prm::kOpMod, group << 1 | 1);
    return d.general(in, 4112);
  };
  const Result general = ask(cap::kGeneral);
  ASSERT_EQ(general.error, 0);
  const prm::In caps = prm::behind(prm::In(general.out), prm::kHeadBytes);
  EXPECT_EQ(prm::get(caps, cap::kPorts), 1U);
  EXPECT_EQ(prm::get(caps, cap::kPortType), 0U);
  EXPECT_EQ(prm::get(caps, cap::kDct), 1U);
  EXPECT_EQ(prm::get(caps, cap::kLogMessage), 30U);
  EXPECT_EQ(std::uint32_t{1} << prm::get(caps, cap::kLogQps), kMaxQps);
  EXPECT_EQ(prm::get64(caps, cap::kObjectTypes),
            std::uint64_t{1} << 0x2c | std::uint64_t{1} << 0x3a);
  const Result atomics = ask(cap::kAtomics);
  ASSERT_EQ(atomics.error, 0);
  EXPECT_EQ(prm::get(prm::behind(prm::In(atomics.out), 16), cap::kAtomicOperations),
            cap::kSwap | cap::kAdd | cap::kMaskedSwap | cap::kMaskedAdd);
  const Result paging = ask(cap::kOdp);
  ASSERT_EQ(paging.error, 0);
  EXPECT_NE(prm::get(prm::behind(prm::In(paging.out), 16), field(cap::kOdpDc, 0, 32)), 0U);
  EXPECT_EQ(ask(cap::kDeviceMemory).error, 0);
  EXPECT_EQ(ask(cap::kGeneral2).error, 0);
  EXPECT_TRUE(refused(ask(0x77), Answer::bad_parameter));
  EXPECT_TRUE(refused(d.general(in, 16), Answer::bad_output_length));
}

TEST_F(Mlx5Devx, Port) {
  Devx d;
  Box in = command(Opcode::query_hca_vport_context);
  const Result port = d.general(in, prm::vport::kBytes);
  ASSERT_EQ(port.error, 0);
  EXPECT_EQ(prm::get(prm::behind(prm::In(port.out), 16), prm::vport::kLid), kLid);
  prm::set(in, prm::vport::kPort, 2);
  EXPECT_TRUE(refused(d.general(in, prm::vport::kBytes), Answer::bad_parameter));
  EXPECT_TRUE(
      refused(d.general(command(Opcode::query_hca_vport_context), 16), Answer::bad_output_length));
  EXPECT_EQ(d.general(command(Opcode::query_lag), 16).error, 0);
}

TEST_F(Mlx5Devx, MailboxesThatCannotBe) {
  Devx d;
  EXPECT_EQ(d.general(Box(8), 16).error, EINVAL);
  EXPECT_EQ(d.general(command(Opcode::query_hca_cap), 8).error, EINVAL);
  EXPECT_TRUE(refused(d.general(command(static_cast<Opcode>(0x7777)), 16), Answer::bad_operation));
  EXPECT_TRUE(refused(d.create(command(static_cast<Opcode>(0x7777))), Answer::bad_operation));
  std::byte out[16];
  Ioctl wild(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER);
  EXPECT_EQ(wild.in(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, reinterpret_cast<void*>(8), 64)  // NOLINT
                .out(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, out, sizeof out)
                .run(d.library.fd),
            EFAULT);
}

TEST_F(Mlx5Devx, EventQueuesAndPages) {
  Devx d;
  std::uint32_t number = 0;
  const auto ask = [&](std::uint16_t method, std::uint16_t in, std::uint16_t out,
                       std::uint32_t value) {
    return Ioctl(MLX5_IB_OBJECT_DEVX, method)
        .value(in, value, 4)
        .out(out, &number, 4)
        .run(d.library.fd);
  };
  EXPECT_EQ(ask(MLX5_IB_METHOD_DEVX_QUERY_EQN, MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC,
                MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, 0),
            0);
  EXPECT_EQ(number, 1U);
  EXPECT_EQ(ask(MLX5_IB_METHOD_DEVX_QUERY_EQN, MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC,
                MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN, 9),
            EINVAL);
  EXPECT_EQ(ask(MLX5_IB_METHOD_DEVX_QUERY_UAR, MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX,
                MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX, 3),
            0);
  EXPECT_EQ(number, 3U);
  EXPECT_EQ(ask(MLX5_IB_METHOD_DEVX_QUERY_UAR, MLX5_IB_ATTR_DEVX_QUERY_UAR_USER_IDX,
                MLX5_IB_ATTR_DEVX_QUERY_UAR_DEV_IDX, 0xffff),
            EINVAL);
}

TEST_F(Mlx5Devx, Memory) {
  Devx d;
  std::uint32_t number = 0, handle = 0;
  const std::uint64_t at = d.library.memory.address();
  EXPECT_EQ(d.umem(at, 4096, number, handle), 0);
  EXPECT_NE(number, 0U);
  EXPECT_EQ(d.dereg(handle), 0);
  EXPECT_EQ(d.dereg(handle), ENOENT);
  EXPECT_EQ(d.umem(at, 0, number, handle), EINVAL);
  EXPECT_EQ(d.umem(at, UINT64_MAX, number, handle), EINVAL);
  EXPECT_EQ(d.umem(8, 4096, number, handle), EFAULT);
  EXPECT_EQ(d.umem(at, 4096, number, handle, IBV_ACCESS_REMOTE_WRITE), EINVAL);
  EXPECT_EQ(d.umem(at, 4096, number, handle, IBV_ACCESS_MW_BIND | 1), EINVAL);
}

TEST_F(Mlx5Devx, CompletionQueues) {
  namespace cq = prm::cq;
  Devx d;
  Memory m(d);
  const Result made = d.create(cq_command(m));
  ASSERT_EQ(made.error, 0);
  EXPECT_EQ(d.dereg(m.umem - 1), EBUSY);
  EXPECT_EQ(d.destroy(made.handle), 0);
  EXPECT_EQ(d.destroy(made.handle), ENOENT);
  EXPECT_EQ(d.dereg(m.umem - 1), 0);

  Memory n(d);
  const auto with = [&](auto set) {
    Box box = cq_command(n);
    set(box, prm::behind(prm::Out(box), cq::kContext));
    return d.create(box);
  };
  Box cut = cq_command(n);
  cut.resize(cq::kBytes - 4);
  EXPECT_TRUE(refused(d.create(cut), Answer::bad_input_length));
  EXPECT_TRUE(
      refused(with([](auto& b, auto) { prm::set(b, cq::kUmem, 99); }), Answer::bad_resource));
  EXPECT_TRUE(
      refused(with([](auto& b, auto) { prm::set(b, cq::kUmem, 0); }), Answer::bad_resource));
  EXPECT_TRUE(
      refused(with([](auto& b, auto) { prm::set64(b, cq::kUmemOffset, Memory::kBytes - 512); }),
              Answer::bad_parameter));
  EXPECT_TRUE(refused(with([](auto& b, auto) { prm::set64(b, cq::kUmemOffset, UINT64_MAX); }),
                      Answer::bad_parameter));
  EXPECT_TRUE(refused(with([](auto& b, auto) { prm::set64(b, cq::kUmemOffset, 4096 + 8); }),
                      Answer::bad_parameter));
  EXPECT_TRUE(refused(with([](auto&, auto c) { prm::set(c, cq::kDoorbellUmem, 99); }),
                      Answer::bad_resource));
  EXPECT_TRUE(
      refused(with([](auto&, auto c) { prm::set64(c, cq::kDoorbellOffset, Memory::kBytes); }),
              Answer::bad_parameter));
  EXPECT_TRUE(refused(with([](auto&, auto c) { prm::set(c, cq::kEqn, 0); }), Answer::bad_resource));
  EXPECT_TRUE(
      refused(with([](auto&, auto c) { prm::set(c, cq::kPage, 0xffff); }), Answer::bad_resource));
  EXPECT_TRUE(
      refused(with([](auto&, auto c) { prm::set(c, cq::kEntryBytes, 2); }), Answer::bad_parameter));
  EXPECT_TRUE(
      refused(with([](auto&, auto c) { prm::set(c, cq::kLogSize, 31); }), Answer::exceeds_limit));
  // What was refused holds nothing.
  EXPECT_EQ(d.dereg(n.umem - 1), 0);
}

TEST_F(Mlx5Devx, QueuePairs) {
  namespace qp = prm::qp;
  Devx d;
  Memory c(d), m(d);
  const Result cq = d.create(cq_command(c));
  ASSERT_EQ(cq.error, 0);
  const Result made = d.create(qp_command(d, m, cq.number()));
  ASSERT_EQ(made.error, 0);
  EXPECT_NE(made.number(), 0U);
  EXPECT_EQ(d.destroy(cq.handle), EBUSY);
  // Not one of verbs: their commands do not find it.
  ib_uverbs_destroy_qp destroy{};
  destroy.qp_handle = made.handle;
  EXPECT_EQ(d.library.call(IB_USER_VERBS_CMD_DESTROY_QP, destroy), EINVAL);

  const auto with = [&](auto set) {
    Box box = qp_command(d, m, cq.number());
    set(box, prm::behind(prm::Out(box), qp::kContext));
    return d.create(box);
  };
  Box cut = qp_command(d, m, cq.number());
  cut.resize(qp::kBytes - 1);
  EXPECT_TRUE(refused(d.create(cut), Answer::bad_input_length));
  EXPECT_TRUE(
      refused(with([](auto&, auto c) { prm::set(c, qp::kService, 9); }), Answer::bad_parameter));
  EXPECT_TRUE(
      refused(with([](auto&, auto c) { prm::set(c, qp::kPd, 0xffffff); }), Answer::bad_resource));
  EXPECT_TRUE(
      refused(with([](auto&, auto c) { prm::set(c, qp::kSendCq, 999); }), Answer::bad_resource));
  EXPECT_TRUE(
      refused(with([](auto&, auto c) { prm::set(c, qp::kReceiveCq, 999); }), Answer::bad_resource));
  EXPECT_TRUE(
      refused(with([](auto&, auto c) { prm::set(c, qp::kPage, 0xffff); }), Answer::bad_resource));
  EXPECT_TRUE(refused(with([](auto&, auto c) { prm::set(c, qp::kReceiveType, 2); }),
                      Answer::bad_parameter));
  EXPECT_TRUE(
      refused(with([](auto&, auto c) { prm::set(c, qp::kReceiveType, 1); }), Answer::bad_resource));
  EXPECT_TRUE(
      refused(with([](auto&, auto c) { prm::set(c, qp::kLogSends, 15); }), Answer::bad_parameter));
  EXPECT_TRUE(refused(with([](auto&, auto c) { prm::set(c, qp::kLogReceiveStride, 7); }),
                      Answer::bad_parameter));
  EXPECT_TRUE(
      refused(with([](auto& b, auto) { prm::set(b, qp::kUmem, 99); }), Answer::bad_resource));
  EXPECT_TRUE(refused(with([](auto&, auto c) { prm::set(c, qp::kDoorbellUmem, 0); }),
                      Answer::bad_resource));
  EXPECT_EQ(d.destroy(made.handle), 0);
  EXPECT_EQ(d.destroy(cq.handle), 0);
}

TEST_F(Mlx5Devx, StatesOfAQueuePair) {
  namespace qp = prm::qp;
  Devx d;
  Memory c(d), m(d);
  const Result cq = d.create(cq_command(c));
  const Result made = d.create(qp_command(d, m, cq.number()));
  ASSERT_EQ(made.error, 0);
  const std::uint32_t n = made.number();
  EXPECT_TRUE(refused(d.modify(made.handle, to_rtr(n, n)), Answer::bad_qp_state));
  EXPECT_TRUE(refused(d.modify(made.handle, to_rts(n)), Answer::bad_qp_state));
  EXPECT_EQ(d.modify(made.handle, to_init(n + 1)).error, EINVAL);
  EXPECT_EQ(d.modify(made.handle + 7, to_init(n)).error, EINVAL);
  EXPECT_EQ(d.modify(made.handle, command(Opcode::query_qp)).error, EINVAL);
  Box cut = to_init(n);
  cut.resize(64);
  EXPECT_TRUE(refused(d.modify(made.handle, cut), Answer::bad_input_length));
  EXPECT_EQ(d.modify(made.handle, to_init(n)).error, 0);
  Box bad = to_rtr(n, n);
  prm::set(prm::behind(prm::Out(bad), qp::kContext), qp::kMtu, 7);
  EXPECT_TRUE(refused(d.modify(made.handle, bad), Answer::bad_parameter));
  EXPECT_EQ(d.modify(made.handle, to_rtr(n, n)).error, 0);
  EXPECT_EQ(d.modify(made.handle, to_rts(n)).error, 0);

  Box ask = command(Opcode::query_qp);
  prm::set(ask, prm::kNumber, n);
  const Result told = d.query(made.handle, ask, qp::kBytes);
  ASSERT_EQ(told.error, 0);
  const prm::In context = prm::behind(prm::In(told.out), qp::kContext);
  EXPECT_EQ(prm::get(context, qp::kState), 3U);
  EXPECT_EQ(prm::get(context, qp::kRemoteQpn), n);
  EXPECT_EQ(prm::get(context, qp::kUserIndex), 0x1234U);
  EXPECT_EQ(prm::get(context, qp::kLogSends), 4U);
  EXPECT_EQ(prm::get(context, qp::kSendCq), cq.number());
  EXPECT_TRUE(refused(d.query(made.handle, ask, 64), Answer::bad_output_length));
  EXPECT_EQ(d.query(cq.handle, ask, qp::kBytes).error, EINVAL);

  // A stream, of what has none.
  Box stream = change(Opcode::rts2rts_qp, n, [](prm::Out) {});
  stream.resize(0x140);
  prm::set(stream, qp::kExtended, 1);
  prm::set(stream, qp::kOptional2, qp::kOptStream);
  EXPECT_TRUE(refused(d.modify(made.handle, stream), Answer::bad_parameter));
  Box err = command(Opcode::to_err_qp), rst = command(Opcode::to_rst_qp);
  prm::set(err, prm::kNumber, n);
  prm::set(rst, prm::kNumber, n);
  EXPECT_EQ(d.modify(made.handle, err).error, 0);
  EXPECT_TRUE(refused(d.modify(made.handle, to_rts(n)), Answer::bad_qp_state));
  EXPECT_EQ(d.modify(made.handle, rst).error, 0);
  EXPECT_EQ(d.modify(made.handle, to_init(n)).error, 0);
}

// What a descriptor for answers gives next: its request, and the answer. Or errno.
struct Answered {
  explicit Answered(int fd, std::size_t room = 1024) : out(room) {
    const ssize_t bytes = mlx5_device().read(fd, out.data(), out.size());
    error = bytes < 0 ? errno : 0;
    out.resize(bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
    if (bytes < static_cast<ssize_t>(sizeof wr_id)) return;
    std::memcpy(&wr_id, out.data(), sizeof wr_id);
    out.erase(out.begin(), out.begin() + sizeof wr_id);
  }
  int error = 0;
  std::uint64_t wr_id = 0;
  Box out;
};

TEST_F(Mlx5Devx, AnswersComeLater) {
  namespace qp = prm::qp;
  Devx d;
  Memory c(d), m(d);
  const Result cq = d.create(cq_command(c)), made = d.create(qp_command(d, m, cq.number()));
  ASSERT_EQ(made.error, 0);
  const int answers = d.answers();
  ASSERT_EQ(fcntl(answers, F_SETFL, O_NONBLOCK), 0);
  pollfd ready{answers, POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 0), 0);
  EXPECT_EQ(Answered(answers).error, EAGAIN);

  Box ask = command(Opcode::query_qp);
  prm::set(ask, prm::kNumber, made.number());
  EXPECT_EQ(d.query_later(made.handle, ask, qp::kBytes, answers, 0xabcd'0000'1234), 0);
  EXPECT_EQ(d.query_later(made.handle, ask, 64, answers, 2), 0);  // refused: by the answer
  EXPECT_EQ(poll(&ready, 1, 0), 1);
  EXPECT_EQ(Answered(answers, 64).error, ENOSPC);
  const Answered whole(answers);
  EXPECT_EQ(whole.wr_id, 0xabcd'0000'1234U);
  EXPECT_EQ(whole.out, d.query(made.handle, ask, qp::kBytes).out);
  const Answered refusal(answers);
  EXPECT_EQ(refusal.wr_id, 2U);
  EXPECT_EQ(refusal.out.size(), 64U);
  EXPECT_EQ(prm::get(refusal.out, prm::kStatus),
            static_cast<std::uint32_t>(Answer::bad_output_length));
  EXPECT_NE(prm::get(refusal.out, prm::kSyndrome), 0U);
  EXPECT_EQ(Answered(answers).error, EAGAIN);

  // What the ioctl refuses, and nothing comes of it.
  EXPECT_EQ(d.query_later(made.handle + 7, ask, qp::kBytes, answers, 3), EINVAL);
  EXPECT_EQ(d.query_later(cq.handle, ask, qp::kBytes, answers, 3), EINVAL);
  EXPECT_EQ(d.query_later(made.handle, command(Opcode::create_cq), 64, answers, 3), EINVAL);
  EXPECT_EQ(d.query_later(made.handle, ask, 1 << 16, answers, 3), EINVAL);
  EXPECT_EQ(d.query_later(made.handle, ask, prm::kHeadBytes - 1, answers, 3), EINVAL);
  const int events = d.channel();
  for (const int fd : {events, d.library.fd, 1 << 20}) {
    EXPECT_EQ(d.query_later(made.handle, ask, qp::kBytes, fd, 3), EINVAL);
  }
  EXPECT_EQ(d.subscribe(answers, cq.handle, {0x00}, 1), EINVAL);
  EXPECT_EQ(Answered(answers).error, EAGAIN);

  // Nobody reads: in the end there is no room, and what was taken is there whole.
  std::uint64_t sent = 0;
  int error = 0;
  while (sent < 4096 && error == 0) {
    error = d.query_later(made.handle, ask, 1 << 14, answers, sent);
    sent += error == 0;
  }
  EXPECT_EQ(error, EAGAIN);
  EXPECT_GE(sent, 4U);
  for (std::uint64_t i = 0; i < sent; ++i) {
    const Answered one(answers, 1 << 15);
    EXPECT_EQ(one.wr_id, i);
    EXPECT_EQ(one.out.size(), std::size_t{1} << 14);
  }
  // Another channel lives on when the first has gone.
  const int second = d.answers();
  EXPECT_EQ(mlx5_device().close(answers), 0);
  EXPECT_EQ(d.query_later(made.handle, ask, qp::kBytes, answers, 4), EINVAL);
  EXPECT_EQ(d.query_later(made.handle, ask, qp::kBytes, second, 5), 0);
  EXPECT_EQ(Answered(second).wr_id, 5U);
  for (const int fd : {second, events}) EXPECT_EQ(mlx5_device().close(fd), 0);
}

// Threads wait for answers: each comes once, and the end of the context ends the waiting.
TEST_F(Mlx5Devx, AnswersOfManyReaders) {
  constexpr std::uint64_t kAnswers = 400;
  constexpr std::size_t kReaders = 3;
  int answers = -1;
  std::atomic<std::uint64_t> sum{0}, count{0};
  std::atomic<unsigned> ended{0};
  std::vector<std::thread> readers;
  {
    Devx d;
    Memory c(d), m(d);
    const Result cq = d.create(cq_command(c)), made = d.create(qp_command(d, m, cq.number()));
    ASSERT_EQ(made.error, 0);
    answers = d.answers();
    for (std::size_t i = 0; i < kReaders; ++i) {
      readers.emplace_back([&] {
        for (;;) {
          const Answered one(answers);
          if (one.error != 0) {
            ended += one.error == EIO;
            return;
          }
          sum += one.wr_id;
          ++count;
        }
      });
    }
    Box ask = command(Opcode::query_qp);
    prm::set(ask, prm::kNumber, made.number());
    for (std::uint64_t i = 1; i <= kAnswers;) {
      const int error = d.query_later(made.handle, ask, prm::qp::kBytes, answers, i);
      EXPECT_TRUE(error == 0 || error == EAGAIN) << error;
      i += error != EAGAIN;
    }
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(count, kAnswers);
  EXPECT_EQ(sum, kAnswers * (kAnswers + 1) / 2);
  EXPECT_EQ(ended, kReaders);
  EXPECT_EQ(mlx5_device().close(answers), 0);
}

// A message between queues that the firmware's commands made, and the events of it.
TEST_F(Mlx5Devx, SendsAndTells) {
  Devx d;
  Memory c(d), m(d);
  const Result cq = d.create(cq_command(c)), qp = d.create(qp_command(d, m, cq.number()));
  ASSERT_EQ(cq.error, 0);
  ASSERT_EQ(qp.error, 0);
  const std::uint32_t n = qp.number();
  for (const Box& box : {to_init(n), to_rtr(n, n), to_rts(n)}) {
    ASSERT_EQ(d.modify(qp.handle, box).error, 0);
  }
  const int channel = d.channel(), full = d.channel(false);
  // A channel is of verbs or of DevX.
  ib_uverbs_create_cq of_verbs{};
  of_verbs.cqe = 15;
  of_verbs.comp_channel = channel;
  Pages& queue = d.library.keep(8192);
  const mlx5_ib_create_cq driver{queue.address(4096), queue.address(), 64, 0, 0, 0, 0, 0, 0};
  constexpr std::nullptr_t* kNothing = nullptr;
  EXPECT_EQ(d.library.call(IB_USER_VERBS_CMD_CREATE_CQ, of_verbs, kNothing, &driver, kNothing),
            EINVAL);
  EXPECT_EQ(d.subscribe(d.library.create_channel(), cq.handle, {0x00}, 1), EINVAL);
  EXPECT_EQ(d.subscribe(channel, cq.handle, {0x02}, 1), EINVAL);  // of queue pairs
  EXPECT_EQ(d.subscribe(channel, qp.handle, {0x00}, 1), EINVAL);
  EXPECT_EQ(d.subscribe(channel, 77, {0x00}, 1), ENOENT);
  EXPECT_EQ(d.subscribe(d.library.fd, cq.handle, {0x00}, 1), EINVAL);
  EXPECT_EQ(d.subscribe(full, cq.handle, {0x00}, 0xc00c1e), 0);
  EXPECT_EQ(d.subscribe(channel, cq.handle, {0x00}, 1), EBUSY);

  // The doorbells of the completion queue: the armed word, and the register.
  const auto word = [](std::byte* at, std::uint32_t value) {
    value = htobe32(value);
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(at), value, __ATOMIC_RELEASE);
  };
  word(c.pages.at(64 + 4), 1U << 28);
  d.library.store(0x20, 1U << 28, cq.number());
  const mlx5_wqe_data_seg receive{htobe32(64), htobe32(d.library.mr.lkey),
                                  htobe64(d.library.memory.address(4096))};
  std::memcpy(m.pages.at(Memory::kQueue), &receive, sizeof receive);
  word(m.pages.at(128), 1);
  d.library.memory.put(0, "by the firmware's queues");
  Mlx5Wqe wqe(MLX5_OPCODE_SEND);
  wqe.data(d.library.memory.address(), 24, d.library.mr.lkey);
  std::byte* const sends = m.pages.at(Memory::kQueue + 16 * 16);
  std::memcpy(sends, wqe.bytes.data(), wqe.bytes.size());
  const std::uint32_t units = htobe32(n << 8 | static_cast<std::uint32_t>(wqe.bytes.size() / 16));
  std::memcpy(sends + 4, &units, sizeof units);
  word(m.pages.at(128 + 4), 1);
  d.library.store(0x800, 0, n << 8);

  EXPECT_EQ(d.library.memory.text(4096, 24), "by the firmware's queues");
  mlx5_cqe64 entries[2];
  std::memcpy(entries, c.pages.at(Memory::kQueue), sizeof entries);
  for (const mlx5_cqe64& e : entries) {
    EXPECT_TRUE(opcode_of(e) == MLX5_CQE_REQ || opcode_of(e) == MLX5_CQE_RESP_SEND);
  }
  struct {
    std::uint64_t cookie;
    std::byte entry[64];
  } event{};
  EXPECT_EQ(mlx5_device().read(full, &event, 8), -1);  // there is more
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(mlx5_device().read(full, &event, sizeof event), static_cast<ssize_t>(sizeof event));
  EXPECT_EQ(event.cookie, 0xc00c1eU);
  EXPECT_EQ(event.entry[1], std::byte{0});
  EXPECT_EQ(prm::get(event.entry, field(0x38, 0, 32)), cq.number());
  EXPECT_EQ(mlx5_device().read(full, &event, sizeof event), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_FALSE(d.library.has_event());  // not by the events of verbs
  for (const int fd : {channel, full}) EXPECT_EQ(mlx5_device().close(fd), 0);
}

TEST_F(Mlx5Devx, SharedReceivesAndTargets) {
  namespace rmp = prm::rmp;
  namespace dct = prm::dct;
  Devx d;
  Memory c(d), m(d), o(d);
  const Result cq = d.create(cq_command(c));
  const Result list = d.create(rmp_command(d, m, rmp::kList));
  const Result cyclic = d.create(rmp_command(d, o, rmp::kCyclic));
  ASSERT_EQ(list.error, 0);
  ASSERT_EQ(cyclic.error, 0);
  const Result target = d.create(dct_command(d, cq.number(), cyclic.number()));
  ASSERT_EQ(target.error, 0);
  EXPECT_EQ(d.destroy(cyclic.handle), EBUSY);
  EXPECT_EQ(d.modify(target.handle, to_init(target.number())).error, EINVAL);

  const auto with = [&](auto set) {
    Box box = rmp_command(d, m, rmp::kCyclic);
    set(prm::behind(prm::Out(box), rmp::kContext), prm::behind(prm::Out(box), rmp::kQueue));
    return d.create(box);
  };
  Box cut = rmp_command(d, m, rmp::kList);
  cut.resize(100);
  EXPECT_TRUE(refused(d.create(cut), Answer::bad_input_length));
  EXPECT_TRUE(
      refused(with([](auto c, auto) { prm::set(c, rmp::kState, 3); }), Answer::bad_resource_state));
  EXPECT_TRUE(refused(with([](auto c, auto) { prm::set(c, rmp::kBasicCyclic, 1); }),
                      Answer::bad_parameter));
  EXPECT_TRUE(
      refused(with([](auto, auto q) { prm::set(q, rmp::kType, 2); }), Answer::bad_parameter));
  EXPECT_TRUE(
      refused(with([](auto, auto q) { prm::set(q, rmp::kPd, 0xffffff); }), Answer::bad_resource));
  EXPECT_TRUE(
      refused(with([](auto, auto q) { prm::set(q, rmp::kLogStride, 4); }), Answer::bad_parameter));
  EXPECT_TRUE(
      refused(with([](auto, auto q) { prm::set(q, rmp::kLogSize, 31); }), Answer::exceeds_limit));
  EXPECT_TRUE(
      refused(with([](auto, auto q) { prm::set(q, rmp::kUmem, 99); }), Answer::bad_resource));
  EXPECT_TRUE(refused(with([](auto, auto q) { prm::set64(q, rmp::kUmemOffset, Memory::kBytes); }),
                      Answer::bad_parameter));

  const auto dct_with = [&](auto set) {
    Box box = dct_command(d, cq.number(), cyclic.number());
    set(prm::behind(prm::Out(box), dct::kContext));
    return d.create(box);
  };
  cut = dct_command(d, cq.number(), cyclic.number());
  cut.resize(64);
  EXPECT_TRUE(refused(d.create(cut), Answer::bad_input_length));
  EXPECT_TRUE(
      refused(dct_with([](auto c) { prm::set(c, dct::kPd, 0xffffff); }), Answer::bad_resource));
  EXPECT_TRUE(refused(dct_with([](auto c) { prm::set(c, dct::kCq, 999); }), Answer::bad_resource));
  EXPECT_TRUE(
      refused(dct_with([](auto c) { prm::set(c, dct::kShared, 999); }), Answer::bad_resource));
  EXPECT_TRUE(refused(dct_with([](auto c) { prm::set(c, dct::kMtu, 0); }), Answer::bad_parameter));
  EXPECT_TRUE(
      refused(dct_with([](auto c) { prm::set(c, dct::kPkeyIndex, 3); }), Answer::bad_parameter));
  EXPECT_EQ(d.destroy(target.handle), 0);
  EXPECT_EQ(d.destroy(cyclic.handle), 0);
}

TEST_F(Mlx5Devx, ReservedNumbersAndHints) {
  Devx d;
  const auto object = [](prm::GeneralObject type, std::size_t bytes) {
    Box box = command(Opcode::create_general_object, bytes);
    prm::set(box, prm::kObjectType, static_cast<std::uint32_t>(type));
    return box;
  };
  const Result first = d.create(object(prm::GeneralObject::reserved_qpn, 32));
  const Result second = d.create(object(prm::GeneralObject::reserved_qpn, 32));
  ASSERT_EQ(first.error, 0);
  ASSERT_EQ(second.error, 0);
  EXPECT_NE(prm::get(first.out, prm::kObjectId), prm::get(second.out, prm::kObjectId));
  Box many = object(prm::GeneralObject::reserved_qpn, 32);
  prm::set(many, prm::kLogObjectRange, 3);
  EXPECT_TRUE(refused(d.create(many), Answer::bad_parameter));
  EXPECT_EQ(d.destroy(first.handle), 0);

  Box hint = object(prm::GeneralObject::av_qp_mapping, prm::kMappingBytes);
  EXPECT_TRUE(refused(d.create(hint), Answer::bad_resource));  // number 0
  prm::set(hint, prm::kMappedQpn, 0x10002);
  EXPECT_EQ(d.create(hint).error, 0);
  hint.resize(32);
  EXPECT_TRUE(refused(d.create(hint), Answer::bad_input_length));
  EXPECT_TRUE(
      refused(d.create(object(static_cast<prm::GeneralObject>(0x7f), 32)), Answer::bad_parameter));
}

// Every command, cut off anywhere, of any object: no crash, and nothing is left.
TEST_F(Mlx5Devx, CutOff) {
  Devx d;
  Memory m(d);
  const Result cq = d.create(cq_command(m));
  ASSERT_EQ(cq.error, 0);
  for (const Box& whole : {cq_command(m), qp_command(d, m, cq.number()),
                           rmp_command(d, m, prm::rmp::kCyclic), dct_command(d, cq.number(), 1)}) {
    for (std::size_t bytes = prm::kHeadBytes; bytes < whole.size(); bytes += 4) {
      const Result r =
          d.create(Box(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes)));
      EXPECT_EQ(r.error, EREMOTEIO) << bytes;
    }
  }
}

}  // namespace
}  // namespace turnout::hca::test
