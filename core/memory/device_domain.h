// SPDX-License-Identifier: BSD-3-Clause
// DeviceDomain: the MemoryDomain of a verbs device: context, protection domain, the regions that
// peers may access, and the asynchronous events of the device, shared by its endpoints.
//
// Endpoints keep it alive; objects created from the device must be destroyed first. One thread at a
// time, as in memory_domain.h.
#pragma once

#include <unordered_map>
#include <vector>

#include "core/types/memory_domain.h"
#include "core/verbs/device.h"

namespace turnout {

class DeviceDomain final : public MemoryDomain {
 public:
  explicit DeviceDomain(std::unique_ptr<verbs::Device> device) noexcept
      : device_(std::move(device)) {}

  [[nodiscard]] Result<MemoryKey> register_memory(void* address, std::size_t length,
                                                  unsigned access) override;
  void deregister_memory(const MemoryKey& key) override {
    const auto found = regions_.find(key.remote);
    if (found != regions_.end() && found->second.handle == key.handle) regions_.erase(found);
  }
  void count_accesses(const MemoryKey& key, Counter* writes, Counter* reads) override {
    const auto found = regions_.find(key.remote);
    if (found == regions_.end() || found->second.handle != key.handle) return;
    found->second.writes = writes;
    found->second.reads = reads;
  }
  // A peer has written to this region, or read from it.
  void count_access(std::uint64_t key, bool write) const noexcept {
    const auto found = regions_.find(key);
    if (found == regions_.end()) return;  // deregistered meanwhile
    // A peer says so of what its key does not let it do.
    if ((found->second.access & (write ? kAccessRemoteWrite : kAccessRemoteRead)) == 0) return;
    Counter* const counter = write ? found->second.writes : found->second.reads;
    if (counter != nullptr) counter->value.fetch_add(1, std::memory_order_release);
  }
  // Whether peers may touch these bytes with this key in these ways (Access).
  [[nodiscard]] bool allows(std::uint64_t key, std::uint64_t address, std::size_t length,
                            unsigned access) const noexcept {
    const auto found = regions_.find(key);
    if (found == regions_.end() || (found->second.access & access) != access) return false;
    const ibv_mr& region = *found->second.region;
    const auto begin = reinterpret_cast<std::uint64_t>(region.addr);
    return address >= begin && address - begin <= region.length &&
           length <= region.length - (address - begin);
  }

  [[nodiscard]] verbs::Device& device() const noexcept { return *device_; }
  // Has this shared receive queue fewer receives than its limit, as an event said that has come
  // since the last call? Reads all events there are; those of other queues are kept for their
  // owners. A system call, where the device is none of ours.
  [[nodiscard]] bool take_limit_event(const ibv_srq* queue);
  // The queue goes.
  void forget_queue(const ibv_srq* queue) noexcept { std::erase(low_, queue); }

 private:
  struct Region {
    verbs::Mr region;
    std::uint64_t handle = 0;
    unsigned access = kAccessLocal;
    Counter* writes = nullptr;
    Counter* reads = nullptr;
  };
  std::unique_ptr<verbs::Device> device_;              // before the regions on it
  std::unordered_map<std::uint64_t, Region> regions_;  // by MemoryKey::remote
  std::uint64_t next_handle_ = 1;
  std::vector<const ibv_srq*> low_;  // whose event came and was not asked for yet
};

}  // namespace turnout
