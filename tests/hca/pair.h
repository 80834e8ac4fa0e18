// SPDX-License-Identifier: BSD-3-Clause
// Pair: two RC queue pairs of one process, connected to each other, each with a CQ of its own for
// both directions, and memory for both.
#pragma once

#include "tests/hca/rig.h"

namespace turnout::hca::test {

struct Pair {
  explicit Pair(const ConnectOptions& options = {}, const QpOptions& b_options = {}) {
    QpOptions oa, ob = b_options;
    oa.send_cq = oa.recv_cq = cq_a = rig.cq(64);
    ob.send_cq = ob.recv_cq = cq_b = rig.cq(64);
    a = rig.rc(oa);
    b = rig.rc(ob);
    connect(a, b->qp_num, options);
    connect(b, a->qp_num, options);
    local = rig.memory(65536);
    remote = rig.memory(65536);
  }
  ibv_wc write(std::uint64_t address, std::uint32_t key, std::size_t length,
               ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE) {
    post(a, opcode, {local.sge(0, length)}, 1, address, key);
    return wait_wc(cq_a);
  }
  // A type 1 window, through b; the completion's status.
  ibv_wc_status bind(ibv_mw* mw, const ibv_mw_bind_info& info) {
    ibv_mw_bind request{};
    request.wr_id = 77;
    request.send_flags = IBV_SEND_SIGNALED;
    request.bind_info = info;
    EXPECT_EQ(ibv_bind_mw(b, mw, &request), 0);
    const ibv_wc wc = wait_wc(cq_b);
    EXPECT_EQ(wc.wr_id, 77U);
    return wc.status;
  }
  ibv_async_event event() {
    ibv_async_event e{};
    EXPECT_TRUE(readable(rig.context->async_fd, 10000));
    EXPECT_EQ(ibv_get_async_event(rig.context, &e), 0);
    ibv_ack_async_event(&e);
    return e;
  }
  Rig rig;
  ibv_cq *cq_a, *cq_b;
  ibv_qp *a, *b;
  Region local, remote;
};

}  // namespace turnout::hca::test
