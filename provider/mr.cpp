// SPDX-License-Identifier: BSD-3-Clause
// Memory that peers may read or write: libfabric's fid_mr, and the registration calls of a domain.
//
// A region is registered with the domain, so its key is valid at every endpoint of it. One without
// remote access costs nothing: the core registers local buffers when they are used. Source:
// fi_mr(3).
#include <rdma/fi_domain.h>

#include <cstdint>
#include <limits>
#include <memory>

#include "base/log.h"
#include "core/types/memory_domain.h"
#include "provider/endpoint.h"
#include "provider/errors.h"
#include "provider/ops.h"

namespace turnout::provider {
namespace {

struct Region final : ObjectOfDomain<Region, fid_mr> {
  using ObjectOfDomain::ObjectOfDomain;

  MemoryDomain* registered_with = nullptr;  // null: local access only
  MemoryKey memory;
  Cntr* writes = nullptr;  // of peers' operations
  Cntr* reads = nullptr;

  [[nodiscard]] int bind(Cntr& counter, std::uint64_t flags);
  void unbind(Cntr*& counter) noexcept;
};

constexpr std::uint64_t kLocalAccess = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
constexpr std::uint64_t kRemoteAccess = FI_REMOTE_READ | FI_REMOTE_WRITE;

int close_region(fid* f) {
  return contain([&] {
    const std::unique_ptr<Region> region(&Region::of(f));
    const Guard guard(region->domain.lock);
    region->unbind(region->writes);
    region->unbind(region->reads);
    if (region->registered_with != nullptr) {
      region->registered_with->deregister_memory(region->memory);
    }
    return 0;
  });
}

void Region::unbind(Cntr*& counter) noexcept {
  if (counter != nullptr) --counter->regions;
  counter = nullptr;
}

int Region::bind(Cntr& counter, std::uint64_t flags) {
  if (flags == 0 || (flags & ~kRemoteAccess) != 0) return -FI_EBADFLAGS;
  if (&counter.domain != &domain) return -FI_EDOMAIN;
  if (!domain.remote_events) return -FI_ENOSYS;  // its endpoints learn nothing of peers' operations
  const auto count_in = [&](Cntr*& place) {
    unbind(place);
    place = &counter;
    ++counter.regions;
  };
  if ((flags & FI_REMOTE_WRITE) != 0) count_in(writes);
  if ((flags & FI_REMOTE_READ) != 0) count_in(reads);
  if (registered_with != nullptr) {
    const auto counter_of = [](Cntr* of) { return of != nullptr ? &of->counter : nullptr; };
    registered_with->count_accesses(memory, counter_of(writes), counter_of(reads));
  }
  return 0;
}

// To an endpoint programs bind regions where keys belong to endpoints (FI_MR_ENDPOINT). Ours are
// valid at all of them.
int bind_region(fid* f, fid* other, std::uint64_t flags) {
  Region& region = Region::of(f);
  if (other->fclass == FI_CLASS_CNTR) {
    const Guard guard(region.domain.lock);
    return region.bind(Cntr::of(other), flags);
  }
  if (other->fclass != FI_CLASS_EP) return -FI_ENOSYS;
  return &Ep::of(other).domain == &region.domain ? 0 : -FI_EDOMAIN;
}

int control_region(fid*, int command, void*) {
  return command == FI_ENABLE ? 0 : -FI_ENOSYS;  // regions are ready as they are made
}

fi_ops region_fid_ops = object_ops(close_region, bind_region, control_region);

int check(const fi_mr_attr& wanted, std::uint64_t flags) {
  if (wanted.mr_iov == nullptr || wanted.iov_count != 1) return -FI_EINVAL;  // mr_iov_limit is 1
  if (wanted.offset != 0) return -FI_EINVAL;
  // A region may be bound to counters whether or not that was said before (FI_MR_RMA_EVENT).
  if ((flags & ~FI_RMA_EVENT) != 0) return -FI_EBADFLAGS;
  if ((wanted.access & ~(kLocalAccess | kRemoteAccess)) != 0) return -FI_EINVAL;
  const auto start = reinterpret_cast<std::uintptr_t>(wanted.mr_iov->iov_base);
  if (wanted.mr_iov->iov_len == std::numeric_limits<std::size_t>::max()) {
    TURNOUT_LOG(provider, info,
                "fi_mr_reg failed: the whole address space: not supported on this device; register "
                "the regions that peers access");
    return -FI_EOPNOTSUPP;
  }
  if (start + wanted.mr_iov->iov_len < start) return -FI_EINVAL;
  return 0;
}

int open_region(fid* f, const fi_mr_attr& wanted, std::uint64_t flags, fid_mr** mr) {
  if (f->fclass != FI_CLASS_DOMAIN) return -FI_EINVAL;
  if (const int error = check(wanted, flags)) return error;
  return contain([&] {
    Domain& domain = Domain::of(f);
    const Guard guard(domain.lock);
    auto made = std::make_unique<Region>(domain);
    made->fid = {FI_CLASS_MR, wanted.context, &region_fid_ops};
    made->mem_desc = made.get();
    made->key = FI_KEY_NOTAVAIL;
    unsigned access = kAccessLocal;
    if ((wanted.access & FI_REMOTE_READ) != 0) access |= kAccessRemoteRead;
    if ((wanted.access & FI_REMOTE_WRITE) != 0) access |= kAccessRemoteWrite;
    if (access != kAccessLocal) {
      const auto memory = domain.memory();
      if (!memory.ok()) return -fi_error(memory.status());
      const auto key =
          memory.value()->register_memory(wanted.mr_iov->iov_base, wanted.mr_iov->iov_len, access);
      if (!key.ok()) return -fi_error(key.status());
      made->registered_with = memory.value().get();
      made->memory = key.value();
      made->key = made->memory.remote;
    }
    *mr = made.release();
    return 0;
  });
}

int regv(fid* f, const iovec* memory, std::size_t count, std::uint64_t access, std::uint64_t offset,
         std::uint64_t /*requested_key*/, std::uint64_t flags, fid_mr** mr, void* context) {
  fi_mr_attr wanted{};
  wanted.mr_iov = memory;
  wanted.iov_count = count;
  wanted.access = access;
  wanted.offset = offset;
  wanted.context = context;
  return open_region(f, wanted, flags, mr);
}

int reg(fid* f, const void* buffer, std::size_t length, std::uint64_t access, std::uint64_t offset,
        std::uint64_t requested_key, std::uint64_t flags, fid_mr** mr, void* context) {
  const iovec memory{const_cast<void*>(buffer), length};
  return regv(f, &memory, 1, access, offset, requested_key, flags, mr, context);
}

int regattr(fid* f, const fi_mr_attr* attr, std::uint64_t flags, fid_mr** mr) {
  return attr == nullptr ? -FI_EINVAL : open_region(f, *attr, flags, mr);
}

}  // namespace

fi_ops_mr& region_ops() noexcept {
  static fi_ops_mr ops = {
      .size = sizeof(fi_ops_mr),
      .reg = reg,
      .regv = regv,
      .regattr = regattr,
  };
  return ops;
}

}  // namespace turnout::provider
