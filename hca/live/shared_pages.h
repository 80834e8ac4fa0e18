// SPDX-License-Identifier: BSD-3-Clause
// Finds the pages of a file behind a part of this process's address space: memory that a program
// mapped with MAP_SHARED (a memfd, POSIX and System V shared memory, a file) and registers by
// address. Peers map such pages and access them without the kernel.
//
// Sources: proc_pid_maps(5), proc_pid_pagemap(5), proc_pid_map_files(5). Any thread; system calls,
// and no allocation that outlives the call.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "base/file_descriptor.h"

namespace turnout::hca {

struct SharedPages {
  int fd = -1;               // the caller's to close, opened for reading and writing; -1: none
  std::uint64_t offset = 0;  // in the file, bytes
};

// Where [address, address + length), length > 0, lies as a whole in writable shared mappings of one
// file, one after the other, that can be opened. None: ordinary memory, or a file that has no name
// any more and no descriptor in this process (System V's and anonymous shared memory, except with
// the right to open /proc/self/map_files).
[[nodiscard]] SharedPages find_shared_pages(const void* address, std::uint64_t length) noexcept;

// The descriptors of the files that a process's regions lie in, one for each file.
class SharedFiles {
 public:
  // Takes `fd` over; the result is open until release() was called for it as often. st: of fd.
  [[nodiscard]] int keep(int fd, const struct stat& st);
  void release(int fd) noexcept;

 private:
  struct File {
    Descriptor fd;
    dev_t device;
    ino_t inode;
    std::uint32_t users;
  };
  std::mutex mutex_;
  std::vector<File> files_;
};

}  // namespace turnout::hca
