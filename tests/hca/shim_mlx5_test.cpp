// SPDX-License-Identifier: BSD-3-Clause
// The preloaded shim before an mlx5 device that only counts (fake_mlx5_device.cpp).
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "tests/hca/fake_mlx5_device.h"

namespace {

using turnout::test::FakeMlx5Device;

constexpr char kPath[] = "/dev/infiniband/uverbs0";
constexpr std::size_t kPage = 4096;

template <class Type>
Type* symbol_of_fake(const char* name) {
  static void* const library = dlopen(std::getenv("TURNOUT_SHIM_MLX5"), RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Type*>(dlsym(library, name));
}

// A store that a signal handler sees all before, and that comes before all after it.
void store_to(void* address) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  *static_cast<volatile char*>(address) = 1;
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

// A page without a file behind it: storing to it is an error of the bus, and the program's own.
class NoMemory {
 public:
  NoMemory()
      : fd_(memfd_create("no-memory", MFD_CLOEXEC)),
        page_(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0)) {}
  ~NoMemory() {
    munmap(page_, kPage);
    close(fd_);
  }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;

  void store() const { store_to(page_); }
  [[nodiscard]] void* at() const { return page_; }
  // For a handler: the store is done when it is made again.
  void provide() const {
    if (ftruncate(fd_, kPage) != 0) std::abort();
  }

 private:
  int fd_;
  void* page_;
};

// What the handlers below have seen.
struct Seen {
  int calls;
  void* address;
  bool bus_blocked, usr1_blocked, usr2_blocked, on_other_stack;
};
Seen seen;
const NoMemory* to_provide = nullptr;
std::array<char, 65536> other_stack;

void see(void* address) {
  ++seen.calls;
  seen.address = address;
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  seen.bus_blocked = sigismember(&mask, SIGBUS) == 1;
  seen.usr1_blocked = sigismember(&mask, SIGUSR1) == 1;
  seen.usr2_blocked = sigismember(&mask, SIGUSR2) == 1;
  const char* const here = reinterpret_cast<char*>(&mask);
  seen.on_other_stack =
      here >= other_stack.data() && here < other_stack.data() + other_stack.size();
  if (to_provide != nullptr) to_provide->provide();
}
void see_info(int, siginfo_t* info, void*) {
  see(info->si_addr);
}
void see_number(int) {
  see(nullptr);
}

struct sigaction action_of(void (*handler)(int, siginfo_t*, void*), int flags) {
  struct sigaction action = {};
  action.sa_sigaction = handler;
  action.sa_flags = SA_SIGINFO | flags;
  return action;
}

// The status of a child that does this.
template <class Work>
int status_of(const Work& work) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    work();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

class ShimMlx5 : public testing::Test {
 protected:
  void SetUp() override {
    fd_ = open(kPath, O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd_, 0) << std::strerror(errno);
    fake_ = symbol_of_fake<turnout::test::FakeMlx5DeviceEntry>(turnout::test::kFakeMlx5Device)();
    seen = {};
    to_provide = nullptr;
    opens_ = fake_->opens;
    closes_ = fake_->closes;
  }
  void TearDown() override {
    if (fd_ >= 0) close(fd_);
    signal(SIGBUS, SIG_DFL);
  }

  static void make_event(int (&ends)[2]) {
    symbol_of_fake<turnout::test::FakeMlx5EventEntry>(turnout::test::kFakeMlx5Event)(ends);
  }
  void ring() const {
    if (ftruncate(fake_->doorbell_file, 0) != 0) std::abort();
    store_to(fake_->doorbell);
  }

  int fd_ = -1;
  FakeMlx5Device* fake_ = nullptr;
  int opens_ = 0, closes_ = 0;  // before the test
};

TEST_F(ShimMlx5, OpensItByEveryName) {
  using Open2 = int(const char*, int);
  using Openat2 = int(int, const char*, int);
  auto* const open_2 = reinterpret_cast<Open2*>(dlsym(RTLD_DEFAULT, "__open_2"));
  auto* const openat_2 = reinterpret_cast<Openat2*>(dlsym(RTLD_DEFAULT, "__openat_2"));
  const int folder = open("/dev/infiniband", O_RDONLY | O_DIRECTORY);
  ASSERT_GE(folder, 0);
  const std::array fds = {open64(kPath, O_RDWR),
                          openat(AT_FDCWD, kPath, O_RDWR),
                          openat64(folder, "uverbs0", O_RDWR),
                          open_2(kPath, O_RDWR),
                          openat_2(folder, "./uverbs0", O_RDWR),
                          open("/dev/../dev/infiniband//uverbs0", O_RDWR)};
  EXPECT_EQ(fake_->opens, opens_ + static_cast<int>(fds.size()));
  EXPECT_EQ(fake_->last_flags, O_RDWR);
  for (const int fd : fds) EXPECT_EQ(close(fd), 0);
  EXPECT_EQ(fake_->closes, closes_ + static_cast<int>(fds.size()));
  EXPECT_EQ(close(folder), 0);
  EXPECT_EQ(fake_->closes, closes_ + static_cast<int>(fds.size()));
}

TEST_F(ShimMlx5, OpensNothingElse) {
  for (const char* const path : {"/dev/infiniband/uverbs1", "/dev/infiniband/uverbs00",
                                 "/dev/infiniband/uverbs", "/dev/infiniband/uverbs0x",
                                 "/dev/infiniband/uverbs99999999999", "/dev/infiniband/uverbs0/"}) {
    EXPECT_EQ(open(path, O_RDWR), -1) << path;
  }
  EXPECT_EQ(open(kPath, O_RDONLY | O_DIRECTORY), -1);
  EXPECT_EQ(errno, ENOTDIR);
  EXPECT_EQ(open(kPath, O_RDWR | O_CREAT | O_EXCL, 0600), -1);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(fake_->opens, opens_);
}

TEST_F(ShimMlx5, HandsOnWhatIsDoneWithItsDescriptors) {
  int ends[2];
  make_event(ends);
  const int writes = fake_->writes, reads = fake_->reads, controls = fake_->controls;
  const std::uint64_t event = 7;
  std::uint64_t taken = 0;
  // The other end is not the device's.
  ASSERT_EQ(write(ends[1], &event, sizeof event), 8);
  EXPECT_EQ(fake_->writes, writes);
  ASSERT_EQ(read(ends[0], &taken, sizeof taken), 8);
  EXPECT_EQ(taken, event);
  using ReadChk = ssize_t(int, void*, std::size_t, std::size_t);
  auto* const read_chk = reinterpret_cast<ReadChk*>(dlsym(RTLD_DEFAULT, "__read_chk"));
  ASSERT_EQ(write(ends[1], &event, sizeof event), 8);
  ASSERT_EQ(read_chk(ends[0], &taken, sizeof taken, sizeof taken), 8);
  EXPECT_EQ(fake_->reads, reads + 2);
  EXPECT_EQ(write(fd_, "command", 7), 7);
  EXPECT_EQ(fake_->writes, writes + 1);
  int argument = 42;
  EXPECT_EQ(ioctl(fd_, turnout::test::kFakeRequest, &argument), 42);
  EXPECT_EQ(ioctl(fd_, 1, &argument), -1);
  EXPECT_EQ(errno, ENOTTY);
  EXPECT_EQ(fake_->controls, controls + 2);
  EXPECT_EQ(ioctl(ends[1], FIONREAD, &argument), 0);
  EXPECT_EQ(fake_->controls, controls + 2);
  EXPECT_EQ(close(ends[0]), 0);
  EXPECT_EQ(close(ends[1]), 0);
  EXPECT_EQ(fake_->closes, closes_ + 1);
  // A number is used again.
  const int again = memfd_create("others", MFD_CLOEXEC);
  EXPECT_EQ(again, ends[0]);
  EXPECT_EQ(write(again, "x", 1), 1);
  EXPECT_EQ(close(again), 0);
  EXPECT_EQ(fake_->writes, writes + 1);
  EXPECT_EQ(fake_->closes, closes_ + 1);
}

TEST_F(ShimMlx5, ShowsACharacterDevice) {
  const auto is_device = [](const struct stat& of) {
    return S_ISCHR(of.st_mode) && of.st_rdev == makedev(231, 192);
  };
  const auto is_device_x = [](const struct statx& of) {
    return S_ISCHR(of.stx_mode) && of.stx_rdev_major == 231 && of.stx_rdev_minor == 192;
  };
  struct stat of {};
  struct stat64 of64 {};
  struct statx ofx {};
  EXPECT_TRUE(stat(kPath, &of) == 0 && is_device(of));
  EXPECT_TRUE(lstat(kPath, &(of = {})) == 0 && is_device(of));
  EXPECT_TRUE(stat64(kPath, &of64) == 0 && S_ISCHR(of64.st_mode));
  EXPECT_TRUE(fstatat(AT_FDCWD, kPath, &(of = {}), 0) == 0 && is_device(of));
  EXPECT_TRUE(statx(AT_FDCWD, kPath, 0, STATX_ALL, &ofx) == 0 && is_device_x(ofx));
  EXPECT_TRUE(fstat(fd_, &(of = {})) == 0 && is_device(of));
  EXPECT_TRUE(fstat64(fd_, &(of64 = {})) == 0 && S_ISCHR(of64.st_mode));
  EXPECT_TRUE(fstatat(fd_, "", &(of = {}), AT_EMPTY_PATH) == 0 && is_device(of));
  EXPECT_TRUE(statx(fd_, "", AT_EMPTY_PATH, STATX_ALL, &(ofx = {})) == 0 && is_device_x(ofx));
  using Fxstat = int(int, int, struct stat*);
  auto* const fxstat = reinterpret_cast<Fxstat*>(dlsym(RTLD_DEFAULT, "__fxstat"));
  EXPECT_TRUE(fxstat(1, fd_, &(of = {})) == 0 && is_device(of));
  EXPECT_EQ(access(kPath, R_OK | W_OK), 0);
  // An event file is what it is.
  int ends[2];
  make_event(ends);
  EXPECT_TRUE(fstat(ends[0], &(of = {})) == 0 && S_ISFIFO(of.st_mode));
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(stat("/dev/infiniband/uverbs1", &of), -1);
}

TEST_F(ShimMlx5, RefusesTheListOfTheKernelsDevices) {
  EXPECT_EQ(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA), -1);
  EXPECT_EQ(errno, EPROTONOSUPPORT);
  const int pair = socket(AF_UNIX, SOCK_STREAM, 0);
  EXPECT_GE(pair, 0);
  close(pair);
}

TEST_F(ShimMlx5, RefusesDescriptorsThatItCannotMark) {
  fake_->marks_its_files = false;
  errno = 0;
  EXPECT_EQ(open(kPath, O_RDWR), -1);
  EXPECT_EQ(errno, EMFILE);
  EXPECT_EQ(fake_->closes, closes_ + 1);
  fake_->marks_its_files = true;
}

TEST_F(ShimMlx5, TakesDoorbellsBeforeTheProgram) {
  const struct sigaction action = action_of(see_info, 0);
  ASSERT_EQ(sigaction(SIGBUS, &action, nullptr), 0);
  const int faults = fake_->faults;
  for (int i = 1; i <= 3; ++i) {
    errno = ENOENT;
    ring();
    EXPECT_EQ(errno, ENOENT);
    EXPECT_EQ(fake_->faults, faults + i);
    EXPECT_EQ(*fake_->doorbell, 1);
  }
  EXPECT_EQ(seen.calls, 0);
}

TEST_F(ShimMlx5, LeavesOtherFaultsToTheProgram) {
  struct sigaction action = action_of(see_info, 0), old = {};
  sigaddset(&action.sa_mask, SIGUSR1);
  ASSERT_EQ(sigaction(SIGBUS, &action, nullptr), 0);
  const NoMemory memory;
  to_provide = &memory;
  memory.store();
  EXPECT_EQ(seen.calls, 1);
  EXPECT_EQ(seen.address, memory.at());
  EXPECT_TRUE(seen.usr1_blocked);
  EXPECT_FALSE(seen.usr2_blocked);
  EXPECT_FALSE(seen.bus_blocked);  // a doorbell may be rung in it
  EXPECT_FALSE(seen.on_other_stack);
  sigset_t mask;
  sigprocmask(SIG_BLOCK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGUSR1), 0);
  // Its own action is what the program is told.
  ASSERT_EQ(sigaction(SIGBUS, nullptr, &old), 0);
  EXPECT_EQ(old.sa_sigaction, see_info);
  EXPECT_EQ(signal(SIGBUS, see_number), old.sa_handler);
  EXPECT_EQ(signal(SIGBUS, SIG_IGN), see_number);
  EXPECT_EQ(signal(SIGBUS, SIG_DFL), SIG_IGN);
  EXPECT_EQ(signal(SIGBUS, SIG_ERR), SIG_ERR);
  ring();  // all the while
}

TEST_F(ShimMlx5, KeepsTheFlagsOfTheProgramsAction) {
  const stack_t stack = {other_stack.data(), 0, other_stack.size()};
  const stack_t none = {nullptr, SS_DISABLE, 0};
  ASSERT_EQ(sigaltstack(&stack, nullptr), 0);
  const struct sigaction action = action_of(see_info, SA_ONSTACK);
  ASSERT_EQ(sigaction(SIGBUS, &action, nullptr), 0);
  {
    const NoMemory memory;
    to_provide = &memory;
    memory.store();
  }
  EXPECT_TRUE(seen.on_other_stack);
  ASSERT_EQ(sigaltstack(&none, nullptr), 0);
  // Once, and without its signal's number in a siginfo_t.
  ASSERT_NE(sysv_signal(SIGBUS, see_number), SIG_ERR);
  const NoMemory memory;
  to_provide = &memory;
  memory.store();
  EXPECT_EQ(seen.calls, 2);
  EXPECT_EQ(signal(SIGBUS, SIG_DFL), SIG_DFL);
}

sigjmp_buf leaving;
void leave(int) {
  siglongjmp(leaving, 1);
}

TEST_F(ShimMlx5, LetsTheProgramLeaveItsHandler) {
  const NoMemory memory;
  const int writes = fake_->writes;
  signal(SIGBUS, leave);
  for (const bool again : {false, true}) {
    if (sigsetjmp(leaving, 1) == 0) {
      memory.store();
      ADD_FAILURE() << "stored nowhere" << again;
    }
    ring();
    EXPECT_EQ(write(fd_, "x", 1), 1);
  }
  EXPECT_EQ(fake_->writes, writes + 2);
}

TEST_F(ShimMlx5, EndsTheProcessAsTheSystemWould) {
  const NoMemory memory;
  const auto killed = [](int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS; };
  EXPECT_TRUE(killed(status_of([&] { memory.store(); })));
  EXPECT_TRUE(killed(status_of([&] {
    signal(SIGBUS, SIG_IGN);
    memory.store();
  })));
  // Sent, it is no fault.
  EXPECT_TRUE(killed(status_of([] { kill(getpid(), SIGBUS); })));
  EXPECT_EQ(status_of([] {
              signal(SIGBUS, SIG_IGN);
              kill(getpid(), SIGBUS);
              raise(SIGBUS);
            }),
            0);
  signal(SIGBUS, see_number);
  const int faults = fake_->faults;
  raise(SIGBUS);
  EXPECT_EQ(seen.calls, 1);
  EXPECT_EQ(fake_->faults, faults);  // the device is asked of faults only
}

TEST_F(ShimMlx5, KeepsTheSignalUnblocked) {
  sigset_t all, before, now;
  sigfillset(&all);
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &all, &before), 0);
  ring();
  ASSERT_EQ(sigprocmask(SIG_BLOCK, &all, &now), 0);
  EXPECT_EQ(sigismember(&now, SIGBUS), 0);
  EXPECT_EQ(sigismember(&now, SIGUSR1), 1);
  ring();
  // A thread inherits it, or has it of its attributes.
  std::thread([this] { ring(); }).join();
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setsigmask_np(&attributes, &all), 0);
  pthread_t thread;
  const auto ring_it = [](void* test) -> void* {
    static_cast<ShimMlx5_KeepsTheSignalUnblocked_Test*>(test)->ring();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, ring_it, this), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  ASSERT_EQ(pthread_sigmask(SIG_SETMASK, &before, nullptr), 0);
  // In other signals' handlers.
  struct sigaction action = {}, old = {};
  action.sa_handler = see_number;
  action.sa_mask = all;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &old), 0);
  raise(SIGUSR1);
  EXPECT_TRUE(seen.calls == 1 && seen.usr2_blocked && !seen.bus_blocked);
  sigaction(SIGUSR1, &old, nullptr);
}

TEST_F(ShimMlx5, TellsOfDuplicates) {
  const int before = fake_->duplicates;
  const int writes = fake_->writes;
  const int copies[] = {dup(fd_), fcntl(fd_, F_DUPFD, 100), fcntl(fd_, F_DUPFD_CLOEXEC, 0)};
  for (const int copy : copies) {
    ASSERT_GE(copy, 0);
    struct stat of {};
    EXPECT_TRUE(fstat(copy, &of) == 0 && S_ISCHR(of.st_mode));
    EXPECT_EQ(write(copy, "x", 1), 1);
  }
  EXPECT_GE(copies[1], 100);
  EXPECT_EQ(fake_->duplicates, before + 3);
  EXPECT_EQ(fake_->writes, writes + 3);
  // Over a file of the program's, and the other way.
  const int others = memfd_create("others", MFD_CLOEXEC);
  ASSERT_EQ(dup2(fd_, others), others);
  EXPECT_EQ(write(others, "x", 1), 1);
  EXPECT_EQ(fake_->writes, writes + 4);
  const int plain = memfd_create("plain", MFD_CLOEXEC);
  ASSERT_EQ(dup3(plain, others, O_CLOEXEC), others);
  EXPECT_EQ(write(others, "x", 1), 1);
  EXPECT_EQ(fake_->writes, writes + 4);
  EXPECT_EQ(fake_->duplicates, before + 5);
  // These are no duplicates of the device's.
  EXPECT_EQ(dup2(fd_, fd_), fd_);
  EXPECT_EQ(fcntl(fd_, F_GETFD), FD_CLOEXEC);
  const int copy = dup(plain);
  EXPECT_EQ(fake_->duplicates, before + 5);
  for (const int one : {copies[0], copies[1], copies[2], others, plain, copy}) {
    EXPECT_EQ(close(one), 0);
  }
  EXPECT_EQ(fake_->closes, closes_ + 3);
}

TEST_F(ShimMlx5, LeavesTheParentsDescriptorsToIt) {
  // A child's own device is its own; what it inherited is closed and no more.
  EXPECT_EQ(status_of([&] {
              const int before = fake_->closes, writes = fake_->writes;
              if (close(fd_) != 0 || fake_->closes != before) _exit(1);
              const int again = memfd_create("others", 0);
              if (again != fd_ || write(again, "x", 1) != 1 || fake_->writes != writes) _exit(2);
              const int own = open(kPath, O_RDWR);
              if (own < 0 || close(own) != 0 || fake_->closes != before + 1) _exit(3);
              ring();
            }),
            0);
  EXPECT_EQ(fake_->closes, closes_);
  struct stat of {};
  EXPECT_TRUE(fstat(fd_, &of) == 0 && S_ISCHR(of.st_mode));
}

TEST_F(ShimMlx5, IsNotClosedByTheChildOfAVfork) {
  const int fd = fd_;
  const pid_t child = vfork();
  if (child == 0) {
    close(fd);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(fake_->closes, closes_);
  const int writes = fake_->writes;
  EXPECT_EQ(write(fd, "x", 1), 1);
  EXPECT_EQ(fake_->writes, writes + 1);
}

TEST_F(ShimMlx5, IsLeftByAThreadThatIsCancelled) {
  int ends[2];
  make_event(ends);
  const int reads = fake_->reads;
  std::pair<int, int> fds{ends[0], fd_};
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, nullptr,
                [](void* of) -> void* {
                  auto* const both = static_cast<std::pair<int, int>*>(of);
                  // What a program has closed when a thread of its ends.
                  pthread_cleanup_push([](void* fd) { close(*static_cast<int*>(fd)); },
                                       &both->second);
                  char byte = 0;
                  if (read(both->first, &byte, 1) != 1) return nullptr;
                  pthread_cleanup_pop(0);
                  return nullptr;
                },
                &fds),
            0);
  while (fake_->reads == reads) std::this_thread::yield();
  pthread_cancel(thread);
  void* result = nullptr;
  pthread_join(thread, &result);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  EXPECT_EQ(fake_->closes, closes_ + 1);  // by the device
  fd_ = -1;
  close(ends[0]);
  close(ends[1]);
}

int written_by_handler = -1;
void write_and_leave(int) {
  if (write(written_by_handler, "x", 1) == 1) siglongjmp(leaving, 1);
}

TEST_F(ShimMlx5, KnowsAHandlerThatInterruptsIt) {
  int ends[2];
  make_event(ends);
  written_by_handler = fd_;
  struct sigaction action = {}, old = {};
  action.sa_handler = write_and_leave;
  ASSERT_EQ(sigaction(SIGUSR1, &action, &old), 0);
  const int reads = fake_->reads, writes = fake_->writes;
  const pthread_t self = pthread_self();
  std::thread interrupter([&] {
    while (fake_->reads == reads) std::this_thread::yield();
    pthread_kill(self, SIGUSR1);
  });
  if (sigsetjmp(leaving, 1) == 0) {
    char byte = 0;
    EXPECT_EQ(read(ends[0], &byte, 1), -1) << "nothing is there";
    ADD_FAILURE() << "not left";
  }
  interrupter.join();
  EXPECT_EQ(fake_->writes, writes + 1);
  EXPECT_EQ(write(fd_, "x", 1), 1);
  EXPECT_EQ(fake_->writes, writes + 2);
  sigaction(SIGUSR1, &old, nullptr);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(ShimMlx5, TakesActionsAndFaultsOfManyThreads) {
  std::atomic<bool> stop{false};
  std::thread setter([&] {
    while (!stop) {
      signal(SIGBUS, SIG_IGN);
      signal(SIGBUS, see_number);
    }
  });
  std::thread forker([&] {
    while (!stop) EXPECT_EQ(status_of([] { signal(SIGBUS, SIG_DFL); }), 0);
  });
  for (int i = 0; i < 2000; ++i) ring();
  stop = true;
  setter.join();
  forker.join();
  EXPECT_EQ(seen.calls, 0);
}

}  // namespace
