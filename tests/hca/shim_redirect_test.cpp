// SPDX-License-Identifier: BSD-3-Clause
// Which paths the shim takes elsewhere, and where.
#include "hca/shim/redirect.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/support/scratch.h"

namespace {

using turnout::shim::Place;
namespace fs = std::filesystem;

class ShimRedirect : public testing::Test {
 protected:
  void SetUp() override {
    tree_ = fs::canonical(scratch_.path()).string();
    fs::create_directories(tree_ + kAdapter);
    setenv("TURNOUT_SHIM_ROOT", tree_.c_str(), 1);
    turnout::shim::read_root();
    before_ = fs::current_path();
  }
  void TearDown() override {
    fs::current_path(before_);
    unsetenv("TURNOUT_SHIM_ROOT");
    turnout::shim::read_root();
  }

  // What a call with this path would use; "" where it is refused.
  static std::string place(const std::string& path, int folder = AT_FDCWD) {
    if (!turnout::shim::may_be_ours(path.c_str())) return path;
    Place place;
    const char* const text = turnout::shim::place_of(folder, path.c_str(), place);
    return text == nullptr ? "" : text;
  }

  static constexpr char kAdapter[] = "/sys/class/infiniband/turnout0";
  turnout::test::Folder scratch_;
  std::string tree_;
  fs::path before_;
};

TEST_F(ShimRedirect, TakesOurFoldersAndWhatIsBelow) {
  for (const std::string path :
       {"/dev/infiniband", "/dev/infiniband/uverbs0", "/sys/class/infiniband",
        "/sys/class/infiniband/", "/sys/class/infiniband/turnout0/ports/1/lid",
        "/sys/class/infiniband_verbs/uverbs0"}) {
    EXPECT_EQ(place(path), tree_ + path);
  }
}

TEST_F(ShimRedirect, LeavesOthersAlone) {
  for (const std::string path :
       {"", "/", "/dev", "/dev/infinibandx", "/dev/xinfiniband", "/sys/class/infiniband_mad",
        "/sys/class/infiniband_verbsx/uverbs0", "/home/dev/infiniband", "infiniband", "uverbs0",
        "../turnout0", "/sys/class", "/sys/class/net/../infinibandx"}) {
    EXPECT_EQ(place(path), path);
  }
}

TEST_F(ShimRedirect, TakesPathsByNameWithDots) {
  EXPECT_EQ(place("//sys/./class//infiniband/./turnout0"), tree_ + kAdapter);
  EXPECT_EQ(place("/sys/class/infiniband/turnout0/../turnout0"), tree_ + kAdapter);
  EXPECT_EQ(place("/sys/devices/../class/infiniband/turnout0"), tree_ + kAdapter);
  EXPECT_EQ(place("/../sys/class/infiniband/turnout0"), tree_ + kAdapter);
  // Through a folder that only the shim shows, out to what is there.
  EXPECT_EQ(place("/sys/class/infiniband/../net"), "/sys/class/net");
  EXPECT_EQ(place("/dev/infiniband/../.."), "/");
}

TEST_F(ShimRedirect, TakesRelativePaths) {
  fs::current_path("/sys");
  EXPECT_EQ(place("class/infiniband/turnout0"), tree_ + kAdapter);
  fs::current_path("/");
  EXPECT_EQ(place("dev/infiniband"), tree_ + "/dev/infiniband");
  EXPECT_EQ(place("./dev/../dev/infiniband/"), tree_ + "/dev/infiniband/");
  const int folder = open("/sys/class", O_RDONLY | O_DIRECTORY);
  ASSERT_GE(folder, 0);
  EXPECT_EQ(place("infiniband/turnout0", folder), tree_ + kAdapter);
  EXPECT_EQ(place("infiniband_mad", folder), "infiniband_mad");
  close(folder);
  EXPECT_EQ(place("infiniband/turnout0", folder), "infiniband/turnout0");
}

TEST_F(ShimRedirect, LeadsOutOfTheTree) {
  fs::current_path(tree_ + kAdapter);
  EXPECT_EQ(place(".."), tree_ + "/sys/class/infiniband");
  EXPECT_EQ(place("../.."), "/sys/class");
  EXPECT_EQ(place("../../net/lo"), "/sys/class/net/lo");
  EXPECT_EQ(place("ports"), "ports");
}

TEST_F(ShimRedirect, LeavesTheTreesOwnPathsAlone) {
  fs::create_directories(tree_ + "/dev/infiniband");
  const std::string path = tree_ + "/dev/infiniband/../infiniband";
  EXPECT_EQ(place(path), path);
}

TEST_F(ShimRedirect, RefusesWhatIsTooLong) {
  const std::string ours = "/sys/class/infiniband";
  std::string path = ours;
  while (path.size() + tree_.size() < PATH_MAX) path += "/x";
  errno = 0;
  EXPECT_EQ(place(path), "");
  EXPECT_EQ(errno, ENAMETOOLONG);
  // Long by dots alone; long and not ours; longer than any path.
  path = ours;
  while (path.size() < PATH_MAX - 16) path += "/.";
  EXPECT_EQ(place(path + "/turnout0"), tree_ + kAdapter);
  const std::string other = "/infiniband/" + std::string(3 * PATH_MAX, 'y');
  EXPECT_EQ(place(other), other);
  for (std::size_t size = PATH_MAX - tree_.size() - 8; size < PATH_MAX + 8; ++size) {
    path = ours + "/" + std::string(size - ours.size() - 1, 'z');
    const std::string result = place(path);
    EXPECT_EQ(result, result.empty() ? "" : tree_ + path);
    EXPECT_LT(result.size(), std::size_t{PATH_MAX});
  }
}

TEST_F(ShimRedirect, DoesNothingWithoutItsTree) {
  for (const char* const value : {"", "relative", "/"}) {
    setenv("TURNOUT_SHIM_ROOT", value, 1);
    turnout::shim::read_root();
    EXPECT_EQ(place(kAdapter), kAdapter);
  }
}

TEST_F(ShimRedirect, KeepsErrno) {
  errno = 7;
  EXPECT_EQ(place(kAdapter), tree_ + kAdapter);
  EXPECT_EQ(errno, 7);
}

TEST_F(ShimRedirect, ShowsPathsOfTheTreeByTheirNames) {
  const auto shown = [](std::string text) {
    turnout::shim::shown(text.data());
    return std::string(text.c_str());
  };
  EXPECT_EQ(shown(tree_ + kAdapter), kAdapter);
  EXPECT_EQ(shown(tree_ + "/other"), tree_ + "/other");
  EXPECT_EQ(shown(tree_), tree_);
  EXPECT_EQ(shown("/sys/class"), "/sys/class");
  EXPECT_EQ(turnout::shim::shown(nullptr), nullptr);
}

}  // namespace
