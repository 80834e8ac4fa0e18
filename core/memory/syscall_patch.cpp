// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/syscall_patch.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#if defined(__x86_64__) && defined(__linux__)
#include <elf.h>
#include <link.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <span>

// rax: number; rdi, rsi, rdx, r10, r8, r9: arguments; r11: the `syscall` instruction that follows
// what was replaced. A system call leaves all registers but rax, rcx and r11 as they are, and so
// does this. The 128 bytes below the stack pointer belong to the function that was left.
// A call that is not noted is made by the instruction at r11, on the caller's stack: it may be one
// that returns twice, or never. A noted one is made here.
asm(R"(
  .text
  .p2align 4
  .globl turnout_call_stub
  .hidden turnout_call_stub
  .type turnout_call_stub, @function
turnout_call_stub:
  lea -128(%rsp), %rsp
  push %rbx
  push %r11
  push %r9
  push %r8
  push %r10
  push %rdx
  push %rsi
  push %rdi
  push %rax
  mov %rsp, %rbx
  mov %rsp, %rdi
  and $-16, %rsp
  cld
  call turnout_call_begins
  mov %rbx, %rsp
  mov %eax, %ecx
  pop %rax
  pop %rdi
  pop %rsi
  pop %rdx
  pop %r10
  pop %r8
  pop %r9
  test %ecx, %ecx
  jz 1f
  syscall
  push %r9
  push %r8
  push %r10
  push %rdx
  push %rsi
  push %rdi
  push %rax
  mov %rsp, %rbx
  and $-16, %rsp
  call turnout_call_ends
  mov %rbx, %rsp
  pop %rax
  pop %rdi
  pop %rsi
  pop %rdx
  pop %r10
  pop %r8
  pop %r9
  pop %r11
  pop %rbx
  lea 128(%rsp), %rsp
  lea 2(%r11), %r11
  jmp *%r11
1:
  pop %r11
  pop %rbx
  lea 128(%rsp), %rsp
  jmp *%r11
  .size turnout_call_stub, . - turnout_call_stub
)");
extern "C" __attribute__((visibility("hidden"))) void turnout_call_stub();

namespace turnout {
namespace {

constexpr std::size_t kReplaced = 5;
constexpr std::array kNumbers = {
    SYS_munmap, SYS_mmap,  SYS_mremap,           SYS_madvise,        SYS_brk,
    SYS_shmdt,  SYS_shmat, SYS_remap_file_pages, SYS_process_madvise};
constexpr std::uint8_t kMovEax = 0xb8;
constexpr std::array<std::uint8_t, 2> kSyscall = {0x0f, 0x05};
constexpr std::array<std::uint8_t, kReplaced> kLoadR9 = {0x4c, 0x8b, 0x4c, 0x24, 0x08};
// A stub: what was replaced; movabs $site+5, %r11; jmp *(%rip); address.
constexpr std::size_t kStub = 32;
constexpr std::uintptr_t kReach = std::uintptr_t{1} << 31;

long raw(long number, long a, long b, long c) noexcept {
  long result = number;
  asm volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
  return result;
}

// Every processor that runs this process's code reads it anew.
void let_all_see() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  (void)raw(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0);
}

struct Segment {
  const std::uint8_t* begin = nullptr;
  std::size_t size = 0;
};

// The executable parts of the objects that hold one of the addresses.
struct Search {
  const std::vector<const void*>* wanted;
  std::vector<Segment> found;
};

int look_at(dl_phdr_info* info, std::size_t, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  const std::span headers(info->dlpi_phdr, info->dlpi_phnum);
  const auto holds = [&](const ElfW(Phdr) & header, const void* address) {
    return header.p_type == PT_LOAD &&
           reinterpret_cast<std::uintptr_t>(address) - (info->dlpi_addr + header.p_vaddr) <
               header.p_memsz;
  };
  const bool wanted = std::any_of(headers.begin(), headers.end(), [&](const ElfW(Phdr) & header) {
    return std::any_of(search.wanted->begin(), search.wanted->end(),
                       [&](const void* address) { return holds(header, address); });
  });
  if (!wanted) return 0;
  for (const ElfW(Phdr) & header : headers) {
    if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0 || (header.p_flags & PF_R) == 0) {
      continue;
    }
    search.found.push_back(
        {reinterpret_cast<const std::uint8_t*>(info->dlpi_addr + header.p_vaddr), header.p_filesz});
  }
  return 0;
}

void find_calls(const Segment& segment, std::vector<PatchedCall>* calls) {
  if (segment.size < sizeof(std::uint64_t)) return;  // see code_at()
  const std::uint8_t* const last = segment.begin + segment.size - sizeof(std::uint64_t);
  for (const std::uint8_t* p = segment.begin; p <= last; ++p) {
    // `syscall` is rare: look for its first byte.
    p = static_cast<const std::uint8_t*>(
        std::memchr(p + kReplaced, kSyscall[0], static_cast<std::size_t>(last - p) + 1));
    if (p == nullptr) return;
    p -= kReplaced;
    if (p[kReplaced + 1] != kSyscall[1]) continue;
    long number = -1;
    if (*p == kMovEax) {
      std::uint32_t value;
      std::memcpy(&value, p + 1, sizeof value);
      number = value;
      if (std::find(kNumbers.begin(), kNumbers.end(), number) == kNumbers.end()) continue;
    } else if (std::memcmp(p, kLoadR9.data(), kLoadR9.size()) != 0) {
      continue;
    }
    calls->push_back({reinterpret_cast<std::uintptr_t>(p), number});
  }
}

// Room for stubs that a jump from all of [low, high] reaches; null: none.
std::uint8_t* room_near(std::uintptr_t low, std::uintptr_t high, std::size_t bytes) noexcept {
  const auto reaches = [&](std::uintptr_t at) {
    return at + bytes < low + kReach && high < at + kReach;
  };
  const auto map = [&](std::uintptr_t hint) -> std::uint8_t* {
    void* const at = mmap(reinterpret_cast<void*>(hint), bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    if (reaches(reinterpret_cast<std::uintptr_t>(at))) return static_cast<std::uint8_t*>(at);
    munmap(at, bytes);
    return nullptr;
  };
  // The kernel's own choice is near where libraries are; then ever further below and above.
  if (std::uint8_t* const at = map(0)) return at;
  constexpr std::uintptr_t kPageMask = 4095;
  for (std::uintptr_t away = std::uintptr_t{1} << 16; away < kReach; away += away / 2) {
    for (const std::uintptr_t hint : {low - away, high + away}) {
      if (std::uint8_t* const at = map(hint & ~kPageMask)) return at;
    }
  }
  return nullptr;
}

void write_stub(const PatchedCall& call, std::uint8_t* stub) noexcept {
  const auto* const code = reinterpret_cast<const std::uint8_t*>(call.address);
  const std::uint64_t back = call.address + kReplaced;
  const auto to = reinterpret_cast<std::uint64_t>(&turnout_call_stub);
  constexpr std::array<std::uint8_t, 2> kLoadR11 = {0x49, 0xbb};
  constexpr std::array<std::uint8_t, 6> kJump = {0xff, 0x25, 0, 0, 0, 0};
  std::uint8_t* p = std::copy_n(code, kReplaced, stub);
  p = std::copy(kLoadR11.begin(), kLoadR11.end(), p);
  std::memcpy(p, &back, sizeof back);
  p = std::copy(kJump.begin(), kJump.end(), p + sizeof back);
  std::memcpy(p, &to, sizeof to);
}

// No other thread runs.
bool is_alone() noexcept {
  struct stat tasks {};
  return stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == 2 + 1;
}

// At once where both bytes lie in one cache line.
void write_two(std::uint8_t* at, std::uint8_t first, std::uint8_t second) noexcept {
  const auto both = static_cast<std::uint16_t>(first | second << 8);
  asm volatile("movw %1, %0" : "=m"(*reinterpret_cast<std::uint16_t*>(at)) : "r"(both) : "memory");
}

// Nothing in here may allocate: it might make the very call.
int lead_to(const PatchedCall& call, const std::uint8_t* stub) noexcept {
  auto* const at = reinterpret_cast<std::uint8_t*>(call.address);
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t begin = call.address & ~(page - 1);
  const std::uintptr_t end = (call.address + kReplaced + page - 1) & ~(page - 1);
  const auto protect = [&](long rights) {
    return raw(SYS_mprotect, static_cast<long>(begin), static_cast<long>(end - begin), rights);
  };
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const long error = protect(PROT_READ | PROT_WRITE | PROT_EXEC);
  if (error == 0) {
    const auto distance = static_cast<std::int32_t>(reinterpret_cast<std::intptr_t>(stub) -
                                                    static_cast<std::intptr_t>(call.address) - 5);
    std::array<std::uint8_t, kReplaced> jump = {0xe9};
    std::memcpy(&jump[1], &distance, sizeof distance);
    write_two(at, 0xeb, 0xfe);
    let_all_see();
    for (std::size_t i = 2; i < kReplaced; ++i)
      static_cast<volatile std::uint8_t*>(at)[i] = jump[i];
    let_all_see();
    write_two(at, jump[0], jump[1]);
    let_all_see();
    (void)protect(PROT_READ | PROT_EXEC);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return static_cast<int>(-error);
}

}  // namespace

std::uint64_t code_at(std::uintptr_t address) noexcept {
  // Eight bytes are read at once, which costs less than five.
  std::uint64_t bytes;
  std::memcpy(&bytes, reinterpret_cast<const void*>(address), sizeof bytes);
  return bytes & ((std::uint64_t{1} << 8 * kReplaced) - 1);
}

void prepare_to_patch() noexcept {
  (void)raw(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, 0, 0);
}

Result<std::vector<PatchedCall>> patch_calls(const std::vector<const void*>& objects_of) {
  Search search{&objects_of, {}};
  dl_iterate_phdr(look_at, &search);
  std::vector<PatchedCall> calls;
  for (const Segment& segment : search.found) find_calls(segment, &calls);
  if (calls.empty()) return Status{Code::unsupported, "no system call found in libc's code"};
  constexpr std::uintptr_t kLine = 64;
  std::uintptr_t low = UINTPTR_MAX, high = 0;
  for (const PatchedCall& call : calls) {
    if (call.address % kLine == kLine - 1 && !is_alone()) {
      return Status{Code::unsupported,
                    fmt::format("patching the system call at {:#x} failed: other threads are "
                                "running; create an endpoint before starting threads",
                                call.address)};
    }
    low = std::min(low, call.address);
    high = std::max(high, call.address);
  }
  const std::size_t bytes = calls.size() * kStub;
  std::uint8_t* const stubs = room_near(low, high, bytes);
  if (stubs == nullptr) {
    return Status{Code::unsupported, "no free memory within 2 GiB of libc's code"};
  }
  for (std::size_t i = 0; i < calls.size(); ++i) write_stub(calls[i], stubs + i * kStub);
  if (mprotect(stubs, bytes, PROT_READ | PROT_EXEC) != 0) {
    const int error = errno;
    munmap(stubs, bytes);
    return Status{Code::system,
                  fmt::format("mprotect failed: patch code: {}", std::strerror(error)), error};
  }
  prepare_to_patch();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    // What was changed until now stays: it does nothing but write to the log.
    if (const int error = lead_to(calls[i], stubs + i * kStub); error != 0) {
      return Status{Code::system,
                    fmt::format("mprotect failed: libc's code: {}", std::strerror(error)), error};
    }
  }
  return calls;
}

}  // namespace turnout

#else

namespace turnout {

std::uint64_t code_at(std::uintptr_t) noexcept {
  return 0;
}

void prepare_to_patch() noexcept {}

Result<std::vector<PatchedCall>> patch_calls(const std::vector<const void*>&) {
  return Status{Code::unsupported, "patching system calls is supported on x86-64 only"};
}

}  // namespace turnout

#endif
