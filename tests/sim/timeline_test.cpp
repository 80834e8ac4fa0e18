// SPDX-License-Identifier: BSD-3-Clause
#include "sim/formats/timeline.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/scratch.h"

namespace turnout::sim {
namespace {

using Kind = hca::Trace::Kind;

class TimelineTest : public testing::Test {
 protected:
  [[nodiscard]] nlohmann::json read() const {
    std::ifstream in(path_);
    return nlohmann::json::parse(in)["traceEvents"];
  }
  test::Folder folder_;
  std::string path_ = folder_.path() / "timeline.json";
};

TEST_F(TimelineTest, MakesSlicesFromPostToCompletionInOrderOfAQueuePair) {
  auto made = Timeline::create(path_, "ring \"x\"");
  ASSERT_TRUE(made.ok());
  Timeline& t = *made.value();
  t.add({Kind::post, 1'000'001, 2, 3, 7, 64});
  t.add({Kind::post, 1'500'000, 2, 4, 7, 65});
  t.add({Kind::miss, 1'600'000, 2, 4, 7, 0});
  t.add({Kind::complete, 2'000'000, 2, 3, 7, 64});
  t.add({Kind::complete, 2'500'000, 2, 4, 7, 65});
  t.add({Kind::complete, 2'600'000, 2, 4, 8, 0});  // of nothing that was posted
  ASSERT_TRUE(t.finish().ok());
  ASSERT_TRUE(t.finish().ok());
  std::vector<std::string> begins;
  int ends = 0, misses = 0, most = 0;
  for (const auto& e : read()) {
    if (e["ph"] == "b") begins.push_back(e["name"]);
    if (e["ph"] == "e") ++ends;
    if (e["ph"] == "i" && e["name"] == "context miss") ++misses;
    if (e["ph"] == "C") most = std::max(most, e["args"]["requests"].get<int>());
  }
  EXPECT_EQ(begins, (std::vector<std::string>{"64 B to rank 3", "65 B to rank 4"}));
  EXPECT_EQ(ends, 2);
  EXPECT_EQ(misses, 1);
  EXPECT_EQ(most, 2);
  const auto events = read();
  const auto first =
      std::find_if(events.begin(), events.end(), [](const auto& e) { return e["ph"] == "b"; });
  EXPECT_DOUBLE_EQ((*first)["ts"].get<double>(), 1.000001);
}

TEST_F(TimelineTest, EndsBeforeItsLimitAsValidJson) {
  auto made = Timeline::create(path_, "long", 20'000);
  ASSERT_TRUE(made.ok());
  for (int i = 0; i < 10'000; ++i) {
    made.value()->add({i % 2 == 0 ? Kind::post : Kind::complete, i * 1000, 0, 1, 1, 8});
  }
  EXPECT_TRUE(made.value()->cut());
  ASSERT_TRUE(made.value()->finish().ok());
  EXPECT_LE(std::filesystem::file_size(path_), 20'000U);
  EXPECT_GT(read().size(), 10U);
}

TEST_F(TimelineTest, NamesTheFileItCannotWrite) {
  const auto made = Timeline::create("/nonexistent/t.json", "x");
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().text().find("/nonexistent/t.json"), std::string::npos);
  auto full = Timeline::create("/dev/full", "x");
  ASSERT_TRUE(full.ok());
  EXPECT_FALSE(full.value()->finish().ok());
}

TEST(TimelinePath, HasThePolicyBeforeTheEnding) {
  EXPECT_EQ(timeline_path("t.json", "aqps", false), "t.json");
  EXPECT_EQ(timeline_path("a.b/t.json", "static:dc-sendrecv", true),
            "a.b/t-static-dc-sendrecv.json");
  EXPECT_EQ(timeline_path("a.b/t", "aqps", true), "a.b/t-aqps");
}

}  // namespace
}  // namespace turnout::sim
