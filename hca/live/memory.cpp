// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <span>
#include <string>

#include "base/log.h"
#include "hca/device/copy_in_order.h"
#include "hca/device/rules.h"

namespace turnout::hca {
namespace {

// One registration, as a view remembers it.
std::uint64_t name(std::uint32_t key, const MrRecord& record) noexcept {
  return std::uint64_t{record.registration.load(std::memory_order_relaxed)} << 32 | key;
}

// All that a window of a region with these rights may be bound to allow.
std::uint32_t window_rights(std::uint32_t region) noexcept {
  return (region & IBV_ACCESS_LOCAL_WRITE) != 0
             ? unsigned{IBV_ACCESS_REMOTE_WRITE} | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
             : unsigned{IBV_ACCESS_REMOTE_READ};
}

// The calls of process_vm_writev(2) and process_vm_readv(2) themselves. The thread sanitizer's
// wrappers would blame a thread that helps a peer for what happened before in another process: an
// adapter's accesses are not instrumented, see copy_in_order.cpp.
ssize_t transfer(bool out, std::uint32_t pid, const iovec& here,
                 std::span<const iovec> there) noexcept {
  return ::syscall(out ? SYS_process_vm_writev : SYS_process_vm_readv, static_cast<pid_t>(pid),
                   &here, 1UL, there.data(), there.size(), 0UL);
}

// Moves bytes between our memory and a process's. Returns 0 or errno.
int move_bytes(bool out, std::uint32_t pid, std::uint8_t* local, std::uint64_t remote,
               std::uint64_t length) noexcept {
  while (length > 0) {
    const iovec here{local, length};
    // NOLINTNEXTLINE: an address of the other process
    const iovec there[1] = {{reinterpret_cast<void*>(remote), length}};
    const ssize_t n = transfer(out, pid, here, there);
    if (n < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    if (n == 0) return EFAULT;
    const auto moved = static_cast<std::uint64_t>(n);
    local += moved;
    remote += moved;
    length -= moved;
  }
  return 0;
}

// kernel.yama.ptrace_scope; 0: this kernel has none.
int yama_scope() noexcept {
  char text[8];
  const Descriptor fd(::open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC));
  if (!fd) return 0;
  const ssize_t n = ::read(fd.get(), text, sizeof text - 1);
  int scope = 0;
  if (n > 0) std::from_chars(text, text + n, scope);
  return scope;
}

// Why the system keeps us from a peer's memory: ptrace(2), "Ptrace access mode checking".
std::string remedy(int error, std::uint32_t pid) {
  constexpr int kYamaAdminOnly = 2;  // 1 is content with PR_SET_PTRACER, which a process sets
  if (error == ENOSYS) {
    return "blocked by a seccomp filter (container) or a kernel without "
           "CONFIG_CROSS_MEMORY_ATTACH; allow process_vm_readv and process_vm_writev";
  }
  if (const int scope = yama_scope(); scope >= kYamaAdminOnly) {
    return fmt::format("kernel.yama.ptrace_scope is {}; set it to 1", scope);
  }
  struct stat owner {};
  const std::string folder = fmt::format("/proc/{}", pid);
  if (::stat(folder.c_str(), &owner) == 0 && owner.st_uid != geteuid()) {
    return "keep that process dumpable (PR_SET_DUMPABLE), and run both processes as one user";
  }
  return "a seccomp filter (container) blocks it, or that process has more capabilities than this "
         "one; allow process_vm_readv and process_vm_writev (docker run --cap-add=SYS_PTRACE), and "
         "run both processes with the same capabilities";
}

Access explain(int error, std::uint32_t pid) noexcept {
  if (error == 0) return Access::ok;
  if (error == ESRCH) return Access::unreachable;
  if (error == EPERM || error == ENOSYS) {
    static std::atomic<bool> told[2];  // once each: every message to that peer would say it again
    if (!told[error == EPERM ? 0 : 1].exchange(true)) {
      TURNOUT_LOG(hca, error, "accessing memory failed: process {}: {}; {}", pid,
                  std::strerror(error), remedy(error, pid));
    }
  }
  return Access::failed;
}

}  // namespace

Memory::Memory(Fabric& fabric)
    : fabric_(fabric), known_(new std::atomic<std::uint64_t>[kMaxProcesses]()) {
  void* p = mmap(nullptr, kMaxMrs * sizeof(View), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  views_ = p == MAP_FAILED ? nullptr : static_cast<View*>(p);
}

Memory::~Memory() {
  for (const Mapping& m : mappings_) {
    if (m.address != nullptr) munmap(m.address, m.length);
  }
  if (views_ != nullptr) munmap(views_, kMaxMrs * sizeof(View));
  if (zeros_.load() != nullptr) munmap(zeros_.load(), kMaxMessage);
}

std::uint32_t Memory::reserve_record() noexcept {
  const std::uint32_t index = fabric_.find_free(&Tables::mr, kMaxMrs, fabric_.header().mr_high,
                                                kFirstMr + slot_of(fabric_.me()) * 64, kFirstMr);
  if (index != kNone) fabric_.mr(index).owner.store(fabric_.me(), std::memory_order_release);
  return index;
}

bool Memory::has_windows(std::uint32_t region) const noexcept {
  const std::uint32_t high = std::min(fabric_.header().mr_high.load(), kMaxMrs);
  for (std::uint32_t i = 1; i < high; ++i) {
    const MrRecord& r = fabric_.mr(i);
    if (r.owner.load(std::memory_order_relaxed) == fabric_.me() && r.window != 0 &&
        r.bound_to == region && r.key.load(std::memory_order_relaxed) != 0) {
      return true;
    }
  }
  return false;
}

Access Memory::find(std::uint32_t key, std::uint32_t pd, std::uint64_t address,
                    std::uint64_t length, unsigned rights, Place& place,
                    std::uint32_t number) noexcept {
  const std::uint32_t index = key >> 8;
  if (index >= kMaxMrs || key == 0 || views_ == nullptr) return Access::bad_key;
  MrRecord& record = fabric_.mr(index);
  if (record.key.load(std::memory_order_acquire) != key) return Access::bad_key;
  if (record.pd != pd) return Access::bad_pd;
  if (!covers(record.iova, record.length, address, length)) return Access::bad_bounds;
  if ((record.access & rights) != rights) return Access::denied;
  if (record.window != 0 &&
      (number == 0 || (static_cast<WindowKind>(record.window) == WindowKind::type_2 &&
                       record.window_qp != number))) {
    return Access::bad_key;
  }
  const bool shared = static_cast<MrKind>(record.kind) == MrKind::shared;
  place.owner = shared ? 0 : record.owner.load(std::memory_order_relaxed);
  place.remote = record.address + (address - record.iova);
  if (shared || place.owner == fabric_.me()) {
    View& view = views_[index];
    const std::uint64_t of = name(key, record);
    if (view.of.load(std::memory_order_acquire) != of) {
      if (!shared) return find_other(record, number, place);
      if (const Access made = make_view(view, key, record); made != Access::ok) return made;
    }
    const std::uint64_t direct = view.direct.load(std::memory_order_relaxed);
    const std::uint64_t iova = view.iova.load(std::memory_order_relaxed);
    if (!covers(iova, view.length.load(std::memory_order_relaxed), address, length)) {
      return Access::bad_bounds;
    }
    if (view.mapping.load(std::memory_order_relaxed) == 0) {
      if ((view.access.load(std::memory_order_relaxed) & rights) != rights) return Access::denied;
      const std::uint64_t base_of = view.base_of.load(std::memory_order_relaxed);
      if (base_of != 0 && views_[view.base.load(std::memory_order_relaxed)].of.load(
                              std::memory_order_acquire) != base_of) {
        return Access::bad_key;
      }
    }
    // A dead owner's record is reused without waiting for us: what was read may be of two regions.
    std::atomic_thread_fence(std::memory_order_acquire);
    if (record.key.load(std::memory_order_relaxed) != key ||
        view.of.load(std::memory_order_relaxed) != of) {
      return Access::bad_key;
    }
    place.direct = reinterpret_cast<std::uint8_t*>(direct + (address - iova));  // NOLINT: our own
    place.registration = record.window == 0 ? of : 0;
    return Access::ok;
  }
  if (record.key.load(std::memory_order_acquire) != key) return Access::bad_key;
  if (static_cast<MrKind>(record.kind) >= MrKind::null) return find_other(record, number, place);
  place.direct = nullptr;
  return reach(place.owner, place.pid) ? Access::ok : Access::unreachable;
}

Access Memory::find_other(const MrRecord& record, std::uint32_t number,
                          Place& place) const noexcept {
  if (static_cast<MrKind>(record.kind) == MrKind::list) return Access::indirect;
  // Only local keys name a null region: a request of another queue pair does not.
  if (static_cast<MrKind>(record.kind) != MrKind::null || number != 0) return Access::bad_key;
  place.null = true;
  place.direct = zeros_.load(std::memory_order_relaxed);
  return Access::ok;
}

bool Memory::make_zeros() noexcept {
  const std::lock_guard lock(mutex_);
  if (zeros_.load(std::memory_order_relaxed) != nullptr) return true;
  void* const made =
      mmap(nullptr, kMaxMessage, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (made == MAP_FAILED) return false;
  zeros_.store(static_cast<std::uint8_t*>(made), std::memory_order_relaxed);
  return true;
}

bool Memory::describe(std::uint64_t registration, DirectRegion& out) const noexcept {
  const View& view = views_[static_cast<std::uint32_t>(registration) >> 8];
  out = {registration, view.direct.load(std::memory_order_relaxed),
         view.iova.load(std::memory_order_relaxed), view.length.load(std::memory_order_relaxed)};
  std::atomic_thread_fence(std::memory_order_acquire);
  return is_registered(registration);
}

bool Memory::reach(Token token, std::uint32_t& pid) noexcept {
  const std::uint32_t slot = slot_of(token);
  if (slot >= kMaxProcesses || fabric_.process(slot).token.load() != token) return false;
  pid = fabric_.process(slot).pid;
  return known(token, pid);
}

bool Memory::known(Token token, std::uint32_t pid) noexcept {
  // A damaged record may name any process, and ourselves: bytes would land anywhere.
  std::atomic<std::uint64_t>& seen = known_[slot_of(token)];
  const std::uint64_t it = std::uint64_t{token} << 32 | pid;
  if (seen.load(std::memory_order_relaxed) == it) return true;
  if (pid == static_cast<std::uint32_t>(fabric_.pid()) || !fabric_.alive(token) ||
      fabric_.process(slot_of(token)).pid != pid) {
    return false;
  }
  seen.store(it, std::memory_order_relaxed);
  return true;
}

void Memory::own(std::uint32_t key, const Own& where) noexcept {
  if (views_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  View& view = views_[key >> 8];
  drop(view);
  view.place(where.direct, where.iova, where.length);
  view.access.store(where.access, std::memory_order_relaxed);
  view.base_of.store(0, std::memory_order_relaxed);
  view.of.store(name(key, fabric_.mr(key >> 8)), std::memory_order_release);
}

Memory::Own Memory::owned(std::uint32_t index) const noexcept {
  if (views_ == nullptr) return {};
  const View& view = views_[index];
  if (view.of.load() == 0 || view.mapping.load() != 0) return {};
  return {view.direct.load(), view.iova.load(), view.length.load(), view.access.load()};
}

bool Memory::own_window(std::uint32_t key, std::uint32_t of, std::uint64_t part, std::uint64_t iova,
                        std::uint64_t length) noexcept {
  if (views_ == nullptr) return false;
  const View& base = views_[of >> 8];
  View& view = views_[key >> 8];
  if (view.mapping.load(std::memory_order_relaxed) != 0) {  // a window of a file's pages, before
    const std::lock_guard lock(mutex_);
    drop(view);
  }
  const std::uint64_t base_of = base.of.load(std::memory_order_acquire);
  const std::uint64_t base_iova = base.iova.load(std::memory_order_relaxed);
  if (&view == &base || static_cast<std::uint32_t>(base_of) != of ||
      base.mapping.load(std::memory_order_relaxed) != 0 ||
      base.base_of.load(std::memory_order_relaxed) != 0 ||
      !covers(base_iova, base.length.load(std::memory_order_relaxed), part, length)) {
    return false;
  }
  view.of.store(0, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_release);
  view.place(base.direct.load(std::memory_order_relaxed) + (part - base_iova), iova, length);
  view.access.store(window_rights(base.access.load(std::memory_order_relaxed)),
                    std::memory_order_relaxed);
  view.base.store(of >> 8, std::memory_order_relaxed);
  view.base_of.store(base_of, std::memory_order_relaxed);
  view.of.store(name(key, fabric_.mr(key >> 8)), std::memory_order_release);
  return true;
}

void Memory::disown(std::uint32_t index) noexcept {
  if (views_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  View& view = views_[index];
  if (view.mapping.load(std::memory_order_relaxed) == 0) drop(view);  // the others: sweep()
}

Access Memory::make_view(View& view, std::uint32_t key, MrRecord& record) noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint64_t of = name(key, record);
  if (view.of.load(std::memory_order_relaxed) == of) return Access::ok;
  drop(view);
  const std::uint64_t iova = record.iova, length = record.length;
  std::uint32_t mapping = 0;
  Access why = Access::ok;
  const std::uint8_t* const direct = map(record, length, key, mapping, why);
  if (direct == nullptr) return why;
  view.mapping.store(mapping, std::memory_order_relaxed);
  view.place(reinterpret_cast<std::uint64_t>(direct), iova, length);
  view.of.store(of, std::memory_order_release);
  used_.push_back(key >> 8);
  return Access::ok;
}

std::uint8_t* Memory::map(MrRecord& record, std::uint64_t length, std::uint32_t key,
                          std::uint32_t& mapping, Access& why) noexcept {
  const std::uint64_t offset = record.address;
  const std::uint32_t device = record.device;
  const std::uint64_t inode = record.inode;
  const Token owner = record.owner.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < mappings_.size(); ++i) {
    Mapping& m = mappings_[i];
    if (m.address != nullptr && m.device == device && m.inode == inode &&
        covers(0, m.length, offset, length)) {
      ++m.users;
      mapping = static_cast<std::uint32_t>(i + 1);
      record.mapped.store(1, std::memory_order_relaxed);
      return m.address + offset;
    }
  }
  // First use of this file: map all of it, further regions of it come for free.
  const Descriptor fd(owner == fabric_.me() ? fcntl(record.fd, F_DUPFD_CLOEXEC, 0)
                                            : fabric_.pipes().open_fd(owner, record.fd, O_RDWR));
  struct stat st {};
  const bool same =
      fd && fstat(fd.get(), &st) == 0 && fold(st.st_dev) == device && st.st_ino == inode;
  if (!same || record.key.load(std::memory_order_acquire) != key) {
    const int error = fd ? 0 : errno;
    if (record.key.load(std::memory_order_acquire) != key) {
      why = Access::bad_key;
    } else if (fabric_.is_ending(owner)) {
      why = Access::unreachable;
    } else {
      TURNOUT_LOG(hca, error,
                  "opening registered memory failed: file {} of process {}: {}; keep that process "
                  "dumpable (PR_SET_DUMPABLE), and run both processes as one user",
                  record.fd,
                  slot_of(owner) < kMaxProcesses ? fabric_.process(slot_of(owner)).pid : 0,
                  !fd ? std::strerror(error) : "the file number was reused");
      why = Access::failed;
    }
    return nullptr;
  }
  const auto size = static_cast<std::uint64_t>(st.st_size);
  void* address = covers(0, size, offset, length) ? mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                                         MAP_SHARED | MAP_NORESERVE, fd.get(), 0)
                                                  : MAP_FAILED;
  if (address == MAP_FAILED) {
    TURNOUT_LOG(
        hca, error,
        "mapping registered memory failed: {} bytes: {}; raise the address-space limit (ulimit -v)",
        size, std::strerror(errno));
    why = Access::failed;
    return nullptr;
  }
  std::size_t free_entry = 0;
  while (free_entry < mappings_.size() && mappings_[free_entry].address != nullptr) ++free_entry;
  if (free_entry == mappings_.size()) mappings_.emplace_back();
  mappings_[free_entry] = Mapping{device, inode, size, static_cast<std::uint8_t*>(address), 1};
  mapping = static_cast<std::uint32_t>(free_entry + 1);
  record.mapped.store(1, std::memory_order_relaxed);
  return mappings_[free_entry].address + offset;
}

void Memory::drop(View& view) noexcept {
  view.of.store(0, std::memory_order_release);
  const std::uint32_t mapping = view.mapping.exchange(0, std::memory_order_relaxed);
  if (mapping == 0) return;
  std::erase(used_, static_cast<std::uint32_t>(&view - views_));
  Mapping& m = mappings_[mapping - 1];
  if (--m.users == 0) {
    munmap(m.address, m.length);
    m.address = nullptr;
  }
}

void Memory::sweep() noexcept {
  const std::lock_guard lock(mutex_);
  const std::vector<std::uint32_t> indices = used_;
  for (const std::uint32_t index : indices) {
    View& view = views_[index];
    const auto key = static_cast<std::uint32_t>(view.of.load(std::memory_order_relaxed));
    const MrRecord& record = fabric_.mr(index);
    if (record.key.load(std::memory_order_acquire) == key &&
        view.of.load(std::memory_order_relaxed) == name(key, record)) {
      continue;
    }
    fabric_.barrier();  // who named the key before it was invalidated is seen, as in hazards.h
    const std::uint32_t high = std::min(fabric_.header().qp_high.load(), kMaxQps);
    const Hazard* const hazards = &fabric_.hazard(0);
    const bool busy = std::any_of(hazards, hazards + high, [key](const Hazard& hazard) {
      return static_cast<std::uint32_t>(hazard.load()) == key;
    });
    if (!busy) drop(view);  // else the next sweep finds it
  }
}

Access Memory::write(const Place& to, const std::uint8_t* from, std::uint64_t length) noexcept {
  if (to.direct != nullptr) {
    copy_in_order(to.direct, from, length);
    return Access::ok;
  }
  // The kernel copies in order inside one iovec but promises nothing between pages: the last byte
  // goes in a remote iovec of its own, so that it is stored after the rest.
  auto* source = const_cast<std::uint8_t*>(from);  // NOLINT: iovec has no const
  if (length > 1) {
    const iovec here{source, length};
    const iovec there[2] = {{reinterpret_cast<void*>(to.remote), length - 1},       // NOLINT
                            {reinterpret_cast<void*>(to.remote + length - 1), 1}};  // NOLINT
    const ssize_t n = transfer(true, to.pid, here, there);
    if (n == static_cast<ssize_t>(length)) return Access::ok;
    if (n < 0 && errno != EINTR) return explain(errno, to.pid);
    const std::uint64_t moved = n > 0 ? static_cast<std::uint64_t>(n) : 0;
    if (const int error =
            move_bytes(true, to.pid, source + moved, to.remote + moved, length - 1 - moved);
        error != 0) {
      return explain(error, to.pid);
    }
  }
  return explain(move_bytes(true, to.pid, source + length - 1, to.remote + length - 1, 1), to.pid);
}

Access Memory::read(std::uint8_t* to, const Place& from, std::uint64_t length) noexcept {
  if (from.direct != nullptr) {
    copy_in_order(to, from.direct, length);
    return Access::ok;
  }
  return explain(move_bytes(false, from.pid, to, from.remote, length), from.pid);
}

Access Memory::move(bool out, std::uint32_t pid, std::uint8_t* local,
                    std::span<iovec> there) noexcept {
  while (!there.empty()) {
    if (there.front().iov_len == 0) {
      there = there.subspan(1);
      continue;
    }
    std::uint64_t bytes = 0;
    for (const iovec& piece : there) bytes += piece.iov_len;
    const ssize_t n = transfer(out, pid, {local, bytes}, there);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return explain(n < 0 ? errno : EFAULT, pid);
    local += n;
    for (auto left = static_cast<std::uint64_t>(n); left > 0;) {
      iovec& piece = there.front();
      const std::uint64_t done = std::min<std::uint64_t>(piece.iov_len, left);
      piece.iov_base = static_cast<std::uint8_t*>(piece.iov_base) + done;
      piece.iov_len -= done;
      left -= done;
      if (piece.iov_len == 0) there = there.subspan(1);
    }
  }
  return Access::ok;
}

namespace {

template <class Word>
void apply_atomic(std::uint8_t* at, const AtomicOperation& operation, std::uint64_t& old) noexcept {
  auto* const word = reinterpret_cast<Word*>(at);
  Word now = __atomic_load_n(word, __ATOMIC_SEQ_CST);
  while (operation.applies(now) &&
         !__atomic_compare_exchange_n(word, &now, static_cast<Word>(operation.result(now)), true,
                                      __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  old = now;
}

}  // namespace

Access Memory::atomic(const Place& at, const AtomicOperation& operation,
                      std::uint64_t& old) noexcept {
  const std::uint64_t length = operation.masks.bytes;
  const auto direct = [&](std::uint8_t* p) {
    if (length == sizeof(std::uint32_t)) {
      apply_atomic<std::uint32_t>(p, operation, old);
    } else {
      apply_atomic<std::uint64_t>(p, operation, old);
    }
  };
  if (at.direct != nullptr && at.owner == 0) {
    direct(at.direct);
    return Access::ok;
  }
  // Memory that only its owner can address: everybody, the owner included, goes through its lock.
  const std::uint32_t slot = slot_of(at.owner);
  if (slot >= kMaxProcesses) return Access::unreachable;
  const SharedGuard guard(fabric_, fabric_.process(slot).atomics);
  if (at.direct != nullptr) {
    direct(at.direct);
    return Access::ok;
  }
  std::uint64_t now = 0;  // a shorter word is its low bytes
  static_assert(std::endian::native == std::endian::little);
  auto* bytes = reinterpret_cast<std::uint8_t*>(&now);
  if (const int error = move_bytes(false, at.pid, bytes, at.remote, length); error != 0) {
    return explain(error, at.pid);
  }
  old = now;
  if (!operation.applies(now)) return Access::ok;
  now = operation.result(now);
  return explain(move_bytes(true, at.pid, bytes, at.remote, length), at.pid);
}

}  // namespace turnout::hca
