// SPDX-License-Identifier: BSD-3-Clause
#include "hca/mlx5/doorbells.h"

#include <endian.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdio>
#include <cstring>

#include "base/file_descriptor.h"
#include "base/log.h"
#include "hca/device/data_path.h"
#include "hca/live/mlx5_queues.h"
#include "hca/mlx5/mapped_pages.h"
#include "hca/mlx5/send_queue.h"
#include "hca/mlx5/store_instruction.h"

namespace turnout::hca {
namespace {

constexpr std::uint64_t kPageMask = 4095;
constexpr std::uint64_t kFirstSendRegister = 0x800;  // in its page; before it: completion queues

template <class T>
std::atomic<T*>* table(std::size_t count) noexcept {
  void* const p = mmap(nullptr, count * sizeof(std::atomic<T*>), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<std::atomic<T*>*>(p);
}

void raise_high(std::atomic<std::uint32_t>& high, std::uint32_t index) noexcept {
  std::uint32_t now = high.load();
  while (now < index + 1 && !high.compare_exchange_weak(now, index + 1)) {
  }
}

// Of a page: where in the file, and the mapping's rights. Not ours: not a mapping of the file.
struct Mapping {
  bool ours = false;
  std::uint64_t offset = 0;
  int protection = 0;
};
// From /proc/self/maps: "begin-end mode offset major:minor inode".
Mapping find_mapping(std::uint64_t page, std::uint64_t device, std::uint64_t inode) noexcept {
  const Descriptor fd(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
  if (!fd) return {};
  char text[4096];
  std::size_t kept = 0;
  for (;;) {
    const ssize_t n = read(fd.get(), text + kept, sizeof text - 1 - kept);
    if (n <= 0) return {};
    kept += static_cast<std::size_t>(n);
    text[kept] = '\0';
    char* line = text;
    for (char* end = nullptr; (end = std::strchr(line, '\n')) != nullptr; line = end + 1) {
      *end = '\0';
      unsigned long begin = 0, after = 0, offset = 0, number = 0;
      char mode[5] = {};
      unsigned major_number = 0, minor_number = 0;
      if (std::sscanf(line, "%lx-%lx %4s %lx %x:%x %lu", &begin, &after, mode, &offset,
                      &major_number, &minor_number, &number) != 7 ||
          page < begin || page >= after) {
        continue;
      }
      if (number != inode || makedev(major_number, minor_number) != device) return {};
      const int protection = (mode[0] == 'r' ? PROT_READ : 0) | (mode[1] == 'w' ? PROT_WRITE : 0);
      return {true, offset + (page - begin), protection};
    }
    kept = std::strlen(line);
    if (kept == sizeof text - 1) kept = 0;  // a long name: its line has been looked at
    std::memmove(text, line, kept);
  }
}

#if defined(__x86_64__)
// By the number that instructions have of them.
constexpr int kRegisters[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                              REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                              REG_R12, REG_R13, REG_R14, REG_R15};
#endif

#if defined(__x86_64__)
// Where the XSAVE area has registers 16 to 31; 0: nowhere.
const std::uint32_t high_registers_at = [] {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kSaved = 0xd, kHigh = 7;
  return __get_cpuid_count(kSaved, kHigh, &a, &b, &c, &d) != 0 ? b : 0U;
}();

// Bytes 4 to 7 of a vector register, as the kernel kept it for the signal (the XSAVE area: Intel
// SDM vol. 1, 13.4). False: it is not there.
bool second_word(const ucontext_t& context, int number, std::uint32_t& word) noexcept {
  const _libc_fpstate* const kept = context.uc_mcontext.fpregs;
  constexpr int kLegacy = 16;
  if (kept == nullptr) return false;
  if (number < kLegacy) {
    word = kept->_xmm[number].element[1];
    return true;
  }
  constexpr std::size_t kSoftware = 464, kHeader = 512, kRegisterBytes = 64;
  constexpr std::uint64_t kHighRegisters = 1U << 7;
  const auto* const bytes = reinterpret_cast<const std::byte*>(kept);
  struct {
    std::uint32_t magic, extended;
    std::uint64_t features;
    std::uint32_t size;
  } software;
  constexpr std::uint32_t kMagic = 0x46505853;  // FP_XSTATE_MAGIC1
  std::memcpy(&software, bytes + kSoftware, sizeof software);
  const std::size_t at =
      high_registers_at + static_cast<std::size_t>(number - kLegacy) * kRegisterBytes;
  std::uint64_t present = 0;
  if (software.magic != kMagic || high_registers_at == 0 || at + kRegisterBytes > software.size)
    return false;
  std::memcpy(&present, bytes + kHeader, sizeof present);
  if ((present & kHighRegisters) == 0) return false;
  std::memcpy(&word, bytes + at + sizeof word, sizeof word);
  return true;
}
#endif

// Does what a load of the clock's register does: nanoseconds of CLOCK_MONOTONIC, as completions
// have them. False: no plain load within the register.
bool load_clock(std::uint64_t place, void* ucontext) noexcept {
#if defined(__x86_64__)
  auto& registers = static_cast<ucontext_t*>(ucontext)->uc_mcontext.gregs;
  auto& counter = registers[REG_RIP];
  const auto load = decode_load(reinterpret_cast<const std::uint8_t*>(counter));  // NOLINT
  constexpr std::uint32_t kBytes = sizeof(std::uint64_t);
  const std::uint64_t at = place - kClockRegister;
  if (!load || at + load->bytes > kBytes || at % load->bytes != 0) return false;
  const std::uint64_t now = htobe64(clock_ns(CLOCK_MONOTONIC));
  std::uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const char*>(&now) + at, load->bytes);
  registers[kRegisters[load->general_register]] = static_cast<greg_t>(value);
  counter += load->length;
  return true;
#else
  (void)place;
  (void)ucontext;
  return false;
#endif
}

}  // namespace

void Mlx5Cq::arm() noexcept {
  const auto* const words = reinterpret_cast<const std::uint32_t*>(doorbell);  // NOLINT
  const std::uint32_t word = be32toh(__atomic_load_n(words + 1, __ATOMIC_ACQUIRE));
  seen = word;
  constexpr std::uint32_t kSolicitedOnly = 1U << 24;
  DataPath& data_path = *context_of(cq->verbs.context).data_path;
  (void)data_path.request_notify(*cq, (word & kSolicitedOnly) != 0);
  // What came before counts, too, unlike with ibv_req_notify_cq(3) of other devices.
  queues->tell_of_entry_behind(*cq, word & 0xff'ffff);
}

Doorbells& Doorbells::instance() noexcept {
  static auto* const one = new Doorbells;  // threads may store while the process exits
  return *one;
}

Doorbells::Doorbells() noexcept
    : sends_(table<Mlx5SendQueue>(kMaxQps)), cqs_(table<Mlx5Cq>(kMaxCqs)) {}

void Doorbells::add_file(dev_t device, ino_t inode) noexcept {
  device_.store(device);
  inode_.store(inode);
}

void Doorbells::remove_file() noexcept {
  for (auto& page : pages_) page.store(0);
}

// Who looks at all queues may be at one that is none of its program's thread.
class Doorbells::Look {
 public:
  explicit Look(std::atomic<std::uint32_t>& looks) noexcept : looks_(looks) { ++looks_; }
  ~Look() { --looks_; }
  Look(const Look&) = delete;
  Look& operator=(const Look&) = delete;

 private:
  std::atomic<std::uint32_t>& looks_;
};

void Doorbells::wait_for_looks() const noexcept {
  while (looks_.load() != 0) sched_yield();
}

void Doorbells::add(Mlx5SendQueue& queue) noexcept {
  const std::uint32_t index = queue.qp().index;
  sends_[index].store(&queue, std::memory_order_release);
  raise_high(send_high_, index);
}

void Doorbells::remove(const Mlx5SendQueue& queue) noexcept {
  sends_[queue.qp().index].store(nullptr);
  wait_for_looks();
}

void Doorbells::add(Mlx5Cq& queue) noexcept {
  cqs_[queue.cq->index].store(&queue, std::memory_order_release);
  raise_high(cq_high_, queue.cq->index);
}

void Doorbells::remove(const Mlx5Cq& queue) noexcept {
  cqs_[queue.cq->index].store(nullptr);
  wait_for_looks();
}

Doorbells::Page Doorbells::look(std::uint64_t page) noexcept {
  for (const auto& known : pages_) {
    if (known.load(std::memory_order_relaxed) == page) return Page::doorbell;
  }
  const Mapping mapping = find_mapping(page, device_.load(), inode_.load());
  if (!mapping.ours) return Page::other;
  if (MappedPages::is_clock_register(mapping.offset)) return Page::clock;
  if (MappedPages::is_memory(mapping.offset)) {
    const bool shown = MappedPages::instance().show(page, mapping.offset, mapping.protection);
    return shown ? Page::memory : Page::other;
  }
  for (auto& known : pages_) {
    std::uint64_t free = 0;
    if (known.compare_exchange_strong(free, page)) break;
  }
  return Page::doorbell;
}

bool Doorbells::store(const siginfo_t& info, void* ucontext) noexcept {
  const auto address = reinterpret_cast<std::uint64_t>(info.si_addr);
  const Page page = look(address & ~kPageMask);
  if (page == Page::clock) return load_clock(address & kPageMask, ucontext);
  // The program's access to memory is made again, now that the memory is there.
  if (page != Page::doorbell) return page == Page::memory;
  auto& registers = static_cast<ucontext_t*>(ucontext)->uc_mcontext;
#if defined(__x86_64__)
  auto& counter = registers.gregs[REG_RIP];
#elif defined(__aarch64__)
  auto& counter = registers.pc;
#else
#error "the doorbells of this processor are not known"
#endif
  const auto instruction =
      decode_store(reinterpret_cast<const std::uint8_t*>(counter));  // NOLINT: it just ran
  if (!instruction) {
    TURNOUT_LOG(hca, error,
                "store to a doorbell failed: {:#x}: the instruction at {:#x} is not known; report "
                "its bytes with `x/16xb` of gdb",
                address, counter);
    return false;
  }
  // The number of the queue is in the second word of what was stored.
  bool known = false;
  std::uint32_t second = 0;
#if defined(__x86_64__)
  if (instruction->bytes == 8 && instruction->general_register >= 0) {
    const auto value =
        static_cast<std::uint64_t>(registers.gregs[kRegisters[instruction->general_register]]);
    second = be32toh(static_cast<std::uint32_t>(value >> 32));
    known = true;
  } else if (instruction->vector_register >= 0) {
    // Blue flame: what is stored is the work queue entry.
    known = second_word(*static_cast<const ucontext_t*>(ucontext), instruction->vector_register,
                        second);
    second = be32toh(second);
  }
#endif
  counter += instruction->length;
  if ((address & kPageMask) >= kFirstSendRegister) {
    if (known) {
      const std::uint32_t number = second >> 8;
      Mlx5SendQueue* const queue = sends_[number & (kMaxQps - 1)].load(std::memory_order_acquire);
      if (queue != nullptr && queue->qp().number == number) {
        queue->run();
        return true;
      }
    }
    const Look look(looks_);
    const std::uint32_t high = send_high_.load();
    for (std::uint32_t i = 0; i < high; ++i) {
      if (auto* const queue = sends_[i].load()) queue->run();
    }
    return true;
  }
  if (known) {
    Mlx5Cq* const queue = cqs_[second & (kMaxCqs - 1)].load(std::memory_order_acquire);
    if (queue != nullptr) {
      queue->arm();
      return true;
    }
  }
  const Look look(looks_);
  const std::uint32_t high = cq_high_.load();
  for (std::uint32_t i = 0; i < high; ++i) {
    auto* const queue = cqs_[i].load();
    if (queue == nullptr) continue;
    const auto* const words = reinterpret_cast<const std::uint32_t*>(queue->doorbell);  // NOLINT
    if (be32toh(__atomic_load_n(words + 1, __ATOMIC_ACQUIRE)) != queue->seen) queue->arm();
  }
  return true;
}

}  // namespace turnout::hca
