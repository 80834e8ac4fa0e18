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

int CommandFile::make_cq(CqRequest request, std::int32_t channel, const mlx5_ib_create_cq& mlx5,
                         std::uint32_t& handle) {
  if (channel >= 0) {
    request.channel = events_.channel_of(*this, channel);
    if (request.channel == nullptr || devx_commands_.channel(*request.channel) != nullptr) {
      return EINVAL;
    }
  }
  std::unique_ptr<CqObject> made;
  if (const int error = queues_.make(request, mlx5, made); error != 0) return error;
  handle = objects_.cqs.add(std::move(made));
  return 0;
}

int CommandFile::create_cq(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_create_cq>();
  std::uint32_t handle = 0;
  if (const int error =
          make_cq({asked.user_handle, asked.cqe, asked.comp_vector, nullptr, false},
                  asked.comp_channel, command.driver_request<mlx5_ib_create_cq>(), handle);
      error != 0)
    return error;
  const Cq& cq = *objects_.cqs.find(handle)->cq;
  ib_uverbs_create_cq_resp answer{};
  answer.cq_handle = handle;
  answer.cqe = static_cast<std::uint32_t>(cq.verbs.cqe) - 1;
  return command.answer(answer, mlx5_ib_create_cq_resp{cq.index, 0});
}

int CommandFile::create_cq_extended(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_ex_create_cq>();
  if (asked.comp_mask != 0 || (asked.flags & ~kKnownCqFlags) != 0) return EOPNOTSUPP;
  std::uint32_t handle = 0;
  if (const int error =
          make_cq({asked.user_handle, asked.cqe, asked.comp_vector, nullptr,
                   (asked.flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN) != 0},
                  asked.comp_channel, command.driver_request<mlx5_ib_create_cq>(), handle);
      error != 0)
    return error;
  const Cq& cq = *objects_.cqs.find(handle)->cq;
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
  CqRequest request;
  request.user_handle = command.value<std::uint64_t>(UVERBS_ATTR_CREATE_CQ_USER_HANDLE);
  request.cqe = command.value<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_CQE);
  request.comp_vector = command.value<std::uint32_t>(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR);
  const std::int32_t channel =
      command.has(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL)
          ? static_cast<std::int32_t>(command.handle(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL))
          : -1;
  request.unchecked = (flags & IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN) != 0;
  std::uint32_t handle = 0;
  if (const int error = make_cq(request, channel, mlx5, handle); error != 0) return error;
  const Cq& cq = *objects_.cqs.find(handle)->cq;
  command.answer_handle(UVERBS_ATTR_CREATE_CQ_HANDLE, handle);
  command.answer(UVERBS_ATTR_CREATE_CQ_RESP_CQE, static_cast<std::uint32_t>(cq.verbs.cqe) - 1);
  command.answer(UVERBS_ATTR_UHW_OUT, mlx5_ib_create_cq_resp{cq.index, 0});
  return 0;
}

int CommandFile::resize_cq(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_resize_cq>();
  const auto mlx5 = command.driver_request<mlx5_ib_resize_cq>();
  CqObject* const queue = objects_.cqs.find(asked.cq_handle);
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

int CommandFile::destroy_cq(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_destroy_cq>();
  CqObject* const queue = objects_.cqs.find(asked.cq_handle);
  if (queue == nullptr) return EINVAL;
  if (const int error = queues_.end(*queue); error != 0) return error;
  const ib_uverbs_destroy_cq_resp answer{queue->told.completions, queue->told.events};
  objects_.cqs.remove(asked.cq_handle);
  return command.answer(answer);
}

int CommandFile::make_srq(const ibv_srq_attr& limits, std::uint64_t user_handle, std::uint32_t pd,
                          const XrcParts* xrc, const mlx5_ib_create_srq& mlx5,
                          ib_uverbs_create_srq_resp& answer) {
  SrqRequest request;
  request.user_handle = user_handle;
  request.limits = limits;
  const FileObjects::Domain* const domain = objects_.domains.find(pd);
  if (domain == nullptr) return EINVAL;
  request.pd = domain->pd;
  if (xrc != nullptr) {
    const XrcDomain* const found = xrc_domains_.find(xrc->domain);
    const CqObject* const queue = objects_.cqs.find(xrc->cq);
    if (found == nullptr || queue == nullptr) return EINVAL;
    request.xrcd = found->xrcd;
    request.cq = queue->cq;
  }
  std::unique_ptr<SrqObject> made;
  if (const int error = queues_.make(request, mlx5, made); error != 0) return error;
  answer.srqn = made->srq->number;
  answer.srq_handle = objects_.srqs.add(std::move(made));
  answer.max_wr = std::bit_ceil(limits.max_wr + 1) - 1;
  answer.max_sge = limits.max_sge;
  return 0;
}

int CommandFile::create_srq(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_create_srq>();
  ib_uverbs_create_srq_resp answer{};
  if (const int error =
          make_srq({asked.max_wr, asked.max_sge, asked.srq_limit}, asked.user_handle,
                   asked.pd_handle, nullptr, command.driver_request<mlx5_ib_create_srq>(), answer);
      error != 0) {
    return error;
  }
  return command.answer(answer, mlx5_ib_create_srq_resp{answer.srqn, 0});
}

int CommandFile::create_xsrq(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_create_xsrq>();
  if (asked.srq_type != IBV_SRQT_BASIC && asked.srq_type != IBV_SRQT_XRC) return EOPNOTSUPP;
  const XrcParts xrc{asked.xrcd_handle, asked.cq_handle};
  ib_uverbs_create_srq_resp answer{};
  if (const int error = make_srq({asked.max_wr, asked.max_sge, asked.srq_limit}, asked.user_handle,
                                 asked.pd_handle, asked.srq_type == IBV_SRQT_XRC ? &xrc : nullptr,
                                 command.driver_request<mlx5_ib_create_srq>(), answer);
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
  if (type == IBV_SRQT_XRC && (!command.has(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE) ||
                               !command.has(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE))) {
    return EINVAL;
  }
  const XrcParts xrc{command.handle(UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE),
                     command.handle(UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE)};
  ib_uverbs_create_srq_resp made{};
  if (const int error = make_srq({command.value<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_MAX_WR),
                                  command.value<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_MAX_SGE),
                                  command.value<std::uint32_t>(UVERBS_ATTR_CREATE_SRQ_LIMIT)},
                                 command.value<std::uint64_t>(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE),
                                 command.handle(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE),
                                 type == IBV_SRQT_XRC ? &xrc : nullptr, mlx5, made);
      error != 0) {
    return error;
  }
  command.answer_handle(UVERBS_ATTR_CREATE_SRQ_HANDLE, made.srq_handle);
  command.answer(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, std::uint32_t{made.max_wr});
  command.answer(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, std::uint32_t{made.max_sge});
  command.answer(UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, std::uint32_t{made.srqn});
  command.answer(UVERBS_ATTR_UHW_OUT, mlx5_ib_create_srq_resp{made.srqn, 0});
  return 0;
}

int CommandFile::modify_srq(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_modify_srq>();
  const SrqObject* const shared = objects_.srqs.find(asked.srq_handle);
  if (shared == nullptr) return EINVAL;
  ibv_srq_attr attr{};
  attr.max_wr = asked.max_wr;
  attr.srq_limit = asked.srq_limit;
  return verbs().modify_srq(*shared->srq, attr, static_cast<int>(asked.attr_mask));
}

int CommandFile::query_srq(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_query_srq>();
  const SrqObject* const shared = objects_.srqs.find(asked.srq_handle);
  if (shared == nullptr) return EINVAL;
  ibv_srq_attr attr{};
  if (const int error = verbs().query_srq(*shared->srq, attr); error != 0) return error;
  return command.answer(ib_uverbs_query_srq_resp{attr.max_wr, attr.max_sge, attr.srq_limit, 0});
}

int CommandFile::destroy_srq(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_destroy_srq>();
  SrqObject* const shared = objects_.srqs.find(asked.srq_handle);
  if (shared == nullptr) return EINVAL;
  if (const int error = queues_.end(*shared); error != 0) return error;
  const ib_uverbs_destroy_srq_resp answer{shared->told.events};
  objects_.srqs.remove(asked.srq_handle);
  return command.answer(answer);
}

}  // namespace turnout::hca
