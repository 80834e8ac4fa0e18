// SPDX-License-Identifier: BSD-3-Clause
// Verdicts on claims of the papers, and the table of them.
#include "sim/experiments/page.h"

#include <gtest/gtest.h>

namespace turnout::sim {
namespace {

TEST(Claims, SpreadOfSeveralSeeds) {
  const OfSeeds odd = of_seeds({3, 1, 2}), even = of_seeds({4, 1, 2, 3});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.least, 1);
  EXPECT_EQ(odd.most, 3);
  EXPECT_EQ(even.median, 2.5);
  EXPECT_EQ(of_seeds({}).median, 0);
  EXPECT_EQ(print_percent(of_seeds({-1.25})), "-1.2 %");
  EXPECT_EQ(print_percent(of_seeds({-1, -2, 3})), "-1.0 % (-2.0 to +3.0)");
}

TEST(Claims, AChangeIsMetWithinThreePoints) {
  EXPECT_EQ(of_change(-20, of_seeds({-17})), Verdict::met);
  EXPECT_EQ(of_change(-20, of_seeds({-23})), Verdict::met);
  EXPECT_EQ(of_change(0, of_seeds({2.9})), Verdict::met);
  // The median decides.
  EXPECT_EQ(of_change(-20, of_seeds({-50, -20, 10})), Verdict::met);
}

TEST(Claims, ATendencyIsThatOfEverySeed) {
  EXPECT_EQ(of_change(-20, of_seeds({-16.9, -10, -1})), Verdict::tendency);
  EXPECT_EQ(of_change(-20, of_seeds({-16.9, -10, 1})), Verdict::missed);
  EXPECT_EQ(of_change(-20, of_seeds({-40})), Verdict::tendency);
  EXPECT_EQ(of_change(20, of_seeds({1, 2, 3})), Verdict::tendency);
  EXPECT_EQ(of_change(-20, of_seeds({1, 2, 3})), Verdict::contradicted);
  EXPECT_EQ(of_change(20, of_seeds({-1, -2, -3})), Verdict::contradicted);
  // That two are equal has no direction.
  EXPECT_EQ(of_change(0, of_seeds({13})), Verdict::missed);
}

TEST(Claims, AValueIsMetWithinItsPart) {
  EXPECT_EQ(of_value(100, 115), Verdict::met);
  EXPECT_EQ(of_value(100, 85), Verdict::met);
  EXPECT_EQ(of_value(100, 115.1), Verdict::missed);
  EXPECT_EQ(of_value(100, 84.9), Verdict::missed);
  EXPECT_EQ(of_value(0, 0), Verdict::met);
  EXPECT_EQ(of_value(0, 0.1), Verdict::missed);
}

TEST(Claims, TheTableHasACauseWhereAClaimIsNotMet) {
  EXPECT_EQ(claims_table({{"A1", "this", "-1 %", "-2 %", Verdict::met, "not printed"},
                          {"A2", "that", "-1 %", "+9 %", Verdict::contradicted, "because"},
                          {"A3", "other", "1", "-", Verdict::not_run, ""}}),
            "| claim | what | paper | ours | verdict | cause |\n"
            "|---|---:|---:|---:|---:|---:|\n"
            "| A1 | this | -1 % | -2 % | met | - |\n"
            "| A2 | that | -1 % | +9 % | **contradicted** | because |\n"
            "| A3 | other | 1 | - | **not run** | - |\n");
}

}  // namespace
}  // namespace turnout::sim
