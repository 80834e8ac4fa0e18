// SPDX-License-Identifier: BSD-3-Clause
// Commands of completion channels, completion queues and shared receive queues.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <bit>

#include "hca/device/common_objects.h"
#include "hca/live/mlx5_queues.h"
#include "hca/mlx5/command_file.h"

namespace turnout::hca {
namespace {

constexpr std::uint32_t kKnownCqFlags =
    IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION | IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN;

}  // namespace

struct CommandFile::CqRequest {
  std::uint64_t user_handle;
  std::uint32_t cqe, comp_vector;
  std::int32_t comp_channel;
  bool unchecked;  // overruns are the program's affair
};

struct CommandFile::SrqRequest {
  struct Xrc {
    std::uint32_t domain, cq;
  };
  std::uint64_t user_handle;
  std::uint32_t pd;
  ibv_srq_attr limits;
  std::optional<Xrc> xrc;
};

int CommandFile::create_channel(Mlx5Command& command) {
  (void)command.request<ib_uverbs_create_comp_channel>();
  Channel* const channel = verbs().create_channel(*objects_.context);
  if (channel == nullptr) return errno;
  const int fd = events_.add(*this, channel, channel->verbs.fd);
  if (fd < 0) {
    const int error = errno;
    (void)verbs().destroy_channel(*channel);
    return error;
  }
  channels_.push_back(channel);
  return command.answer(ib_uverbs_create_comp_channel_resp{static_cast<std::uint32_t>(fd)});
}

int CommandFile::make_cq(const CqRequest& request, const mlx5_ib_create_cq& mlx5,
                         std::uint32_t& handle) {
  // The library asks for one less than it has: a power of two.
  if (request.cqe >= kMaxCqe || (mlx5.cqe_size != 64 && mlx5.cqe_size != 128)) return EINVAL;
  // One of the formats. A device that may compress need not.
  constexpr unsigned kFormats = MLX5_IB_CQE_RES_FORMAT_HASH | MLX5_IB_CQE_RES_FORMAT_CSUM |
                                MLX5_IB_CQE_RES_FORMAT_CSUM_STRIDX;
  if (mlx5.cqe_comp_en != 0 && (!std::has_single_bit(mlx5.cqe_comp_res_format) ||
                                (mlx5.cqe_comp_res_format & kFormats) == 0)) {
    return EINVAL;
  }
  constexpr std::uint32_t kKnownFlags =
      MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD | MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX;
  if ((mlx5.flags & ~kKnownFlags) != 0) return EOPNOTSUPP;
  if ((mlx5.flags & MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD) != 0 && mlx5.cqe_size != 128) {
    return EINVAL;
  }
  const std::uint32_t entries = std::bit_ceil(request.cqe + 1);
  if ((mlx5.db_addr & 7) != 0 || (mlx5.buf_addr & 63) != 0) return EINVAL;
  if (!is_writable(mlx5.buf_addr, std::uint64_t{entries} * mlx5.cqe_size) ||
      !is_writable(mlx5.db_addr, 8)) {
    return EFAULT;
  }
  auto queue = std::unique_ptr<Queue>(new Queue{Told(request.user_handle), nullptr, {}});
  ibv_cq_init_attr_ex attr{};
  attr.cqe = entries;
  attr.cq_context = &queue->told;
  attr.comp_vector = request.comp_vector;
  attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;  // every entry of an mlx5 has it
  if (request.comp_channel >= 0) {
    Channel* const channel = events_.channel_of(*this, request.comp_channel);
    if (channel == nullptr) return EINVAL;
    attr.channel = &channel->verbs;
  }
  Cq* const cq = verbs().create_cq(*objects_.context, attr);
  if (cq == nullptr) return errno;
  Mlx5CqRecord where{};
  where.buffer = mlx5.buf_addr;
  where.doorbell = mlx5.db_addr;
  where.entries = entries;
  where.stride = mlx5.cqe_size;
  where.unchecked = request.unchecked ? 1 : 0;
  objects_.engine->mlx5_queues().attach(*cq, where);
  queue->doorbell.cq = queue->cq = cq;
  queue->doorbell.doorbell = mlx5.db_addr;
  queue->doorbell.queues = &objects_.engine->mlx5_queues();
  Doorbells::instance().add(queue->doorbell);
  handle = cqs_.add(std::move(queue));
  ++made_.completion_queues;
  made_.bytes += std::uint64_t{entries} * mlx5.cqe_size;
  return 0;
}

int CommandFile::create_cq(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_create_cq>();
  std::uint32_t handle = 0;
  const CqRequest request{asked.user_handle, asked.cqe, asked.comp_vector, asked.comp_channel,
                          false};
  if (const int error = make_cq(request, command.driver_request<mlx5_ib_create_cq>(), handle);
      error != 0)
    return error;
  const Cq& cq = *cqs_.find(handle)->cq;
  ib_uverbs_create_cq_resp answer{};
  answer.cq_handle = handle;
  answer.cqe = static_cast<std::uint32_t>(cq.verbs.cqe) - 1;
  return command.answer(answer, mlx5_ib_create_cq_resp{cq.index, 0});
}

int CommandFile::create_cq_extended(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_ex_create_cq>();
  if (asked.comp_mask != 0 || (asked.flags & ~kKnownCqFlags) != 0) return EOPNOTSUPP;
  std::uint32_t handle = 0;
  const CqRequest request{asked.user_handle, asked.cqe, asked.comp_vector, asked.comp_channel,
                          (asked.flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN) != 0};
  if (const int error = make_cq(request, command.driver_request<mlx5_ib_create_cq>(), handle);
      error != 0)
    return error;
  const Cq& cq = *cqs_.find(handle)->cq;
  ib_uverbs_ex_create_cq_resp answer{};
  answer.base.cq_handle = handle;
  answer.base.cqe = static_cast<std::uint32_t>(cq.verbs.cqe) - 1;
  answer.response_length = sizeof answer;
  return command.answer(answer, mlx5_ib_create_cq_resp{cq.index, 0});
}

int CommandFile::create_cq(IoctlCommand& command) {
  mlx5_ib_create_cq mlx5;
  if (const int error = command.block(UVERBS_ATTR_UHW_IN, mlx5); error != 0) return error;
  const auto flags = command.value<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_FLAGS);
  if ((flags & ~kKnownCqFlags) != 0) return EOPNOTSUPP;
  CqRequest request{};
  request.user_handle = command.value<std::uint64_t>(UVERBS_ATTR_CREATE_CQ_USER_HANDLE);
  request.cqe = command.value<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_CQE);
  request.comp_vector = command.value<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR);
  request.comp_channel =
      command.has(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL)
          ? static_cast<std::int32_t>(command.handle(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL))
          : -1;
  request.unchecked = (flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN) != 0;
  std::uint32_t handle = 0;
  if (const int error = make_cq(request, mlx5, handle); error != 0) return error;
  const Cq& cq = *cqs_.find(handle)->cq;
  command.answer_handle(UVERBS_ATTR_CREATE_CQ_HANDLE, handle);
  command.answer(UVERBS_ATTR_CREATE_CQ_RESP_CQE, static_cast<std::uint32_t>(cq.verbs.cqe) - 1);
  command.answer(UVERBS_ATTR_UHW_OUT, mlx5_ib_create_cq_resp{cq.index, 0});
  return 0;
}

int CommandFile::resize_cq(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_resize_cq>();
  const auto mlx5 = command.driver_request<mlx5_ib_resize_cq>();
  Queue* const queue = cqs_.find(asked.cq_handle);
  if (queue == nullptr || asked.cqe >= kMaxCqe) return EINVAL;
  const std::uint32_t entries = std::bit_ceil(asked.cqe + 1);
  const std::uint32_t stride = mlx5.cqe_size;
  if ((stride != 64 && stride != 128) || (mlx5.buf_addr & 63) != 0) return EINVAL;
  if (!is_writable(mlx5.buf_addr, std::uint64_t{entries} * stride)) return EFAULT;
  // As the firmware: too many entries wait.
  if (!objects_.engine->mlx5_queues().resize(*queue->cq, mlx5.buf_addr, entries, stride))
    return EINVAL;
  return command.answer(ib_uverbs_resize_cq_resp{entries - 1, 0});
}

// Moderation bounds how late an event may come: ours come at once.
int CommandFile::modify_cq(Mlx5Command&) {
  return 0;
}

int CommandFile::end(Queue& queue) {
  if (queue.cq->users.load() != 0) return EBUSY;
  Doorbells::instance().remove(queue.doorbell);
  return verbs().destroy_cq(*queue.cq);
}

int CommandFile::destroy_cq(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_destroy_cq>();
  Queue* const queue = cqs_.find(asked.cq_handle);
  if (queue == nullptr) return EINVAL;
  if (const int error = end(*queue); error != 0) return error;
  const ib_uverbs_destroy_cq_resp answer{queue->told.completions, queue->told.events};
  cqs_.remove(asked.cq_handle);
  return command.answer(answer);
}

int CommandFile::make_srq(const SrqRequest& request, const mlx5_ib_create_srq& mlx5,
                          ib_uverbs_create_srq_resp& answer) {
  const auto& [user_handle, pd, limits, xrc] = request;
  ibv_srq_init_attr attr{};
  attr.attr = limits;
  const FileObjects::Domain* const domain = objects_.domains.find(pd);
  if (domain == nullptr || attr.attr.max_wr >= kMaxSrqWr || attr.attr.max_sge > kMaxSge ||
      (mlx5.flags & ~std::uint32_t{MLX5_SRQ_FLAG_SIGNATURE}) != 0) {
    return EINVAL;
  }
  if ((mlx5.flags & MLX5_SRQ_FLAG_SIGNATURE) != 0) return EOPNOTSUPP;
  // As libmlx5 and the kernel compute them.
  const std::uint32_t entries = std::bit_ceil(attr.attr.max_wr + 1);
  const std::uint32_t stride =
      std::max(32U, std::bit_ceil((1 + std::max(attr.attr.max_sge, 1U)) * kMlx5UnitBytes));
  if ((mlx5.db_addr & 3) != 0 || (mlx5.buf_addr & 15) != 0) return EINVAL;
  if (!is_writable(mlx5.buf_addr, std::uint64_t{entries} * stride) ||
      !is_writable(mlx5.db_addr, 4)) {
    return EFAULT;
  }
  Xrcd* xrcd = nullptr;
  Cq* cq = nullptr;
  if (xrc) {
    const XrcDomain* const found = xrc_domains_.find(xrc->domain);
    const Queue* const queue = cqs_.find(xrc->cq);
    if (found == nullptr || queue == nullptr) return EINVAL;
    xrcd = found->xrcd;
    cq = queue->cq;
  }
  auto shared = std::unique_ptr<Shared>(new Shared{Told(user_handle)});
  attr.srq_context = &shared->told;
  attr.attr.max_wr = std::max(1U, entries - 1);
  attr.attr.max_sge = std::min(kMaxSge, stride / kMlx5UnitBytes - 1);
  Srq* const srq = verbs().create_srq(*domain->pd, attr, xrcd, cq);
  if (srq == nullptr) return errno;
  shared->srq = srq;
  Mlx5ReceiveRecord where{};
  where.buffer = mlx5.buf_addr;
  where.doorbell = mlx5.db_addr;
  where.entries = entries;
  where.stride = stride;
  where.user_index = mlx5.uidx & 0xff'ffff;
  where.linked = 1;
  objects_.engine->mlx5_queues().attach(*srq, where);
  answer.srq_handle = srqs_.add(std::move(shared));
  ++made_.shared_queues;
  made_.bytes += std::uint64_t{entries} * stride;
  answer.max_wr = entries - 1;
  answer.max_sge = limits.max_sge;
  answer.srqn = srq->number;
  return 0;
}

int CommandFile::create_srq(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_create_srq>();
  const SrqRequest request{
      asked.user_handle, asked.pd_handle, {asked.max_wr, asked.max_sge, asked.srq_limit}, {}};
  ib_uverbs_create_srq_resp answer{};
  if (const int error = make_srq(request, command.driver_request<mlx5_ib_create_srq>(), answer);
      error != 0) {
    return error;
  }
  return command.answer(answer, mlx5_ib_create_srq_resp{answer.srqn, 0});
}

int CommandFile::create_xsrq(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_create_xsrq>();
  if (asked.srq_type != IBV_SRQT_BASIC && asked.srq_type != IBV_SRQT_XRC) return EOPNOTSUPP;
  SrqRequest request{
      asked.user_handle, asked.pd_handle, {asked.max_wr, asked.max_sge, asked.srq_limit}, {}};
  if (asked.srq_type == IBV_SRQT_XRC) request.xrc = {asked.xrcd_handle, asked.cq_handle};
  ib_uverbs_create_srq_resp answer{};
  if (const int error = make_srq(request, command.driver_request<mlx5_ib_create_srq>(), answer);
      error != 0) {
    return error;
  }
  return command.answer(answer, mlx5_ib_create_srq_resp{answer.srqn, 0});
}

int CommandFile::create_srq(IoctlCommand& command) {
  mlx5_ib_create_srq mlx5;
  if (const int error = command.block(UVERBS_ATTR_UHW_IN, mlx5); error != 0) return error;
  const auto type = command.value<std::uint64_t>(UVERBS_ATTR_CREATE_SRQ_TYPE);
  if (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC) return EOPNOTSUPP;
  SrqRequest request{command.value<std::uint64_t>(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE),
                     command.handle(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE),
                     {command.value<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_MAX_WR),
                      command.value<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_MAX_SGE),
                      command.value<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_LIMIT)},
                     {}};
  if (type == IBV_SRQT_XRC) {
    if (!command.has(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE) ||
        !command.has(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE)) {
      return EINVAL;
    }
    request.xrc = {command.handle(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE),
                   command.handle(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE)};
  }
  ib_uverbs_create_srq_resp made{};
  if (const int error = make_srq(request, mlx5, made); error != 0) return error;
  command.answer_handle(UVERBS_ATTR_CREATE_SRQ_HANDLE, made.srq_handle);
  command.answer(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, std::uint32_t{made.max_wr});
  command.answer(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, std::uint32_t{made.max_sge});
  command.answer(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, std::uint32_t{made.srqn});
  command.answer(UVERBS_ATTR_UHW_OUT, mlx5_ib_create_srq_resp{made.srqn, 0});
  return 0;
}

int CommandFile::modify_srq(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_modify_srq>();
  const Shared* const shared = srqs_.find(asked.srq_handle);
  if (shared == nullptr) return EINVAL;
  ibv_srq_attr attr{};
  attr.max_wr = asked.max_wr;
  attr.srq_limit = asked.srq_limit;
  return verbs().modify_srq(*shared->srq, attr, static_cast<int>(asked.attr_mask));
}

int CommandFile::query_srq(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_query_srq>();
  const Shared* const shared = srqs_.find(asked.srq_handle);
  if (shared == nullptr) return EINVAL;
  ibv_srq_attr attr{};
  if (const int error = verbs().query_srq(*shared->srq, attr); error != 0) return error;
  return command.answer(ib_uverbs_query_srq_resp{attr.max_wr, attr.max_sge, attr.srq_limit, 0});
}

int CommandFile::destroy_srq(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_destroy_srq>();
  const Shared* const shared = srqs_.find(asked.srq_handle);
  if (shared == nullptr) return EINVAL;
  Srq& srq = *shared->srq;
  if (const int error = verbs().destroy_srq(srq); error != 0) return error;
  const ib_uverbs_destroy_srq_resp answer{shared->told.events};
  srqs_.remove(asked.srq_handle);
  return command.answer(answer);
}

}  // namespace turnout::hca
