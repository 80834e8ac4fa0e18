// SPDX-License-Identifier: BSD-3-Clause
// PinnedPages: as long as one is there, the virtual adapter treats shared mappings as a real
// adapter does: a region is of the pages that lay there when it was registered, whatever comes to
// lie at the addresses later. (Else it moves bytes by address and a stale registration would not be
// seen.)
//
// A second mapping of the same pages stands for the pin; private memory, which cannot be mapped
// twice, is registered as it is. One at a time, one thread, before the endpoints it concerns.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <cstdint>
#include <map>
#include <utility>

#include "core/verbs/library.h"

namespace turnout {

class PinnedPages {
 public:
  explicit PinnedPages(const Settings& settings) {
    EXPECT_TRUE(verbs::load(verbs::Library::virtual_adapter, settings).ok());
    auto& functions = const_cast<verbs::Functions&>(verbs::functions());
    register_ = std::exchange(functions.ibv_reg_mr_fn, &register_pinned);
    deregister_ = std::exchange(functions.ibv_dereg_mr_fn, &deregister_pinned);
  }
  ~PinnedPages() {
    auto& functions = const_cast<verbs::Functions&>(verbs::functions());
    functions.ibv_reg_mr_fn = register_;
    functions.ibv_dereg_mr_fn = deregister_;
    EXPECT_TRUE(pins_.empty());
  }
  PinnedPages(const PinnedPages&) = delete;
  PinnedPages& operator=(const PinnedPages&) = delete;
  [[nodiscard]] static std::uint64_t made() noexcept { return made_; }

 private:
  static constexpr std::uintptr_t kPage = 4096;
  struct Pin {
    void* address;
    std::size_t length;
  };
  static ibv_mr* register_pinned(ibv_pd* pd, void* address, std::size_t length, int access) {
    const auto begin = reinterpret_cast<std::uintptr_t>(address);
    const std::uintptr_t first = begin & ~(kPage - 1);
    const std::size_t pages = ((begin + length + kPage - 1) & ~(kPage - 1)) - first;
    void* const second = mremap(reinterpret_cast<void*>(first), 0, pages, MREMAP_MAYMOVE);
    if (second == MAP_FAILED) return register_(pd, address, length, access);
    ++made_;
    ibv_mr* const region = verbs::functions().ibv_reg_mr_iova2_fn(
        pd, static_cast<std::byte*>(second) + (begin - first), length, begin,
        static_cast<unsigned>(access));
    if (region == nullptr) {
      munmap(second, pages);
    } else {
      pins_[region] = {second, pages};
    }
    return region;
  }
  static int deregister_pinned(ibv_mr* region) {
    const auto pin = pins_.find(region);
    const int error = deregister_(region);
    if (pin != pins_.end()) {
      munmap(pin->second.address, pin->second.length);
      pins_.erase(pin);
    }
    return error;
  }
  static inline decltype(verbs::Functions::ibv_reg_mr_fn) register_ = nullptr;
  static inline decltype(verbs::Functions::ibv_dereg_mr_fn) deregister_ = nullptr;
  static inline std::map<ibv_mr*, Pin> pins_;
  static inline std::uint64_t made_ = 0;
};

}  // namespace turnout
