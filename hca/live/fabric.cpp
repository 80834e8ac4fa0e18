// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/fabric.h"

#include <fcntl.h>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <utility>
#include <vector>

#include "base/log.h"
#include "hca/live/directory.h"

namespace turnout::hca {
namespace {

// Fabrics this process is attached to, by label.
struct Attached {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Fabric>> fabrics;
  std::vector<std::shared_ptr<Fabric>> kept;  // at exit: those whose device is open; a parent's
};
Attached& attached() {
  static auto* one = new Attached;  // outlives every thread: exit handlers use it
  return *one;
}

// error: an errno value, 0: none of the system's.
template <class... Arguments>
Status failure(Code code, int error, fmt::format_string<Arguments...> format,
               Arguments&&... arguments) {
  std::string text = fmt::format(format, std::forward<Arguments>(arguments)...);
  if (error != 0) {  // before the remedy
    text.insert(std::min(text.find("; "), text.size()), fmt::format(": {}", std::strerror(error)));
  }
  return Status(code, std::move(text), error);
}

// membarrier(2). False: the kernel or a seccomp filter does not allow it.
bool membarrier(int command) noexcept {
  return syscall(SYS_membarrier, command, 0, 0) == 0;
}

// What /proc/PID/stat says of a process (proc(5)).
struct ProcessStat {
  std::uint64_t start_time = 0;  // 0: there is no such process
  bool ended = false;            // a zombie: of a thread group that has no other thread
};

// Errors: false and errno, as those of open(2). No allocation.
bool read_stat(std::uint32_t pid, ProcessStat& stat) noexcept {
  char path[32], text[1024];
  std::snprintf(path, sizeof path, "/proc/%u/stat", pid);
  const Descriptor fd(::open(path, O_RDONLY | O_CLOEXEC));
  if (!fd) return errno == ENOENT || errno == ESRCH;
  const ssize_t n = read(fd.get(), text, sizeof text - 1);
  if (n <= 0) return true;
  text[n] = '\0';
  const char* p = std::strrchr(text, ')');  // the name may hold anything
  if (p == nullptr || p[1] == '\0') return true;
  const char state = p[2];
  ++p;
  std::uint64_t threads = 0;
  for (int field = 2; field < 21; ++field) {
    p = std::strchr(p + 1, ' ');
    if (p == nullptr) return true;
    if (field == 19) threads = std::strtoull(p + 1, nullptr, 10);
  }
  stat.start_time = std::strtoull(p + 1, nullptr, 10);
  stat.ended = state == 'X' || (state == 'Z' && threads <= 1);
  return true;
}

// The system gives up a process's memory first when it ends.
bool has_no_memory(pid_t pid) noexcept {
  char byte = 0;
  iovec here{&byte, 1}, there{nullptr, 1};
  return process_vm_readv(pid, &here, 1, &there, 1, 0) < 0 && errno == ESRCH;
}

}  // namespace

Result<std::shared_ptr<Fabric>> Fabric::open(const std::string& name, std::uint64_t size) {
  if (name.empty() || name.size() > 64 ||
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") !=
          std::string::npos) {
    return failure(Code::invalid, 0,
                   "TURNOUT_FABRIC=\"{}\": expected 1 to 64 letters, digits, '.', '_' or '-'",
                   name);
  }
  if (size < Layout::minimum_size) {
    return failure(Code::invalid, 0, "TURNOUT_FABRIC_SIZE={}: at least {} bytes are required", size,
                   Layout::minimum_size);
  }
  Attached& all = attached();
  const std::lock_guard lock(all.mutex);
  const std::string label = fmt::format("{} of user {}", name, geteuid());
  if (auto known = all.fabrics[label].lock()) {
    if (known->pid() == getpid()) return known;
    all.kept.push_back(
        std::move(known));  // a fork's parent's: its mapping stays, its place is not ours
  }
  std::shared_ptr<Fabric> fabric(new Fabric);
  fabric->label_ = label;
  fabric->name_ = name;
  if (Status s = fabric->attach(size); !s) return s;
  all.fabrics[label] = fabric;
  return fabric;
}

Status Fabric::attach(std::uint64_t size) {
  pid_ = getpid();
  const Result<Descriptor> lock = lock_directory(name_);
  if (!lock) return lock.status();
  std::set<std::string> ours;
  Status s = find_memory(ours);
  // A process that is ending refuses to be looked at until its name is gone, too: a moment later.
  for (int round = 0; s.code() == Code::permission && round < 1000; ++round) {
    usleep(1000);
    s = find_memory(ours);
  }
  if (s && base() == nullptr) s = make_memory(size);
  if (s) s = join();
  if (!s) {
    unmap();
    return s;
  }
  // Peers write our memory through process_vm_writev; Yama's ptrace_scope 1 needs this consent.
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
  TURNOUT_LOG(hca, info, "attached to fabric {} as process {}", label_, slot_of(me_));
  return {};
}

Status Fabric::find_memory(std::set<std::string>& ours) {
  auto members = list_members(name_);
  if (!members) return members.status();
  const auto is_ours = [&ours](const std::string& name) {
    if (!ours.contains(name) && is_of_this_user(name)) ours.insert(name);
    return ours.contains(name);
  };
  const std::uint64_t pid_namespace = own_pid_namespace();
  Status refused;
  for (const Member& member : *members) {
    if (member.pid_namespace != pid_namespace) {
      if (!is_ours(member.name)) continue;
      return failure(
          Code::unsupported, EXDEV,
          "joining fabric {} failed: it is used from another PID namespace (a container); run "
          "all processes in the same one, or choose another fabric with TURNOUT_FABRIC",
          label_);
    }
    Descriptor memory = open_memory(name_, member);
    if (!memory) {
      const int error = errno;
      if ((error != EACCES && error != EPERM) || !is_ours(member.name)) continue;
      refused = failure(Code::permission, error,
                        "attaching to process {} of fabric {} failed; keep that process dumpable "
                        "(PR_SET_DUMPABLE), or choose another fabric with TURNOUT_FABRIC",
                        member.pid, label_);
      continue;
    }
    std::uint64_t size = 0;
    if (Status s = check(memory.get(), size); !s) return s;
    if (Status s = map(std::move(memory), size); !s) return s;
    if (others_attached()) return {};
    unmap();  // of those who are leaving it
  }
  return refused;
}

Status Fabric::make_memory(std::uint64_t size) {
  // The adapter's memory is sparse, but a file of its size must be allowed: setrlimit(2).
  if (rlimit most{}; getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < size) {
    const std::uint64_t allowed = most.rlim_cur / kPage * kPage;
    if (allowed < Layout::minimum_size) {
      return failure(Code::system, EFBIG,
                     "creating fabric {} failed: the file-size limit is {} bytes, at "
                     "least {} are required; raise it (ulimit -f)",
                     label_, most.rlim_cur, Layout::minimum_size);
    }
    TURNOUT_LOG(hca, info,
                "fabric {} has {} bytes instead of {}: file-size limit; raise it (ulimit -f)",
                label_, allowed, size);
    size = allowed;
  }
  Descriptor memory = create_memory(name_, size);
  if (!memory) {
    return failure(Code::system, errno,
                   "allocating {} bytes for fabric {} failed; lower TURNOUT_FABRIC_SIZE", size,
                   label_);
  }
  if (Status s = initialise(memory.get(), size); !s) return s;
  return map(std::move(memory), size);
}

Status Fabric::map(Descriptor fd, std::uint64_t size) {
  fd_ = std::move(fd);
  void* mapped =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_.get(), 0);
  if (mapped == MAP_FAILED) {
    return failure(Code::system, errno,
                   "mapping {} bytes of fabric {} failed; raise the address-space limit (ulimit "
                   "-v), or lower TURNOUT_FABRIC_SIZE in the first process",
                   size, label_);
  }
  madvise(mapped, size, MADV_DONTDUMP);
  view(static_cast<std::byte*>(mapped), size);
  return {};
}

void Fabric::unmap() noexcept {
  if (base() != nullptr) munmap(base(), size());
  view(nullptr, 0);
  for (Descriptor* fd : {&name_socket_, &wake_read_, &wake_write_, &fd_}) fd->reset();
}

Status Fabric::initialise(int fd, std::uint64_t size) const {
  alignas(Header) std::byte bytes[sizeof(Header)] = {};
  auto* h = new (bytes) Header{};
  h->magic = kMagic;
  h->version = kLayoutVersion;
  h->layout = Layout::hash();
  h->file_size = size;
  if (getrandom(&h->generation, sizeof h->generation, 0) != sizeof h->generation) {
    h->generation = monotonic();
  }
  h->ready.store(1);
  h->next_pd.store(1);
  h->qp_high.store(kFirstQp);
  h->mr_high.store(1);
  if (pwrite(fd, bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    return failure(Code::system, errno, "writing to fabric {} failed", label_);
  }
  return {};
}

Status Fabric::check(int fd, std::uint64_t& size) const {
  alignas(Header) std::byte bytes[sizeof(Header)];
  struct stat st {};
  const auto damaged = [&](const char* what) {
    return failure(Code::invalid, EBADF,
                   "joining fabric {} failed: it is damaged ({}) and in use; end the processes "
                   "that use it, or choose another fabric with TURNOUT_FABRIC",
                   label_, what);
  };
  if (fstat(fd, &st) != 0) return failure(Code::system, errno, "fstat failed: fabric {}", label_);
  if (pread(fd, bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes)) {
    return damaged("truncated header");
  }
  const auto* h = reinterpret_cast<const Header*>(bytes);
  if (h->magic != kMagic) return damaged("no header");
  if (h->version != kLayoutVersion || h->layout != Layout::hash()) {
    return failure(Code::version, EPROTO,
                   "joining fabric {} failed: another version of Turnout uses it "
                   "(layout {}.{:08x}, expected {}.{:08x}); use the same version for "
                   "all processes, or choose another fabric with TURNOUT_FABRIC",
                   label_, h->version, h->layout, kLayoutVersion, Layout::hash());
  }
  if (h->file_size != static_cast<std::uint64_t>(st.st_size) ||
      h->file_size < Layout::minimum_size) {
    return damaged("wrong size");
  }
  if (h->process_high.load() > kMaxProcesses || h->qp_high.load() > kMaxQps ||
      h->cq_high.load() > kMaxCqs || h->srq_high.load() > kMaxSrqs || h->mr_high.load() > kMaxMrs ||
      h->xrcd_high.load() > kMaxXrcds || h->xrc_handle_high.load() > kMaxXrcHandles ||
      h->heap_high > Layout::heap_pages(h->file_size) || h->ready.load() != 1) {
    return damaged("invalid table bounds");
  }
  size = h->file_size;
  return {};
}

Status Fabric::join() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    return failure(Code::system, errno, "creating the firmware thread's pipe failed");
  }
  wake_read_ = Descriptor(ends[0]);
  wake_write_ = Descriptor(ends[1]);
  name_socket_ = announce(name_, fd_.get());
  if (!name_socket_) {
    return failure(Code::system, errno, "registering this process in the fabric failed");
  }
  ProcessStat stat;
  if (!read_stat(static_cast<std::uint32_t>(pid_), stat) || stat.start_time == 0) {
    return failure(Code::system, errno,
                   "reading the start time of this process failed: /proc/self/stat");
  }
  struct stat st {};
  fstat(wake_write_.get(), &st);
  // Slots are taken under the directory's lock, which we hold. Those of dead processes are reaped
  // by the living, so a full table is full of living processes.
  std::uint32_t slot = 0;
  while (slot < kMaxProcesses && process(slot).token.load(std::memory_order_acquire) != 0) ++slot;
  if (slot == kMaxProcesses) {
    return failure(Code::system, EMFILE,
                   "joining fabric {} failed: the limit of {} processes is reached", label_,
                   kMaxProcesses);
  }
  has_membarrier_ = membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
  if (!has_membarrier_) header().full_barriers.store(1);  // before it has anything to be named
  ProcessRecord& p = process(slot);
  const std::uint32_t generation = (p.generation + 1) & 0xffff;
  me_ = make_token(slot, generation);
  p.generation = generation;
  p.pid = static_cast<std::uint32_t>(pid_);
  p.start_time = stat.start_time;
  p.leaving.store(0);
  p.port_down.store(0);
  p.wake = PipeRef{st.st_ino, wake_write_.get(), 0};
  // p.atomics stays: a peer may hold it that has not noticed its last user's death. One who died
  // with it loses it to the next.
  p.token.store(me_, std::memory_order_release);
  Header& h = header();
  if (h.process_high.load() < slot + 1) h.process_high.store(slot + 1);
  reap_dead();
  return {};
}

void Fabric::barrier() const noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (has_membarrier_) (void)membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

bool Fabric::alive(Token token) const noexcept {
  if (token == me_ && me_ != 0) return true;
  const std::uint32_t slot = slot_of(token);
  if (token == 0 || slot >= kMaxProcesses) return false;
  const ProcessRecord& p = process(slot);
  if (p.token.load(std::memory_order_acquire) != token) return false;
  const auto pid = static_cast<pid_t>(p.pid);
  if (pid <= 0) return false;
  ProcessStat stat;
  if (read_stat(p.pid, stat)) {
    return stat.start_time != 0 && !stat.ended && stat.start_time == p.start_time;
  }
  // No descriptor is free. Its first thread may have ended before others, and has no memory then:
  // a process has as many folders in task/ as threads (nlink: those, itself and its parent).
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/task", pid);
  struct stat tasks {};
  if (::stat(path, &tasks) != 0) return errno != ENOENT && errno != ESRCH;
  return tasks.st_nlink > 3 || !has_no_memory(pid);
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
  // It looks for the memory before it looks at addresses.
  return has_no_memory(static_cast<pid_t>(process(slot_of(token)).pid));
}

void Fabric::wake(Token token) noexcept {
  const std::uint32_t slot = slot_of(token);
  if (slot >= kMaxProcesses) return;
  if (token == me_) {
    [[maybe_unused]] const ssize_t n = ::write(wake_write_.get(), "w", 1);
    return;
  }
  const PipeRef ref = process(slot).wake;
  if (process(slot).token.load(std::memory_order_acquire) == token)
    pipes_.write(token, ref, "w", 1);
}

void Fabric::wake_all() noexcept {
  const std::uint32_t high = std::min(header().process_high.load(), kMaxProcesses);
  for (std::uint32_t slot = 0; slot < high; ++slot) {
    const Token token = process(slot).token.load(std::memory_order_acquire);
    if (token != 0) wake(token);
  }
}

std::mutex& Fabric::open_mutex() noexcept {
  return attached().mutex;
}

void Fabric::leave_all_at_exit() noexcept {
  // Exit with open devices is common; other threads may still run, so nothing is freed: peers reap.
  Attached& all = attached();
  const std::unique_lock lock(all.mutex, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (auto& [label, weak] : all.fabrics) {
    std::shared_ptr<Fabric> fabric = weak.lock();
    if (fabric == nullptr) continue;
    if (fabric->pid_ == getpid() && fabric->base() != nullptr) {
      fabric->process(slot_of(fabric->me_)).leaving.store(1);
      fabric->left_ = true;
    }
    all.kept.push_back(std::move(fabric));
  }
}

Fabric::~Fabric() {
  if (base() == nullptr) return;
  if (pid_ == getpid() && !left_) {
    const TableGuard guard(*this);
    reap_locked(slot_of(me_), me_);
  }
  unmap();
}

}  // namespace turnout::hca
