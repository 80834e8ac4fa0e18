// SPDX-License-Identifier: BSD-3-Clause
// The verbs of device memory (hca/device/device_memory.h).
//
// Source: ibv_alloc_dm(3); offsets and lengths of copies are multiples of 4 bytes, as mlx5 demands.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/file_descriptor.h"
#include "hca/abi/verbs.h"
#include "hca/device/copy_in_order.h"
#include "hca/device/device_memory.h"
#include "hca/device/rules.h"

using namespace turnout::hca;

namespace {

constexpr std::uint64_t kUnit = 4;

struct Dm {
  ibv_dm verbs;
  turnout::Descriptor fd;
  std::uint8_t* bytes;
  std::uint64_t length;
  bool imported;
};
Dm& of(ibv_dm* dm) {
  return *reinterpret_cast<Dm*>(dm);
}

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

// Null and errno.
Dm* map(ibv_context* context, turnout::Descriptor fd, std::uint64_t length) {
  void* bytes = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (bytes == MAP_FAILED) return nullptr;
  auto dm = std::make_unique<Dm>();
  dm->verbs.context = context;
  dm->verbs.memcpy_to_dm = copy_to;
  dm->verbs.memcpy_from_dm = copy_from;
  dm->verbs.handle = static_cast<std::uint32_t>(fd.get());
  dm->fd = std::move(fd);
  dm->bytes = static_cast<std::uint8_t*>(bytes);
  dm->length = length;
  ++context_of(context).users;
  return dm.release();
}

}  // namespace

namespace turnout::hca {

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attr) {
  if (attr->comp_mask != 0 || attr->length == 0) return failed(EINVAL);
  Descriptor fd = take_device_memory(attr->length);
  if (!fd) return nullptr;
  Dm* const dm = map(context, std::move(fd), attr->length);
  if (dm == nullptr) give_back_device_memory(attr->length);
  return verbs_of(dm);
}

// Regions of it keep their own descriptor, and a peer its mapping: memory goes with the last.
int free_dm(ibv_dm* verbs) {
  Dm& dm = of(verbs);
  if (!dm.imported) give_back_device_memory(dm.length);
  munmap(dm.bytes, dm.length);
  --context_of(verbs->context).users;
  delete &dm;
  return 0;
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* verbs, std::uint64_t offset, std::size_t length,
                  unsigned access) {
  const Dm& dm = of(verbs);
  // mlx5 has no address for it: keys of it count from zero.
  if ((access & IBV_ACCESS_ZERO_BASED) == 0 || !covers(0, dm.length, offset, length)) {
    return failed(EINVAL);
  }
  return verbs_of(objects_of(pd).register_file(pd_of(pd), offset, length, 0, dm.fd.get(), access));
}

}  // namespace turnout::hca

// The handle is a descriptor of the process that opened the device.
TURNOUT_EXPORT ibv_dm* ibv_import_dm(ibv_context* context, std::uint32_t handle) {
  const std::string path = fmt::format("/proc/{}/fd/{}", context_of(context).exporter, handle);
  char target[64] = {};
  const ssize_t n = readlink(path.c_str(), target, sizeof target - 1);
  if (n <= 0 || !std::string_view(target).starts_with(std::string("/memfd:") + kDeviceMemoryName)) {
    return failed(EINVAL);
  }
  turnout::Descriptor fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat st {};
  if (!fd || fstat(fd.get(), &st) != 0 || st.st_size <= 0) return nullptr;
  Dm* dm = map(context, std::move(fd), static_cast<std::uint64_t>(st.st_size));
  if (dm == nullptr) return nullptr;
  dm->imported = true;
  return &dm->verbs;
}

TURNOUT_EXPORT void ibv_unimport_dm(ibv_dm* dm) {
  free_dm(dm);
}
