// SPDX-License-Identifier: BSD-3-Clause
// Commands of the emulated mlx5 device that no library would write: wrong lengths, addresses and
// handles are refused, and nothing is left of them.
#include <sys/mman.h>

#include <set>

#include "tests/hca/mlx5_library.h"

namespace turnout::hca::test {
namespace {

class Mlx5Commands : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }
  void TearDown() override { EXPECT_FALSE(fabric_exists()); }
};

constexpr std::nullptr_t* kNothing = nullptr;
constexpr std::uint64_t kWild[] = {8, 0x7fff'ffff'f000ULL, 0xffff'ffff'ffff'fff8ULL,
                                   0x8000'0000'0000'0000ULL};

TEST_F(Mlx5Commands, BeforeThereIsAContext) {
  Mlx5Library l(true);
  EXPECT_EQ(l.call(IB_USER_VERBS_CMD_ALLOC_PD, ib_uverbs_alloc_pd{}), EINVAL);
  mlx5_ib_alloc_ucontext_req_v2 driver{};
  EXPECT_EQ(
      l.call(IB_USER_VERBS_CMD_GET_CONTEXT, ib_uverbs_get_context{}, kNothing, &driver, kNothing),
      EINVAL);  // no registers
  driver.total_num_bfregs = 16;
  driver.flags = 2;
  EXPECT_EQ(
      l.call(IB_USER_VERBS_CMD_GET_CONTEXT, ib_uverbs_get_context{}, kNothing, &driver, kNothing),
      EINVAL);
  driver.flags = 0;
  driver.total_num_bfregs = 0x10000;
  EXPECT_EQ(
      l.call(IB_USER_VERBS_CMD_GET_CONTEXT, ib_uverbs_get_context{}, kNothing, &driver, kNothing),
      ENOMEM);
  ib_uverbs_async_event_desc event{};
  EXPECT_EQ(mlx5_device().read(l.fd, &event, sizeof event), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(Mlx5Commands, ASecondContextOfOneFile) {
  Mlx5Library l;
  mlx5_ib_alloc_ucontext_req_v2 driver{};
  driver.total_num_bfregs = 16;
  EXPECT_EQ(
      l.call(IB_USER_VERBS_CMD_GET_CONTEXT, ib_uverbs_get_context{}, kNothing, &driver, kNothing),
      EINVAL);
}

TEST_F(Mlx5Commands, Lengths) {
  Mlx5Library l;
  struct {
    ib_uverbs_cmd_hdr head;
    std::byte body[2048];
  } command{};
  const auto write = [&](std::uint32_t number, std::uint16_t words, std::size_t bytes) {
    command.head = {number, words, 0};
    return l.write(&command, bytes);
  };
  EXPECT_EQ(l.write(&command, 0), EINVAL);
  EXPECT_EQ(l.write(&command, 7), EINVAL);
  EXPECT_EQ(write(IB_USER_VERBS_CMD_ALLOC_PD, 0, 8), EINVAL);
  EXPECT_EQ(write(IB_USER_VERBS_CMD_ALLOC_PD, 1, 8), EINVAL);
  EXPECT_EQ(write(IB_USER_VERBS_CMD_ALLOC_PD, 4, 12), EINVAL);
  EXPECT_EQ(write(IB_USER_VERBS_CMD_ALLOC_PD, 4, 20), EINVAL);
  EXPECT_EQ(write(IB_USER_VERBS_CMD_ALLOC_PD, 500, 2000), EINVAL);  // longer than any
  EXPECT_EQ(write(IB_USER_VERBS_CMD_ALLOC_PD | 0x100, 4, 16), EINVAL);
  EXPECT_EQ(write(200, 4, 16), EINVAL);
  constexpr std::uint32_t kExtended = IB_USER_VERBS_CMD_FLAG_EXTENDED;
  EXPECT_EQ(write(IB_USER_VERBS_EX_CMD_CREATE_CQ | kExtended, 1, 16), EINVAL);
  EXPECT_EQ(write(IB_USER_VERBS_EX_CMD_CREATE_CQ | kExtended, 0xffff, 24), EINVAL);
  EXPECT_EQ(write(IB_USER_VERBS_EX_CMD_CREATE_WQ | kExtended, 1, 32), EOPNOTSUPP);
  command.body[12] = std::byte{1};  // reserved
  EXPECT_EQ(write(IB_USER_VERBS_EX_CMD_QUERY_DEVICE | kExtended, 1, 32), EINVAL);
  for (const std::uint64_t address : kWild) {
    errno = 0;
    EXPECT_EQ(mlx5_device().write(l.fd, reinterpret_cast<void*>(address), 64), -1);  // NOLINT
    EXPECT_EQ(errno, EFAULT);
  }
  // Events are read by descriptors of their own, and whole.
  ib_uverbs_async_event_desc event{};
  EXPECT_EQ(mlx5_device().read(l.async_fd, &event, 8), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(mlx5_device().write(l.async_fd, &event, 8), -1);
  EXPECT_EQ(errno, EINVAL);
}

// A command that is cut off anywhere is refused, or what it lacks is 0: no crash.
TEST_F(Mlx5Commands, CutOff) {
  Mlx5Library l;
  for (const bool extended : {false, true}) {
    for (std::uint32_t number = 0; number < 64; ++number) {
      if (!extended && number == IB_USER_VERBS_CMD_GET_CONTEXT) continue;
      for (std::size_t words = 2; words < 64; words += extended ? 2 : 1) {
        std::uint32_t command[64] = {};
        std::byte answer[512];
        const std::uint64_t response = address_of(answer);
        std::size_t in = words;
        if (extended) {
          if (words < 6) continue;
          in = (words - 6) / 2;
          std::memcpy(command + 2, &response, sizeof response);
          command[0] = number | IB_USER_VERBS_CMD_FLAG_EXTENDED;
        } else {
          if (words >= 4) std::memcpy(command + 2, &response, sizeof response);
          command[0] = number;
        }
        command[1] = static_cast<std::uint32_t>(in) | 16U << 16;
        const int error = l.write(command, words * 4);
        // EAGAIN: an XRC domain of a file that has none. EBUSY: what others use.
        const std::set<int> known{0, EINVAL, EFAULT, EOPNOTSUPP, ENOMEM, EAGAIN, EBUSY};
        EXPECT_TRUE(known.contains(error)) << number << " " << words << " " << error;
      }
    }
  }
}

TEST_F(Mlx5Commands, AnswersThatCannotBeWritten) {
  Mlx5Library l;
  for (const std::uint64_t address : kWild) {
    struct {
      ib_uverbs_cmd_hdr head;
      std::uint64_t response;
    } command{{IB_USER_VERBS_CMD_ALLOC_PD, 4, 2}, address};
    EXPECT_EQ(l.write(&command, sizeof command), EFAULT);
    command.head.command = IB_USER_VERBS_CMD_QUERY_DEVICE;
    EXPECT_EQ(l.write(&command, sizeof command), EFAULT);
  }
  void* const read_only = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  struct {
    ib_uverbs_cmd_hdr head;
    std::uint64_t response;
  } command{{IB_USER_VERBS_CMD_QUERY_DEVICE, 4, 4}, address_of(read_only)};
  EXPECT_EQ(l.write(&command, sizeof command), EFAULT);
  munmap(read_only, 4096);
}

TEST_F(Mlx5Commands, QueuesThatCannotBe) {
  Mlx5Library l;
  Pages memory(1U << 16);
  const auto cq = [&](std::uint32_t cqe, std::uint64_t buffer, std::uint64_t doorbell,
                      std::uint32_t size, std::int32_t channel = -1) {
    ib_uverbs_create_cq request{};
    request.cqe = cqe;
    request.comp_channel = channel;
    const mlx5_ib_create_cq driver{buffer, doorbell, size, 0, 0, 0, 0, 0, 0};
    return l.call(IB_USER_VERBS_CMD_CREATE_CQ, request, kNothing, &driver, kNothing);
  };
  const std::uint64_t buffer = memory.address(4096), doorbell = memory.address();
  EXPECT_EQ(cq(15, buffer, doorbell, 64), 0);
  EXPECT_EQ(cq(15, buffer + 32, doorbell, 64), EINVAL);
  EXPECT_EQ(cq(15, buffer, doorbell + 4, 64), EINVAL);
  EXPECT_EQ(cq(15, buffer, doorbell, 32), EINVAL);
  EXPECT_EQ(cq(0xffff'ffff, buffer, doorbell, 64), EINVAL);
  EXPECT_EQ(cq(15, buffer, doorbell, 64, l.fd), EINVAL);
  EXPECT_EQ(cq(15, buffer, doorbell, 64, 12345), EINVAL);
  EXPECT_EQ(cq(15, 0x7fff'ffff'f000ULL, doorbell, 64), EFAULT);
  EXPECT_EQ(cq(15, buffer, 0x7fff'ffff'f000ULL, 64), EFAULT);
  EXPECT_EQ(cq(15, 0xffff'ffff'ffff'ffc0ULL, doorbell, 64), EFAULT);
  EXPECT_EQ(cq(2047, buffer, doorbell, 64), EFAULT);  // longer than the memory

  const auto resize = [&](std::uint32_t handle, std::uint32_t cqe, std::uint64_t to,
                          std::uint16_t size) {
    ib_uverbs_resize_cq request{};
    request.cq_handle = handle;
    request.cqe = cqe;
    const mlx5_ib_resize_cq driver{to, size, 0, 0};
    return l.call(IB_USER_VERBS_CMD_RESIZE_CQ, request, kNothing, &driver, kNothing);
  };
  EXPECT_EQ(resize(99, 15, buffer, 64), EINVAL);
  EXPECT_EQ(resize(0, 0xffff'ffff, buffer, 64), EINVAL);
  EXPECT_EQ(resize(0, 15, buffer + 8, 64), EINVAL);
  EXPECT_EQ(resize(0, 15, buffer, 63), EINVAL);
  EXPECT_EQ(resize(0, 15, 0x7fff'ffff'f000ULL, 64), EFAULT);

  const auto qp = [&](auto change) {
    ib_uverbs_create_qp request{};
    request.pd_handle = l.pd;
    request.send_cq_handle = request.recv_cq_handle = l.cq.front().handle;
    request.qp_type = IBV_QPT_RC;
    mlx5_ib_create_qp driver{};
    driver.buf_addr = buffer;
    driver.db_addr = doorbell;
    driver.sq_wqe_count = driver.rq_wqe_count = 16;
    driver.rq_wqe_shift = 5;
    change(request, driver);
    return l.call(IB_USER_VERBS_CMD_CREATE_QP, request, kNothing, &driver, kNothing);
  };
  EXPECT_EQ(qp([](auto&, auto&) {}), 0);
  EXPECT_EQ(qp([](auto&, auto& d) { d.buf_addr += 16; }), EINVAL);
  EXPECT_EQ(qp([](auto&, auto& d) { d.db_addr += 4; }), EINVAL);
  EXPECT_EQ(qp([](auto&, auto& d) { d.buf_addr = 0x7fff'ffff'f000ULL; }), EFAULT);
  EXPECT_EQ(qp([](auto&, auto& d) { d.db_addr = 0x7fff'ffff'f000ULL; }), EFAULT);
  EXPECT_EQ(qp([](auto&, auto& d) { d.sq_wqe_count = 1024; }), EFAULT);
  EXPECT_EQ(qp([](auto&, auto& d) { d.sq_wqe_count = 15; }), EINVAL);
  EXPECT_EQ(qp([](auto&, auto& d) { d.sq_wqe_count = 0x8000'0000; }), EINVAL);
  EXPECT_EQ(qp([](auto&, auto& d) { d.rq_wqe_count = 17; }), EINVAL);
  EXPECT_EQ(qp([](auto&, auto& d) { d.rq_wqe_count = 0x8000'0000; }), EINVAL);
  EXPECT_EQ(qp([](auto&, auto& d) { d.rq_wqe_shift = 3; }), EINVAL);
  EXPECT_EQ(qp([](auto&, auto& d) { d.rq_wqe_shift = 0xffff'ffff; }), EINVAL);
  EXPECT_EQ(qp([](auto&, auto& d) { d.flags = MLX5_QP_FLAG_SIGNATURE; }), EOPNOTSUPP);
  EXPECT_EQ(qp([](auto& r, auto&) { r.pd_handle = 7; }), EINVAL);
  EXPECT_EQ(qp([](auto& r, auto&) { r.send_cq_handle = 77; }), EINVAL);
  EXPECT_EQ(qp([](auto& r, auto&) { r.is_srq = 1; }), EINVAL);
  EXPECT_EQ(qp([](auto& r, auto&) { r.qp_type = 0; }), EOPNOTSUPP);
  EXPECT_EQ(qp([](auto& r, auto&) { r.qp_type = 8; }), EOPNOTSUPP);  // RAW_PACKET
  EXPECT_EQ(qp([](auto& r, auto&) { r.qp_type = 0xff; }), EOPNOTSUPP);
  EXPECT_EQ(qp([](auto& r, auto&) { r.max_send_sge = 1000; }), EINVAL);
  EXPECT_EQ(qp([](auto& r, auto&) { r.qp_type = IBV_QPT_XRC_RECV; }), EINVAL);
  EXPECT_EQ(qp([](auto& r, auto& d) {
              r.qp_type = 0xff;
              d.flags = MLX5_QP_FLAG_TYPE_DCI | MLX5_QP_FLAG_DCI_STREAM;
              d.dci_streams.log_num_concurent = 31;
            }),
            EINVAL);

  const auto srq = [&](std::uint32_t max_wr, std::uint32_t max_sge, std::uint64_t to,
                       std::uint64_t record, std::uint32_t flags = 0) {
    ib_uverbs_create_srq request{};
    request.pd_handle = l.pd;
    request.max_wr = max_wr;
    request.max_sge = max_sge;
    const mlx5_ib_create_srq driver{to, record, flags, 0, 0, 0};
    return l.call(IB_USER_VERBS_CMD_CREATE_SRQ, request, kNothing, &driver, kNothing);
  };
  EXPECT_EQ(srq(15, 1, buffer, doorbell), 0);
  EXPECT_EQ(srq(0, 1, buffer, doorbell), 0);  // as mlx5: one entry
  EXPECT_EQ(srq(0xffff'ffff, 1, buffer, doorbell), EINVAL);
  EXPECT_EQ(srq(15, 0xffff'ffff, buffer, doorbell), EINVAL);
  EXPECT_EQ(srq(15, 1, buffer + 8, doorbell), EINVAL);
  EXPECT_EQ(srq(15, 1, buffer, doorbell + 2), EINVAL);
  EXPECT_EQ(srq(15, 1, buffer, doorbell, MLX5_SRQ_FLAG_SIGNATURE), EOPNOTSUPP);
  EXPECT_EQ(srq(15, 1, 0x7fff'ffff'f000ULL, doorbell), EFAULT);
  EXPECT_EQ(srq(15, 1, buffer, 0x7fff'ffff'f000ULL), EFAULT);
  EXPECT_EQ(srq(16384, 1, buffer, doorbell), EFAULT);
}

TEST_F(Mlx5Commands, HandlesThatAreNone) {
  Mlx5Library l;
  for (const std::uint32_t handle : {1000U, 0xffff'ffffU}) {
    EXPECT_EQ(l.call(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{handle}), EINVAL);
    EXPECT_EQ(l.call(IB_USER_VERBS_CMD_CLOSE_XRCD, ib_uverbs_close_xrcd{handle}), EINVAL);
    EXPECT_EQ(l.call(IB_USER_VERBS_CMD_DEREG_MR, ib_uverbs_dereg_mr{handle}), EINVAL);
    EXPECT_EQ(l.call(IB_USER_VERBS_CMD_DEALLOC_MW, ib_uverbs_dealloc_mw{handle}), EINVAL);
    EXPECT_EQ(l.call(IB_USER_VERBS_CMD_DESTROY_CQ, ib_uverbs_destroy_cq{0, handle, 0}), EINVAL);
    EXPECT_EQ(l.call(IB_USER_VERBS_CMD_DESTROY_SRQ, ib_uverbs_destroy_srq{0, handle, 0}), EINVAL);
    EXPECT_EQ(l.call(IB_USER_VERBS_CMD_DESTROY_QP, ib_uverbs_destroy_qp{0, handle, 0}), EINVAL);
    ib_uverbs_modify_qp modify{};
    modify.qp_handle = handle;
    EXPECT_EQ(l.call(IB_USER_VERBS_CMD_MODIFY_QP, modify), EINVAL);
    ib_uverbs_query_srq query{};
    query.srq_handle = handle;
    EXPECT_EQ(l.call(IB_USER_VERBS_CMD_QUERY_SRQ, query), EINVAL);
  }
  // Twice, and while others use it.
  EXPECT_EQ(l.call(IB_USER_VERBS_CMD_DEREG_MR, ib_uverbs_dereg_mr{l.mr.handle}), 0);
  EXPECT_EQ(l.call(IB_USER_VERBS_CMD_DEREG_MR, ib_uverbs_dereg_mr{l.mr.handle}), EINVAL);
  Mlx5QueuePair qp(l);
  EXPECT_EQ(l.call(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{l.pd}), EBUSY);
  ib_uverbs_destroy_cq_resp answer{};
  EXPECT_EQ(l.cq.front().destroy(answer), EBUSY);
  EXPECT_EQ(qp.destroy(), 0);
  EXPECT_EQ(qp.destroy(), EINVAL);
  EXPECT_EQ(l.cq.front().destroy(answer), 0);
  EXPECT_EQ(l.call(IB_USER_VERBS_CMD_DEALLOC_PD, ib_uverbs_dealloc_pd{l.pd}), 0);
}

// States that do not follow from each other, and any value of any attribute.
TEST_F(Mlx5Commands, AttributesThatCannotBe) {
  Mlx5Library l;
  Mlx5QueuePair qp(l);
  EXPECT_EQ(qp.modify(IBV_QPS_RTS), EINVAL);
  EXPECT_EQ(qp.modify(200), EINVAL);
  ib_uverbs_modify_qp all{};
  std::memset(static_cast<void*>(&all), 0xff, sizeof all);
  all.qp_handle = qp.handle;
  for (unsigned bit = 0; bit < 32; ++bit) {
    all.attr_mask = 1U << bit;
    EXPECT_NE(l.call(IB_USER_VERBS_CMD_MODIFY_QP, all), 0) << bit;
  }
  EXPECT_EQ(qp.state(), IBV_QPS_RESET);
}

// Registrations of memory that is not there, and of keys that end.
TEST_F(Mlx5Commands, Regions) {
  Mlx5Library l;
  ib_uverbs_reg_mr request{};
  request.pd_handle = l.pd;
  request.access_flags = kFullAccess;
  request.length = 4096;
  request.start = request.hca_va = l.memory.address();
  request.access_flags = IBV_ACCESS_REMOTE_WRITE;
  EXPECT_EQ(l.call(IB_USER_VERBS_CMD_REG_MR, request), EINVAL);
  request.access_flags = kFullAccess;
  request.pd_handle = 77;
  EXPECT_EQ(l.call(IB_USER_VERBS_CMD_REG_MR, request), EINVAL);

  ib_uverbs_rereg_mr again{};
  again.mr_handle = l.mr.handle;
  EXPECT_EQ(l.call(IB_USER_VERBS_CMD_REREG_MR, again), EINVAL);
  again.flags = 0x80;
  EXPECT_EQ(l.call(IB_USER_VERBS_CMD_REREG_MR, again), EINVAL);
  again.flags = IBV_REREG_MR_CHANGE_PD;
  again.pd_handle = 77;
  EXPECT_EQ(l.call(IB_USER_VERBS_CMD_REREG_MR, again), EINVAL);
  again.flags = IBV_REREG_MR_CHANGE_ACCESS;
  again.access_flags = IBV_ACCESS_LOCAL_WRITE;
  ib_uverbs_rereg_mr_resp keys{};
  EXPECT_EQ(l.call(IB_USER_VERBS_CMD_REREG_MR, again, &keys), 0);
  EXPECT_NE(keys.lkey, 0U);
}

}  // namespace
}  // namespace turnout::hca::test
