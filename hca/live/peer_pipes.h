// SPDX-License-Identifier: BSD-3-Clause
// PeerPipes: peers' file descriptors: memory to map and the write ends of their event pipes.
//
// /proc/PID/fd/N opens what the peer has open as N; pidfd_getfd duplicates it where that is
// refused. Either may race with the peer closing or reusing N, so the caller compares device and
// inode. Owns the pipes that it has opened. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "base/file_descriptor.h"
#include "hca/live/tables.h"

namespace turnout::hca {

class PeerPipes {
 public:
  explicit PeerPipes(const Tables& tables) : tables_(tables) {}

  // Opens file descriptor `fd` of this process; -1 and errno. flags as for open(2).
  [[nodiscard]] int open_fd(Token token, int fd, int flags) const noexcept;
  // Writes to a peer's (or our own) pipe; the opened end is kept. False: the pipe is gone or full.
  bool write(Token token, const PipeRef& pipe, const void* bytes, std::size_t length) noexcept;
  // Of a process that has ended.
  void forget(Token token) noexcept;

 private:
  struct OpenPipe {
    Token token;
    Descriptor fd;
  };
  const Tables& tables_;
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, OpenPipe> pipes_;  // by inode
};

}  // namespace turnout::hca
