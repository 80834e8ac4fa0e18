// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/local_objects.h"

#include <sys/mman.h>

#include <cassert>
#include <cerrno>

namespace turnout::hca {

Status LocalObjects::start() {
  assert(qps == nullptr);
  void* p = mmap(nullptr, kMaxQps * sizeof(std::atomic<Qp*>), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return Status(Code::system, "allocating the queue pair table failed", errno);
  qps = static_cast<std::atomic<Qp*>*>(p);
  return {};
}

LocalObjects::~LocalObjects() {
  if (qps != nullptr) munmap(qps, kMaxQps * sizeof(std::atomic<Qp*>));
}

}  // namespace turnout::hca
