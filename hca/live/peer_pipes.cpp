// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/peer_pipes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

namespace turnout::hca {
namespace {

constexpr std::size_t kMaxOpenPipes = 1024;

}  // namespace

int PeerPipes::open_fd(Token token, int fd, int flags) const noexcept {
  const std::uint32_t slot = slot_of(token);
  if (slot >= kMaxProcesses || fd < 0 || tables_.process(slot).token.load() != token) {
    errno = ESRCH;
    return -1;
  }
  const std::uint32_t pid = tables_.process(slot).pid;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%u/fd/%d", pid, fd);
  int opened = ::open(path, flags | O_CLOEXEC | O_NOCTTY);
  if (opened >= 0) return opened;
  const int first_error = errno;
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0));
  if (pidfd >= 0) {
    opened = static_cast<int>(syscall(SYS_pidfd_getfd, pidfd, fd, 0));
    close(pidfd);
    if (opened >= 0) return opened;
  }
  errno = first_error;
  return -1;
}

bool PeerPipes::write(Token token, const PipeRef& ref, const void* bytes,
                      std::size_t length) noexcept {
  if (ref.fd < 0) return false;
  const std::lock_guard lock(mutex_);
  auto found = pipes_.find(ref.inode);
  if (found != pipes_.end() && found->second.token != token) {
    pipes_.erase(found);  // the inode was reused by another process's pipe
    found = pipes_.end();
  }
  if (found == pipes_.end()) {
    // Opened for reading, too: so it never breaks, and a peer's death cannot send us SIGPIPE.
    Descriptor fd(open_fd(token, ref.fd, O_RDWR | O_NONBLOCK));
    if (fd && (fcntl(fd.get(), F_GETFL) & O_ACCMODE) != O_RDWR) {  // a duplicate: open it anew
      char path[64];
      std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd.get());
      fd = Descriptor(::open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC));
    }
    struct stat st {};
    if (!fd) return false;
    // Of channels long destroyed, most likely.
    if (pipes_.size() >= kMaxOpenPipes) pipes_.clear();
    if (fstat(fd.get(), &st) != 0 || !S_ISFIFO(st.st_mode) || st.st_ino != ref.inode) return false;
    found = pipes_.emplace(ref.inode, OpenPipe{token, std::move(fd)}).first;
  }
  for (;;) {
    const ssize_t n =
        ::write(found->second.fd.get(), bytes, length);  // <= PIPE_BUF: whole or not at all
    if (n == static_cast<ssize_t>(length)) return true;
    if (n < 0 && errno == EINTR) continue;
    return false;
  }
}

void PeerPipes::forget(Token token) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(pipes_, [&](const auto& entry) { return entry.second.token == token; });
}

}  // namespace turnout::hca
