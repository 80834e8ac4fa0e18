#include "hca/live/fabric.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <vector>

#include "base/file_descriptor.h"
#include "base/log.h"

namespace turnout::hca {
namespace {

// Fabrics this process is attached to, by path.
struct Attached {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Fabric>> fabrics;
  std::vector<std::shared_ptr<Fabric>> kept;  // at exit: those whose device is open; a parent's
};
Attached& attached() {
  static auto* one = new Attached;  // outlives every thread: exit handlers use it
  return *one;
}

Status failure(Code code, std::string text, int error = 0) {
  if (error != 0) text += fmt::format(" ({})", std::strerror(error));
  return Status(code, std::move(text), error);
}

// Field 22 of /proc/PID/stat, 0 when there is no such process. No allocation.
std::uint64_t start_time(std::uint32_t pid) noexcept {
  char path[32], text[1024];
  std::snprintf(path, sizeof path, "/proc/%u/stat", pid);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return 0;
  text[n] = '\0';
  const char* p = std::strrchr(text, ')');  // the name may hold anything
  if (p == nullptr) return 0;
  ++p;
  for (int field = 2; field < 21; ++field) {
    p = std::strchr(p + 1, ' ');
    if (p == nullptr) return 0;
  }
  return std::strtoull(p + 1, nullptr, 10);
}

std::uint64_t pid_namespace() noexcept {
  struct stat st {};
  return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

// Excludes other openers and leavers: a lock on the file's first byte. False after ten seconds.
bool lock_file(int fd) noexcept {
  struct flock l {};
  l.l_type = F_WRLCK;
  l.l_whence = SEEK_SET;
  l.l_len = 1;
  for (int tries = 0; tries < 10'000; ++tries) {
    if (fcntl(fd, F_OFD_SETLK, &l) == 0) return true;
    if (errno != EAGAIN && errno != EACCES && errno != EINTR) return false;
    usleep(1000);
  }
  return false;
}
void unlock_file(int fd) noexcept {
  struct flock l {};
  l.l_type = F_UNLCK;
  l.l_whence = SEEK_SET;
  l.l_len = 1;
  fcntl(fd, F_OFD_SETLK, &l);
}
bool still_linked(int fd, const std::string& path) noexcept {
  struct stat by_fd {
  }, by_path{};
  return fstat(fd, &by_fd) == 0 && lstat(path.c_str(), &by_path) == 0 &&
         by_fd.st_ino == by_path.st_ino && by_fd.st_dev == by_path.st_dev;
}

}  // namespace

Result<std::shared_ptr<Fabric>> Fabric::open(const std::string& name, std::uint64_t size) {
  if (name.empty() || name.size() > 64 ||
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") !=
          std::string::npos) {
    return failure(
        Code::invalid,
        fmt::format("TURNOUT_FABRIC=\"{}\": use 1 to 64 letters, digits, '.', '_', '-'", name));
  }
  if (size < Layout::minimum_size) {
    return failure(Code::invalid,
                   fmt::format("TURNOUT_FABRIC_SIZE={}: at least {} bytes are needed", size,
                               Layout::minimum_size));
  }
  Attached& all = attached();
  const std::lock_guard lock(all.mutex);
  const std::string path = fmt::format("/dev/shm/turnout-{}-{}", geteuid(), name);
  if (auto known = all.fabrics[path].lock()) {
    if (known->pid() == getpid()) return known;
    all.kept.push_back(
        std::move(known));  // a fork's parent's: its mapping stays, its place is not ours
  }
  std::shared_ptr<Fabric> fabric(new Fabric);
  fabric->path_ = path;
  fabric->name_ = name;
  if (Status s = fabric->attach(name, size); !s) return s;
  all.fabrics[path] = fabric;
  return fabric;
}

Status Fabric::attach(const std::string& name, std::uint64_t size) {
  pid_ = getpid();
  // Several rounds: the file may be unlinked or replaced between open and lock.
  for (int round = 0; round < 1000; ++round) {
    bool again = false;
    Status s = try_attach(size, again);
    if (again) continue;
    if (s) TURNOUT_LOG(hca, info, "attached to fabric {} as process {}", path_, slot_of(me_));
    return s;
  }
  return failure(
      Code::system,
      fmt::format("{} changes all the time: is something else using the name {}?", path_, name));
}

Status Fabric::try_attach(std::uint64_t size, bool& again) {
  const int fd =
      above_standard(::open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (fd < 0) {
    if (errno == EACCES || errno == EPERM) {
      return failure(
          Code::permission,
          fmt::format("{} belongs to another user: set TURNOUT_FABRIC to another name, or "
                      "have its owner remove it",
                      path_),
          errno);
    }
    if (errno == ELOOP) {
      return failure(
          Code::permission,
          fmt::format("{} is a symbolic link: remove it or set TURNOUT_FABRIC to another "
                      "name",
                      path_),
          errno);
    }
    return failure(Code::system, fmt::format("cannot open {}", path_), errno);
  }
  struct Closer {
    int fd;
    ~Closer() {
      if (fd >= 0) close(fd);
    }
  } closer{fd};
  struct stat st {};
  if (fstat(fd, &st) != 0) return failure(Code::system, fmt::format("fstat {}", path_), errno);
  if (st.st_uid != geteuid()) {
    return failure(Code::permission,
                   fmt::format("{} belongs to another user (uid {}): set TURNOUT_FABRIC to another "
                               "name, or have its owner remove it",
                               path_, st.st_uid),
                   EPERM);
  }
  if (!S_ISREG(st.st_mode)) {
    return failure(Code::permission, fmt::format("{} is not a regular file: remove it", path_),
                   EPERM);
  }
  if (!lock_file(fd)) {
    return failure(
        Code::system,
        fmt::format("{} is kept locked by another process: end it, or set TURNOUT_FABRIC "
                    "to another name",
                    path_),
        errno);
  }
  struct Unlocker {
    int fd;
    ~Unlocker() { unlock_file(fd); }
  } unlocker{fd};
  if (!still_linked(fd, path_)) {
    again = true;
    return {};
  }
  const bool alone = flock(fd, LOCK_EX | LOCK_NB) == 0;
  if (fstat(fd, &st) != 0) return failure(Code::system, fmt::format("fstat {}", path_), errno);
  if (st.st_size == 0) {
    if (Status s = initialise(fd, size); !s) {
      unlink(path_.c_str());
      return s;
    }
  } else if (alone) {
    TURNOUT_LOG(hca, info, "replacing {}: left by processes that are gone", path_);
    unlink(path_.c_str());
    again = true;
    return {};
  }
  if (flock(fd, LOCK_SH | LOCK_NB) != 0) {
    return failure(Code::system, fmt::format("flock {}", path_), errno);
  }
  if (Status s = check(fd, size); !s) return s;
  void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (mapped == MAP_FAILED) {
    return failure(
        Code::system,
        fmt::format("cannot map {} bytes of {}: raise the address-space limit (ulimit -v) "
                    "or set a smaller TURNOUT_FABRIC_SIZE for the first process",
                    size, path_),
        errno);
  }
  madvise(mapped, size, MADV_DONTDUMP);
  base_ = static_cast<std::byte*>(mapped);
  size_ = size;
  heap_begin_ = Layout::heap(size);
  Status s = join();
  if (s && !others_attached() && !alone && st.st_size != 0) {
    // Only children of dead members hold the file open: begin anew.
    unlink(path_.c_str());
    munmap(base_, size_);
    base_ = nullptr;
    close(wake_read_);
    close(wake_write_);
    wake_read_ = wake_write_ = -1;
    again = true;
    return {};
  }
  if (!s) {
    munmap(base_, size_);
    base_ = nullptr;
    return s;
  }
  // Peers write our memory through process_vm_writev; Yama's ptrace_scope 1 needs this consent.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  fd_ = fd;
  closer.fd = -1;
  return {};
}

Status Fabric::initialise(int fd, std::uint64_t size) const {
  if (ftruncate(fd, static_cast<off_t>(size)) != 0) {
    return failure(
        Code::system,
        fmt::format("cannot make {} of {} bytes: set a smaller TURNOUT_FABRIC_SIZE", path_, size),
        errno);
  }
  alignas(Header) std::byte bytes[sizeof(Header)] = {};
  auto* h = new (bytes) Header{};
  h->magic = kMagic;
  h->version = kLayoutVersion;
  h->layout = Layout::hash();
  h->file_size = size;
  h->pid_namespace = pid_namespace();
  if (getrandom(&h->generation, sizeof h->generation, 0) != sizeof h->generation) {
    h->generation = monotonic();
  }
  h->ready.store(1);
  h->next_pd.store(1);
  h->qp_high.store(kFirstQp);
  h->mr_high.store(1);
  if (pwrite(fd, bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    return failure(Code::system, fmt::format("cannot write {}: is /dev/shm full?", path_), errno);
  }
  return {};
}

Status Fabric::check(int fd, std::uint64_t& size) const {
  alignas(Header) std::byte bytes[sizeof(Header)];
  struct stat st {};
  const auto damaged = [&](const char* what) {
    return failure(
        Code::invalid,
        fmt::format("{} is damaged ({}) and in use: end the processes that use it, remove "
                    "it, or set TURNOUT_FABRIC to another name",
                    path_, what),
        EBADF);
  };
  if (fstat(fd, &st) != 0) return failure(Code::system, fmt::format("fstat {}", path_), errno);
  if (pread(fd, bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    return damaged("shorter than its header");
  }
  const auto* h = reinterpret_cast<const Header*>(bytes);
  if (h->magic != kMagic) return damaged("no header");
  if (h->version != kLayoutVersion || h->layout != Layout::hash()) {
    return failure(
        Code::version,
        fmt::format("{} is in use by another version of Turnout: its layout is {}.{:08x}, "
                    "ours {}.{:08x}. Run one version at a time, or set TURNOUT_FABRIC to "
                    "another name",
                    path_, h->version, h->layout, kLayoutVersion, Layout::hash()),
        EPROTO);
  }
  if (h->file_size != static_cast<std::uint64_t>(st.st_size) ||
      h->file_size < Layout::minimum_size) {
    return damaged("its size");
  }
  if (h->process_high.load() > kMaxProcesses || h->qp_high.load() > kMaxQps ||
      h->cq_high.load() > kMaxCqs || h->srq_high.load() > kMaxSrqs || h->mr_high.load() > kMaxMrs ||
      h->xrcd_high.load() > kMaxXrcds || h->xrc_handle_high.load() > kMaxXrcHandles ||
      h->heap_high > Layout::heap_pages(h->file_size) || h->ready.load() != 1) {
    return damaged("table bounds");
  }
  if (h->pid_namespace != pid_namespace()) {
    return failure(
        Code::unsupported,
        fmt::format("{} is in use from another process-id namespace (a container): run all "
                    "processes in one, or set TURNOUT_FABRIC to another name",
                    path_),
        EXDEV);
  }
  size = h->file_size;
  return {};
}

Status Fabric::join() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return failure(Code::system, "pipe for the adapter's firmware thread", errno);
  }
  wake_read_ = ends[0];
  wake_write_ = ends[1];
  struct stat st {};
  fstat(wake_write_, &st);
  // Slots are taken under the file lock, which we hold. Those of dead processes are reaped by the
  // living, so a full table is full of living processes.
  std::uint32_t slot = 0;
  while (slot < kMaxProcesses && process(slot).token.load(std::memory_order_acquire) != 0) ++slot;
  if (slot == kMaxProcesses) {
    close(wake_read_);
    close(wake_write_);
    return failure(Code::system,
                   fmt::format("{}: {} processes are attached, no more fit", path_, kMaxProcesses),
                   EMFILE);
  }
  ProcessRecord& p = process(slot);
  const std::uint32_t generation = (p.generation + 1) & 0xffff;
  me_ = make_token(slot, generation);
  p.generation = generation;
  p.pid = static_cast<std::uint32_t>(pid_);
  p.start_time = start_time(p.pid);
  p.leaving.store(0);
  p.wake = PipeRef{st.st_ino, wake_write_, 0};
  // p.atomics stays: a peer may hold it that has not noticed its last user's death. One who died
  // with it loses it to the next.
  p.token.store(me_, std::memory_order_release);
  Header& h = header();
  if (h.process_high.load() < slot + 1) h.process_high.store(slot + 1);
  reap_dead();
  return {};
}

bool Fabric::alive(Token token) const noexcept {
  if (token == me_ && me_ != 0) return true;
  const std::uint32_t slot = slot_of(token);
  if (token == 0 || slot >= kMaxProcesses) return false;
  const ProcessRecord& p = process(slot);
  if (p.token.load(std::memory_order_acquire) != token) return false;
  const auto pid = static_cast<pid_t>(p.pid);
  if (pid <= 0) return false;
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) {
    if (errno == ESRCH) return false;
    // No pidfd to be had (file table full): a start time that differs still tells.
    return kill(pid, 0) == 0 && start_time(p.pid) == p.start_time;
  }
  pollfd poll_fd{pidfd, POLLIN, 0};
  const bool ended = ::poll(&poll_fd, 1, 0) > 0;  // also for a zombie
  close(pidfd);
  return !ended && start_time(p.pid) == p.start_time;
}

bool Fabric::others_attached() const noexcept {
  const std::uint32_t high = std::min(header().process_high.load(), kMaxProcesses);
  for (std::uint32_t slot = 0; slot < high; ++slot) {
    const ProcessRecord& p = process(slot);
    const Token token = p.token.load(std::memory_order_acquire);
    if (token == 0 || token == me_ || p.leaving.load() != 0) continue;
    if (!is_ending(token)) return true;
  }
  return false;
}

bool Fabric::is_ending(Token token) const noexcept {
  if (!alive(token)) return true;
  if (token == me_) return false;
  // The system gives up a process's memory first, and looks for that before it looks at addresses.
  char byte = 0;
  iovec here{&byte, 1}, there{nullptr, 1};
  const auto pid = static_cast<pid_t>(process(slot_of(token)).pid);
  return process_vm_readv(pid, &here, 1, &there, 1, 0) < 0 && errno == ESRCH;
}

void Fabric::leave() noexcept {
  const bool locked = lock_file(fd_);
  const bool last = !others_attached();
  {
    const TableGuard guard(*this);
    reap_locked(slot_of(me_), me_);
  }
  if (last && locked && still_linked(fd_, path_)) unlink(path_.c_str());
  unlock_file(fd_);
}

void Fabric::before_fork() {
  attached().mutex.lock();
}
void Fabric::after_fork() {
  attached().mutex.unlock();
}

void Fabric::leave_all_at_exit() noexcept {
  // Exit with open devices is common; other threads may still run, so nothing is freed: peers reap.
  Attached& all = attached();
  const std::unique_lock lock(all.mutex, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (auto& [path, weak] : all.fabrics) {
    if (auto fabric = weak.lock()) {
      fabric->leave_at_exit();
      all.kept.push_back(std::move(fabric));
    }
  }
}

void Fabric::leave_at_exit() noexcept {
  if (pid_ != getpid() || base_ == nullptr) return;
  const bool locked = lock_file(fd_);
  process(slot_of(me_)).leaving.store(1);
  left_ = true;
  if (locked && !others_attached() && still_linked(fd_, path_)) unlink(path_.c_str());
  unlock_file(fd_);
}

Fabric::~Fabric() {
  if (base_ == nullptr) return;
  if (pid_ == getpid()) {
    if (!left_) leave();
  }
  for (auto& [inode, pipe] : pipes_) close(pipe.fd);
  munmap(base_, size_);
  close(wake_read_);
  close(wake_write_);
  close(fd_);
}

}  // namespace turnout::hca
