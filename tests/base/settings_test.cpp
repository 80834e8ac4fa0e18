// SPDX-License-Identifier: BSD-3-Clause
#include "base/settings.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cctype>
#include <set>

#include "base/log.h"
#include "tests/support/scratch.h"

namespace turnout {
namespace {

using test::Variable;

void expect_refused(const std::string& name, const std::string& value, const std::string& words) {
  Settings settings = Settings::defaults();
  Status status = settings.set(name, value);
  if (status.ok()) status = settings.validate();
  EXPECT_FALSE(status.ok()) << name << "=" << value;
  EXPECT_EQ(status.code(), Code::invalid);
  EXPECT_NE(status.text().find(settings.variable(name)), std::string::npos) << status.text();
  EXPECT_NE(status.text().find(words), std::string::npos) << status.text();
}

TEST(Settings, DefaultsAreValidAndWhatTheTableSays) {
  const Settings settings = Settings::defaults();
  EXPECT_TRUE(settings.validate().ok()) << settings.validate().text();
  EXPECT_EQ(settings.ring_entries, 16u);
  EXPECT_EQ(settings.ring_entry_size, 4096u);
  EXPECT_EQ(settings.interval, 1'000'000'000);
  EXPECT_EQ(settings.saving_rc_rdma, 150);
  std::set<std::string_view> names;
  for (const SettingInfo& row : describe(settings)) {
    EXPECT_TRUE(names.insert(row.name).second);
    EXPECT_FALSE(row.help.empty()) << row.name;
    EXPECT_EQ(row.value, row.default_value)
        << row.name << ": the default is written as it is printed";
    Settings copy = settings;
    EXPECT_TRUE(copy.set(row.name, row.value).ok()) << row.name;
  }
}

TEST(Settings, RangesAreNamed) {
  expect_refused("ring_entries", "17", "power of two");
  expect_refused("ring_entries", "256", "2 to 128");
  expect_refused("ring_entry_size", "256", "512 to 64KiB");
  expect_refused("ring_entry_size", "1000", "multiple of 64");
  expect_refused("data_qps", "65", "0 to 64");
  expect_refused("credit_qps", "0", "1 to 64");
  expect_refused("establishment_qps", "3", "1 to 2");
  expect_refused("retry_count", "8", "0 to 7");
  expect_refused("ack_timeout", "0", "1 to 31");
  expect_refused("ack_timeout", "32", "1 to 31");
  expect_refused("interval", "0s", "1us to");
  expect_refused("keepalive", "0", "1ms to");
  expect_refused("policy", "best", "turnout or aqps or rc-rdma-od or dc-rdma-od");
  expect_refused("rendezvous", "telepathy", "getcqe");
  expect_refused("log", "loud", "trace debug info warn error off");
  expect_refused("fabric", "../x", "letters");
  expect_refused("fabric", ".hidden", "letters");
  expect_refused("fabric", "", "letters");
  expect_refused("device", "a/b", "adapter's name");
  for (const char* word : {"yes", "2", "OFF", ""}) {
    expect_refused("report", word, "0, 1 or a folder");
  }
  Settings folder = Settings::defaults();
  ASSERT_TRUE(folder.set("report", "rep").ok());
  EXPECT_TRUE(folder.validate().ok());
  expect_refused("report_job", "a/b", "letters");
  expect_refused("memory_budget", "lots", "number of bytes");
  expect_refused("memory_budget", "0", "1 to");
  expect_refused("credits", "300", "TURNOUT_RECEIVE_BUFFERS, which is 256");
  expect_refused("saving_dc_rdma", "100", "time with its unit");
}

TEST(Settings, UnknownNameIsAnError) {
  Settings settings = Settings::defaults();
  const Status status = settings.set("memory_bugdet", "1");
  EXPECT_NE(status.text().find("memory_bugdet"), std::string::npos);
}

TEST(Settings, LaterSourcesWin) {
  const test::Folder folder;
  const std::string file = folder.file(
      "turnout.toml",
      "ring_entries = 32\ncredits = \"8\"\nreport = true\n[tuning]\ngain_threshold = \"5ns\"\n");
  const Variable config("TURNOUT_CONFIG", file), credits("TURNOUT_CREDITS", "4"),
      buffers("TURNOUT_SEND_BUFFERS", "");
  const Result<Settings> settings = Settings::load();
  ASSERT_TRUE(settings.ok()) << settings.status().text();
  EXPECT_EQ(settings.value().ring_entries, 32u) << "file over default";
  EXPECT_EQ(settings.value().credits, 4u) << "environment over file";
  EXPECT_EQ(settings.value().send_buffers, 128u) << "an empty variable is none";
  EXPECT_EQ(settings.value().report, "1");
  EXPECT_EQ(settings.value().gain_threshold, 5);
}

TEST(Settings, EnvironmentErrorsNameVariableValueAndRange) {
  const Variable entries("TURNOUT_RING_ENTRIES", "0x10");
  const Result<Settings> settings = Settings::load();
  ASSERT_FALSE(settings.ok());
  EXPECT_EQ(settings.status().text(),
            "TURNOUT_RING_ENTRIES = \"0x10\": expected a whole number, 0 or more");
}

TEST(Settings, LibfabricsNamesAreRead) {
  const test::Folder folder;
  const Variable config("FI_TURNOUT_CONFIG", folder.file("t.toml", "ring_entries = 32\n")),
      budget("FI_TURNOUT_MEMORY_BUDGET", "64M"), empty("TURNOUT_MEMORY_BUDGET", "");
  test::CapturedStderr captured;
  const Result<Settings> settings = Settings::load();
  ASSERT_TRUE(settings.ok()) << settings.status().text();
  EXPECT_EQ(settings.value().ring_entries, 32u);
  EXPECT_EQ(settings.value().memory_budget, 64u << 20);
  EXPECT_TRUE(settings.value().is_given("memory_budget"));
  EXPECT_EQ(settings.value().variable("memory_budget"), "FI_TURNOUT_MEMORY_BUDGET");
  EXPECT_EQ(settings.value().variable("credits"), "TURNOUT_CREDITS");
  EXPECT_STREQ(environment_value("memory_budget"), "64M");
  EXPECT_EQ(environment_value("credits"), nullptr);
  EXPECT_EQ(captured.text(), "");
}

TEST(Settings, OurNameWinsOverLibfabricsAndThatIsSaid) {
  const Variable own("TURNOUT_CREDITS", "4"), libfabric("FI_TURNOUT_CREDITS", "8"),
      same("TURNOUT_MAX_CONN", "7"), again("FI_TURNOUT_MAX_CONN", "7");
  test::CapturedStderr captured;
  const Result<Settings> settings = Settings::load();
  ASSERT_TRUE(settings.ok()) << settings.status().text();
  EXPECT_EQ(settings.value().credits, 4u);
  EXPECT_EQ(settings.value().variable("credits"), "TURNOUT_CREDITS");
  EXPECT_STREQ(environment_value("credits"), "4");
  EXPECT_TRUE(Settings::load().ok());
  EXPECT_EQ(captured.text(),
            fmt::format("turnout[{}] warn  base: TURNOUT_CREDITS = \"4\" overrides "
                        "FI_TURNOUT_CREDITS = \"8\"; unset one of them\n",
                        ::getpid()))
      << "once, and nothing where both say the same";
}

TEST(Settings, ErrorsNameTheVariableThatWasSet) {
  for (const auto& [value, words] :
       {std::pair{"0x10", "FI_TURNOUT_RING_ENTRIES = \"0x10\": expected a whole number, 0 or more"},
        std::pair{"17", "FI_TURNOUT_RING_ENTRIES = \"17\": expected a power of two, 2 to 128"}}) {
    const Variable entries("FI_TURNOUT_RING_ENTRIES", value);
    const Result<Settings> settings = Settings::load();
    ASSERT_FALSE(settings.ok());
    EXPECT_EQ(settings.status().text(), words);
  }
}

TEST(Settings, FileErrorsNameFileAndLine) {
  const test::Folder folder;
  for (const auto& [content, words] :
       {std::pair{"ring_entries = ", "line 1"}, std::pair{"a = 1\nring_entries = [1]\n", "line 2"},
        std::pair{"\n\nring_entries = \"many\"\n", "line 3"},
        std::pair{"ring_entries = 1\nring_entries = 2\n", "line 2"},
        std::pair{"interval = 1\n", "its unit"},
        std::pair{"config = \"other\"\n", "cannot name another"},
        std::pair{"[ring_entries]\nx = 1\n", "single value"},
        std::pair{"credits = 1979-05-27\n", "single value"},
        std::pair{"credits = -1\n", "whole number"}, std::pair{"a = \x01\n", "line 1"}}) {
    const std::string file = folder.file("t.toml", content);
    const Variable config("TURNOUT_CONFIG", file);
    test::CapturedStderr quiet;
    const Result<Settings> settings = Settings::load();
    ASSERT_FALSE(settings.ok()) << content;
    EXPECT_NE(settings.status().text().find(words), std::string::npos) << settings.status().text();
    EXPECT_NE(settings.status().text().find("t.toml"), std::string::npos)
        << settings.status().text();
  }
}

TEST(Settings, LettersOutsideAsciiInCommentsOnly) {
  Settings settings = Settings::defaults();
  for (const char* good : {"# \u00fc\nlog_file = '#' # \u00fc",
                           "\xef\xbb\xbf"
                           "credits = 8",
                           "log_file = \"\"\"\n#\"\"\" # \u00fc", "log_file = \"a\\\"#\" # \u00fc",
                           "log_file = \"\\u00fc\""}) {
    const Status status = settings.apply_toml(good, "f");
    EXPECT_TRUE(status.ok()) << good << ": " << status.text();
  }
  EXPECT_EQ(settings.log_file, "\u00fc");
  for (const char* bad : {"\u00fc = 1", "credits = \u0206", "a = '' \u00fc", "log_file = '\u00fc'",
                          "credits = 8\u00a0", "log_file = '#\u00fc'", "'''a'''\u00fc"}) {
    const Status status = settings.apply_toml(bad, "f");
    EXPECT_FALSE(status.ok()) << bad;
    EXPECT_NE(status.text().find("line 1: non-ASCII character"), std::string::npos);
  }
}

TEST(Settings, FilesThatAreNoFiles) {
  const test::Folder folder;
  const std::string pipe = (folder.path() / "pipe").string();
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& [path, words] :
       {std::pair{std::string("/nonexistent.toml"), "No such file"},
        std::pair{folder.path().string(), "not a regular file"},
        std::pair{pipe, "not a regular file"},
        std::pair{folder.file("big", std::string((1 << 20) + 1, '\n')), "at most"}}) {
    const Variable config("TURNOUT_CONFIG", path);
    const Result<Settings> settings = Settings::load();
    ASSERT_FALSE(settings.ok()) << path;
    EXPECT_NE(settings.status().text().find(words), std::string::npos) << settings.status().text();
  }
}

TEST(Settings, UnknownNamesAreWarnedAboutOnceWithTheNearest) {
  const test::Folder folder;
  const std::string file = folder.file("u.toml", "intervall = \"1s\"\n");
  const Variable config("TURNOUT_CONFIG", file), a("TURNOUT_MEMORY_BUGET", "1"),
      b("TURNOUT_QWERTYUIOP", "1"), c("TURNOUT_log", "debug"), d("FI_TURNOUT_MEMORY_BUGET", "1");
  std::string text;
  {
    test::CapturedStderr captured;
    EXPECT_TRUE(Settings::load().ok());
    text = captured.text();
  }
  EXPECT_NE(text.find("unknown variable TURNOUT_MEMORY_BUGET has no effect; did you mean "
                      "TURNOUT_MEMORY_BUDGET?"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("unknown variable FI_TURNOUT_MEMORY_BUGET has no effect; did you mean "
                      "FI_TURNOUT_MEMORY_BUDGET?"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\"intervall\""), std::string::npos) << text;
  EXPECT_NE(text.find("did you mean interval?"), std::string::npos) << text;
  EXPECT_NE(text.find("unknown variable TURNOUT_QWERTYUIOP has no effect; `turnout info"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("unknown variable TURNOUT_log has no effect; did you mean TURNOUT_LOG?"),
            std::string::npos)
      << text;
  test::CapturedStderr again;
  EXPECT_TRUE(Settings::load().ok());
  EXPECT_EQ(again.text(), "") << "once per process";
}

TEST(Settings, TheQuietReaderLeavesTheWarningToTheOther) {
  const Variable odd("TURNOUT_NEVER_SEEN_BEFORE", "1");
  test::CapturedStderr captured;
  EXPECT_TRUE(Settings::load(UnknownNames::ignore).ok());
  EXPECT_EQ(captured.text(), "");
}

TEST(Settings, LoadConfiguresTheLogger) {
  {
    const Variable level("TURNOUT_LOG", "off,memory=trace");
    ASSERT_TRUE(Settings::load().ok());
    EXPECT_TRUE(log::enabled(log::Subsystem::memory, log::Level::trace));
    EXPECT_FALSE(log::enabled(log::Subsystem::base, log::Level::error));
  }
  ASSERT_TRUE(Settings::load().ok());
}

// The order of the warnings does not matter.
void expect_warning(const std::string& log, const std::string& words) {
  EXPECT_NE(log.find(words), std::string::npos) << "not told: " << words << "\nin: " << log;
}

TEST(Settings, TuningParametersComeAsAList) {
  const test::Folder folder;
  const Variable config("TURNOUT_CONFIG", folder.file("t.toml",
                                                      "credits = 8\n[tuning]\nreceive_first = 32\n"
                                                      "cost_poll = \"7ns\"\n")),
      list("TURNOUT_TUNING", "receive_first=128,,rtr_wait=0s,");
  const Result<Settings> settings = Settings::load();
  ASSERT_TRUE(settings.ok()) << settings.status().text();
  EXPECT_EQ(settings.value().credits, 8u);
  EXPECT_EQ(settings.value().receive_first, 128u) << "environment over file";
  EXPECT_EQ(settings.value().cost_poll, 7) << "the file's table";
  EXPECT_EQ(settings.value().rtr_wait, 0);
  EXPECT_TRUE(settings.value().is_given("rtr_wait"));
  EXPECT_EQ(settings.value().variable("rtr_wait"), "TURNOUT_TUNING: rtr_wait");
}

TEST(Settings, TuningErrorsNameTheParameter) {
  for (const auto& [list, words] :
       {std::pair{"receive_frist=1", "did you mean receive_first?"},
        std::pair{"qwertyuiop=1", "info --config=tuning"},
        std::pair{"credits=8", "\"credits\" is a setting of its own; set TURNOUT_CREDITS"},
        std::pair{"receive_first", "expected name=value"},
        std::pair{"receive_first=many",
                  "TURNOUT_TUNING: receive_first = \"many\": expected a whole"},
        std::pair{"receive_first=1", "TURNOUT_TUNING: receive_first = \"1\": expected 2 to"}}) {
    const Variable tuning("TURNOUT_TUNING", list);
    const Result<Settings> settings = Settings::load();
    ASSERT_FALSE(settings.ok()) << list;
    EXPECT_NE(settings.status().text().find(words), std::string::npos) << settings.status().text();
  }
}

TEST(Settings, NamesOfEarlierVersionsAreAcceptedWithAWarning) {
  const test::Folder folder;
  const Variable config("TURNOUT_CONFIG",
                        folder.file("old.toml", "own_receive_first = 5\nvictim = \"lru\"\n")),
      renamed("TURNOUT_START_CHANNEL", "ud"), moved("TURNOUT_RING_THRESHOLD", "9"),
      both("FI_TURNOUT_OFFER_WAIT", "3us");
  test::CapturedStderr captured;
  const Result<Settings> settings = Settings::load();
  ASSERT_TRUE(settings.ok()) << settings.status().text();
  EXPECT_EQ(settings.value().default_transport, "ud");
  EXPECT_EQ(settings.value().ring_threshold, 9u);
  EXPECT_EQ(settings.value().rtr_wait, 3000);
  EXPECT_EQ(settings.value().private_receive_first, 5u);
  EXPECT_EQ(settings.value().eviction, "lru");
  const std::string log = captured.text();
  expect_warning(log, "TURNOUT_START_CHANNEL is deprecated; use TURNOUT_DEFAULT_TRANSPORT\n");
  expect_warning(log,
                 "TURNOUT_RING_THRESHOLD is deprecated; use TURNOUT_TUNING=ring_threshold=...\n");
  expect_warning(log, "FI_TURNOUT_OFFER_WAIT is deprecated; use FI_TURNOUT_TUNING=rtr_wait=...\n");
  expect_warning(log, "is deprecated; use private_receive_first in the table [tuning]\n");
  expect_warning(log, "is deprecated; use eviction\n");
  EXPECT_EQ(log.find("unknown"), std::string::npos) << log;
}

TEST(Settings, ATodaysNameOverridesTheOldOne) {
  const Variable old("TURNOUT_START_CHANNEL", "ud"), now("TURNOUT_DEFAULT_TRANSPORT", "dc"),
      single("TURNOUT_RTR_WAIT", "1us"), list("TURNOUT_TUNING", "rtr_wait=2us");
  test::CapturedStderr quiet;
  const Result<Settings> settings = Settings::load();
  ASSERT_TRUE(settings.ok()) << settings.status().text();
  EXPECT_EQ(settings.value().default_transport, "dc");
  EXPECT_EQ(settings.value().rtr_wait, 2000);
}

TEST(Settings, ATableWithoutANameIsAnError) {
  Settings settings = Settings::defaults();
  for (const char* text : {"[+]", "[[?", "[=]"})
    EXPECT_EQ(settings.apply_toml(text, "t.toml").code(), Code::invalid) << text;
}

TEST(Settings, NearestName) {
  EXPECT_EQ(nearest_setting("memory_buget"), "memory_budget");
  EXPECT_EQ(nearest_setting("ring_entrys"), "ring_entries");
  EXPECT_EQ(nearest_setting("lgo"), "log");
  EXPECT_EQ(nearest_setting("budget"), "memory_budget");
  EXPECT_EQ(nearest_setting("memry"), "memory_budget");
  EXPECT_EQ(nearest_setting("xyzzy"), "");
  EXPECT_EQ(nearest_setting(""), "");
}

}  // namespace
}  // namespace turnout
