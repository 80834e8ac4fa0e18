// SPDX-License-Identifier: BSD-3-Clause
// LiveRegions: memory regions: registration of memory and of files, their change, and their end.
//
// A region is its program's until remove(). Sizes are bytes. Errors: null and errno, or an errno
// value. Any thread.
#pragma once

#include <optional>

#include "hca/device/object_verbs.h"
#include "hca/live/hazards.h"
#include "hca/live/memory.h"
#include "hca/live/shared_pages.h"

namespace turnout::hca {

class LiveRegions : LiveParts {
 public:
  explicit LiveRegions(const LiveParts& parts) : LiveParts(parts) {}

  // tag: the low byte of its keys; none: another one than it had.
  [[nodiscard]] Mr* add(Pd& pd, void* address, std::uint64_t length, std::uint64_t iova,
                        unsigned access, std::optional<std::uint8_t> tag = {});
  [[nodiscard]] Mr* add_file(Pd& pd, std::uint64_t offset, std::uint64_t length, std::uint64_t iova,
                             int fd, unsigned access);
  // All addresses, as a local key only: reads give zeros, writes leave no trace.
  [[nodiscard]] Mr* add_null(Pd& pd);
  [[nodiscard]] Mr* import(Pd& pd, std::uint32_t handle);
  [[nodiscard]] int remove(Mr& mr);
  // The keys stay.
  [[nodiscard]] int change(Mr& mr, const Reregistration& change);
  [[nodiscard]] int prefetch(Pd& pd, const ibv_sge& part, bool write, bool faults);

 private:
  // What a region's record says of where its bytes are.
  struct Backing {
    MrKind kind = MrKind::process;
    std::uint64_t location = 0;
    std::uint32_t device = 0;
    std::uint64_t inode = 0;
    int fd = -1;
  };
  // Of `pages`, which it takes over, or of ordinary memory if there are none.
  [[nodiscard]] Backing back(const void* address, const SharedPages& pages);
  static void set_backing(MrRecord& record, const Backing& backing) noexcept;
  // Takes the backing's descriptor over. address: null of a file that was registered as one.
  [[nodiscard]] Mr* publish(Pd& pd, void* address, std::uint64_t length, std::uint64_t iova,
                            unsigned access, const Backing& backing,
                            std::optional<std::uint8_t> tag = {});

  SharedFiles files_;
};

}  // namespace turnout::hca
