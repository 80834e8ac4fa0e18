// SPDX-License-Identifier: BSD-3-Clause
// LocalObjects: the verbs objects of this process on one fabric, by the index of their records.
//
// Owns the tables, not the objects. The maps are guarded by `mutex`; `qps` is read without a lock
// by whoever keeps the queue pair from ending. Any thread.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cassert>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "base/status.h"
#include "hca/device/objects.h"

namespace turnout::hca {

struct LocalObjects {
  ~LocalObjects() {
    if (qps != nullptr) munmap(qps, kMaxQps * sizeof *qps);
  }
  // Before anything else. Errors: system (no address space).
  Status start() {
    assert(qps == nullptr);
    void* p = mmap(nullptr, kMaxQps * sizeof *qps, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
      return Status(Code::system, "allocating the queue pair table failed", errno);
    }
    qps = static_cast<std::atomic<Qp*>*>(p);
    return {};
  }

  std::atomic<Qp*>* qps = nullptr;  // kMaxQps

  std::mutex mutex;
  std::unordered_map<std::uint32_t, Cq*> cqs;
  std::unordered_map<std::uint32_t, Srq*> srqs;
  std::unordered_map<std::uint32_t, Qp*> targets;  // by handle
};

}  // namespace turnout::hca
