// SPDX-License-Identifier: BSD-3-Clause
#include "hca/mlx5/ioctl_commands.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>

#include "hca/device/device_memory.h"
#include "hca/device/identity.h"
#include "hca/device/rules.h"
#include "hca/mlx5/doorbells.h"

namespace turnout::hca {
namespace {

using Kind = IoctlCommand::Kind;
using Attribute = IoctlCommand::Attribute;

constexpr std::uint16_t kWord = 4, kLong = 8;

constexpr Attribute kQueryContext[] = {
    {UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, Kind::answer, kWord, false},
    {UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, Kind::answer, kLong, false},
    {MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, Kind::answer, kWord},
};
constexpr Attribute kAllocEventFile[] = {
    {UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, Kind::new_handle},
};
constexpr Attribute kQueryPort[] = {
    {MLX5_IB_ATTR_QUERY_PORT_PORT_NUM, Kind::value, kWord},
    {MLX5_IB_ATTR_QUERY_PORT, Kind::answer, kLong},
};
constexpr Attribute kQueryDomain[] = {
    {MLX5_IB_ATTR_QUERY_PD_HANDLE, Kind::handle},
    {MLX5_IB_ATTR_QUERY_PD_RESP_PDN, Kind::answer, kWord},
};
constexpr Attribute kQueryRegion[] = {
    {UVERBS_ATTR_QUERY_MR_HANDLE, Kind::handle},
    {UVERBS_ATTR_QUERY_MR_RESP_LKEY, Kind::answer, kWord},
    {UVERBS_ATTR_QUERY_MR_RESP_RKEY, Kind::answer, kWord},
    {UVERBS_ATTR_QUERY_MR_RESP_LENGTH, Kind::answer, kLong, false},
    {UVERBS_ATTR_QUERY_MR_RESP_IOVA, Kind::answer, kLong, false},
};
constexpr Attribute kAdvise[] = {
    {UVERBS_ATTR_ADVISE_MR_PD_HANDLE, Kind::handle},
    {UVERBS_ATTR_ADVISE_MR_ADVICE, Kind::value, kLong},
    {UVERBS_ATTR_ADVISE_MR_FLAGS, Kind::value, kWord},
    {UVERBS_ATTR_ADVISE_MR_SGE_LIST, Kind::list, sizeof(ib_uverbs_sge)},
};
constexpr Attribute kRegisterFile[] = {
    {UVERBS_ATTR_REG_DMABUF_MR_HANDLE, Kind::new_handle},
    {UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, Kind::handle},
    {UVERBS_ATTR_REG_DMABUF_MR_OFFSET, Kind::value, kLong},
    {UVERBS_ATTR_REG_DMABUF_MR_LENGTH, Kind::value, kLong},
    {UVERBS_ATTR_REG_DMABUF_MR_IOVA, Kind::value, kLong},
    {UVERBS_ATTR_REG_DMABUF_MR_FD, Kind::value, kWord},
    {UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, Kind::value, kWord},
    {UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, Kind::answer, kWord},
    {UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, Kind::answer, kWord},
};
constexpr Attribute kAllocMemory[] = {
    {UVERBS_ATTR_ALLOC_DM_HANDLE, Kind::new_handle},
    {UVERBS_ATTR_ALLOC_DM_LENGTH, Kind::value, kLong},
    {UVERBS_ATTR_ALLOC_DM_ALIGNMENT, Kind::value, kWord},
    {MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, Kind::answer, kLong},
    {MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, Kind::answer, 2, false},
    {MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE, Kind::value, kLong, false},
};
constexpr Attribute kFreeMemory[] = {
    {UVERBS_ATTR_FREE_DM_HANDLE, Kind::handle},
};
constexpr Attribute kQueryMemory[] = {
    {MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE, Kind::handle},
    {MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, Kind::answer, kLong},
    {MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, Kind::answer, 2},
    {MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, Kind::answer, kLong},
};
constexpr Attribute kRegisterMemory[] = {
    {UVERBS_ATTR_REG_DM_MR_HANDLE, Kind::new_handle},
    {UVERBS_ATTR_REG_DM_MR_OFFSET, Kind::value, kLong},
    {UVERBS_ATTR_REG_DM_MR_LENGTH, Kind::value, kLong},
    {UVERBS_ATTR_REG_DM_MR_PD_HANDLE, Kind::handle},
    {UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, Kind::value, kWord},
    {UVERBS_ATTR_REG_DM_MR_DM_HANDLE, Kind::handle},
    {UVERBS_ATTR_REG_DM_MR_RESP_LKEY, Kind::answer, kWord},
    {UVERBS_ATTR_REG_DM_MR_RESP_RKEY, Kind::answer, kWord},
};
constexpr Attribute kAllocDoorbells[] = {
    {MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, Kind::new_handle},
    {MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, Kind::value, kLong},
    {MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, Kind::answer, kLong},
    {MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, Kind::answer, kWord},
    {MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, Kind::answer, kWord},
};
constexpr Attribute kFreeDoorbells[] = {
    {MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, Kind::handle},
};

}  // namespace

// The rest has its command in the older interface, which libibverbs then uses, or is firmware's.
const IoctlCommands::Entry IoctlCommands::kCommands[] = {
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT, kQueryContext,
     &IoctlCommands::query_context},
    {UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_QUERY_PORT, kQueryPort, &IoctlCommands::query_port},
    {UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, kAllocEventFile,
     &IoctlCommands::alloc_event_file},
    {UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY, kQueryDomain, &IoctlCommands::query_domain},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR, kQueryRegion, &IoctlCommands::query_region},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR, kAdvise, &IoctlCommands::advise},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR, kRegisterFile, &IoctlCommands::register_file},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG, kRegisterMemory, &IoctlCommands::register_memory},
    {UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC, kAllocMemory, &IoctlCommands::alloc_memory},
    {UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE, kFreeMemory, &IoctlCommands::free_memory},
    {UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_QUERY, kQueryMemory, &IoctlCommands::query_memory},
    {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, kAllocDoorbells,
     &IoctlCommands::alloc_doorbells},
    {MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, kFreeDoorbells,
     &IoctlCommands::free_doorbells},
};

int IoctlCommands::run(IoctlCommand& command) {
  for (const Entry& entry : kCommands) {
    if (entry.object != command.object() || entry.method != command.method()) continue;
    const int error = command.check(entry.attributes);
    if (error != 0) return error;
    const int result = (this->*entry.run)(command);
    return result != 0 ? result : command.answer_error();
  }
  return EPROTONOSUPPORT;
}

void IoctlCommands::end() {
  memories_.clear([this](DeviceMemory& memory) { end(memory); });
  doorbells_.clear([](DoorbellPage& page) { MappedPages::instance().remove_doorbells(page.page); });
}

int IoctlCommands::query_context(IoctlCommand& command) {
  constexpr std::uint64_t kCoreSupport = IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS;
  const auto vectors = static_cast<std::uint32_t>(objects_.context->verbs.context.num_comp_vectors);
  command.answer(UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS, vectors);
  command.answer(UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, kCoreSupport);
  command.answer(MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, objects_.description);
  return 0;
}

// One more descriptor of the same events: who reads one first has it.
int IoctlCommands::alloc_event_file(IoctlCommand& command) {
  const int fd = events_.add(file_, nullptr, objects_.context->verbs.context.async_fd);
  if (fd < 0) return errno;
  command.answer_handle(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, static_cast<std::uint32_t>(fd));
  return 0;
}

// All that it could tell is of an embedded switch.
int IoctlCommands::query_port(IoctlCommand& command) {
  if (command.value<std::uint32_t>(MLX5_IB_ATTR_QUERY_PORT_PORT_NUM) != kPort) return EINVAL;
  command.answer(MLX5_IB_ATTR_QUERY_PORT, mlx5_ib_uapi_query_port{});
  return 0;
}

int IoctlCommands::query_domain(IoctlCommand& command) {
  const auto* const domain = objects_.domains.find(command.handle(MLX5_IB_ATTR_QUERY_PD_HANDLE));
  if (domain == nullptr) return ENOENT;
  constexpr std::uint32_t kNumberMask = 0xff'ffff;
  command.answer(MLX5_IB_ATTR_QUERY_PD_RESP_PDN, std::uint32_t{domain->pd->number & kNumberMask});
  return 0;
}

int IoctlCommands::query_region(IoctlCommand& command) {
  const auto* const region = objects_.regions.find(command.handle(UVERBS_ATTR_QUERY_MR_HANDLE));
  if (region == nullptr) return ENOENT;
  const ibv_mr& mr = region->mr->verbs;
  const std::uint64_t length = mr.length, address = reinterpret_cast<std::uint64_t>(mr.addr);
  command.answer(UVERBS_ATTR_QUERY_MR_RESP_LKEY, mr.lkey);
  command.answer(UVERBS_ATTR_QUERY_MR_RESP_RKEY, mr.rkey);
  command.answer(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, length);
  command.answer(UVERBS_ATTR_QUERY_MR_RESP_IOVA, address);
  return 0;
}

// Synchronous whether the program waits (IBV_ADVISE_MR_FLAG_FLUSH) or not.
int IoctlCommands::advise(IoctlCommand& command) {
  const auto* const domain = objects_.domains.find(command.handle(UVERBS_ATTR_ADVISE_MR_PD_HANDLE));
  if (domain == nullptr) return ENOENT;
  if (!identity().on_demand) return EOPNOTSUPP;
  const auto advice = command.value<std::uint64_t>(UVERBS_ATTR_ADVISE_MR_ADVICE);
  const auto flags = command.value<std::uint32_t>(UVERBS_ATTR_ADVISE_MR_FLAGS);
  if ((flags & ~std::uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0) return EINVAL;
  if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return EOPNOTSUPP;
  const std::size_t bytes = command.list_bytes(UVERBS_ATTR_ADVISE_MR_SGE_LIST);
  for (std::size_t at = 0; at < bytes; at += sizeof(ib_uverbs_sge)) {
    ib_uverbs_sge part;
    if (const int error = command.list(UVERBS_ATTR_ADVISE_MR_SGE_LIST, at, &part, sizeof part);
        error != 0) {
      return error;
    }
    if (const int error =
            objects_.verbs().prefetch(*domain->pd, {part.addr, part.length, part.lkey},
                                      advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
                                      advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT);
        error != 0) {
      return error;
    }
  }
  return 0;
}

int IoctlCommands::register_file(IoctlCommand& command) {
  const auto* const domain =
      objects_.domains.find(command.handle(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE));
  if (domain == nullptr) return ENOENT;
  Mr* const mr = objects_.verbs().register_file(
      *domain->pd, command.value<std::uint64_t>(UVERBS_ATTR_REG_DMABUF_MR_OFFSET),
      command.value<std::uint64_t>(UVERBS_ATTR_REG_DMABUF_MR_LENGTH),
      command.value<std::uint64_t>(UVERBS_ATTR_REG_DMABUF_MR_IOVA),
      command.value<std::int32_t>(UVERBS_ATTR_REG_DMABUF_MR_FD),
      known_rights(command.value<std::uint32_t>(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS)));
  if (mr == nullptr) return errno;
  command.answer_handle(UVERBS_ATTR_REG_DMABUF_MR_HANDLE, objects_.add(mr));
  command.answer(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, mr->verbs.lkey);
  command.answer(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, mr->verbs.rkey);
  return 0;
}

int IoctlCommands::alloc_memory(IoctlCommand& command) {
  constexpr std::uint32_t kMaxLogAlignment = 12;  // memories begin at a page
  // The other types are the flow tables'.
  if (command.value<std::uint64_t>(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE) != MLX5_IB_UAPI_DM_TYPE_MEMIC) {
    return EOPNOTSUPP;
  }
  if (command.value<std::uint32_t>(UVERBS_ATTR_ALLOC_DM_ALIGNMENT) > kMaxLogAlignment) {
    return EINVAL;
  }
  const auto length = command.value<std::uint64_t>(UVERBS_ATTR_ALLOC_DM_LENGTH);
  auto fd = std::make_shared<Descriptor>(take_device_memory(length));
  if (!*fd) return errno;
  const int page = MappedPages::instance().add(fd->get(), length);
  if (page < 0) {
    give_back_device_memory(length);
    return ENOMEM;
  }
  // The library maps it now, perhaps where doorbells were.
  Doorbells::instance().remove_file();
  const auto first = static_cast<std::uint16_t>(page);
  const std::uint32_t handle =
      memories_.add(std::unique_ptr<DeviceMemory>(new DeviceMemory{std::move(fd), length, first}));
  command.answer_handle(UVERBS_ATTR_ALLOC_DM_HANDLE, handle);
  command.answer(MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, std::uint64_t{0});
  command.answer(MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, first);
  return 0;
}

void IoctlCommands::end(DeviceMemory& memory) noexcept {
  MappedPages::instance().remove(memory.page, memory.length);
  give_back_device_memory(memory.length);
}

int IoctlCommands::free_memory(IoctlCommand& command) {
  const std::uint32_t handle = command.handle(UVERBS_ATTR_FREE_DM_HANDLE);
  DeviceMemory* const memory = memories_.find(handle);
  if (memory == nullptr) return ENOENT;
  if (memory->fd.use_count() > 1) return EBUSY;  // regions
  end(*memory);
  memories_.remove(handle);
  return 0;
}

int IoctlCommands::query_memory(IoctlCommand& command) {
  const DeviceMemory* const memory =
      memories_.find(command.handle(MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE));
  if (memory == nullptr) return ENOENT;
  command.answer(MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, std::uint64_t{0});
  command.answer(MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, memory->page);
  command.answer(MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, memory->length);
  return 0;
}

int IoctlCommands::register_memory(IoctlCommand& command) {
  const auto* const domain = objects_.domains.find(command.handle(UVERBS_ATTR_REG_DM_MR_PD_HANDLE));
  const DeviceMemory* const memory =
      memories_.find(command.handle(UVERBS_ATTR_REG_DM_MR_DM_HANDLE));
  if (domain == nullptr || memory == nullptr) return ENOENT;
  const auto offset = command.value<std::uint64_t>(UVERBS_ATTR_REG_DM_MR_OFFSET);
  const auto length = command.value<std::uint64_t>(UVERBS_ATTR_REG_DM_MR_LENGTH);
  const auto access = command.value<std::uint32_t>(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS);
  // It has no address: keys of it count from zero.
  if ((access & IBV_ACCESS_ZERO_BASED) == 0 || !covers(0, memory->length, offset, length)) {
    return EINVAL;
  }
  Mr* const mr = objects_.verbs().register_file(*domain->pd, offset, length, 0, memory->fd->get(),
                                                known_rights(access));
  if (mr == nullptr) return errno;
  command.answer_handle(UVERBS_ATTR_REG_DM_MR_HANDLE, objects_.add(mr, memory->fd));
  command.answer(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, mr->verbs.lkey);
  command.answer(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, mr->verbs.rkey);
  return 0;
}

int IoctlCommands::alloc_doorbells(IoctlCommand& command) {
  const auto type = command.value<std::uint64_t>(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE);
  if (type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF && type != MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC) {
    return EOPNOTSUPP;
  }
  const int number = MappedPages::instance().add_doorbells();
  if (number < 0) return ENOMEM;
  const auto page = static_cast<std::uint16_t>(number);
  const std::uint32_t handle =
      doorbells_.add(std::unique_ptr<DoorbellPage>(new DoorbellPage{page}));
  constexpr std::uint32_t kLength = 4096;
  // Behind those of the context, and never 0, which programs take for none.
  const std::uint32_t id = objects_.description.tot_bfregs + page + 1U;
  command.answer_handle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, handle);
  command.answer(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, MappedPages::doorbells_offset(page));
  command.answer(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, kLength);
  command.answer(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, id);
  return 0;
}

int IoctlCommands::free_doorbells(IoctlCommand& command) {
  const std::uint32_t handle = command.handle(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE);
  const DoorbellPage* const page = doorbells_.find(handle);
  if (page == nullptr) return ENOENT;
  MappedPages::instance().remove_doorbells(page->page);
  Doorbells::instance().remove_file();
  doorbells_.remove(handle);
  return 0;
}

}  // namespace turnout::hca
