// SPDX-License-Identifier: BSD-3-Clause
// Address vectors that are opened by name, here within one process: each opening is one of its own.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/private_folder.h"
#include "tests/provider/node.h"

namespace turnout::testing {
namespace {

struct SharedAv : ::testing::Test {
  ~SharedAv() override {
    for (fid_av* av : opened) EXPECT_EQ(fi_close(&av->fid), 0);
  }
  int open(fid_av** av, std::uint64_t flags = 0, void** map_addr = nullptr) {
    fi_av_attr attr{};
    attr.name = name.c_str();
    attr.flags = flags;
    const int error = fi_av_open(node.domain, &attr, av, nullptr);
    if (error == 0) opened.push_back(*av);
    if (map_addr != nullptr) *map_addr = attr.map_addr;
    return error;
  }
  void close(fid_av* av) {
    std::erase(opened, av);
    EXPECT_EQ(fi_close(&av->fid), 0);
  }
  static fi_addr_t insert(fid_av* av, const Address& address) {
    fi_addr_t index = 0;
    EXPECT_EQ(fi_av_insert(av, &address, 1, &index, 0, nullptr), 1);
    return index;
  }
  // The file behind the name.
  [[nodiscard]] std::filesystem::path file() const {
    std::string hexadecimal;  // the end of the file's name; there are those of other tests
    for (const char c : name) hexadecimal += fmt::format("{:02x}", static_cast<unsigned char>(c));
    std::filesystem::path found;
    for (const auto& one : std::filesystem::directory_iterator(runtime_folder() + "/turnout-av-" +
                                                               std::to_string(::geteuid()))) {
      if (one.path().string().ends_with(hexadecimal)) found = one.path();
    }
    return found;
  }
  // Another process writes nonsense.
  void damage_count(std::uint64_t count) const {
    std::fstream bytes(file(), std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(8);
    bytes.write(reinterpret_cast<const char*>(&count), sizeof count);
    ASSERT_TRUE(bytes.flush());
  }
  static bool has(fid_av* av, fi_addr_t index, const Address& address) {
    Address found;
    std::size_t length = sizeof found;
    return fi_av_lookup(av, index, &found, &length) == 0 && found == address;
  }

  const std::string name = "test/" + std::to_string(::getpid());
  Node node, other;
  std::vector<fid_av*> opened;
};

TEST_F(SharedAv, HasInEveryOpeningWhatOneInserted) {
  fid_av *first = nullptr, *second = nullptr;
  void* names = nullptr;
  ASSERT_EQ(open(&first, 0, &names), 0);
  ASSERT_EQ(open(&second, FI_READ), 0);
  EXPECT_EQ(insert(first, node.name()), 0u);
  EXPECT_TRUE(has(second, 0, node.name()));
  EXPECT_EQ(insert(first, other.name()), 1u);
  EXPECT_TRUE(has(second, 1, other.name()));
  ASSERT_NE(names, nullptr);
  EXPECT_EQ(static_cast<const fi_addr_t*>(names)[1], 1u);
  // Who may only read finds what is there.
  EXPECT_EQ(insert(second, other.name()), 1u);
  const Address unknown = Node().name();
  int error = 0;
  fi_addr_t index = 0;
  EXPECT_EQ(fi_av_insert(second, &unknown, 1, &index, FI_SYNC_ERR, &error), 0);
  EXPECT_EQ(error, FI_EACCES);
  EXPECT_EQ(index, FI_ADDR_NOTAVAIL);
  EXPECT_EQ(fi_av_remove(second, &index, 1, 0), -FI_EINVAL);
  index = 0;
  EXPECT_EQ(fi_av_remove(second, &index, 1, 0), -FI_EACCES);
}

TEST_F(SharedAv, NeverReusesAnIndex) {
  fid_av *first = nullptr, *second = nullptr;
  ASSERT_EQ(open(&first), 0);
  ASSERT_EQ(open(&second), 0);
  fi_addr_t removed = insert(first, node.name());
  EXPECT_TRUE(has(second, 0, node.name()));
  EXPECT_EQ(fi_av_remove(first, &removed, 1, 0), 0);
  EXPECT_FALSE(has(second, 0, node.name()));
  EXPECT_EQ(fi_av_remove(second, &removed, 1, 0), -FI_EINVAL);
  EXPECT_EQ(insert(second, other.name()), 1u);
  EXPECT_TRUE(has(first, 1, other.name()));
  fid_av* late = nullptr;  // has never seen what was removed
  ASSERT_EQ(open(&late), 0);
  EXPECT_FALSE(has(late, 0, node.name()));
  EXPECT_TRUE(has(late, 1, other.name()));
}

TEST_F(SharedAv, TakesManyAddresses) {
  fid_av *first = nullptr, *second = nullptr;
  ASSERT_EQ(open(&first), 0);
  ASSERT_EQ(open(&second), 0);
  constexpr fi_addr_t kMany = 1500;  // several pages of each table
  for (fi_addr_t i = 0; i < kMany; ++i) {
    ASSERT_EQ(insert(i % 2 == 0 ? first : second, i % 3 == 0 ? node.name() : other.name()), i);
  }
  for (fi_addr_t i = 0; i < kMany; ++i) {
    EXPECT_TRUE(has(i % 2 == 0 ? second : first, i, i % 3 == 0 ? node.name() : other.name())) << i;
  }
}

TEST_F(SharedAv, IsGoneWithTheLastOfItsUsers) {
  fid_av *av = nullptr, *second = nullptr;
  EXPECT_EQ(open(&av, FI_READ), -FI_EINVAL);
  ASSERT_EQ(open(&av), 0);
  ASSERT_EQ(open(&second), 0);
  (void)insert(av, node.name());
  close(av);
  EXPECT_TRUE(has(second, 0, node.name()));
  close(second);
  EXPECT_EQ(open(&av, FI_READ), -FI_EINVAL);
  ASSERT_EQ(open(&av), 0);
  EXPECT_FALSE(has(av, 0, node.name()));
}

TEST_F(SharedAv, IsRemovedWhereItsProcessesEndedWithoutClosingIt) {
  fid_av* av = nullptr;
  ASSERT_EQ(open(&av), 0);
  const std::filesystem::path left = runtime_folder() + "/turnout-av-" +
                                     std::to_string(::geteuid()) + "/left-" +
                                     std::to_string(::getpid());
  std::ofstream(left) << "addresses";
  fid_av* second = nullptr;
  ASSERT_EQ(open(&second, FI_READ), 0);
  EXPECT_FALSE(std::filesystem::exists(left));
}

TEST_F(SharedAv, IsCheckedBeforeItIsUsed) {
  fid_av* av = nullptr;
  ASSERT_EQ(open(&av), 0);
  EXPECT_EQ(insert(av, node.name()), 0u);
  const std::filesystem::path folder =
      runtime_folder() + "/turnout-av-" + std::to_string(::geteuid());
  struct stat info {};
  ASSERT_EQ(::stat(folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0700u);
  damage_count(3);  // of which there are no more, all of them zeros
  EXPECT_FALSE(has(av, 2, node.name()));
  EXPECT_TRUE(has(av, 0, node.name()));
}

TEST_F(SharedAv, InsertsNothingWhereTheCountIsTooSmall) {
  fid_av* av = nullptr;
  ASSERT_EQ(open(&av), 0);
  const Address third = Node().name();
  EXPECT_EQ(insert(av, node.name()), 0u);
  fi_addr_t index = insert(av, other.name());
  EXPECT_EQ(index, 1u);
  damage_count(1);
  fi_addr_t refused = 0;
  int error = 0;
  EXPECT_EQ(fi_av_insert(av, &third, 1, &refused, FI_SYNC_ERR, &error), 0);
  EXPECT_EQ(error, FI_EIO);
  EXPECT_EQ(refused, FI_ADDR_NOTAVAIL);
  EXPECT_TRUE(has(av, 0, node.name()));
  EXPECT_TRUE(has(av, 1, other.name()));
  EXPECT_EQ(fi_av_remove(av, &index, 1, 0), 0);
  EXPECT_FALSE(has(av, 1, other.name()));
}

TEST_F(SharedAv, ChangesNothingThatItCannotLock) {
  fid_av* av = nullptr;
  ASSERT_EQ(open(&av), 0);
  fi_addr_t first = insert(av, node.name());
  // Its descriptor becomes one that cannot be locked for writing.
  int fd = -1;
  for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(one.path(), gone) == file())
      fd = std::stoi(one.path().filename().string());
  }
  ASSERT_GE(fd, 0);
  const int kept = ::dup(fd);
  const int other_file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::dup2(other_file, fd), fd);
  const Address address = other.name();
  fi_addr_t index = 0;
  int error = 0;
  EXPECT_EQ(fi_av_insert(av, &address, 1, &index, FI_SYNC_ERR, &error), 0);
  EXPECT_EQ(error, EBADF);
  EXPECT_EQ(fi_av_remove(av, &first, 1, 0), -EBADF);
  EXPECT_TRUE(has(av, 0, node.name()));
  ASSERT_EQ(::dup2(kept, fd), fd);
  ::close(kept);
  ::close(other_file);
  EXPECT_EQ(insert(av, other.name()), 1u);
}

// Who only reads waits for nobody: the lock is held meanwhile.
TEST_F(SharedAv, ReadsWithoutTheLock) {
  fid_av *av = nullptr, *reader = nullptr;
  ASSERT_EQ(open(&av), 0);
  ASSERT_EQ(open(&reader, FI_READ), 0);
  EXPECT_EQ(insert(av, node.name()), 0u);
  const int fd = ::open(file().c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_start = 1;
  lock.l_len = 1;
  ASSERT_EQ(::fcntl(fd, F_OFD_SETLK, &lock), 0);
  EXPECT_TRUE(has(reader, 0, node.name()));
  ::close(fd);
}

TEST_F(SharedAv, RefusesWhatItCannotShare) {
  fid_av* av = nullptr;
  fi_av_attr attr{};
  attr.flags = FI_READ;
  EXPECT_EQ(fi_av_open(node.domain, &attr, &av, nullptr), -FI_EINVAL);
  attr.flags = 0;
  const std::string long_name(200, 'x');
  for (const char* bad : {"", long_name.c_str()}) {
    attr.name = bad;
    EXPECT_EQ(fi_av_open(node.domain, &attr, &av, nullptr), -FI_EINVAL);
  }
  ASSERT_EQ(open(&av), 0);
  const Address address = node.name();
  fi_addr_t id = 7;
  EXPECT_EQ(fi_av_insert(av, &address, 1, &id, FI_AV_USER_ID, nullptr), -FI_EOPNOTSUPP);
}

}  // namespace
}  // namespace turnout::testing
