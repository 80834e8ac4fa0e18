// SPDX-License-Identifier: BSD-3-Clause
#include "base/log.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/support/scratch.h"

namespace turnout::log {
namespace {

class Log : public ::testing::Test {
 protected:
  ~Log() override {
    set_host(nullptr);
    configure("warn", "");
  }
};

// A library that takes lines of `connection` from info on.
std::string host_lines;
constexpr Host kHost = {
    .takes =
        [](Subsystem s, Level level) noexcept {
          return s == Subsystem::connection && level >= Level::info;
        },
    .write = [](Subsystem s, Level,
                std::string_view text) { host_lines += fmt::format("{}: {}\n", name(s), text); }};

TEST_F(Log, LevelsAndExceptions) {
  ASSERT_TRUE(configure("info,connection=debug,hca=off", ""));
  EXPECT_TRUE(enabled(Subsystem::base, Level::info));
  EXPECT_FALSE(enabled(Subsystem::base, Level::debug));
  EXPECT_TRUE(enabled(Subsystem::connection, Level::debug));
  EXPECT_FALSE(enabled(Subsystem::connection, Level::trace));
  EXPECT_FALSE(enabled(Subsystem::hca, Level::error));
  ASSERT_TRUE(configure("verbs = trace", ""));
  EXPECT_TRUE(enabled(Subsystem::verbs, Level::trace));
  EXPECT_TRUE(enabled(Subsystem::base, Level::warn)) << "the default for the others";
  EXPECT_FALSE(enabled(Subsystem::base, Level::info));
}

TEST_F(Log, MalformedSpecsChangeNothing) {
  ASSERT_TRUE(configure("debug", ""));
  for (const char* bad : {"", "loud", "debug,", ",debug", "debug,info", "connection=", "=debug",
                          "conection=debug", "connection=debug,info", "debug;info"}) {
    EXPECT_FALSE(well_formed(bad)) << bad;
    EXPECT_FALSE(configure(bad, "")) << bad;
  }
  EXPECT_TRUE(enabled(Subsystem::base, Level::debug));
}

TEST_F(Log, LinesGoToStandardErrorWithPidLevelAndSubsystem) {
  test::CapturedStderr captured;
  TURNOUT_LOG(connection, warn, "peer {} is {}", 3, "gone");
  TURNOUT_LOG(connection, debug, "nobody asked");
  EXPECT_EQ(captured.text(),
            fmt::format("turnout[{}] warn  connection: peer 3 is gone\n", ::getpid()));
}

TEST_F(Log, ControlCharactersDoNotReachTheTerminal) {
  test::CapturedStderr captured;
  TURNOUT_LOG(base, error, "a\x1b[31mb\x7f\nsecond\n\n");
  EXPECT_EQ(captured.text(),
            fmt::format("turnout[{}] error base: a?[31mb?\n    second\n", ::getpid()));
}

TEST_F(Log, FileWithProcessIdWholeLinesFromManyThreads) {
  const test::Folder folder;
  ASSERT_TRUE(configure("info", (folder.path() / "log-%p.txt").string()));
  constexpr int kThreads = 4, kLines = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < kLines; ++i) TURNOUT_LOG(endpoint, info, "{}{:.>80}", t, "end");
    });
  }
  for (auto& thread : threads) thread.join();
  const std::string text = test::content_of(folder.path() / fmt::format("log-{}.txt", ::getpid()));
  int lines = 0;
  for (std::size_t at = 0, next = 0; (next = text.find('\n', at)) != std::string::npos;
       at = next + 1) {
    const std::string_view line = std::string_view(text).substr(at, next - at);
    EXPECT_TRUE(line.starts_with("turnout[") && line.ends_with("...end")) << line;
    ++lines;
  }
  EXPECT_EQ(lines, kThreads * kLines);
}

TEST_F(Log, FileThatCannotBeOpenedIsSaid) {
  test::CapturedStderr captured;
  EXPECT_TRUE(configure("warn", "/nonexistent/folder/log"));
  TURNOUT_LOG(base, warn, "still heard");
  const std::string text = captured.text();
  EXPECT_NE(text.find("/nonexistent/folder/log: No such file or directory"), std::string::npos)
      << text;
  EXPECT_NE(text.find("still heard"), std::string::npos);
}

TEST_F(Log, TheHostTakesLinesThatStandardErrorThenDoesNotGet) {
  host_lines.clear();
  set_host(&kHost);
  EXPECT_TRUE(enabled(Subsystem::connection, Level::info));
  EXPECT_FALSE(enabled(Subsystem::connection, Level::debug));
  EXPECT_FALSE(enabled(Subsystem::base, Level::info));
  ASSERT_TRUE(configure("warn,memory=debug", ""));
  EXPECT_TRUE(enabled(Subsystem::connection, Level::info)) << "whatever TURNOUT_LOG says";
  test::CapturedStderr captured;
  TURNOUT_LOG(connection, info, "one\x1b\ntwo\n");
  TURNOUT_LOG(connection, warn, "three");
  TURNOUT_LOG(memory, debug, "four");
  set_host(nullptr);
  EXPECT_FALSE(enabled(Subsystem::connection, Level::info));
  TURNOUT_LOG(connection, warn, "five");
  EXPECT_EQ(captured.text(), fmt::format("turnout[{0}] debug memory: four\n"
                                         "turnout[{0}] warn  connection: five\n",
                                         ::getpid()));
  EXPECT_EQ(host_lines, "connection: one?\n    two\nconnection: three\n");
}

TEST_F(Log, AFileHasWhatTurnoutLogAsksForBesideTheHost) {
  const test::Folder folder;
  const std::string file = (folder.path() / "log").string();
  ASSERT_TRUE(configure("warn", file));
  host_lines.clear();
  set_host(&kHost);
  test::CapturedStderr captured;
  TURNOUT_LOG(connection, info, "one");
  TURNOUT_LOG(connection, warn, "two");
  EXPECT_EQ(captured.text(), "");
  EXPECT_EQ(host_lines, "connection: one\nconnection: two\n");
  EXPECT_EQ(test::content_of(file), fmt::format("turnout[{}] warn  connection: two\n", ::getpid()));
}

}  // namespace
}  // namespace turnout::log
