// SPDX-License-Identifier: BSD-3-Clause
// Profile files: what Turnout comes with loads and says where it comes from; what is wrong is
// refused with the field named.
#include "sim/formats/profile_file.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/support/scratch.h"

namespace turnout::sim {
namespace {

using hca::Profile;

Result<std::string> orphan(const std::string& name) {
  return Status{Code::invalid, "no profile is called " + name};
}

Result<ProfileFile> parse(const std::string& body, const ReadProfile& parent = orphan) {
  return parse_profile("[profile]\nname = \"p\"\ndevice = \"d\"\n" + body, "test.toml", parent);
}

std::string text_of(const Result<ProfileFile>& result) {
  return result.ok() ? std::string("accepted") : result.status().text();
}

ProfileFile load(const std::string& name) {
  Result<ProfileFile> file = find_profile(name);
  EXPECT_TRUE(file.ok()) << file.status().text();
  return file.ok() ? std::move(file).value() : ProfileFile{};
}

double ns(std::int64_t picoseconds) {
  return static_cast<double>(picoseconds) / 1000;
}

double wire_ns(const Profile& p, std::int64_t bytes) {
  return ns(hca::time_of(p.wire_rate, static_cast<std::uint64_t>(bytes + p.wire_overhead)));
}

TEST(ProfileFile, EveryShippedProfileLoads) {
  const std::vector<std::string> names = list_profiles();
  for (const char* name : {"connect-ib", "connect-ib-aqps", "connectx-3", "connectx-4",
                           "connectx-5", "connectx-6", "connectx-7", "ideal"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
  for (const std::string& name : names) {
    const ProfileFile file = load(name);
    EXPECT_EQ(file.name, name);
    EXPECT_FALSE(file.device.empty());
    for (const ProfileValue& row : file.values) {
      EXPECT_EQ(row.from.empty(), row.provenance == "-") << row.group << "." << row.name;
      EXPECT_FALSE(row.source.empty());
    }
  }
}

TEST(ProfileFile, ConnectIbGivesEveryParameterItself) {
  const ProfileFile file = load("connect-ib");
  for (const ProfileValue& row : file.values) {
    EXPECT_EQ(row.from, "connect-ib") << row.group << "." << row.name << " has no source";
  }
}

TEST(ProfileFile, IdealIsTheDefault) {
  const ProfileFile file = load("ideal");
  const Profile ideal;
#define TURNOUT_PARAMETER(group, name, unit, value, help) \
  EXPECT_EQ(file.profile.group##_##name, ideal.group##_##name);
#include "hca/virtual/profile.def"
#undef TURNOUT_PARAMETER
}

// The figures that connect-ib stands for, recomputed from the parameters as the engine adds them.
TEST(ProfileFile, ConnectIbMeetsItsFigures) {
  const Profile p = load("connect-ib").profile;
  const double processor = ns(p.processor_post + p.processor_post_dc + p.processor_doorbell);
  const double back = wire_ns(p, 0) + ns(p.wire_hop + p.adapter_receive_dc + p.pcie_read) +
                      ns(hca::time_of(p.pcie_rate, 8)) + wire_ns(p, 8) + ns(p.wire_hop);
  const double read = processor + ns(p.pcie_doorbell + p.adapter_send_dc) + back +
                      ns(p.pcie_write + p.processor_entry);
  EXPECT_NEAR(read, 1900, 2);
  EXPECT_NEAR(read + ns(p.dc_connect), 2900, 2);
  EXPECT_NEAR(ns(p.dc_connect + p.dc_disconnect + p.adapter_send_dc_switch) + back, 1630, 2);
  EXPECT_EQ(p.adapter_send_rc, 20'000);
  EXPECT_EQ(p.adapter_send_dc, 25'600);
  EXPECT_EQ(p.adapter_send_dc_switch, 43'700);
  EXPECT_EQ(p.processor_poll_ring, 10'000);
  const double rc = ns(p.processor_post + p.processor_doorbell + p.processor_entry);
  EXPECT_NEAR(rc, 92, 0.5);
  EXPECT_NEAR(rc + ns(p.processor_post_dc), 139, 0.5);
}

TEST(ProfileFile, LaterDevicesMeetTheBaseLatency) {
  for (const char* name : {"connectx-4", "connectx-5", "connectx-6", "connectx-7"}) {
    const Profile p = load(name).profile;
    const double one_way =
        ns(p.pcie_doorbell + p.adapter_send_rc + p.wire_hop + p.adapter_receive_rc + p.pcie_write) +
        wire_ns(p, 8);
    EXPECT_NEAR(one_way, 600, 5) << name;
  }
}

TEST(ProfileFile, UnitsAreConverted) {
  const Result<ProfileFile> file = parse(R"(
[processor]
post = { value = 1.5, unit = "us", source = "assumed x" }
entry = { value = 250, unit = "ps", source = "V x y" }
[wire]
rate = { value = 6.8, unit = "GB/s", source = "D x" }
packet = { value = 2, unit = "KiB", source = "S x" }
[pcie]
rate = { value = "unlimited", unit = "GB/s", source = "S x" }
[fault]
loss = { value = 1000000, unit = "ppm", source = "F x" }
)");
  ASSERT_TRUE(file.ok()) << file.status().text();
  const Profile& p = file.value().profile;
  EXPECT_EQ(p.processor_post, 1'500'000);
  EXPECT_EQ(p.processor_entry, 250);
  EXPECT_EQ(p.wire_rate, hca::unit::rate(6.8));
  EXPECT_EQ(p.wire_packet, 2048);
  EXPECT_EQ(p.pcie_rate, 0);
  EXPECT_EQ(p.fault_loss, 1'000'000);
  EXPECT_EQ(file.value().values[0].provenance, "assumed");
  EXPECT_EQ(file.value().values[0].source, "x");
  EXPECT_EQ(file.value().values[0].value, "1.5");
}

struct Refusal {
  const char* body;
  const char* says;
};

TEST(ProfileFile, WhatIsWrongIsRefusedWithItsName) {
  const Refusal table[] = {
      {"[processor]\npost = 40\n", "processor.post: a value needs a unit"},
      {"[processor]\npost = { value = 40, source = \"V x\" }\n", "processor.post.unit"},
      {"[processor]\npost = { value = 40, unit = \"GB/s\", source = \"V x\" }\n",
       "expected ps, ns, us, ms, s"},
      {"[processor]\npost = { value = 40, unit = \"NS\", source = \"V x\" }\n",
       "processor.post.unit"},
      {"[processor]\npost = { unit = \"ns\", source = \"V x\" }\n", "processor.post.value"},
      {"[processor]\npost = { value = 40, unit = \"ns\" }\n", "processor.post.source"},
      {"[processor]\npost = { value = 40, unit = \"ns\", source = \"V\" }\n",
       "processor.post.source"},
      {"[processor]\npost = { value = 40, unit = \"ns\", source = \"X y\" }\n",
       "processor.post.source"},
      {"[processor]\npost = { value = 40, unit = \"ns\", source = 7 }\n", "processor.post.source"},
      {"[processor]\npost = { value = -1, unit = \"ns\", source = \"V x\" }\n",
       "processor.post.value: -1 ns: expected 0 to 3600 s"},
      {"[processor]\npost = { value = 3601, unit = \"s\", source = \"V x\" }\n",
       "processor.post.value"},
      {"[processor]\npost = { value = 1e300, unit = \"s\", source = \"V x\" }\n",
       "processor.post.value"},
      {"[processor]\npost = { value = nan, unit = \"ns\", source = \"V x\" }\n",
       "expected a finite number"},
      {"[processor]\npost = { value = inf, unit = \"ns\", source = \"V x\" }\n",
       "expected a finite number"},
      {"[processor]\npost = { value = \"unlimited\", unit = \"ns\", source = \"V x\" }\n",
       "processor.post.value: expected a number"},
      {"[processor]\npost = { value = true, unit = \"ns\", source = \"V x\" }\n",
       "processor.post.value: expected a number"},
      {"[processor]\npots = { value = 4, unit = \"ns\", source = \"V x\" }\n",
       "processor.pots: no such parameter; did you mean processor.post?"},
      {"[procesor]\npost = { value = 4, unit = \"ns\", source = \"V x\" }\n",
       "did you mean processor?"},
      {"[processor]\npost = { vlaue = 4, unit = \"ns\", source = \"V x\" }\n",
       "did you mean processor.post.value?"},
      {"[zzzzzz]\n", "zzzzzz: no such group of parameters"},
      {"processor = 7\n", "profile.processor"},
      {"nmae = \"x\"\n", "did you mean profile.name?"},
      {"[wire]\npacket = { value = 0, unit = \"bytes\", source = \"V x\" }\n", "wire.packet.value"},
      {"[wire]\npacket = { value = 1.5, unit = \"bytes\", source = \"V x\" }\n", "whole number"},
      {"[wire]\nrate = { value = 1e-9, unit = \"GB/s\", source = \"V x\" }\n", "wire.rate.value"},
      {"[cache]\nfetches = { value = 0, unit = \"count\", source = \"V x\" }\n",
       "cache.fetches.value"},
      {"[cache]\nfirst_entries = { value = 5000000000, unit = \"count\", source = \"V x\" }\n",
       "cache.first_entries.value"},
      {"[fault]\nloss = { value = 1000001, unit = \"ppm\", source = \"V x\" }\n",
       "fault.loss.value"},
      {"[dc]\nnack_wait = { value = 2, unit = \"us\", source = \"V x\" }\n", "dc.nack_wait"},
      {"[cache]\nfirst_entries = { value = 9, unit = \"count\", source = \"V x\" }\n"
       "second_entries = { value = 8, unit = \"count\", source = \"V x\" }\n",
       "cache.first_entries"},
      {"[processor\n", "line 4"},
      {"inherits = \"../p\"\n", "profile.inherits"},
      {"inherits = \"elsewhere\"\n", "no profile is called elsewhere"},
      {"inherits = \"p\"\n", "circular inheritance: p, p"},
      {"note = \"two\\nlines\"\n", "profile.note"},
  };
  for (const Refusal& row : table) {
    const Result<ProfileFile> file = parse(row.body);
    EXPECT_FALSE(file.ok()) << row.body;
    EXPECT_NE(text_of(file).find(row.says), std::string::npos) << row.body << text_of(file);
    EXPECT_NE(text_of(file).find("test.toml"), std::string::npos) << text_of(file);
  }
  const auto alone = [](const char* text) {
    return text_of(parse_profile(text, "test.toml", orphan));
  };
  EXPECT_NE(alone("").find("[profile]"), std::string::npos);
  EXPECT_NE(alone("[profile]\nname = \"a\"\n").find("profile.device"), std::string::npos);
  EXPECT_NE(alone("[profile]\ndevice = \"a\"\n").find("profile.name"), std::string::npos);
  EXPECT_NE(alone("profile = 3\n").find("[profile]"), std::string::npos);
}

TEST(ProfileFile, InheritsAndOverrides) {
  const std::map<std::string, std::string> files = {
      {"a",
       "[profile]\nname = \"a\"\ndevice = \"A\"\ninherits = \"b\"\n"
       "[pcie]\nread = { value = 2, unit = \"ns\", source = \"V a\" }\n"},
      {"b",
       "[profile]\nname = \"b\"\ndevice = \"B\"\n"
       "[pcie]\nread = { value = 1, unit = \"ns\", source = \"V b\" }\n"
       "write = { value = 3, unit = \"ns\", source = \"V b\" }\n"},
      {"x", "[profile]\nname = \"x\"\ndevice = \"X\"\ninherits = \"y\"\n"},
      {"y", "[profile]\nname = \"y\"\ndevice = \"Y\"\ninherits = \"x\"\n"}};
  const ReadProfile read = [&](const std::string& name) -> Result<std::string> {
    return files.at(name);
  };
  const Result<ProfileFile> file = parse_profile(files.at("a"), "a.toml", read);
  ASSERT_TRUE(file.ok()) << file.status().text();
  EXPECT_EQ(file.value().name, "a");
  EXPECT_EQ(file.value().profile.pcie_read, 2000);
  EXPECT_EQ(file.value().profile.pcie_write, 3000);
  for (const ProfileValue& row : file.value().values) {
    if (row.group != "pcie" || row.name == "doorbell") continue;
    EXPECT_EQ(row.from, row.name == "read" ? "a" : row.name == "write" ? "b" : "");
  }
  const Result<ProfileFile> circle = parse_profile(files.at("x"), "x.toml", read);
  EXPECT_NE(text_of(circle).find("circular inheritance: x, y, x"), std::string::npos)
      << text_of(circle);
}

// A chain that never closes must end all the same.
TEST(ProfileFile, EndlessAncestryIsRefused) {
  int depth = 0;
  const ReadProfile read = [&](const std::string&) -> Result<std::string> {
    ++depth;
    return "[profile]\nname = \"n" + std::to_string(depth) + "\"\ndevice = \"x\"\ninherits = \"m" +
           std::to_string(depth) + "\"\n";
  };
  const Result<ProfileFile> file = parse("inherits = \"m0\"\n", read);
  EXPECT_NE(text_of(file).find("chain of more than"), std::string::npos) << text_of(file);
  EXPECT_LT(depth, 20);
}

TEST(ProfileFile, FoundByNamePathAndVariable) {
  const test::Folder folder;
  const ProfileFile by_path = load(folder.file(
      "mine.toml", "[profile]\nname = \"mine\"\ndevice = \"M\"\ninherits = \"connect-ib\"\n"));
  EXPECT_EQ(by_path.profile.adapter_send_rc, 20'000);
  EXPECT_FALSE(find_profile("mine").ok());
  {
    const test::Variable variable("TURNOUT_PROFILES", "/nonexistent:" + folder.path().string());
    EXPECT_EQ(load("mine").name, "mine");
  }

  EXPECT_NE(text_of(find_profile("conect-ib")).find("did you mean connect-ib?"), std::string::npos);
  EXPECT_NE(text_of(find_profile("zzz")).find("available: connect-ib"), std::string::npos);
  EXPECT_FALSE(find_profile("").ok());
  EXPECT_FALSE(find_profile("/").ok());
  EXPECT_FALSE(find_profile("missing.toml").ok());
}

TEST(ProfileFile, ThePageIsWhatTheFilesSay) {
  const Result<std::string> page = profile_markdown();
  ASSERT_TRUE(page.ok()) << page.status().text();
  std::ifstream file(TURNOUT_SOURCE_DIR "/docs/profiles.md");
  std::stringstream written;
  written << file.rdbuf();
  if (std::getenv("TURNOUT_TEST_WRITE_DOCS") != nullptr) {
    std::ofstream(TURNOUT_SOURCE_DIR "/docs/profiles.md") << page.value();
    return;
  }
  EXPECT_TRUE(page.value() == written.str())
      << "docs/profiles.md is not what profiles/*.toml give: write it again";
}

RC_GTEST_PROP(ProfileFileFuzz, AnyTextIsAProfileOrAnError, (const std::string& text)) {
  const Result<ProfileFile> file = parse("[processor]\npost = " + text + "\n");
  RC_ASSERT(file.ok() || file.status().code() == Code::invalid);
}

RC_GTEST_PROP(ProfileFileFuzz, WhatIsAcceptedIsInRange, (std::int64_t mantissa, int exponent)) {
  const std::string number =
      std::to_string(mantissa % 100000) + "e" + std::to_string(exponent % 20);
  const Result<ProfileFile> file =
      parse("[wire]\nrate = { value = " + number + ", unit = \"GB/s\", source = \"V x\" }\n" +
            "hop = { value = " + number + ", unit = \"s\", source = \"V x\" }\n");
  if (!file.ok()) return;
  RC_ASSERT(file.value().profile.wire_rate >= 0);
  RC_ASSERT(file.value().profile.wire_hop >= 0);
  RC_ASSERT(file.value().profile.wire_hop <= 3600 * hca::kSecond);
}

}  // namespace
}  // namespace turnout::sim
