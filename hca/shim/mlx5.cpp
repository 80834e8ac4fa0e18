// SPDX-License-Identifier: BSD-3-Clause
#include "hca/shim/mlx5.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "hca/shim/bus_error.h"
#include "hca/shim/real.h"
#include "hca/shim/redirect.h"

namespace turnout::shim {

constinit std::atomic<std::uint8_t> marks[kMarkedFds] = {};
constinit std::atomic<bool> active{false};

namespace {

constexpr unsigned kMajor = 231;  // the kernel's, of uverbs
constexpr unsigned kFirstMinor = 192;

char library_path[PATH_MAX];
std::atomic<int> opened_number{0};
std::atomic<pid_t> process{0};  // whose descriptors the marks are

// The loaded device; `loading` is for what comes before.
std::atomic<const hca::Mlx5DeviceCalls*> device{nullptr};
pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

// Addresses from `begin` on, up to `end`; both 0: unknown.
struct Code {
  std::atomic<std::uintptr_t> begin{0}, end{0};
  [[nodiscard]] bool has(std::uintptr_t address) const noexcept {
    return address >= begin.load(std::memory_order_relaxed) &&
           address < end.load(std::memory_order_relaxed);
  }
};
constinit Code device_code, shim_code;

struct CodeSearch {
  std::uintptr_t inside;
  Code* to;
};

// Of dl_iterate_phdr(3): the library that has `inside`.
int take_code(dl_phdr_info* library, std::size_t, void* search) {
  const auto& wanted = *static_cast<CodeSearch*>(search);
  std::uintptr_t begin = UINTPTR_MAX, end = 0;
  for (unsigned i = 0; i < library->dlpi_phnum; ++i) {
    const auto& part = library->dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    const std::uintptr_t at = library->dlpi_addr + part.p_vaddr;
    if (at < begin) begin = at;
    if (at + part.p_memsz > end) end = at + part.p_memsz;
  }
  if (wanted.inside < begin || wanted.inside >= end) return 0;
  wanted.to->begin.store(begin);
  wanted.to->end.store(end);
  return 1;
}

void find_code(std::uintptr_t inside, Code& to) noexcept {
  CodeSearch search{inside, &to};
  dl_iterate_phdr(take_code, &search);
}

// What the device answered. It returns to the shim and not straight to the program:
// is_device_code() goes by that.
template <class Result>
Result answer(Result result) noexcept {
  __asm__ volatile("" : "+r"(result));
  return result;
}

// The device's functions.
const hca::Mlx5DeviceCalls& calls() noexcept {
  return *device.load(std::memory_order_acquire);
}

void mark_fd(int fd, bool ours, bool command) {
  const auto index = static_cast<unsigned>(fd);
  if (index >= kMarkedFds) return;
  const unsigned mark = ours ? kDevice | (command ? kCommandFile : 0) : 0;
  marks[index].store(static_cast<std::uint8_t>(mark), std::memory_order_release);
}

void complain(const char* reason) noexcept {
  char line[PATH_MAX + 512];
  int size = std::snprintf(line, sizeof line,
                           "turnout[%d] error hca: loading the mlx5 device failed: %s: %s; start "
                           "the program with `turnout verbs --mlx5` of this build\n",
                           static_cast<int>(getpid()), library_path, reason);
  if (size >= static_cast<int>(sizeof line)) {
    size = sizeof line - 1;
    line[size - 1] = '\n';
  }
  // Who has no standard error is not told.
  if (call_real<ssize_t>(Function::write, STDERR_FILENO, static_cast<const void*>(line),
                         static_cast<std::size_t>(size)) < 0) {
    return;
  }
}

// With `loading` held. Null: it was said why.
const hca::Mlx5DeviceCalls* load() noexcept {
  void* const library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const error = dlerror();
    // It begins with the path, which the line has already.
    const std::size_t path = std::strlen(library_path);
    const bool repeats = error != nullptr && std::strncmp(error, library_path, path) == 0 &&
                         std::strncmp(error + path, ": ", 2) == 0;
    complain(error == nullptr ? "unknown error" : repeats ? error + path + 2 : error);
    return nullptr;
  }
  auto* const entry =
      reinterpret_cast<hca::Mlx5DeviceEntry*>(dlsym(library, hca::kMlx5DeviceEntry));
  if (entry == nullptr) {
    complain("it is not the library of a device");
    return nullptr;
  }
  find_code(reinterpret_cast<std::uintptr_t>(entry), device_code);
  find_code(reinterpret_cast<std::uintptr_t>(&mark_fd), shim_code);
  const hca::Mlx5DeviceCalls* const loaded = entry(mark_fd);
  if (loaded != nullptr && loaded->size != sizeof *loaded) {
    complain("it is of another build");
    return nullptr;
  }
  return loaded;
}

const hca::Mlx5DeviceCalls* loaded_device() noexcept {
  const hca::Mlx5DeviceCalls* found = device.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  pthread_mutex_lock(&loading);
  found = device.load(std::memory_order_acquire);
  if (found == nullptr) {
    found = load();
    if (found != nullptr) {
      process.store(getpid());
      device.store(found, std::memory_order_release);
    }
  }
  pthread_mutex_unlock(&loading);
  return found;
}

void before_fork() {
  pthread_mutex_lock(&loading);
  hold_bus_actions();
}

void after_fork() {
  release_bus_actions();
  pthread_mutex_unlock(&loading);
}

void in_child() {
  process.store(getpid());
  if (device.load() == nullptr) {
    after_fork();
    return;
  }
  for (std::atomic<std::uint8_t>& mark : marks) {
    const unsigned old = mark.load(std::memory_order_relaxed);
    if (old != 0) mark.store(static_cast<std::uint8_t>(old | kInherited));
  }
  after_fork();
}

unsigned minor_number(int number) noexcept {
  return kFirstMinor + static_cast<unsigned>(number);
}

void show_number(int number, struct stat* of) noexcept {
  of->st_mode = S_IFCHR | (of->st_mode & 0666);
  of->st_rdev = makedev(kMajor, minor_number(number));
  of->st_size = 0;
  of->st_blocks = 0;
}

void show_number(int number, struct statx* of) noexcept {
  of->stx_mode = static_cast<std::uint16_t>(S_IFCHR | (of->stx_mode & 0666));
  of->stx_rdev_major = kMajor;
  of->stx_rdev_minor = minor_number(number);
  of->stx_size = 0;
  of->stx_blocks = 0;
}

}  // namespace

void read_device() noexcept {
  const char* const text = std::getenv("TURNOUT_SHIM_MLX5");
  if (text == nullptr || *text != '/' || std::strlen(text) >= sizeof library_path) return;
  std::strcpy(library_path, text);
  // No memory for it: then the program has not enough to start, either.
  if (pthread_atfork(before_fork, after_fork, in_child) != 0) return;
  active.store(true);
  unblock_bus_error();
}

int open_device(int number, int flags) noexcept {
  const hca::Mlx5DeviceCalls* const found = loaded_device();
  if (found == nullptr) {
    errno = ENODEV;
    return -1;
  }
  opened_number.store(number, std::memory_order_relaxed);
  handle_bus_errors(found->bus_error);
  const int fd = found->open(flags);
  if (fd < 0 || mark_of(fd) != 0) return fd;
  found->close(fd);
  errno = EMFILE;
  return -1;
}

bool is_device_code(const void* address) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return device_code.has(at) || shim_code.has(at);
}

ssize_t read_device_file(int fd, void* bytes, std::size_t count) noexcept {
  return answer(calls().read(fd, bytes, count));
}

ssize_t write_device_file(int fd, const void* bytes, std::size_t count) noexcept {
  return answer(calls().write(fd, bytes, count));
}

int control_device_file(int fd, unsigned long request, void* argument) noexcept {
  return answer(calls().ioctl(fd, request, argument));
}

int close_device_file(int fd) noexcept {
  // The child of a vfork() has its parent's memory, but a number of its own.
  const bool own = process.load(std::memory_order_relaxed) == getpid();
  if (own && (mark_of(fd) & kInherited) == 0) return answer(calls().close(fd));
  if (own) mark_fd(fd, false, false);
  return call_real<int>(Function::close, fd);
}

void duplicate_device_file(int from, int to) noexcept {
  if (process.load(std::memory_order_relaxed) != getpid()) return;
  if (((mark_of(from) | mark_of(to)) & kInherited) != 0) {
    mark_fd(to, false, false);
    return;
  }
  const int before = errno;
  calls().duplicate(from, to);
  errno = before;
}

int device_number(const char* path, const char* place) noexcept {
  return has_device() && place != path ? command_file_number(place) : -1;
}

void show_device(const char* path, const char* place, struct stat* of) noexcept {
  if (const int number = device_number(path, place); number >= 0) show_number(number, of);
}

void show_device(const char* path, const char* place, struct statx* of) noexcept {
  if (const int number = device_number(path, place); number >= 0) show_number(number, of);
}

void show_device(int fd, struct stat* of) noexcept {
  if ((mark_of(fd) & kCommandFile) != 0) show_number(opened_number.load(), of);
}

void show_device(int fd, struct statx* of) noexcept {
  if ((mark_of(fd) & kCommandFile) != 0) show_number(opened_number.load(), of);
}

}  // namespace turnout::shim
