// SPDX-License-Identifier: BSD-3-Clause
// MemoryDomain: an open adapter and the memory that peers may read and write through it (UCX's
// memory domain, libfabric's fi_domain(3), a verbs protection domain).
//
// Endpoints of a domain share it: a region's key is valid at each of them. The creator and the
// endpoints own it jointly. Regions end with deregister_memory(), at the latest with the domain;
// the memory belongs to the caller. One thread at a time may use a domain and its endpoints; the
// caller locks if necessary. Lengths are bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/settings.h"
#include "base/status.h"
#include "core/types/completion.h"

namespace turnout {

struct MemoryKey {
  std::uint64_t handle = 0;  // for deregister_memory
  std::uint64_t remote = 0;  // rkey the peers use
};

enum Access : unsigned { kAccessLocal = 0, kAccessRemoteRead = 1, kAccessRemoteWrite = 2 };

class MemoryDomain {
 public:
  // Opens the device that the settings name. Errors: no_device, permission, system.
  [[nodiscard]] static Result<std::shared_ptr<MemoryDomain>> open(const Settings& settings);
  virtual ~MemoryDomain() = default;

  // Errors: system (ibv_reg_mr).
  [[nodiscard]] virtual Result<MemoryKey> register_memory(void* address, std::size_t length,
                                                          unsigned access) = 0;
  virtual void deregister_memory(const MemoryKey& key) = 0;
  // Where peers' operations on this region count from now on (RemoteAccess::events); null: nowhere.
  virtual void count_accesses(const MemoryKey& key, Counter* writes, Counter* reads) = 0;
};

}  // namespace turnout
