// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/regions.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "base/log.h"
#include "hca/device/common_objects.h"
#include "hca/device/rules.h"
#include "hca/live/fork_guard.h"

namespace turnout::hca {
namespace {

bool valid_range(const void* address, std::uint64_t length) noexcept {
  return length <= kMaxMrBytes && length <= UINT64_MAX - reinterpret_cast<std::uint64_t>(address);
}

// It has no memory of its own: a null region, or an indirect key.
bool has_no_memory(const MrRecord& record) noexcept {
  return static_cast<MrKind>(record.kind) >= MrKind::null;
}

}  // namespace

LiveRegions::Backing LiveRegions::back(const void* address, const SharedPages& pages) {
  struct stat st {};
  if (pages.fd < 0 || fstat(pages.fd, &st) != 0) {
    if (pages.fd >= 0) ::close(pages.fd);
    return {MrKind::process, reinterpret_cast<std::uint64_t>(address), 0, 0, -1};
  }
  return {MrKind::shared, pages.offset, fold(st.st_dev), st.st_ino, files_.keep(pages.fd, st)};
}

void LiveRegions::set_backing(MrRecord& record, const Backing& backing) noexcept {
  record.kind = static_cast<std::uint32_t>(backing.kind) & 0xf;
  record.address = backing.location;
  record.device = backing.device;
  record.inode = backing.inode;
  record.fd = backing.fd;
  record.mapped.store(0, std::memory_order_relaxed);
}

Mr* LiveRegions::publish(Pd& pd, void* address, std::uint64_t length, std::uint64_t iova,
                         unsigned access, const Backing& backing, std::optional<std::uint8_t> tag) {
  auto mr = std::make_unique<Mr>();
  std::uint32_t key = 0;
  {
    const TableGuard guard(fabric);
    const std::uint32_t index = memory.reserve_record();
    if (index == kNone) {
      files_.release(backing.fd);
      return failed(ENOMEM);
    }
    MrRecord& r = fabric.mr(index);
    r.window = static_cast<std::uint32_t>(WindowKind::none);
    r.generation = tag ? *tag : (r.generation + 1) & 0xff;
    r.pd = pd.number;
    r.access = access & 0xffff;
    r.iova = iova;
    r.length = length;
    set_backing(r, backing);
    r.registration.fetch_add(1, std::memory_order_relaxed);
    key = index << 8 | r.generation;
    if (backing.kind == MrKind::process || address != nullptr) {
      memory.own(key, {reinterpret_cast<std::uint64_t>(address), iova, length, access});
    }
    r.key.store(key, std::memory_order_release);
    begin_region(*mr, pd, address, length, index, key);
  }
  mr->fd = backing.fd;
  return mr.release();
}

Mr* LiveRegions::add(Pd& pd, void* address, std::uint64_t length, std::uint64_t iova,
                     unsigned access, std::optional<std::uint8_t> tag) {
  if (const int error = refuse_child(pd.verbs.context); error != 0) return failed(error);
  // All of the address space, whatever will be mapped in it: implicit on-demand paging.
  const bool implicit =
      (access & IBV_ACCESS_ON_DEMAND) != 0 && address == nullptr && length == SIZE_MAX;
  if (!valid_access(access) || (!valid_range(address, length) && !implicit)) return failed(EINVAL);
  // With on-demand paging it is the addresses that are registered, whatever they show later.
  const bool on_demand = (access & IBV_ACCESS_ON_DEMAND) != 0;
  return publish(pd, address, length, iova, access,
                 back(address, on_demand ? SharedPages{} : find_shared_pages(address, length)),
                 tag);
}

Mr* LiveRegions::add_file(Pd& pd, std::uint64_t offset, std::uint64_t length, std::uint64_t iova,
                          int fd, unsigned access) {
  if (const int error = refuse_child(pd.verbs.context); error != 0) return failed(error);
  struct stat st {};
  if (!valid_access(access) || length > kMaxMrBytes) return failed(EINVAL);
  if (fstat(fd, &st) != 0) return failed(errno);
  if (!S_ISREG(st.st_mode) || !covers(0, static_cast<std::uint64_t>(st.st_size), offset, length)) {
    TURNOUT_LOG(
        hca, warn,
        "registering memory failed: the file is too short or cannot be mapped; use a memfd");
    return failed(EINVAL);
  }
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return failed(errno);
  return publish(pd, nullptr, length, iova, access, back(nullptr, {own, offset}));
}

Mr* LiveRegions::add_null(Pd& pd) {
  if (const int error = refuse_child(pd.verbs.context); error != 0) return failed(error);
  if (!memory.make_zeros()) return failed(ENOMEM);
  Backing nothing;
  nothing.kind = MrKind::null;
  Mr* const mr = publish(pd, nullptr, SIZE_MAX, 0, IBV_ACCESS_LOCAL_WRITE, nothing);
  if (mr != nullptr) mr->verbs.rkey = 0;
  return mr;
}

Mr* LiveRegions::import(Pd& pd, std::uint32_t handle) {
  if (const int error = refuse_child(pd.verbs.context); error != 0) return failed(error);
  if (handle == 0 || handle >= kMaxMrs) return failed(EINVAL);
  const MrRecord& r = fabric.mr(handle);
  const std::uint32_t key = r.key.load(std::memory_order_acquire);
  if (key == 0 || r.window != 0 || has_no_memory(r) || r.pd != pd.number) return failed(EINVAL);
  auto mr = std::make_unique<Mr>();
  begin_region(*mr, pd, nullptr, r.length, handle, key);  // its address means nothing elsewhere
  mr->fd = -1;
  mr->imported = true;
  return mr.release();
}

int LiveRegions::remove(Mr& mr) {
  if (const int error = refuse_child(mr.verbs.context); error != 0) return error;
  if (mr.imported) {
    --pd_of(mr.verbs.pd).users;
    delete &mr;
    return 0;
  }
  MrRecord& r = fabric.mr(mr.index);
  if ((r.access & IBV_ACCESS_MW_BIND) != 0 && memory.has_windows(mr.index)) return EBUSY;
  r.key.store(0, std::memory_order_seq_cst);
  hazards.wait_unused(mr.verbs.lkey, 0);
  memory.disown(mr.index);
  const bool mapped = r.mapped.load(std::memory_order_relaxed) != 0;
  r.owner.store(0, std::memory_order_release);
  files_.release(mr.fd);
  if (mapped) fabric.wake_all();  // so that the peers unmap it
  --pd_of(mr.verbs.pd).users;
  delete &mr;
  return 0;
}

int LiveRegions::change(Mr& mr, const Reregistration& change) {
  if (const int error = refuse_child(mr.verbs.context); error != 0) return error;
  MrRecord& r = fabric.mr(mr.index);
  if (has_no_memory(r)) return EINVAL;
  // A file registered as one has no address that could be another one. Nor has another process's.
  const bool addressed = mr.imported ? static_cast<MrKind>(r.kind) == MrKind::process
                                     : mr.verbs.addr != nullptr || mr.fd < 0;
  if (change.moves && !addressed) return EOPNOTSUPP;
  if ((change.changes_access && !valid_access(change.access)) ||
      (change.moves && !valid_range(change.address, change.length))) {
    return EINVAL;
  }
  Backing backing;
  if (change.moves) {
    backing = back(change.address,
                   mr.imported ? SharedPages{} : find_shared_pages(change.address, change.length));
  }
  r.key.store(0, std::memory_order_seq_cst);
  hazards.wait_unused(mr.verbs.rkey, 0);
  r.registration.fetch_add(1, std::memory_order_relaxed);
  if (change.pd != nullptr) {
    r.pd = change.pd->number;
    --pd_of(mr.verbs.pd).users;
    ++change.pd->users;
    mr.verbs.pd = &change.pd->verbs;
  }
  if (change.changes_access) r.access = change.access & 0xffff;
  if (change.moves) {
    const bool mapped = r.mapped.load(std::memory_order_relaxed) != 0;
    r.iova = reinterpret_cast<std::uint64_t>(change.address);
    r.length = change.length;
    set_backing(r, backing);
    files_.release(std::exchange(mr.fd, backing.fd));
    if (mapped) fabric.wake_all();
    mr.verbs.addr = change.address;
    mr.verbs.length = change.length;
  }
  if (addressed && r.owner.load(std::memory_order_relaxed) == fabric.me()) {
    Memory::Own where = memory.owned(mr.index);
    if (change.moves) {
      where.direct = where.iova = reinterpret_cast<std::uint64_t>(change.address);
      where.length = change.length;
    }
    if (change.changes_access) where.access = change.access;
    memory.own(mr.verbs.rkey, where);
  }
  r.key.store(mr.verbs.rkey, std::memory_order_release);
  return 0;
}

int LiveRegions::prefetch(Pd& pd, const ibv_sge& part, bool write, bool faults) {
  Place place;
  const unsigned rights = write ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0U;
  switch (memory.find(part.lkey, pd.number, part.addr, part.length, rights, place)) {
    case Access::ok:
      break;
    case Access::denied:
      return EPERM;
    case Access::bad_bounds:
      return EFAULT;
    default:
      return EINVAL;
  }
  const MrRecord& r = fabric.mr(part.lkey >> 8);
  if (has_no_memory(r) || r.owner.load(std::memory_order_relaxed) != fabric.me()) return EINVAL;
  if (!faults || part.length == 0) return 0;
  const auto start = reinterpret_cast<std::uintptr_t>(place.direct) / kPage * kPage;
  const auto end = reinterpret_cast<std::uintptr_t>(place.direct) + part.length;
  // A hint: kernels before 5.14 know no MADV_POPULATE, and then pages come when they are touched.
  const int advice = write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  if (madvise(reinterpret_cast<void*>(start), end - start, advice) != 0 && errno == ENOMEM) {
    return EFAULT;  // not mapped
  }
  return 0;
}

}  // namespace turnout::hca
