// SPDX-License-Identifier: BSD-3-Clause
// Files of a device's costs: reading, refusing, printing, the built-in values.
#include "core/selection/device_costs.h"

#include <gtest/gtest.h>

#include "tests/support/scratch.h"

namespace turnout::selection {
namespace {

constexpr std::string_view kHead = "[device]\nname = \"x\"\n";

std::string refusal(const std::string& text) {
  const Result<CostsFile> file = parse_costs(std::string(kHead) + text, "f.toml");
  EXPECT_FALSE(file.ok()) << text;
  return file.ok() ? std::string() : file.status().text();
}
void expect_refused(const std::string& text, const std::string& words) {
  EXPECT_NE(refusal(text).find(words), std::string::npos) << refusal(text);
}

TEST(DeviceCosts, BuiltInAreThoseOfTable2) {
  const Result<CostsFile> file = load_costs(Settings::defaults());
  ASSERT_TRUE(file.ok()) << file.status().text();
  const CostModel model = cost_model(file.value().costs, 16), paper;
  EXPECT_EQ(model.saving_dc_rdma, paper.saving_dc_rdma);
  EXPECT_EQ(model.saving_rc_rdma, paper.saving_rc_rdma);
  EXPECT_EQ(model.poll, paper.poll);
  EXPECT_EQ(model.credit, paper.credit);
  EXPECT_EQ(model.setup_dc, paper.setup_dc);
  EXPECT_EQ(model.setup_rc, paper.setup_rc);
}

TEST(DeviceCosts, EveryBuiltInValueHasATagAndReadsBack) {
  const CostsFile built_in;
  const Result<CostsFile> again = parse_costs(print_costs(built_in), "printed");
  ASSERT_TRUE(again.ok()) << again.status().text();
  EXPECT_EQ(again.value().sources, built_in.sources);
  for (const CostRow& row : cost_table()) {
    EXPECT_EQ((again.value().costs.*row.field).value, row.built_in.value) << row.name;
    EXPECT_EQ((again.value().costs.*row.field).uncertainty, row.built_in.uncertainty) << row.name;
  }
}

TEST(DeviceCosts, AFileGivesWhatItHasAndLeavesTheRest) {
  const Result<CostsFile> file = parse_costs(
      std::string(kHead) +
          "[sender]\ndci_switch = { value = 1.5, unit = \"us\", uncertainty = 0.02, source = "
          "\"M nine rounds\" }\n",
      "f.toml");
  ASSERT_TRUE(file.ok()) << file.status().text();
  EXPECT_EQ(file.value().device, "x");
  EXPECT_DOUBLE_EQ(file.value().costs.sender_dci_switch.value, 1500);
  EXPECT_DOUBLE_EQ(file.value().costs.sender_dci_switch.error(), 30);
  EXPECT_DOUBLE_EQ(file.value().costs.receiver_poll.value, 10);
}

TEST(DeviceCosts, WhatIsWrongIsNamedWithItsLine) {
  const auto poll = [](const std::string& inside) {
    return "[receiver]\npoll = { " + inside + " }\n";
  };
  expect_refused("[sendr]\n", "did you mean sender?");
  expect_refused("[receiver]\npol = 1\n", "line 4: receiver.pol: no such cost; did you mean poll?");
  expect_refused("[receiver]\npoll = 1\n", "expected { value = 1");
  expect_refused(poll("value = 1, uncertainty = 0, source = \"M x\""), "expected ns, us, ms, s");
  expect_refused(poll("value = -1, unit = \"ns\", uncertainty = 0, source = \"M x\""),
                 "0 to 3600 s");
  expect_refused(poll("value = nan, unit = \"ns\", uncertainty = 0, source = \"M x\""), "finite");
  expect_refused(poll("value = 1, unit = \"ns\", source = \"M x\""), "uncertainty: missing");
  expect_refused(poll("value = 1, unit = \"ns\", uncertainty = -1, source = \"M x\""),
                 "fraction of the value");
  expect_refused(poll("value = 1, unit = \"ns\", uncertainty = 0, source = \"M\""), "a tag");
  expect_refused(poll("vale = 1, unit = \"ns\""), "did you mean value?");
  expect_refused(
      "[context]\nfirst_entries = { value = 9000, unit = \"count\", uncertainty = 0, source = "
      "\"M x\" }\n",
      "exceeds context.second_entries");
  EXPECT_FALSE(parse_costs("", "f.toml").ok());
  EXPECT_FALSE(parse_costs("[device]\n", "f.toml").ok());
}

TEST(DeviceCosts, SettingsThatWereGivenWinOverTheFile) {
  const test::Folder folder;
  Settings settings = Settings::defaults();
  ASSERT_TRUE(settings
                  .set("costs", folder.file("c.toml", std::string(kHead) +
                                                          "[receiver]\npoll = { value = 7, unit = "
                                                          "\"ns\", uncertainty = 0, source = "
                                                          "\"M x\" }\n"))
                  .ok());
  EXPECT_EQ(load_costs(settings)->costs.receiver_poll.value, 7);
  // The default's value counts too when somebody gave it.
  ASSERT_TRUE(settings.set("cost_poll", "10ns").ok());
  ASSERT_TRUE(settings.set("saving_rc_rdma", "300ns").ok());
  const Result<CostsFile> file = load_costs(settings);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file.value().costs.receiver_poll.value, 10);
  EXPECT_EQ(file.value().costs.receiver_poll.uncertainty, 0);
  EXPECT_EQ(cost_model(file.value().costs, 16).saving_rc_rdma, 300);
  EXPECT_EQ(cost_model(file.value().costs, 16).saving_dc_rdma, 100);
}

TEST(DeviceCosts, AFileThatIsNotThereIsToldOf) {
  Settings settings = Settings::defaults();
  ASSERT_TRUE(settings.set("costs", "/nowhere/costs.toml").ok());
  const Result<CostsFile> file = load_costs(settings);
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.status().text().find("/nowhere/costs.toml"), std::string::npos);
}

}  // namespace
}  // namespace turnout::selection
