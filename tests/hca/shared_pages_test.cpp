// SPDX-License-Identifier: BSD-3-Clause
// Memory that a program has mapped shared and registers by its address: peers write its pages
// directly.
#include "hca/live/shared_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "hca/live/fabric.h"
#include "tests/hca/pair.h"

namespace turnout::hca::test {
namespace {

// Pages of a memfd, mapped from page `first` on.
struct Mapped {
  explicit Mapped(std::size_t pages, std::size_t first = 0, int flags = MAP_SHARED,
                  int protection = PROT_READ | PROT_WRITE)
      : size(pages * kPage) {
    fd = memfd_create("test", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, static_cast<off_t>((first + pages) * kPage)), 0);
    data = static_cast<std::uint8_t*>(
        mmap(nullptr, size, protection, flags, fd, static_cast<off_t>(first * kPage)));
    EXPECT_NE(data, MAP_FAILED);
  }
  ~Mapped() {
    munmap(data, size);
    if (fd >= 0) ::close(fd);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  void close_file() {
    ::close(fd);
    fd = -1;
  }
  std::uint8_t* data;
  std::size_t size;
  int fd;
};

// Where the pages are in their file, or -1.
std::int64_t offset_of(const void* address, std::uint64_t length) {
  const SharedPages pages = find_shared_pages(address, length);
  if (pages.fd < 0) return -1;
  // It is that file: what is written through it shows.
  const auto* byte = static_cast<const volatile std::uint8_t*>(address);
  const auto other = static_cast<std::uint8_t>(*byte + 1);
  EXPECT_EQ(pwrite(pages.fd, &other, 1, static_cast<off_t>(pages.offset)), 1);
  EXPECT_EQ(*byte, other);
  close(pages.fd);
  return static_cast<std::int64_t>(pages.offset);
}

TEST(SharedPages, OfAMemfd) {
  Mapped m(4, 3);
  EXPECT_EQ(offset_of(m.data, m.size), 3 * 4096);
  EXPECT_EQ(offset_of(m.data + 4096 + 17, 100), 4 * 4096 + 17);
  EXPECT_EQ(offset_of(m.data, m.size + 1), -1);
  EXPECT_EQ(offset_of(m.data + 1, UINT64_MAX), -1);
}

TEST(SharedPages, OfAFileWithAName) {
  const std::string path =
      std::filesystem::temp_directory_path() / ("pages." + std::to_string(getpid()));
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(ftruncate(fd, 8192), 0);
  void* p = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(p, MAP_FAILED);
  close(fd);
  EXPECT_EQ(offset_of(p, 8192), 0);
  // Another file has taken its name, and nobody has it open: only who may open map_files still can.
  ASSERT_EQ(unlink(path.c_str()), 0);
  close(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const std::int64_t found = offset_of(p, 8192);
  EXPECT_TRUE(found == 0 || found == -1) << found;
  unlink(path.c_str());
  munmap(p, 8192);
}

TEST(SharedPages, OrdinaryMemoryIsNone) {
  std::vector<std::uint8_t> heap(100'000, 1);
  EXPECT_EQ(find_shared_pages(heap.data(), heap.size()).fd, -1);
  EXPECT_EQ(find_shared_pages(heap.data(), 0).fd, -1);
  EXPECT_EQ(find_shared_pages(nullptr, 4096).fd, -1);
  int local = 0;
  EXPECT_EQ(find_shared_pages(&local, sizeof local).fd, -1);
  // Pages of a file that are copied when they are written, before and after.
  Mapped copied(1, 0, MAP_PRIVATE);
  EXPECT_EQ(find_shared_pages(copied.data, 4096).fd, -1);
  copied.data[0] = 1;
  EXPECT_EQ(find_shared_pages(copied.data, 4096).fd, -1);
  Mapped read_only(1, 0, MAP_SHARED, PROT_READ);
  EXPECT_EQ(find_shared_pages(read_only.data, 4096).fd, -1);
}

TEST(SharedPages, OfMappingsThatFollowEachOther) {
  Mapped m(4);
  // The same pages, with a mapping of their own: the kernel lists what has other rights apart.
  ASSERT_EQ(mprotect(m.data + 4096, 4096, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
  EXPECT_EQ(offset_of(m.data, m.size), 0);
  ASSERT_EQ(mprotect(m.data + 4096, 4096, PROT_READ), 0);
  EXPECT_EQ(find_shared_pages(m.data, m.size).fd, -1);
  EXPECT_EQ(offset_of(m.data, 4096), 0);
  EXPECT_EQ(offset_of(m.data + 8192, 8192), 8192);
  // Pages that are not next to each other in the file.
  ASSERT_NE(mmap(m.data + 4096, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, m.fd, 0),
            MAP_FAILED);
  EXPECT_EQ(find_shared_pages(m.data, m.size).fd, -1);
}

class SharedRegions : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }
  void TearDown() override { EXPECT_FALSE(fabric_exists()); }
  static bool told(const ibv_mr* mr, const std::function<bool(const MrRecord&)>& question) {
    auto fabric = Fabric::open(getenv("TURNOUT_FABRIC"), 1ULL << 29);
    return question(fabric.value()->mr(mr->rkey >> 8));
  }
  static bool is_shared(const ibv_mr* mr) {
    return told(mr,
                [](const MrRecord& r) { return static_cast<MrKind>(r.kind) == MrKind::shared; });
  }
};

TEST_F(SharedRegions, APeerWritesReadsAndAddsDirectly) {
  Exchange* x = exchange();
  Mapped m(4);  // both have it: who is not told anything looks there
  run(2, [&](unsigned rank) {
    Rig rig;
    ibv_qp* qp = rig.rc();
    set(x, rank, qp->qp_num);
    connect(qp, static_cast<std::uint32_t>(get(x, 1 - rank)));
    if (rank == 0) {
      ibv_mr* mr = ibv_reg_mr(rig.pd, m.data + 100, 12'000, kFullAccess);
      ASSERT_NE(mr, nullptr);
      EXPECT_TRUE(is_shared(mr));
      std::memcpy(m.data + 5000, "shown", 5);
      set(x, 2, mr->rkey);
      meet(x, 3, 2);
      // It did not go through the kernel.
      EXPECT_TRUE(told(mr, [](const MrRecord& r) { return r.mapped.load() != 0; }));
      EXPECT_EQ(std::memcmp(m.data + 200, "written", 7), 0);
      std::uint64_t sum = 0;
      std::memcpy(&sum, m.data + 8192, sizeof sum);
      EXPECT_EQ(sum, 42U);
      EXPECT_EQ(ibv_dereg_mr(mr), 0);
      return;
    }
    const auto key = static_cast<std::uint32_t>(get(x, 2));
    const auto at = reinterpret_cast<std::uint64_t>(m.data);
    Region local = rig.memory(4096, false);
    std::memcpy(local.data, "written", 7);
    post(qp, IBV_WR_RDMA_WRITE, {local.sge(0, 7)}, 1, at + 200, key);
    EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
    post(qp, IBV_WR_RDMA_READ, {local.sge(64, 5)}, 2, at + 5000, key);
    EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(local.data + 64, "shown", 5), 0);
    post_atomic(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, local.sge(128, 8), at + 8192, key, 42);
    EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
    post(qp, IBV_WR_RDMA_WRITE, {local.sge(0, 7)}, 4, at + 12'100, key);  // its end
    EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_REM_ACCESS_ERR);
    meet(x, 3, 2);
  });
}

TEST_F(SharedRegions, OneDescriptorForAFile) {
  Rig rig;
  Mapped m(64);
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto before = descriptors();
  std::vector<ibv_mr*> regions;
  for (std::size_t i = 0; i < 64; ++i) {
    regions.push_back(ibv_reg_mr(rig.pd, m.data + i * kPage, kPage, kFullAccess));
    ASSERT_NE(regions.back(), nullptr);
  }
  EXPECT_EQ(descriptors(), before + 1);
  for (ibv_mr* mr : regions) EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(descriptors(), before);
}

TEST_F(SharedRegions, RegisteredAnewFromOneKindToTheOther) {
  Pair p;
  Mapped m(2), other(2);
  alignas(64) std::uint8_t plain[256] = {};
  ibv_mr* mr = ibv_reg_mr(p.rig.pd, m.data, m.size, kFullAccess);
  ASSERT_NE(mr, nullptr);
  EXPECT_TRUE(is_shared(mr));
  const auto move = [&](void* to, std::size_t length) {
    ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, to, length, 0), 0);
  };
  const auto write = [&](void* to) {
    p.local.data[0] = static_cast<std::uint8_t>(p.local.data[0] + 1);
    EXPECT_EQ(p.write(reinterpret_cast<std::uint64_t>(to), mr->rkey, 1).status, IBV_WC_SUCCESS);
    EXPECT_EQ(*static_cast<std::uint8_t*>(to), p.local.data[0]);
  };
  write(m.data);
  move(plain, sizeof plain);
  EXPECT_FALSE(is_shared(mr));
  write(plain);
  move(other.data, other.size);
  EXPECT_TRUE(is_shared(mr));
  write(other.data + 4096);
  EXPECT_EQ(p.write(reinterpret_cast<std::uint64_t>(m.data), mr->rkey, 1).status,
            IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// With on-demand paging it is addresses that are registered: what they show later counts.
TEST_F(SharedRegions, OnDemandFollowsTheAddresses) {
  Pair p;
  Mapped m(1);
  ibv_mr* mr = ibv_reg_mr(p.rig.pd, m.data, m.size, kFullAccess | IBV_ACCESS_ON_DEMAND);
  ASSERT_NE(mr, nullptr);
  EXPECT_FALSE(is_shared(mr));
  ASSERT_NE(
      mmap(m.data, m.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
      MAP_FAILED);
  p.local.data[0] = 5;
  EXPECT_EQ(p.write(reinterpret_cast<std::uint64_t>(m.data), mr->rkey, 1).status, IBV_WC_SUCCESS);
  EXPECT_EQ(m.data[0], 5);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

}  // namespace
}  // namespace turnout::hca::test
