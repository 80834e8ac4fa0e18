// Device memory: bytes that an adapter has on its chip. Here a memfd, which peers map when they
// reach a region of it.
//
// Source: ibv_alloc_dm(3); offsets and lengths of copies are multiples of 4 bytes, as mlx5 demands.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "hca/abi/verbs.h"
#include "hca/device/failed.h"
#include "hca/device/identity.h"
#include "hca/device/rules.h"
#include "hca/live/memory.h"

using namespace turnout::hca;

namespace {

constexpr std::uint64_t kUnit = 4;

struct Dm {
  ibv_dm verbs;
  int fd;
  std::uint8_t* bytes;
  std::uint64_t length;
};
Dm& of(ibv_dm* dm) {
  return *reinterpret_cast<Dm*>(dm);
}

std::atomic<std::uint64_t> given{0};  // bytes, of all contexts of this process

bool may_copy(const Dm& dm, std::uint64_t offset, std::size_t length) {
  return offset % kUnit == 0 && length % kUnit == 0 && covers(0, dm.length, offset, length);
}

int copy_to(ibv_dm* verbs, std::uint64_t offset, const void* from, std::size_t length) {
  Dm& dm = of(verbs);
  if (!may_copy(dm, offset, length)) return EINVAL;
  copy_in_order(dm.bytes + offset, static_cast<const std::uint8_t*>(from), length);
  return 0;
}

int copy_from(void* to, ibv_dm* verbs, std::uint64_t offset, std::size_t length) {
  const Dm& dm = of(verbs);
  if (!may_copy(dm, offset, length)) return EINVAL;
  std::memcpy(to, dm.bytes + offset, length);
  return 0;
}

}  // namespace

namespace turnout::hca {

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr) {
  const std::uint64_t limit = identity().device_memory;
  if (limit == 0) return failed<ibv_dm>(EOPNOTSUPP);
  if (attr->comp_mask != 0 || attr->length == 0) return failed<ibv_dm>(EINVAL);
  const std::uint64_t length = attr->length;
  std::uint64_t before = given.load();
  do {
    if (length > limit || before > limit - length) return failed<ibv_dm>(ENOMEM);
  } while (!given.compare_exchange_weak(before, before + length));
  const int fd = memfd_create("turnout-dm", MFD_CLOEXEC);
  void* bytes = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, static_cast<off_t>(length)) == 0) {
    bytes = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (bytes == MAP_FAILED) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    given -= length;
    return failed<ibv_dm>(error);
  }
  auto dm = std::make_unique<Dm>();
  dm->verbs.context = context;
  dm->verbs.memcpy_to_dm = copy_to;
  dm->verbs.memcpy_from_dm = copy_from;
  dm->verbs.handle = static_cast<std::uint32_t>(fd);
  dm->fd = fd;
  dm->bytes = static_cast<std::uint8_t*>(bytes);
  dm->length = length;
  ++context_of(context).users;
  return &dm.release()->verbs;
}

// Regions of it keep their own descriptor, and a peer its mapping: memory goes with the last.
int free_dm(ibv_dm* verbs) {
  Dm& dm = of(verbs);
  munmap(dm.bytes, dm.length);
  ::close(dm.fd);
  given -= dm.length;
  --context_of(verbs->context).users;
  delete &dm;
  return 0;
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* verbs, std::uint64_t offset, std::size_t length,
                  unsigned access) {
  const Dm& dm = of(verbs);
  // mlx5 has no address for it: keys of it count from zero.
  if ((access & IBV_ACCESS_ZERO_BASED) == 0 || !covers(0, dm.length, offset, length)) {
    return failed<ibv_mr>(EINVAL);
  }
  Mr* mr = context_of(pd->context)
               .engine->register_file(*reinterpret_cast<Pd*>(pd), offset, length, 0, dm.fd, access);
  return mr != nullptr ? &mr->verbs : nullptr;
}

}  // namespace turnout::hca
