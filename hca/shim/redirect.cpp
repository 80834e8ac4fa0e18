// SPDX-License-Identifier: BSD-3-Clause
#include "hca/shim/redirect.h"

#include <fcntl.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace turnout::shim {

namespace {

struct Text {
  const char* at;
  std::size_t size;
};

template <std::size_t kSize>
constexpr Text literal(const char (&text)[kSize]) {
  return {text, kSize - 1};
}

constexpr Text kOurs[] = {literal("/dev/infiniband"), literal("/sys/class/infiniband"),
                          literal("/sys/class/infiniband_verbs"), literal("/sys/devices/turnout")};

constexpr int kLastNumber = 99'999;  // of a command file

// In relative paths. The second row: the counters that change (counters.h).
constexpr const char* kPartsOfOurs[] = {"turnout",  "uverbs",  "rdma_cm", "..",  //
                                        "counters", "_xmit_",  "_rcv_",   "_pkts",   "_rnr_",
                                        "_retry_",  "retry_e", "rdma_s",  "rdma_re", "link_downed"};

// A copy: programs that write their title over the environment's memory take the original with it.
char root_copy[PATH_MAX];
std::size_t root_copy_size = 0;
std::atomic<bool> root_is_read{false};
std::atomic<bool> system_is_hidden{false};

Text root_in_environment() noexcept {
  const char* const text = std::getenv("TURNOUT_SHIM_ROOT");
  if (text == nullptr || *text != '/') return {"", 0};
  std::size_t size = std::strlen(text);
  while (size > 0 && text[size - 1] == '/') --size;
  return size < PATH_MAX / 2 ? Text{text, size} : Text{"", 0};
}

Text root() noexcept {
  if (root_is_read.load(std::memory_order_acquire)) return {root_copy, root_copy_size};
  return root_in_environment();
}

// `text` is `folder` or below it.
bool is_in(Text text, Text folder) noexcept {
  return text.size >= folder.size && std::memcmp(text.at, folder.at, folder.size) == 0 &&
         (text.size == folder.size || text.at[folder.size] == '/');
}

bool is_ours(Text text) noexcept {
  for (const Text& folder : kOurs) {
    if (is_in(text, folder)) return true;
  }
  return false;
}

bool is_there(int folder, const char* path) noexcept {
  const int before = errno;
  const bool there = syscall(SYS_faccessat, folder, path, F_OK) == 0;
  errno = before;
  return there;
}

// "/proc/self/fd/N", and zeros behind it; snprintf is not for signal handlers.
struct FdName {
  char text[40] = "/proc/self/fd/";
  explicit FdName(int fd) noexcept {
    std::to_chars(text + std::strlen(text), text + sizeof text - 1, fd);
  }
};

// The path of the folder that relative paths begin at, with space for two more bytes; 0: unknown.
std::size_t base_of(int folder, char* to, std::size_t space) noexcept {
  const int before = errno;
  long size = 0;
  if (folder == AT_FDCWD) {
    size = syscall(SYS_getcwd, to, space) - 1;  // its zero is counted
  } else if (folder >= 0) {
    size = syscall(SYS_readlinkat, AT_FDCWD, FdName(folder).text, to, space);
  }
  errno = before;
  if (size <= 0 || static_cast<std::size_t>(size) + 2 > space || to[0] != '/') return 0;
  return static_cast<std::size_t>(size);
}

}  // namespace

void read_root() noexcept {
  root_is_read.store(false);
  const Text text = root_in_environment();
  std::memcpy(root_copy, text.at, text.size);
  root_copy_size = text.size;
  const char* const device = std::getenv("TURNOUT_SHIM_MLX5");
  system_is_hidden.store(device != nullptr && *device != '\0');
  root_is_read.store(true, std::memory_order_release);
}

bool may_be_ours(const char* path) noexcept {
  if (path == nullptr) return false;
  if (std::strstr(path, "infiniband") != nullptr ||
      std::strstr(path, "/devices/turnout") != nullptr) {
    return true;
  }
  // The folder may be in the part of the path that a relative one does not have.
  if (path[0] == '/') return false;
  for (const char* const part : kPartsOfOurs) {
    if (std::strstr(path, part) != nullptr) return true;
  }
  return false;
}

const char* place_of(int folder, const char* path, Place& place) noexcept {
  const Text tree = root();
  if (tree.size == 0) return path;
  std::memcpy(place.text, tree.at, tree.size);
  // The path without links, `.` and `..` is put behind the tree's.
  char* const plain = place.text + tree.size;
  const std::size_t space = sizeof place.text - tree.size;
  std::size_t size = 0;
  bool from_tree = false;
  bool through_ours = false;
  if (*path != '/') {
    size = base_of(folder, plain, space);
    if (size == 0) return path;
    if (is_in({plain, size}, tree)) {
      size -= tree.size;
      std::memmove(plain, plain + tree.size, size);
      from_tree = true;
    }
    if (size == 1) size = 0;  // the root is a slash, the others end without one
  }
  bool folder_wanted = false;
  for (const char* part = path; *part != '\0';) {
    if (*part == '/') {
      folder_wanted = true;
      ++part;
      continue;
    }
    const std::size_t length = std::strcspn(part, "/");
    folder_wanted = false;
    if (length == 2 && part[0] == '.' && part[1] == '.') {
      through_ours = through_ours || is_ours({plain, size});
      while (size > 0 && plain[--size] != '/') {
      }
    } else if (length != 1 || part[0] != '.') {
      if (size + 1 + length + 2 > space) {
        if (!is_ours({plain, size})) return path;
        errno = ENAMETOOLONG;
        return nullptr;
      }
      plain[size++] = '/';
      std::memcpy(plain + size, part, length);
      size += length;
    }
    part += length;
  }
  const bool ours = is_ours({plain, size});
  // What leads out of a folder of ours leads nowhere to the kernel, which does not see the folder.
  if (!ours && !through_ours) return path;
  const bool hidden = ours && system_is_hidden.load(std::memory_order_relaxed);
  if (!from_tree && !hidden && is_there(folder, path)) return path;
  if (folder_wanted || size == 0) plain[size++] = '/';
  plain[size] = '\0';
  return ours ? place.text : plain;
}

int command_file_number(const char* place) noexcept {
  constexpr Text kCommandFile = literal("/dev/infiniband/uverbs");
  const Text tree = root();
  if (tree.size == 0 || std::strncmp(place, tree.at, tree.size) != 0) return -1;
  const char* digit = place + tree.size;
  if (std::strncmp(digit, kCommandFile.at, kCommandFile.size) != 0) return -1;
  digit += kCommandFile.size;
  // As the kernel writes it: without zeros in front, and a minor device number at most.
  if (*digit == '\0' || (*digit == '0' && digit[1] != '\0')) return -1;
  int number = 0;
  for (; *digit != '\0'; ++digit) {
    if (*digit < '0' || *digit > '9' || number > kLastNumber) return -1;
    number = number * 10 + (*digit - '0');
  }
  return number <= kLastNumber && is_there(AT_FDCWD, place) ? number : -1;
}

char* shown(char* path) noexcept {
  const Text tree = root();
  if (path == nullptr || tree.size == 0) return path;
  const std::size_t size = std::strlen(path);
  if (!is_in({path, size}, tree)) return path;
  const Text rest{path + tree.size, size - tree.size};
  if (is_ours(rest)) std::memmove(path, rest.at, rest.size + 1);
  return path;
}

}  // namespace turnout::shim
