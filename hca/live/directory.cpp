#include "hca/live/directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/abstract_name.h"
#include "base/file_descriptor.h"

namespace turnout::hca {
namespace {

// What all names of a fabric begin with. Names of fabrics have no slash.
std::string prefix(const std::string& fabric) {
  return fmt::format("turnout/{:x}/{}/", geteuid(), fabric);
}

// A socket with this abstract name; -1 and errno, EADDRINUSE when somebody has it.
int bind_name(const std::string& name) noexcept {
  if (name.size() > AbstractName::kLongest) {
    errno = ENAMETOOLONG;
    return -1;
  }
  const AbstractName bound(name);
  const int fd = above_standard(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (fd < 0) return -1;
  shutdown(fd, SHUT_RDWR);  // nobody shall fill its buffer
  if (bind(fd, bound.address(), bound.length()) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

}  // namespace

std::uint64_t own_pid_namespace() noexcept {
  struct stat st {};
  return stat("/proc/self/ns/pid", &st) == 0 ? st.st_ino : 0;
}

Result<std::vector<Member>> list_members(const std::string& fabric) {
  std::ifstream names("/proc/net/unix");
  if (!names) {
    return Status(Code::system,
                  "cannot read /proc/net/unix, where the adapter's processes are told", errno);
  }
  const std::string begins = " @" + prefix(fabric);
  std::vector<Member> members;
  for (std::string line; std::getline(names, line);) {
    const std::size_t at = line.find(begins);
    if (at == std::string::npos) continue;
    Member member{};
    unsigned pid = 0, fd = 0, copy = 0;
    int end = 0;
    const char* const rest = line.c_str() + at + begins.size();
    if (std::sscanf(rest, "%" SCNx64 "/%x/%x/%x%n", &member.pid_namespace, &pid, &fd, &copy,
                    &end) != 4 ||
        rest[end] != '\0' || pid > INT32_MAX || fd > INT32_MAX) {
      continue;  // the lock, or rubbish
    }
    member.pid = static_cast<pid_t>(pid);
    member.fd = static_cast<int>(fd);
    members.push_back(member);
  }
  return members;
}

int open_memory(const std::string& fabric, const Member& member) noexcept {
  char path[64], target[128], wanted[128];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", member.pid, member.fd);
  std::snprintf(wanted, sizeof wanted, "/memfd:turnout-%s (deleted)", fabric.c_str());
  const ssize_t n = readlink(path, target, sizeof target - 1);
  if (n < 0) return -1;
  target[n] = '\0';
  int fd = -1;
  if (std::strcmp(target, wanted) == 0) {
    fd = above_standard(::open(path, O_RDWR | O_CLOEXEC | O_NOCTTY));
    if (fd < 0) return -1;
    struct stat st {};
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid()) return fd;
    close(fd);
  }
  errno = ENOENT;
  return -1;
}

int create_memory(const std::string& fabric, std::uint64_t size) noexcept {
  char name[128];
  std::snprintf(name, sizeof name, "turnout-%s", fabric.c_str());
  const int fd = above_standard(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(size)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    return fd;
  }
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

int announce(const std::string& fabric, int fd) noexcept {
  // A fork's child may still have the name that its parent had for a descriptor of this number.
  constexpr unsigned kCopies = 256;
  for (unsigned copy = 0; copy < kCopies; ++copy) {
    const int socket = bind_name(fmt::format("{}{:x}/{:x}/{:x}/{:x}", prefix(fabric),
                                             own_pid_namespace(), getpid(), fd, copy));
    if (socket >= 0 || errno != EADDRINUSE) return socket;
  }
  return -1;
}

int lock_directory(const std::string& fabric) noexcept {
  const std::string name = prefix(fabric) + "lock";
  for (int tries = 0;; ++tries) {
    const int fd = bind_name(name);
    if (fd >= 0 || errno != EADDRINUSE || tries == 10'000) return fd;
    usleep(1000);
  }
}

}  // namespace turnout::hca
