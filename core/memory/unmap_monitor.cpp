// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/unmap_monitor.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/log.h"
#include "core/memory/syscall_patch.h"

namespace turnout {

UnmapLog unmap_log;

namespace {

// The calls that are looked at before each use, and what has to be there.
struct PatchedCode {
  static constexpr std::size_t kMost = 7;
  std::array<std::uintptr_t, kMost> address{};
  std::array<std::atomic<std::uint64_t>, kMost> code{};
  std::size_t count = 0;
};

struct {
  std::mutex mutex;  // protects tried, status and watched, and who changes the others
  bool tried = false;
  Status status;
  Watch watched = Watch::all;
  std::atomic<bool> in_place{false};
  PatchedCode patched;
} monitor;

Status unsupported(std::string why) {
  return {Code::unsupported, std::move(why)};
}

// Was all of [begin, begin + length) noted since `position`?
bool noted(std::uint64_t position, std::uintptr_t from, std::size_t length) {
  bool found = false;
  (void)unmap_log.read(&position, [&](std::uintptr_t a, std::uintptr_t b) {
    found = found || (a <= from && from + length <= b);
  });
  return found;
}

// The page is not mapped any more, or there is nothing in its place.
bool is_gone(std::uintptr_t begin, std::size_t page) {
  unsigned char resident = 0;
  if (mincore(reinterpret_cast<void*>(begin), page, &resident) != 0) return errno == ENOMEM;
  return (resident & 1) == 0;
}

// Makes each call in the ways programs do, and looks whether it was noted.
Status try_once() {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto map = [&](void* at, int flags) {
    void* const p =
        mmap(at, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    return p == MAP_FAILED ? nullptr : static_cast<std::byte*>(p);
  };
  std::byte* memory = map(nullptr, 0);
  if (memory == nullptr) return unsupported("mmap failed in the self-test");
  const char* missed = nullptr;
  std::uint64_t position = 0;
  const auto expect = [&](const char* call, std::uintptr_t at, std::size_t length) {
    if (missed == nullptr && !noted(position, at, length)) missed = call;
    position = unmap_log.position();
  };
  const auto page_of = [&](std::size_t n) {
    return reinterpret_cast<std::uintptr_t>(memory + n * page);
  };
  position = unmap_log.position();
  madvise(memory + page, page, MADV_DONTNEED);
  expect("madvise", page_of(1), page);
  if (map(memory, MAP_FIXED) == nullptr)
    return unsupported("mmap over an existing mapping failed in the self-test");
  expect("mmap", page_of(3), page);
  void* const moved = mremap(memory, 4 * page, 2 * page, MREMAP_MAYMOVE);
  expect("mremap", page_of(3), page);
  if (moved != MAP_FAILED) memory = static_cast<std::byte*>(moved);
  munmap(memory, 2 * page);
  expect("munmap", page_of(1), page);
  // Both do nothing: 0 asks for the break, and no segment is attached there.
  [[maybe_unused]] const int none = brk(nullptr);
  expect("brk", 0, page);
  (void)shmdt(nullptr);
  expect("shmdt", 0, SIZE_MAX);
  if (monitor.watched == Watch::all) {
    // Large, so that it goes back to the kernel where the allocator does that; pages that nobody
    // touches take no memory.
    constexpr std::size_t kLarge = std::size_t{96} << 20;
    auto* const large = static_cast<std::byte*>(std::malloc(kLarge));
    if (large == nullptr) return unsupported("malloc of 96 MiB failed in the self-test");
    const auto at = reinterpret_cast<std::uintptr_t>(large);
    static_cast<volatile std::byte*>(large)[page] = std::byte{1};
    std::free(large);
    const std::uintptr_t inside = (at + page) / page * page;
    if (is_gone(inside, page)) expect("free", inside, page);
  }
  if (missed != nullptr) {
    return unsupported(fmt::format("the self-test's {} was not logged", missed));
  }
  return {};
}

// Other threads may be in the middle of writing to the log, which then cannot be read.
Status try_all() {
  Status status;
  for (int i = 0; i < 10 && (i == 0 || !status.ok()); ++i) status = try_once();
  return status;
}

// The code of a function, as its symbol says.
struct Function {
  std::uintptr_t begin = 0, end = 0;
};
// Somebody's hook stands at its beginning: jmp rel32, jmp *rel32(%rip) or movabs to %r11 or %rax.
bool is_hooked(std::uintptr_t entry) {
  const std::uint64_t code = code_at(entry);
  const std::uint64_t two = code & 0xffff;
  return (code & 0xff) == 0xe9 || two == 0x25ff || two == 0xbb49 || two == 0xb848;
}

Function function_of(const void* address) {
  Dl_info info{};
  void* symbol = nullptr;
  if (address == nullptr || dladdr1(address, &info, &symbol, RTLD_DL_SYMENT) == 0 ||
      symbol == nullptr) {
    return {};
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(info.dli_saddr);
  return {begin, begin + static_cast<const ElfW(Sym)*>(symbol)->st_size};
}

Status install() {
  for (const char* const sanitizer : {"__asan_init", "__tsan_init", "__msan_init"}) {
    if (monitor.watched == Watch::all && dlsym(RTLD_DEFAULT, sanitizer) != nullptr) {
      return unsupported("a sanitizer's allocator frees memory with direct system calls");
    }
  }
  void* const libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  if (libc == nullptr) return unsupported("libc.so.6 is not loaded in this process");
  std::vector<const void*> objects = {dlsym(libc, "munmap"), dlsym(RTLD_DEFAULT, "munmap"),
                                      dlsym(RTLD_DEFAULT, "malloc"), dlsym(RTLD_DEFAULT, "free"),
                                      reinterpret_cast<const void*>(getauxval(AT_BASE))};
  std::erase(objects, nullptr);
  Result<std::vector<PatchedCall>> calls = patch_calls(objects);
  Status status = calls.status();
  // Each function makes its call in a way that was found. Another library's hook in its place
  // calls syscall(), or try_all() says that it does not.
  for (const char* const name :
       {"munmap", "mmap", "mremap", "madvise", "brk", "shmdt", "syscall"}) {
    if (!status.ok()) break;
    const Function function = function_of(dlsym(libc, name));
    const auto call = std::ranges::find_if(calls.value(), [&](const PatchedCall& c) {
      return function.begin <= c.address && c.address < function.end;
    });
    const bool found = call != calls.value().end();
    if (!found && (function.begin == 0 || !is_hooked(function.begin))) {
      status = unsupported(fmt::format("system call in libc's {} not found", name));
      break;
    }
    monitor.patched.address[monitor.patched.count] = found ? call->address : function.begin;
    monitor.patched.code[monitor.patched.count] =
        code_at(monitor.patched.address[monitor.patched.count]);
    ++monitor.patched.count;
  }
  dlclose(libc);
  if (status.ok()) status = try_all();
  if (status.ok()) {
    // A child gets the pages of the process as copies to be made at the next write, by whoever
    // writes first; a kernel before 5.12 may leave the old ones to the child, and those are the
    // ones that are registered.
    const int error = pthread_atfork(
        [] {
          unmap_log.begin();
          unmap_log.note(0, UnmapLog::kEverything);
        },
        [] { unmap_log.end(); }, [] { unmap_log.end(); });
    if (error != 0) status = unsupported("pthread_atfork failed");
  }
  return status;
}

}  // namespace

void prepare_to_watch_unmapping() noexcept {
  prepare_to_patch();
}

Status watch_unmapping(Watch watch) {
  const std::lock_guard lock(monitor.mutex);
  if (!monitor.tried) {
    monitor.tried = true;
    monitor.watched = watch;
    monitor.status = install();
    monitor.in_place.store(monitor.status.ok());
    if (!monitor.status.ok()) {
      TURNOUT_LOG(memory, info,
                  "patching libc's system calls failed: {}; registrations are not cached, "
                  "TURNOUT_REGISTRATION_CACHE=0 turns patching off",
                  monitor.status.text());
    }
  }
  return monitor.status;
}

bool watching_unmapping() noexcept {
  if (!monitor.in_place.load(std::memory_order_acquire)) [[unlikely]]
    return false;
  PatchedCode& patched = monitor.patched;
  bool same = true;
  for (std::size_t i = 0; i < patched.count; ++i) {
    same = same && code_at(patched.address[i]) == patched.code[i].load(std::memory_order_relaxed);
  }
  if (same) [[likely]]
    return true;
  const std::lock_guard lock(monitor.mutex);
  if (!monitor.in_place.load()) return false;
  monitor.status = try_all();
  if (monitor.status.ok()) {
    // What was made before may be stale, whoever made it.
    unmap_log.begin();
    unmap_log.note(0, UnmapLog::kEverything);
    for (std::size_t i = 0; i < patched.count; ++i) patched.code[i] = code_at(patched.address[i]);
    unmap_log.end();
    return true;
  }
  TURNOUT_LOG(memory, warn,
              "monitoring unmapped memory failed: libc's code was modified: {}; registrations are "
              "no longer cached, TURNOUT_REGISTRATION_CACHE=0 turns patching off",
              monitor.status.text());
  monitor.in_place.store(false);
  return false;
}

}  // namespace turnout
