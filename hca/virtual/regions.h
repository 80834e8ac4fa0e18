// SPDX-License-Identifier: BSD-3-Clause
// Regions: the registered memory of a world, by key.
//
// A region is its program's until remove(). Sizes are bytes; registration takes the time that the
// profile says. Errors of add(): null and errno. One thread.
#pragma once

#include <cassert>
#include <cerrno>
#include <memory>

#include "hca/device/common_objects.h"
#include "hca/device/rules.h"
#include "hca/virtual/engine_parts.h"

namespace turnout::hca {

class Regions : EngineParts {
 public:
  explicit Regions(const EngineParts& parts) : EngineParts(parts) {}

  [[nodiscard]] Mr* add(Pd& pd, void* address, std::uint64_t length, std::uint64_t iova,
                        unsigned access) {
    if (!valid_access(access) || length > kMaxMrBytes) return failed(EINVAL);
    processes.charge(profile.setup_register + time_of(profile.setup_register_rate, length));
    if (kernel.chance(profile.fault_refuse)) return failed(ENOMEM);
    const std::uint32_t index = table_.reserve();
    if (index == 0) return failed(ENOMEM);
    Region& region = table_[index];
    ++region.generation;
    region.key = index << 8 | region.generation;
    region.owner = context_of(pd.verbs.context).process;
    region.pd = pd.number;
    region.access = access;
    region.iova = iova;
    region.length = length;
    region.address = reinterpret_cast<std::uint64_t>(address);
    ++kernel.statistics().regions_alive;
    auto mr = std::make_unique<Mr>();
    begin_region(*mr, pd, address, length, index, region.key);
    mr->fd = -1;
    return mr.release();
  }
  [[nodiscard]] int remove(Mr& mr) {
    processes.charge(profile.setup_deregister);
    assert(table_[mr.index].key == mr.verbs.rkey);
    table_[mr.index].key = 0;
    table_.release(mr.index);
    --kernel.statistics().regions_alive;
    --pd_of(mr.verbs.pd).users;
    delete &mr;
    return 0;
  }
  // The region that has these bytes and all of these rights, or null.
  [[nodiscard]] const Region* find(std::uint32_t key, std::uint64_t address, std::uint64_t length,
                                   unsigned rights) const noexcept {
    const std::uint32_t index = key >> 8;
    const Region* const entry = table_.entry(index);
    if (index == 0 || entry == nullptr) return nullptr;
    const Region& region = *entry;
    if (region.key != key || (region.access & rights) != rights ||
        !covers(region.iova, region.length, address, length)) {
      return nullptr;
    }
    return &region;
  }

 private:
  NumberTable<Region> table_{1, 256};  // by key >> 8; key 0 is none
};

}  // namespace turnout::hca
