// SPDX-License-Identifier: BSD-3-Clause
// Peers' file descriptors: memory to map and the write ends of their event pipes.
//
// /proc/PID/fd/N opens what the peer has open as N; pidfd_getfd duplicates it where that is
// refused. Either may race with the peer closing or reusing N, so the caller compares device and
// inode.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "hca/live/fabric.h"

namespace turnout::hca {
namespace {

constexpr std::size_t kMaxOpenPipes = 1024;

}  // namespace

int Fabric::open_peer_fd(Token token, int fd, int flags) const noexcept {
  const std::uint32_t slot = slot_of(token);
  if (slot >= kMaxProcesses || fd < 0 || process(slot).token.load() != token) {
    errno = ESRCH;
    return -1;
  }
  const std::uint32_t pid = process(slot).pid;
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

bool Fabric::write_pipe(Token token, const PipeRef& ref, const void* bytes,
                        std::size_t length) noexcept {
  if (ref.fd < 0) return false;
  const std::lock_guard lock(pipes_mutex_);
  auto found = pipes_.find(ref.inode);
  if (found != pipes_.end() && found->second.token != token) {
    close(found->second.fd);  // the inode was reused by another process's pipe
    pipes_.erase(found);
    found = pipes_.end();
  }
  if (found == pipes_.end()) {
    // Opened for reading, too: so it never breaks, and a peer's death cannot send us SIGPIPE.
    int fd = open_peer_fd(token, ref.fd, O_RDWR | O_NONBLOCK);
    if (fd >= 0 && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR) {  // a duplicate: open it anew
      char path[64];
      std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
      const int whole = ::open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
      close(fd);
      fd = whole;
    }
    struct stat st {};
    if (fd < 0) return false;
    if (pipes_.size() >= kMaxOpenPipes) {  // of channels long destroyed, most likely
      for (const auto& [inode, pipe] : pipes_) close(pipe.fd);
      pipes_.clear();
    }
    if (fstat(fd, &st) != 0 || !S_ISFIFO(st.st_mode) || st.st_ino != ref.inode) {
      close(fd);
      return false;
    }
    found = pipes_.emplace(ref.inode, OpenPipe{token, ref, fd}).first;
  }
  for (;;) {
    const ssize_t n = ::write(found->second.fd, bytes, length);  // <= PIPE_BUF: whole or not at all
    if (n == static_cast<ssize_t>(length)) return true;
    if (n < 0 && errno == EINTR) continue;
    return false;
  }
}

void Fabric::forget_pipes(Token token) noexcept {
  const std::lock_guard lock(pipes_mutex_);
  std::erase_if(pipes_, [&](const auto& entry) {
    if (entry.second.token != token) return false;
    close(entry.second.fd);
    return true;
  });
}

void Fabric::wake(Token token) noexcept {
  const std::uint32_t slot = slot_of(token);
  if (slot >= kMaxProcesses) return;
  if (token == me_) {
    [[maybe_unused]] const ssize_t n = ::write(wake_write_, "w", 1);
    return;
  }
  const PipeRef ref = process(slot).wake;
  if (process(slot).token.load(std::memory_order_acquire) == token) write_pipe(token, ref, "w", 1);
}

void Fabric::wake_all() noexcept {
  const std::uint32_t high = std::min(header().process_high.load(), kMaxProcesses);
  for (std::uint32_t slot = 0; slot < high; ++slot) {
    const Token token = process(slot).token.load(std::memory_order_acquire);
    if (token != 0) wake(token);
  }
}

}  // namespace turnout::hca
