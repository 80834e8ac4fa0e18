// SPDX-License-Identifier: BSD-3-Clause
// The shared memory: whose it is, what may be wrong with it, and that it goes away.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/abstract_name.h"
#include "hca/device/objects.h"
#include "hca/live/directory.h"
#include "hca/live/fabric.h"
#include "tests/hca/rig.h"

namespace turnout::hca::test {
namespace {

class State : public ::testing::Test {
 protected:
  void SetUp() override { use_own_fabric(); }

  // What ibv_open_device says; empty when it succeeds.
  static std::string open_text(int* error = nullptr) {
    ibv_device** list = ibv_get_device_list(nullptr);
    ibv_device* device = list[0];
    ibv_free_device_list(list);
    errno = 0;
    ibv_context* context = ibv_open_device(device);
    if (error != nullptr) *error = errno;
    if (context != nullptr) {
      EXPECT_EQ(ibv_close_device(context), 0);
      return {};
    }
    EXPECT_NE(errno, 0);
    const char* text = open_error(device);
    return text != nullptr ? text : "?";
  }
  // Changes the memory of another process, tries to join it, and gives the message.
  std::string damage(const std::function<void(Header&)>& change) {
    Exchange* x = exchange();
    std::string text;
    Children other = start(1, [&](unsigned) {
      Rig rig;
      set(x, 0, 1);
      get(x, 1);
      // It must be able to leave: undone before.
    });
    get(x, 0);
    const int fd = open_fabric();
    alignas(Header) std::byte saved[sizeof(Header)], bytes[sizeof(Header)];
    EXPECT_EQ(pread(fd, saved, sizeof saved, 0), static_cast<ssize_t>(sizeof saved));
    std::memcpy(bytes, saved, sizeof bytes);
    change(*reinterpret_cast<Header*>(bytes));
    EXPECT_EQ(pwrite(fd, bytes, sizeof bytes, 0), static_cast<ssize_t>(sizeof bytes));
    text = open_text();
    EXPECT_EQ(pwrite(fd, saved, sizeof saved, 0), static_cast<ssize_t>(sizeof saved));
    close(fd);
    set(x, 1, 1);
    finish(other);
    return text;
  }
};

TEST_F(State, GoesAwayWithTheLast) {
  Exchange* x = exchange();
  EXPECT_FALSE(fabric_exists());
  run(3, [&](unsigned rank) {
    {
      Rig rig;
      EXPECT_TRUE(fabric_exists());
      const int fd = open_fabric();
      struct stat st {};
      EXPECT_EQ(fstat(fd, &st), 0);
      EXPECT_EQ(st.st_uid, geteuid());
      EXPECT_LT(st.st_blocks * 512, 512 * 1024);  // sparse
      EXPECT_NE(ftruncate(fd, 4096), 0);          // which would be SIGBUS for all
      close(fd);
      meet(x, 0, 3);
      if (rank == 0) meet(x, 1, 1);
    }
    meet(x, 2, 3);
    EXPECT_FALSE(fabric_exists());
  });
}

TEST_F(State, GoesAwayAtExitWithoutClose) {
  run(2, [&](unsigned) {
    ibv_device** list = ibv_get_device_list(nullptr);
    EXPECT_NE(ibv_open_device(list[0]), nullptr);
    ibv_free_device_list(list);
    exit(0);
  });
  EXPECT_FALSE(fabric_exists());
}

TEST_F(State, LastSurvivorCleansUpAfterTheKilled) {
  Exchange* x = exchange();
  Children children = start(3, [&](unsigned rank) {
    Rig rig;
    meet(x, 0, 3);
    if (rank > 0) kill_self();
    EXPECT_TRUE(eventually([&] { return x->word[5].load() == 1; }));
  });
  for (unsigned i = 1; i < 3; ++i) waitpid(children.pids[i], nullptr, 0);
  x->word[5].store(1);
  int status = 0;
  waitpid(children.pids[0], &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(fabric_exists());
}

TEST_F(State, NothingIsLeftOfTheKilled) {
  Exchange* x = exchange();
  Children children = start(2, [&](unsigned) {
    Rig rig;
    meet(x, 0, 2);
    kill_self();
  });
  finish(children);
  EXPECT_FALSE(fabric_exists());
  EXPECT_TRUE(list_members(getenv("TURNOUT_FABRIC"))->empty());
  EXPECT_EQ(open_text(), "");
}

// Processes that come all at once, while others leave, meet in one memory.
TEST_F(State, ManyJoinAndLeaveAtOnce) {
  Exchange* x = exchange();
  constexpr unsigned kProcesses = 8, kRounds = 20;
  run(kProcesses, [&](unsigned rank) {
    for (unsigned round = 0; round < kRounds; ++round) {
      Rig rig;
      ibv_qp* qp = rig.ud();
      ready_ud(qp);
      set(x, round * kProcesses + rank, qp->qp_num);
      meet(x, 2 * round, kProcesses);
      // No two have the same number: they are of one table.
      for (unsigned other = 0; other < kProcesses; ++other) {
        const std::uint64_t number = get(x, round * kProcesses + other);
        EXPECT_TRUE(other == rank || number != qp->qp_num);
      }
      if (rank % 2 == 0) meet(x, 2 * round + 1, kProcesses / 2);  // the others leave meanwhile
    }
  });
  EXPECT_FALSE(fabric_exists());
}

// Anybody may bind a name like ours.
// Those that come at the same time, too.
TEST_F(State, OneAtATimeHasTheLockOfTheDirectory) {
  constexpr std::uint64_t kProcesses = 8, kRounds = 300;
  struct Shared {
    std::atomic<std::uint64_t> arrived, inside, together;
  };
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const shared = new (memory) Shared{};
  run(kProcesses, [&](unsigned) {
    const std::string fabric = getenv("TURNOUT_FABRIC");
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      ++shared->arrived;
      while (shared->arrived.load() < round * kProcesses) sched_yield();
      const Result<Descriptor> lock = lock_directory(fabric);
      ASSERT_TRUE(lock.ok()) << lock.status().text();
      if (shared->inside.fetch_add(1) != 0) ++shared->together;
      usleep(50);
      --shared->inside;
    }
  });
  EXPECT_EQ(shared->together.load(), 0U);
  munmap(memory, sizeof(Shared));
}

// Of two threads that each store and then look at what the other stores, one sees it, though only
// one executes a barrier.
TEST_F(State, BarrierIsThatOfOthersToo) {
  const auto opened = Fabric::open(getenv("TURNOUT_FABRIC"), 1ULL << 29);
  ASSERT_TRUE(opened.ok());
  const Fabric& fabric = *opened.value();
  if (fabric.header().full_barriers.load() != 0) return;  // this kernel has none for others
  constexpr int kRounds = 20'000;
  struct alignas(64) Word {
    std::atomic<std::uint64_t> value{0};
  };
  // Stores to lines of the other's that are on their way keep the one to the hazard back.
  static Word invalid, rounds[2], start;
  alignas(64) static std::uint64_t hazard;
  alignas(64) static char before[4096], copy[4096];
  std::uint64_t saw_invalid = 0, sum = 0;
  const auto meet = [](unsigned side, std::uint64_t round) {
    rounds[side].value.store(round, std::memory_order_release);
    for (int n = 0; rounds[1 - side].value.load(std::memory_order_acquire) < round; ++n) {
      if (n > 1000) sched_yield();
    }
  };
  std::thread initiator([&] {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      meet(0, 2 * round - 1);
      while (monotonic() < start.value.load(std::memory_order_relaxed)) continue;
      std::memset(before, static_cast<int>(round), sizeof before);
      // Of an argument without optimisation the compiler makes the strongest order.
      __atomic_store_n(&hazard, round, __ATOMIC_RELAXED);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      saw_invalid = invalid.value.load(std::memory_order_acquire);
      meet(0, 2 * round);
    }
  });
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    std::memcpy(copy, before, sizeof before);
    sum += __atomic_load_n(&hazard, __ATOMIC_RELAXED);
    const std::uint64_t begins = monotonic() + 2000;
    start.value.store(begins, std::memory_order_relaxed);
    meet(1, 2 * round - 1);
    while (monotonic() < begins + round % 1000) continue;
    invalid.value.store(round, std::memory_order_seq_cst);
    fabric.barrier();
    const std::uint64_t named = __atomic_load_n(&hazard, __ATOMIC_SEQ_CST);
    meet(1, 2 * round);
    EXPECT_TRUE(named == round || saw_invalid == round) << "round " << round;
  }
  initiator.join();
  EXPECT_NE(sum, 0);
}

TEST_F(State, NamesThatLie) {
  const std::string fabric = getenv("TURNOUT_FABRIC");
  const int garbage = memfd_create("turnout", MFD_CLOEXEC);
  ASSERT_EQ(write(garbage, "garbage", 7), 7);
  std::vector<int> names = {announce(fabric, garbage).release(), announce(fabric, 999).release()};
  const int null = ::open("/dev/null", O_RDWR);
  names.push_back(announce(fabric, null).release());
  for (const int name : names) ASSERT_GE(name, 0);
  EXPECT_EQ(list_members(fabric)->size(), names.size());
  EXPECT_FALSE(fabric_exists());
  EXPECT_EQ(open_text(), "");
  // Of the right name, but of another user; only root can make one, and open it.
  if (geteuid() == 0) {
    const int foreign = create_memory(fabric, 4096).release();
    ASSERT_EQ(fchown(foreign, 65534, 65534), 0);
    names.push_back(announce(fabric, foreign).release());
    EXPECT_FALSE(fabric_exists());
    EXPECT_EQ(open_text(), "");
    close(foreign);
  }
  // Of the right name and ours: somebody is there, and what they have is damaged.
  const int short_one = create_memory(fabric, 4096).release();
  names.push_back(announce(fabric, short_one).release());
  EXPECT_NE(open_text().find("damaged"), std::string::npos);
  for (const int fd : {garbage, null, short_one}) close(fd);
  for (const int name : names) close(name);
  EXPECT_EQ(open_text(), "");
}

TEST_F(State, OtherVersion) {
  const std::string text = damage([](Header& h) { h.version = 77; });
  EXPECT_NE(text.find("version"), std::string::npos) << text;
  EXPECT_NE(text.find("77."), std::string::npos) << text;
  EXPECT_NE(text.find(std::to_string(kLayoutVersion) + "."), std::string::npos) << text;
  EXPECT_NE(damage([](Header& h) { h.layout ^= 1; }).find("version"), std::string::npos);
}

TEST_F(State, Damaged) {
  for (const auto& change : std::initializer_list<std::function<void(Header&)>>{
           [](Header& h) { h.magic = 0; }, [](Header& h) { h.file_size = 1; },
           [](Header& h) { h.file_size += kPage; }, [](Header& h) { h.qp_high = kMaxQps + 1; },
           [](Header& h) { h.xrcd_high = kMaxXrcds + 1; },
           [](Header& h) { h.xrc_handle_high = ~0U; }, [](Header& h) { h.heap_high = ~0ULL; }}) {
    const std::string text = damage(change);
    EXPECT_NE(text.find("damaged"), std::string::npos) << text;
    EXPECT_NE(text.find("TURNOUT_FABRIC"), std::string::npos) << text;
  }
}

TEST_F(State, OtherNamespaceOfProcesses) {
  const int name = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const AbstractName bound(
      fmt::format("turnout/{:x}/{}/1/2/3/0", geteuid(), getenv("TURNOUT_FABRIC")));
  ASSERT_EQ(bind(name, bound.address(), bound.length()), 0);
  ASSERT_EQ(listen(name, 1), 0);
  EXPECT_NE(open_text().find("namespace"), std::string::npos);
  close(name);
}

TEST_F(State, BadSettings) {
  setenv("TURNOUT_FABRIC", "a/b", 1);
  EXPECT_NE(open_text().find("TURNOUT_FABRIC"), std::string::npos);
  use_own_fabric();
  setenv("TURNOUT_FABRIC_SIZE", "4KiB", 1);
  EXPECT_NE(open_text().find("TURNOUT_FABRIC_SIZE"), std::string::npos);
  setenv("TURNOUT_FABRIC_SIZE", "many", 1);
  EXPECT_NE(open_text().find("TURNOUT_FABRIC_SIZE"), std::string::npos);
  unsetenv("TURNOUT_FABRIC_SIZE");
  int count = 0;
  ibv_free_device_list(ibv_get_device_list(&count));
  EXPECT_EQ(count, 1);
}

TEST_F(State, NamesAreSeparateWorlds) {
  Rig first;
  const std::string one = getenv("TURNOUT_FABRIC");
  use_own_fabric();
  {
    Rig second;
    EXPECT_TRUE(fabric_exists());
    ibv_qp* a = first.rc();
    second.rc();
    ibv_qp* b = second.rc();  // a number that the first world does not have
    connect(a, b->qp_num);
    Region m = first.memory(4096);
    post(a, IBV_WR_SEND, {m.sge(0, 8)}, 1);
    EXPECT_EQ(wait_wc(first.send_cq).status, IBV_WC_RETRY_EXC_ERR);
  }
  EXPECT_FALSE(fabric_exists());
  const int fd = open_fabric(one);
  EXPECT_GE(fd, 0);
  close(fd);
}

// All threads of this process but the caller's wait for something.
[[maybe_unused]] bool others_sleep() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::all_of(begin(tasks), end(tasks), [](const std::filesystem::path& task) {
    if (task.filename() == std::to_string(gettid())) return true;
    std::string id, name, state;  // the firmware thread's name has no spaces, nor the program's
    std::ifstream(task / "stat") >> id >> name >> state;
    return state == "S";
  });
}

TEST_F(State, AForksChildOpensTheDeviceForItself) {
  Rig rig;
  ibv_qp* qp = rig.rc();
  Region m = rig.memory(4096);
#if defined(__SANITIZE_ADDRESS__)
  // Its allocator, unlike the C library's, does not keep its locks over fork(): the child would
  // wait for one that the firmware thread, just started, held.
  ASSERT_TRUE(eventually(others_sleep));
#endif
  const int pid = fork();
  if (pid == 0) {
    ibv_sge sge = m.sge(0, 8);
    ibv_send_wr wr{}, *bad = nullptr;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    bool good = ibv_post_send(qp, &wr, &bad) == EPERM;
    ibv_wc wc{};
    good = good && ibv_poll_cq(rig.send_cq, 1, &wc) == -1;
    errno = 0;
    good = good && ibv_alloc_pd(rig.context) == nullptr && errno == EPERM;
    good = good && ibv_destroy_qp(qp) == EPERM;
#if !defined(__SANITIZE_THREAD__)  // it can begin no thread in the child of a process with threads
    {
      Rig own;
      ibv_qp *a = own.rc(), *b = own.rc();
      connect(a, b->qp_num);
      connect(b, a->qp_num);
      Region memory = own.memory(4096);
      post_recv(b, {memory.sge(0, 8)}, 1);
      post(a, IBV_WR_SEND, {memory.sge(64, 8)}, 2);
      good = good && wait_wc(own.recv_cq).status == IBV_WC_SUCCESS;
      // The parent's stay closed to it.
      good = good && ibv_alloc_pd(rig.context) == nullptr && errno == EPERM;
    }
#endif
    _exit(good && !HasFailure() ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(fabric_exists());
  EXPECT_EQ(state_of(qp), IBV_QPS_RESET);  // the parent goes on
}

// An idle child of fork that lives longer is not taken for its parent.
TEST_F(State, ForkedChildKeepsNobodyAttached) {
  Exchange* x = exchange();
  int pid = 0;
  {
    Rig rig;
    pid = fork();
    if (pid == 0) {
      get(x, 0);
      _exit(0);
    }
  }
  EXPECT_FALSE(fabric_exists());
  EXPECT_EQ(open_text(), "");
  set(x, 0, 1);
  waitpid(pid, nullptr, 0);
}

TEST_F(State, DamagedRingsDoNoHarm) {
  // A peer's records are overwritten with nonsense: requests fail or stall, this process does not.
  Rig rig;
  ibv_srq* srq = rig.srq(8);
  Region m = rig.memory(4096);
  ibv_qp* dct = rig.dct(srq);
  post_srq(srq, {m.sge(0, 64)}, 1);
  ibv_ah* ah = rig.ah();
  auto fabric = Fabric::open(getenv("TURNOUT_FABRIC"), 1ULL << 29);
  SrqRecord& record = fabric.value()->srq(srq->handle);
  const auto attempt = [&](const std::function<void()>& change, const std::function<void()>& undo) {
    ibv_qp* dci = rig.dci();
    ready_dci(dci);
    change();
    post_dc(dci, ah, dct->qp_num, IBV_WR_SEND, m.sge(64, 8), 1);
    EXPECT_NE(wait_wc(rig.send_cq).status, IBV_WC_SUCCESS);
    undo();
    rig.destroy(dci);
  };
  const std::uint64_t ring = record.rq.ring;
  const std::uint32_t slots = record.rq.slots, sges = record.rq.max_sge;
  attempt([&] { record.rq.ring = 1ULL << 60; }, [&] { record.rq.ring = ring; });
  attempt([&] { record.rq.slots = 7; }, [&] { record.rq.slots = slots; });
  attempt([&] { record.rq.max_sge = 1U << 30; }, [&] { record.rq.max_sge = sges; });
  // The number of a DCT that points to an SRQ beyond the table.
  QpRecord& qp = fabric.value()->qp(dct->qp_num & 0xffff);
  const std::uint32_t index = qp.srq;
  attempt([&] { qp.srq = 1U << 20; }, [&] { qp.srq = index; });
}

TEST_F(State, Queries) {
  Rig rig;
  ibv_device_attr device{};
  EXPECT_EQ(ibv_query_device(rig.context, &device), 0);
  EXPECT_GE(device.max_qp_wr, 16384);
  EXPECT_GE(device.max_cqe, 1 << 20);
  EXPECT_EQ(device.atomic_cap, IBV_ATOMIC_HCA);
  ibv_device_attr_ex ex{};
  EXPECT_EQ(ibv_query_device_ex(rig.context, nullptr, &ex), 0);
  EXPECT_EQ(ex.orig_attr.max_qp, device.max_qp);
  ibv_port_attr port{};
  EXPECT_EQ(ibv_query_port(rig.context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_INFINIBAND);
  EXPECT_EQ(port.lid, 1);
  EXPECT_EQ(ibv_query_port(rig.context, 2, &port), EINVAL);
  ibv_gid gid{};
  EXPECT_EQ(ibv_query_gid(rig.context, 1, 0, &gid), 0);
  EXPECT_EQ(gid.raw[0], 0xfe);
  EXPECT_EQ(gid.raw[1], 0x80);
  ibv_gid_entry entry{};
  EXPECT_EQ(ibv_query_gid_ex(rig.context, 1, 0, &entry, 0), 0);
  EXPECT_EQ(std::memcmp(&entry.gid, &gid, sizeof gid), 0);
  mlx5dv_context dv{};
  EXPECT_EQ(mlx5dv_query_device(rig.context, &dv), 0);
  EXPECT_TRUE(mlx5dv_is_supported(rig.context->device));
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_SUCCESS), "success");
  EXPECT_EQ(ibv_rate_to_mbps(IBV_RATE_100_GBPS), 103125);
  // Counters are attached to flows of raw packets, which there are none of.
  ibv_counters_init_attr counters_attr{};
  errno = 0;
  EXPECT_EQ(ibv_create_counters(rig.context, &counters_attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_counters counters{rig.context};
  ibv_counter_attach_attr attach{};
  std::uint64_t value = 0;
  EXPECT_EQ(ibv_attach_counters_point_flow(&counters, &attach, nullptr), EOPNOTSUPP);
  EXPECT_EQ(ibv_read_counters(&counters, &value, 1, 0), EOPNOTSUPP);
  EXPECT_EQ(ibv_destroy_counters(&counters), EOPNOTSUPP);
  ibv_flow_attr flow{};
  EXPECT_EQ(ibv_create_flow(rig.rc(), &flow), nullptr);
}

TEST_F(State, ExtendedPolling) {
  Rig rig;
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 16;
  attr.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM |
                  static_cast<std::uint64_t>(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
  ibv_cq_ex* cq = ibv_create_cq_ex(rig.context, &attr);
  ASSERT_NE(cq, nullptr);
  {
    QpOptions o;
    o.recv_cq = ibv_cq_ex_to_cq(cq);
    ibv_qp* a = rig.rc();
    ibv_qp* b = rig.rc(o);
    connect(a, b->qp_num);
    connect(b, a->qp_num);
    Region m = rig.memory(4096);
    ibv_poll_cq_attr poll{};
    EXPECT_EQ(ibv_start_poll(cq, &poll), ENOENT);
    post_recv(b, {m.sge(0, 64)}, 5);
    post_recv(b, {m.sge(64, 64)}, 6);
    post(a, IBV_WR_SEND_WITH_IMM, {m.sge(128, 10)}, 1);
    post(a, IBV_WR_SEND_WITH_IMM, {m.sge(128, 20)}, 2);
    ASSERT_EQ(ibv_start_poll(cq, &poll), 0);
    EXPECT_EQ(cq->wr_id, 5U);
    EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_wc_read_byte_len(cq), 10U);
    EXPECT_EQ(ibv_wc_read_imm_data(cq), 0x55U);
    EXPECT_EQ(ibv_wc_read_qp_num(cq), b->qp_num);
    EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
    const std::uint64_t first = ibv_wc_read_completion_ts(cq);
    EXPECT_GT(first, 0U);
    ASSERT_EQ(ibv_next_poll(cq), 0);
    EXPECT_EQ(cq->wr_id, 6U);
    EXPECT_EQ(ibv_wc_read_byte_len(cq), 20U);
    EXPECT_GE(ibv_wc_read_completion_ts(cq), first);
    EXPECT_EQ(ibv_next_poll(cq), ENOENT);
    ibv_end_poll(cq);
    rig.destroy(a);
    rig.destroy(b);
  }
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

}  // namespace
}  // namespace turnout::hca::test
