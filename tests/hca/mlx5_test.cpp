// SPDX-License-Identifier: BSD-3-Clause
// What mlx5dv has beside DC itself: streams that fail apart, reserved numbers, layouts of
// completion queues that change nothing, the clock.
#include <time.h>

#include <cstdlib>
#include <cstring>

#include "tests/hca/rig.h"

namespace turnout::hca::test {
namespace {

class Mlx5 : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }
  void TearDown() override { EXPECT_FALSE(fabric_exists()); }
};

// A DCI with two streams of which one may fail.
struct Streams {
  Streams(std::uint8_t log_streams, std::uint8_t log_errors) {
    srq = rig.srq(16);
    dct = rig.dct(srq);
    memory = rig.memory(4096);
    for (std::uint64_t i = 0; i < 16; ++i) post_srq(srq, {memory.sge(0, 8)}, i);
    ibv_qp_init_attr_ex attr{};
    attr.send_cq = attr.recv_cq = rig.send_cq;
    attr.cap.max_send_wr = 16;
    attr.cap.max_send_sge = 1;
    attr.qp_type = IBV_QPT_DRIVER;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = rig.pd;
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
    mlx5dv_qp_init_attr dv{};
    dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
    dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
    dv.dc_init_attr.dci_streams = {log_streams, log_errors};
    dci = mlx5dv_create_qp(rig.context, &attr, &dv);
    EXPECT_NE(dci, nullptr);
    ready_dci(dci);
    ah = rig.ah();
  }
  ~Streams() { EXPECT_EQ(ibv_destroy_qp(dci), 0); }
  // The status of a message over this stream, with or without a key that is right.
  ibv_wc_status send(std::uint16_t stream, bool right) {
    ibv_qp_ex* ex = ibv_qp_to_qp_ex(dci);
    mlx5dv_qp_ex* dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(ex);
    mlx5dv_wr_set_dc_addr_stream(dv, ah, dct->qp_num, kDcKey, stream);
    ibv_wr_set_sge(ex, right ? memory.mr->lkey : 0xdead00, memory.address(), 8);
    EXPECT_EQ(ibv_wr_complete(ex), 0);
    return wait_wc(rig.send_cq).status;
  }
  Rig rig;
  ibv_srq* srq;
  ibv_qp *dct, *dci;
  ibv_ah* ah;
  Region memory;
};

TEST_F(Mlx5, AStreamFailsAlone) {
  Streams s(1, 1);
  EXPECT_EQ(s.send(0, true), IBV_WC_SUCCESS);
  EXPECT_EQ(s.send(1, false), IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(s.send(1, true), IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(s.send(3, true), IBV_WC_WR_FLUSH_ERR);  // the same modulo two
  EXPECT_EQ(s.send(0, true), IBV_WC_SUCCESS);
  EXPECT_EQ(state_of(s.dci), IBV_QPS_RTS);
  // Only what failed is put right.
  EXPECT_EQ(mlx5dv_dci_stream_id_reset(s.dci, 0), EINVAL);
  EXPECT_EQ(mlx5dv_dci_stream_id_reset(s.dci, 1), 0);
  EXPECT_EQ(mlx5dv_dci_stream_id_reset(s.dci, 1), EINVAL);
  EXPECT_EQ(s.send(1, true), IBV_WC_SUCCESS);
}

TEST_F(Mlx5, TooManyFailedStreamsFailTheQueuePair) {
  Streams s(2, 1);
  EXPECT_EQ(s.send(0, false), IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(state_of(s.dci), IBV_QPS_RTS);
  EXPECT_EQ(s.send(1, false), IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(state_of(s.dci), IBV_QPS_ERR);
  EXPECT_EQ(s.send(2, true), IBV_WC_WR_FLUSH_ERR);
  // RESET forgives all.
  ASSERT_EQ(modify_state(s.dci, IBV_QPS_RESET), 0);
  ready_dci(s.dci);
  EXPECT_EQ(s.send(0, true), IBV_WC_SUCCESS);
}

TEST_F(Mlx5, MoreStreamsThanThereAre) {
  Rig rig;
  mlx5dv_context caps{};
  caps.comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS;
  ASSERT_EQ(mlx5dv_query_device(rig.context, &caps), 0);
  ibv_qp_init_attr_ex attr{};
  attr.send_cq = attr.recv_cq = rig.send_cq;
  attr.cap.max_send_wr = 1;
  attr.qp_type = IBV_QPT_DRIVER;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  attr.pd = rig.pd;
  mlx5dv_qp_init_attr dv{};
  dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
  dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
  dv.dc_init_attr.dci_streams.log_num_concurent =
      static_cast<std::uint8_t>(caps.dci_streams_caps.max_log_num_concurent + 1);
  EXPECT_EQ(mlx5dv_create_qp(rig.context, &attr, &dv), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Mlx5, ReservedNumbers) {
  Rig rig;
  std::uint32_t first = 0, second = 0;
  ASSERT_EQ(mlx5dv_reserved_qpn_alloc(rig.context, &first), 0);
  ASSERT_EQ(mlx5dv_reserved_qpn_alloc(rig.context, &second), 0);
  EXPECT_NE(first, second);
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t number = rig.rc()->qp_num;
    EXPECT_NE(number, first);
    EXPECT_NE(number, second);
  }
  EXPECT_EQ(mlx5dv_reserved_qpn_dealloc(rig.context, first), 0);
  EXPECT_EQ(mlx5dv_reserved_qpn_dealloc(rig.context, first), EINVAL);
  EXPECT_EQ(mlx5dv_reserved_qpn_dealloc(rig.context, second), 0);
}

TEST_F(Mlx5, LayoutsOfCompletionQueues) {
  Rig rig;
  const auto make = [&](std::uint64_t mask, std::uint8_t format, std::uint32_t flags,
                        std::uint16_t size) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 8;
    mlx5dv_cq_init_attr dv{mask, format, flags, size};
    errno = 0;
    ibv_cq_ex* cq = mlx5dv_create_cq(rig.context, &attr, &dv);
    const int error = cq != nullptr ? 0 : errno;
    if (cq != nullptr) {
      EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
    }
    return error;
  };
  constexpr std::uint64_t kCompressed = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE,
                          kFlags = MLX5DV_CQ_INIT_ATTR_MASK_FLAGS,
                          kSize = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
  constexpr std::uint32_t kPad = MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD;
  EXPECT_EQ(make(0, 0, 0, 0), 0);
  EXPECT_EQ(make(kSize, 0, 0, 64), 0);
  EXPECT_EQ(make(kSize, 0, 0, 128), 0);
  EXPECT_EQ(make(kSize, 0, 0, 100), EINVAL);
  EXPECT_EQ(make(kSize | kFlags, 0, kPad, 128), 0);
  EXPECT_EQ(make(kSize | kFlags, 0, kPad, 64), EINVAL);
  EXPECT_EQ(make(kFlags, 0, kPad, 0), EINVAL);
  EXPECT_EQ(make(kFlags, 0, 2, 0), EINVAL);
  EXPECT_EQ(make(kCompressed, MLX5DV_CQE_RES_FORMAT_HASH, 0, 0), 0);
  EXPECT_EQ(make(kCompressed, MLX5DV_CQE_RES_FORMAT_HASH | MLX5DV_CQE_RES_FORMAT_CSUM, 0, 0),
            EINVAL);
  EXPECT_EQ(make(1U << 3, 0, 0, 0), EOPNOTSUPP);
}

TEST_F(Mlx5, QueuesOnHugePagesAreRefused) {
  Rig rig;
  ASSERT_EQ(setenv("MLX_CQ_ALLOC_TYPE", "HUGE", 1), 0);
  EXPECT_EQ(ibv_create_cq(rig.context, 8, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  ASSERT_EQ(setenv("MLX_CQ_ALLOC_TYPE", "PREFER_HUGE", 1), 0);
  rig.cq(8);
  unsetenv("MLX_CQ_ALLOC_TYPE");
}

TEST_F(Mlx5, TimeStampsBecomeTimesOfDay) {
  Rig rig;
  mlx5dv_clock_info info{};
  ASSERT_EQ(mlx5dv_get_clock_info(rig.context, &info), 0);
  timespec mono{}, real{};
  clock_gettime(CLOCK_MONOTONIC, &mono);
  clock_gettime(CLOCK_REALTIME, &real);
  const auto ns = [](const timespec& t) {
    return static_cast<std::int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
  };
  const auto converted =
      static_cast<std::int64_t>(mlx5dv_ts_to_ns(&info, static_cast<std::uint64_t>(ns(mono))));
  EXPECT_LT(std::abs(converted - ns(real)), 1'000'000'000);
}

}  // namespace
}  // namespace turnout::hca::test
