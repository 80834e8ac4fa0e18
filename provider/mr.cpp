#include "provider/mr.h"

#include <cstdint>
#include <limits>
#include <memory>

#include "base/log.h"
#include "provider/endpoint.h"
#include "provider/errors.h"
#include "provider/ops.h"

namespace turnout::provider {
namespace {

struct Wanted {
  const iovec* memory;
  std::size_t count;
  std::uint64_t access;
  std::uint64_t offset;
  std::uint64_t flags;
  void* context;
};

constexpr std::uint64_t kLocalAccess = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
constexpr std::uint64_t kRemoteAccess = FI_REMOTE_READ | FI_REMOTE_WRITE;

int close_region(fid* f) {
  Region& region = Region::of(f);
  return contain([&] {
    {
      const Guard guard(region.domain.lock);
      region.leave(region.owner);
      std::erase(region.domain.regions, &region);
    }
    delete &region;
    return 0;
  });
}

// A program that binds a region to an endpoint (FI_MR_ENDPOINT) gets the key that is valid there.
int bind_region(fid* f, fid* other, std::uint64_t /*flags*/) {
  Region& region = Region::of(f);
  if (other->fclass != FI_CLASS_EP) return -FI_ENOSYS;
  Ep& endpoint = Ep::of(other);
  if (&endpoint.domain != &region.domain) return -FI_EDOMAIN;
  return contain([&] {
    const Guard guard(region.domain.lock);
    if (region.access == kAccessLocal || region.owner == endpoint.core.get()) return 0;
    region.leave(region.owner);
    return -fi_error(region.join(endpoint.core.get()));
  });
}

int control_region(fid*, int command, void*) {
  return command == FI_ENABLE ? 0 : -FI_ENOSYS;  // regions are ready as they are made
}

fi_ops region_fid_ops = {
    .size = sizeof(fi_ops),
    .close = close_region,
    .bind = bind_region,
    .control = control_region,
    .ops_open = kNotHere,
    .tostr = nullptr,
    .ops_set = kNotHere,
};

int check(const Wanted& wanted) {
  if (wanted.memory == nullptr || wanted.count != 1) return -FI_EINVAL;  // mr_iov_limit is 1
  if (wanted.offset != 0) return -FI_EINVAL;
  if (wanted.flags != 0)
    return -FI_EBADFLAGS;  // none of the capabilities they belong to is offered
  if ((wanted.access & ~(kLocalAccess | kRemoteAccess)) != 0) return -FI_EINVAL;
  const auto start = reinterpret_cast<std::uintptr_t>(wanted.memory->iov_base);
  if (wanted.memory->iov_len == std::numeric_limits<std::size_t>::max()) {
    TURNOUT_LOG(provider, info,
                "the whole address space cannot be registered on this device: register the "
                "regions that peers use");
    return -FI_EOPNOTSUPP;
  }
  if (start + wanted.memory->iov_len < start) return -FI_EINVAL;
  return 0;
}

int open_region(fid* f, const Wanted& wanted, fid_mr** mr) {
  if (f->fclass != FI_CLASS_DOMAIN) return -FI_EINVAL;
  if (const int error = check(wanted)) return error;
  return contain([&] {
    Domain& domain = Domain::of(f);
    const Guard guard(domain.lock);
    auto made = std::make_unique<Region>(domain);
    made->fid.fclass = FI_CLASS_MR;
    made->fid.context = wanted.context;
    made->fid.ops = &region_fid_ops;
    made->mem_desc = made.get();
    made->key = FI_KEY_NOTAVAIL;
    made->address = wanted.memory->iov_base;
    made->length = wanted.memory->iov_len;
    if ((wanted.access & FI_REMOTE_READ) != 0) made->access |= kAccessRemoteRead;
    if ((wanted.access & FI_REMOTE_WRITE) != 0) made->access |= kAccessRemoteWrite;
    if (made->access != kAccessLocal) {
      const Result<Endpoint*> core = domain.core_of_regions();
      if (!core.ok()) return -fi_error(core.status());
      domain.regions.reserve(domain.regions.size() + 1);
      const Status status = made->join(core.value());
      if (!status.ok()) return -fi_error(status);
      domain.regions.push_back(made.get());
    }
    *mr = made.release();
    return 0;
  });
}

int reg(fid* f, const void* buffer, std::size_t length, std::uint64_t access, std::uint64_t offset,
        std::uint64_t /*requested_key*/, std::uint64_t flags, fid_mr** mr, void* context) {
  const iovec memory{const_cast<void*>(buffer), length};
  return open_region(f, {&memory, 1, access, offset, flags, context}, mr);
}

int regv(fid* f, const iovec* memory, std::size_t count, std::uint64_t access, std::uint64_t offset,
         std::uint64_t /*requested_key*/, std::uint64_t flags, fid_mr** mr, void* context) {
  return open_region(f, {memory, count, access, offset, flags, context}, mr);
}

int regattr(fid* f, const fi_mr_attr* attr, std::uint64_t flags, fid_mr** mr) {
  if (attr == nullptr) return -FI_EINVAL;
  return open_region(
      f, {attr->mr_iov, attr->iov_count, attr->access, attr->offset, flags, attr->context}, mr);
}

}  // namespace

Status Region::join(Endpoint* core) {
  Result<MemoryKey> registered = core->register_memory(address, length, access);
  if (!registered.ok()) {
    key = FI_KEY_NOTAVAIL;
    return registered.status();
  }
  owner = core;
  memory = registered.value();
  key = memory.remote;
  return {};
}

void Region::leave(Endpoint* core) {
  if (owner == nullptr || owner != core) return;
  owner->deregister_memory(memory);
  owner = nullptr;
  key = FI_KEY_NOTAVAIL;
}

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
