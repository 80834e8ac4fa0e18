// SPDX-License-Identifier: BSD-3-Clause
// What a system may deny: pidfds, descriptors, the memory of others, files of any size; and names
// that other users have bound. Each ends in another way to do it, or in a message that says what.
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/abstract_name.h"
#include "base/file_descriptor.h"
#include "hca/device/layout.h"
#include "hca/device/objects.h"
#include "hca/live/directory.h"
#include "hca/live/fabric.h"
#include "tests/hca/rig.h"

namespace turnout::hca::test {
namespace {

enum : unsigned { kReady, kAddress, kKey, kNumber };

class Denied : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }
  void TearDown() override { EXPECT_FALSE(fabric_exists()); }
};

// These system calls fail with this error from now on, in all threads that the caller starts.
void deny(const std::vector<unsigned>& calls, unsigned error) {
  std::vector<sock_filter> code = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const unsigned call : calls) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error));
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0) << std::strerror(errno);
}

void limit(__rlimit_resource which, std::uint64_t most) {
  const rlimit both{most, most};
  ASSERT_EQ(setrlimit(which, &both), 0);
}

// Until no more can be opened.
std::vector<Descriptor> take_all_descriptors() {
  limit(RLIMIT_NOFILE, 100);
  std::vector<Descriptor> taken;
  for (;;) {
    Descriptor one(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!one) return taken;
    taken.push_back(std::move(one));
  }
}

std::uint32_t processes(Fabric& fabric) {
  std::uint32_t count = 0;
  for (std::uint32_t slot = 0; slot < fabric.header().process_high.load(); ++slot) {
    if (fabric.process(slot).token.load() != 0) ++count;
  }
  return count;
}

// The second of two processes is killed, while the first waits for a receive of it, for as long as
// it takes, or does nothing: its requests must end, and what it had be taken away. `before` and
// `between` run in the first, before it opens the adapter and before the second does.
void peer_dies(bool waits, const std::function<void()>& before,
               const std::function<void()>& between) {
  use_own_fabric();
  Exchange* x = exchange();
  Children children = start(2, [&](unsigned rank) {
    if (rank == 0) before();
    if (rank == 1) get(x, kReady);
    Rig rig;
    const std::shared_ptr<Fabric> fabric =
        Fabric::open(getenv("TURNOUT_FABRIC"), Layout::minimum_size).value();
    const std::uint32_t alone = processes(*fabric);
    if (rank == 0) between();
    if (rank == 0) set(x, kReady, 1);
    ibv_qp* qp = rig.rc();
    set(x, kNumber + rank, qp->qp_num);
    connect(qp, static_cast<std::uint32_t>(get(x, kNumber + 1 - rank)));
    if (rank == 0 && waits) post(qp, IBV_WR_SEND, {}, 1);
    meet(x, 0, 2);
    if (rank == 1) kill_self();
    if (waits) {
      EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_RETRY_EXC_ERR);
    } else {
      EXPECT_TRUE(eventually([&] { return processes(*fabric) == alone; }));
    }
  });
  finish(children);
  EXPECT_FALSE(fabric_exists());
}

TEST_F(Denied, APeersDeathIsNoticedWithoutPidfds) {
  for (const unsigned error : {EPERM, ENOSYS}) {
    for (const bool waits : {true, false}) {
      peer_dies(
          waits, [&] { deny({SYS_pidfd_open}, error); }, [] {});
    }
  }
}

TEST_F(Denied, APeersDeathIsNoticedWithoutDescriptors) {
  std::vector<Descriptor> taken;
  for (const bool waits : {true, false}) {
    peer_dies(
        waits, [] {}, [&] { taken = take_all_descriptors(); });
  }
}

TEST_F(Denied, MemoryOfOthers) {
  for (const unsigned error : {EPERM, ENOSYS}) {
    use_own_fabric();
    Exchange* x = exchange();
    run(2, [&](unsigned rank) {
      if (rank == 0) deny({SYS_process_vm_readv, SYS_process_vm_writev}, error);
      testing::internal::CaptureStderr();
      {
        Rig rig;
        Region m = rig.memory(4096, false);
        ibv_qp* qp = rig.rc();
        set(x, kNumber + rank, qp->qp_num);
        connect(qp, static_cast<std::uint32_t>(get(x, kNumber + 1 - rank)));
        if (rank == 1) {
          set(x, kAddress, m.address());
          set(x, kKey, m.mr->rkey);
        } else {
          post(qp, IBV_WR_RDMA_WRITE, {m.sge(0, 8)}, 1, get(x, kAddress),
               static_cast<std::uint32_t>(get(x, kKey)));
          EXPECT_NE(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
        }
        meet(x, 0, 2);
      }
      const std::string said = testing::internal::GetCapturedStderr();
      if (rank == 0) {
        EXPECT_NE(said.find("accessing memory failed: process"), std::string::npos) << said;
        EXPECT_NE(said.find("allow process_vm_readv and process_vm_writev"), std::string::npos)
            << said;
      }
    });
  }
}

// What ibv_open_device says; empty when it succeeds.
std::string open_text() {
  ibv_device** list = ibv_get_device_list(nullptr);
  ibv_context* context = ibv_open_device(list[0]);
  const char* text = open_error(list[0]);
  std::string said = context != nullptr ? "" : text != nullptr ? text : "?";
  if (context != nullptr && ibv_close_device(context) != 0) said = "not closed";
  ibv_free_device_list(list);
  return said;
}

// Then every initiator executes the barriers of its requests.
TEST_F(Denied, BarriersOfOthers) {
  for (const unsigned refused : {0U, 1U}) {
    use_own_fabric();
    Exchange* x = exchange();
    run(2, [&](unsigned rank) {
      if (rank == refused) deny({SYS_membarrier}, ENOSYS);
      Rig rig;
      Region m = rig.memory(4096);
      ibv_qp* qp = rig.rc();
      set(x, kNumber + rank, qp->qp_num);
      connect(qp, static_cast<std::uint32_t>(get(x, kNumber + 1 - rank)));
      const auto fabric = Fabric::open(getenv("TURNOUT_FABRIC"), 1ULL << 29);
      ASSERT_TRUE(fabric.ok());
      EXPECT_EQ(fabric.value()->header().full_barriers.load(), 1U);
      if (rank == 1) {
        m.data[0] = 7;
        set(x, kAddress, m.address());
        set(x, kKey, m.mr->rkey);
        meet(x, 0, 2);
        rig.drop(m);
      } else {
        const std::uint64_t address = get(x, kAddress);
        const auto key = static_cast<std::uint32_t>(get(x, kKey));
        for (int i = 0; i < 3; ++i) {
          post(qp, IBV_WR_RDMA_WRITE, {m.sge(0, 8)}, 1, address, key);
          EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
        }
        meet(x, 0, 2);
      }
      meet(x, 1, 2);
      if (rank == 0) {
        post(qp, IBV_WR_RDMA_WRITE, {m.sge(0, 8)}, 1, get(x, kAddress),
             static_cast<std::uint32_t>(get(x, kKey)));
        EXPECT_EQ(wait_wc(rig.send_cq).status, IBV_WC_REM_ACCESS_ERR);
      }
      meet(x, 2, 2);
    });
  }
}

TEST_F(Denied, LargeFiles) {
  run(1, [](unsigned) {
    limit(RLIMIT_FSIZE, Layout::minimum_size + 100);
    Rig rig;  // smaller than it would be
    ibv_qp* a = rig.rc();
    EXPECT_NE(a, nullptr);
  });
  run(1, [](unsigned) {
    limit(RLIMIT_FSIZE, Layout::minimum_size - 1);
    const std::string said = open_text();
    EXPECT_NE(said.find("ulimit -f"), std::string::npos) << said;
    EXPECT_NE(said.find(std::to_string(Layout::minimum_size)), std::string::npos) << said;
  });
}

TEST_F(Denied, AFabricThatIsLockedForLong) {
  const std::string fabric = getenv("TURNOUT_FABRIC");
  Result<Descriptor> lock = lock_directory(fabric);
  ASSERT_TRUE(lock.ok()) << lock.status().text();
  const std::string said = open_text();
  EXPECT_NE(said.find(fmt::format("process {} ", getpid())), std::string::npos) << said;
  EXPECT_NE(said.find("TURNOUT_FABRIC"), std::string::npos) << said;
}

// What a malicious user would bind: the lock, as it is and as it was; names with which a member of
// another namespace of processes, and one that refuses to be looked at, would stand there.
std::vector<Descriptor> squat(uid_t of, bool listens) {
  std::vector<Descriptor> sockets;
  for (const std::string& name :
       {std::string("lock"), std::string("lock/0/1"), std::string("lock/1/1"),
        std::string("lock/ffffffff/1"), std::string("deadbeef/1/1/0"),
        fmt::format("{:x}/1/1/0", own_pid_namespace())}) {
    const AbstractName bound(fmt::format("turnout/{:x}/{}/{}", of, getenv("TURNOUT_FABRIC"), name));
    sockets.emplace_back(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int fd = sockets.back().get();
    EXPECT_EQ(bind(fd, bound.address(), bound.length()), 0) << name;
    EXPECT_TRUE(!listens || listen(fd, 1) == 0);
  }
  return sockets;
}

void two_join() {
  Exchange* x = exchange();
  run(2, [&](unsigned) {
    Rig rig;
    EXPECT_TRUE(fabric_exists());
    meet(x, 0, 2);
  });
}

// A name at which nobody listens says nothing, whosever it is.
TEST_F(Denied, NamesAtWhichNobodyListens) {
  const std::vector<Descriptor> names = squat(geteuid(), false);
  EXPECT_EQ(open_text(), "");
  two_join();
}

TEST_F(Denied, NamesOfOtherUsers) {
  Exchange* x = exchange();
  const uid_t own = geteuid();
  Children squatter = start(1, [&](unsigned) {
    // Only root can be somebody else; for all others nobody listens.
    constexpr uid_t kNobody = 65534;
    EXPECT_TRUE(own != 0 || setresuid(kNobody, kNobody, kNobody) == 0);
    const std::vector<Descriptor> names = squat(own, own == 0);
    set(x, 0, 1);
    get(x, 1);
  });
  get(x, 0);
  EXPECT_EQ(open_text(), "");
  two_join();
  set(x, 1, 1);
  finish(squatter);
}

}  // namespace
}  // namespace turnout::hca::test
