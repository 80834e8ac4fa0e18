#include "base/log.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/base/scratch.h"

namespace turnout::log {
namespace {

class Log : public ::testing::Test {
 protected:
  ~Log() override { configure("warn", ""); }
};

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
  EXPECT_NE(text.find("/nonexistent/folder/log (No such file or directory)"), std::string::npos)
      << text;
  EXPECT_NE(text.find("still heard"), std::string::npos);
}

}  // namespace
}  // namespace turnout::log
