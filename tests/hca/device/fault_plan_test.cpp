// SPDX-License-Identifier: BSD-3-Clause
#include "hca/device/fault_plan.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace turnout::hca {
namespace {

FaultPlan plan_of(const char* text, int rank = -1) {
  Result<FaultPlan> plan = FaultPlan::parse(text, rank);
  EXPECT_TRUE(plan.ok()) << plan.status().text();
  return plan.ok() ? plan.value() : FaultPlan();
}

TEST(FaultPlan, ReadsItems) {
  EXPECT_TRUE(plan_of("").empty());
  EXPECT_TRUE(plan_of(" ; ;").empty());
  const FaultPlan plan = plan_of(
      " loss:probability=0.25 ;rnr:after=100, times=3,qp=rc;seed=7; "
      "link_down:at=2s,time=500ms,every=3s;"
      "create:object=mr,errno=EFAULT;error:status=rem_access_err,opcode=write");
  ASSERT_EQ(plan.faults().size(), 5U);
  EXPECT_EQ(plan.seed(), 7U);
  EXPECT_EQ(plan.faults()[0].kind, FaultKind::loss);
  EXPECT_EQ(plan.faults()[0].probability, 0.25);
  EXPECT_EQ(plan.faults()[1].text, "rnr:after=100, times=3,qp=rc");
  EXPECT_EQ(plan.faults()[1].after, 100U);
  EXPECT_EQ(plan.faults()[1].times, 3U);
  EXPECT_EQ(plan.faults()[2].at, 2'000'000'000);
  EXPECT_EQ(plan.faults()[2].time, 500'000'000);
  EXPECT_EQ(plan.faults()[2].every, 3'000'000'000);
  EXPECT_EQ(plan.faults()[3].object, FaultObject::mr);
  EXPECT_EQ(plan.faults()[3].error, EFAULT);
  EXPECT_EQ(plan.faults()[4].status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(plan.faults()[4].count, 1U);
  EXPECT_EQ(plan_of("create").faults()[0].error, ENOMEM);
}

TEST(FaultPlan, NamesWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"los", "\"los\": unknown fault; expected loss, delay"},
      {"rnr:tims=3",
       "\"tims=3\": rnr takes KEY=VALUE with the keys probability, after, count, times"},
      {"rnr:time=3s", "\"time=3s\": rnr takes"},
      {"rnr:after", "\"after\": rnr takes KEY=VALUE"},
      {"loss:", "\"\": loss takes KEY=VALUE"},
      {"loss:probability=2", "probability=2: expected a number from 0 to 1"},
      {"loss:probability=nan", "expected a number from 0 to 1"},
      {"loss:probability=0.5x", "expected a number from 0 to 1"},
      {"loss:after=1,after=2", "after is given twice"},
      {"loss:after=-1", "after=-1: "},
      {"delay", "time=DURATION is missing"},
      {"slow:time=25h", "time=25h"},
      {"delay:time=90000s", "expected 0 to 24 hours"},
      {"error:status=success", "status=success: expected one of loc_len_err"},
      {"create:object=queue", "object=queue: expected one of any, pd"},
      {"create:errno=12", "errno=12: expected one of ENOMEM"},
      {"timeout:qp=raw", "qp=raw: expected one of rc, uc"},
      {"loss:rank=9999999999", "rank=9999999999: expected a rank"},
      {"link_down:time=2s,every=1s", "every: expected a time= that is shorter"},
      {"create:object=pd,limit=3", "limit: expected object=mr, cq, srq or qp"},
      {"loss;seed=x", "\"seed=x\": seed=x: "},
  };
  for (const auto& [text, error] : cases) {
    SCOPED_TRACE(text);
    const auto plan = FaultPlan::parse(text);
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.status().code(), Code::invalid);
    EXPECT_NE(plan.status().text().find("TURNOUT_FAULT: "), std::string::npos);
    EXPECT_NE(plan.status().text().find(error), std::string::npos) << plan.status().text();
  }
}

TEST(FaultPlan, IsOfOneRank) {
  EXPECT_TRUE(plan_of("loss:rank=1", 0).empty());
  EXPECT_TRUE(plan_of("loss:rank=1").empty());
  EXPECT_EQ(plan_of("loss:rank=1", 1).faults().size(), 1U);
  EXPECT_EQ(plan_of("loss", 1).faults().size(), 1U);
}

TEST(FaultPlan, SaysWhichRequestsMayBeHit) {
  const auto is_for = [](const char* text, QpKind kind, ibv_wr_opcode opcode) {
    return plan_of(text).faults()[0].is_for(kind, static_cast<std::uint8_t>(opcode));
  };
  EXPECT_TRUE(is_for("loss", QpKind::ud, IBV_WR_SEND));
  EXPECT_TRUE(is_for("loss", QpKind::uc, IBV_WR_RDMA_WRITE));
  EXPECT_FALSE(is_for("loss", QpKind::rc, IBV_WR_SEND));
  EXPECT_FALSE(is_for("loss:qp=uc", QpKind::ud, IBV_WR_SEND));
  EXPECT_TRUE(is_for("rnr", QpKind::rc, IBV_WR_SEND));
  EXPECT_TRUE(is_for("rnr", QpKind::dci, IBV_WR_RDMA_WRITE_WITH_IMM));
  EXPECT_FALSE(is_for("rnr", QpKind::rc, IBV_WR_RDMA_WRITE));
  EXPECT_FALSE(is_for("rnr", QpKind::ud, IBV_WR_SEND));
  EXPECT_TRUE(is_for("timeout:opcode=atomic", QpKind::rc, IBV_WR_ATOMIC_FETCH_AND_ADD));
  EXPECT_FALSE(is_for("timeout:opcode=atomic", QpKind::rc, IBV_WR_RDMA_READ));
  EXPECT_TRUE(is_for("delay:time=1us,qp=xrc,opcode=read", QpKind::xrc_ini, IBV_WR_RDMA_READ));
  EXPECT_FALSE(is_for("error", QpKind::rc, IBV_WR_BIND_MW));
  EXPECT_FALSE(is_for("slow:time=1us", QpKind::rc, IBV_WR_SEND));
}

TEST(FaultPlan, HitsTheSameInEveryRun) {
  constexpr std::uint64_t kMany = 100'000;
  const auto hits = [](const FaultPlan& plan, std::size_t fault) {
    std::vector<std::uint64_t> all;
    for (std::uint64_t n = 0; n < kMany; ++n) {
      if (plan.hits(fault, n)) all.push_back(n);
    }
    return all;
  };
  const char* const text = "loss:probability=0.01,after=50;loss:probability=0.01";
  const FaultPlan plan = plan_of(text);
  const auto first = hits(plan, 0);
  // Four standard deviations of a binomial distribution: 32 each.
  EXPECT_NEAR(static_cast<double>(first.size()), 1000, 128);
  EXPECT_GE(first.front(), 50U);
  EXPECT_EQ(first, hits(plan_of(text), 0));
  EXPECT_NE(first, hits(plan, 1));
  EXPECT_NE(first, hits(plan_of(text, 3), 0));
  EXPECT_NE(first, hits(plan_of("seed=2;loss:probability=0.01,after=50"), 0));
  EXPECT_TRUE(hits(plan_of("loss:probability=0"), 0).empty());
  EXPECT_EQ(hits(plan_of("loss:after=7"), 0).size(), kMany - 7);
}

}  // namespace
}  // namespace turnout::hca
