// SPDX-License-Identifier: BSD-3-Clause
#include "hca/virtual/receives.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "hca/device/common_objects.h"
#include "tests/hca/virtual/adapter_parts.h"

namespace turnout::hca::test {
namespace {

ibv_recv_wr request(std::uint64_t id) {
  ibv_recv_wr wr{};
  wr.wr_id = id;
  return wr;
}

TEST(VirtualReceives, AreTakenInOrderAndPutBackAtTheEnd) {
  AdapterParts parts;
  VirtualQp& qp = parts.add_qp(0);
  ibv_recv_wr second = request(2), first = request(1), *bad = nullptr;
  first.next = &second;
  ASSERT_EQ(parts.receives.post(qp, &first, &bad), 0);
  Operation operation;
  operation.target = qp.number;
  operation.source = qp.attr.dest_qp_num = 99;
  ASSERT_TRUE(parts.receives.take(qp, nullptr, operation));
  EXPECT_EQ(operation.receive.wr_id, 1U);
  parts.receives.put_back(operation);
  EXPECT_EQ(qp.receives[1].wr_id, 1U);
  parts.receives.put_back(operation);  // it has none any more
  EXPECT_EQ(qp.receives.size(), 2U);
}

TEST(VirtualReceives, TheFirstThatDoesNotFitIsNamed) {
  AdapterParts parts;
  VirtualQp& qp = parts.add_qp(0);
  qp.max_recv_wr = 1;
  ibv_recv_wr second = request(2), first = request(1), *bad = nullptr;
  first.next = &second;
  EXPECT_EQ(parts.receives.post(qp, &first, &bad), ENOMEM);
  EXPECT_EQ(bad, &second);
  EXPECT_EQ(qp.receives.size(), 1U);
}

TEST(VirtualReceives, OfAQueueInErrorCompleteAtOnce) {
  AdapterParts parts;
  VirtualQp& qp = parts.add_qp(0);
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 4;
  qp.recv_cq = static_cast<VirtualCq*>(Completions::create(parts.contexts[0], attr));
  qp.phase = QpPhase::err;
  ibv_recv_wr wr = request(5), *bad = nullptr;
  EXPECT_EQ(parts.receives.post(qp, &wr, &bad), 0);
  Completion out{};
  ASSERT_TRUE(parts.completions.take(*qp.recv_cq, out));
  EXPECT_EQ(out.wr_id, 5U);
  EXPECT_EQ(out.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(Completions::destroy(*qp.recv_cq), 0);
}

TEST(VirtualSrqs, AreToldOnceThatFewReceivesAreLeft) {
  AdapterParts parts;
  Pd* const pd = make_domain(parts.contexts[0], 1);
  ibv_srq_init_attr attr{};
  attr.attr.max_wr = 4;
  auto* const srq = static_cast<VirtualSrq*>(parts.srqs.create(*pd, attr, nullptr, nullptr));
  ASSERT_NE(srq, nullptr);
  EXPECT_EQ(parts.srqs.find(srq->number), srq);
  ibv_recv_wr second = request(2), first = request(1), *bad = nullptr;
  first.next = &second;
  ASSERT_EQ(parts.receives.post_shared(*srq, &first, &bad), 0);
  EXPECT_EQ(parts.srqs.modify(*srq, {4, 1, 2}, IBV_SRQ_LIMIT), 0);
  VirtualQp& qp = parts.add_qp(0);
  qp.srq = srq;
  ibv_async_event event{};
  for (int i = 0; i < 2; ++i) {
    Operation operation;
    ASSERT_TRUE(parts.receives.take(qp, srq, operation));
    (void)parts.next();
    EXPECT_EQ(parts.events.take(parts.contexts[0], event), i == 0 ? 0 : EAGAIN);
  }
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  Operation none;
  EXPECT_FALSE(parts.receives.take(qp, srq, none));
  EXPECT_EQ(parts.srqs.destroy(*srq), 0);
  EXPECT_EQ(destroy_domain(*pd), 0);
}

}  // namespace
}  // namespace turnout::hca::test
