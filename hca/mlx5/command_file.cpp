// SPDX-License-Identifier: BSD-3-Clause
#include "hca/mlx5/command_file.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl.h>

#include <algorithm>

#include "base/log.h"
#include "hca/device/common_objects.h"
#include "hca/live/mlx5_queues.h"

namespace turnout::hca {

// Data goes by queues in memory, so the kernel's commands for it are not there, as with mlx5.
const CommandFile::Entry CommandFile::kCommands[] = {
    {IB_USER_VERBS_CMD_GET_CONTEXT, false, &CommandFile::get_context},
    {IB_USER_VERBS_CMD_QUERY_DEVICE, false, &CommandFile::query_device},
    {IB_USER_VERBS_EX_CMD_QUERY_DEVICE, true, &CommandFile::query_device_extended},
    {IB_USER_VERBS_CMD_QUERY_PORT, false, &CommandFile::query_port},
    {IB_USER_VERBS_CMD_OPEN_XRCD, false, &CommandFile::open_xrcd},
    {IB_USER_VERBS_CMD_CLOSE_XRCD, false, &CommandFile::close_xrcd},
    {IB_USER_VERBS_CMD_ATTACH_MCAST, false, &CommandFile::change_mcast},
    {IB_USER_VERBS_CMD_DETACH_MCAST, false, &CommandFile::change_mcast},
    {IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, false, &CommandFile::create_channel},
    {IB_USER_VERBS_CMD_CREATE_CQ, false, &CommandFile::create_cq},
    {IB_USER_VERBS_EX_CMD_CREATE_CQ, true, &CommandFile::create_cq_extended},
    {IB_USER_VERBS_CMD_RESIZE_CQ, false, &CommandFile::resize_cq},
    {IB_USER_VERBS_EX_CMD_MODIFY_CQ, true, &CommandFile::modify_cq},
    {IB_USER_VERBS_CMD_DESTROY_CQ, false, &CommandFile::destroy_cq},
    {IB_USER_VERBS_CMD_CREATE_SRQ, false, &CommandFile::create_srq},
    {IB_USER_VERBS_CMD_CREATE_XSRQ, false, &CommandFile::create_xsrq},
    {IB_USER_VERBS_CMD_MODIFY_SRQ, false, &CommandFile::modify_srq},
    {IB_USER_VERBS_CMD_QUERY_SRQ, false, &CommandFile::query_srq},
    {IB_USER_VERBS_CMD_DESTROY_SRQ, false, &CommandFile::destroy_srq},
    {IB_USER_VERBS_CMD_CREATE_QP, false, &CommandFile::create_qp},
    {IB_USER_VERBS_EX_CMD_CREATE_QP, true, &CommandFile::create_qp_extended},
    {IB_USER_VERBS_CMD_OPEN_QP, false, &CommandFile::open_qp},
    {IB_USER_VERBS_CMD_MODIFY_QP, false, &CommandFile::modify_qp},
    {IB_USER_VERBS_EX_CMD_MODIFY_QP, true, &CommandFile::modify_qp},
    {IB_USER_VERBS_CMD_QUERY_QP, false, &CommandFile::query_qp},
    {IB_USER_VERBS_CMD_DESTROY_QP, false, &CommandFile::destroy_qp},
};

namespace {

using Kind = IoctlCommand::Kind;

constexpr IoctlCommand::Attribute kCreateCq[] = {
    {UVERBS_ATTR_CREATE_CQ_HANDLE, Kind::new_handle},
    {UVERBS_ATTR_CREATE_CQ_CQE, Kind::value, 4},
    {UVERBS_ATTR_CREATE_CQ_USER_HANDLE, Kind::value, 8},
    {UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, Kind::handle, 0, false},
    {UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, Kind::value, 4},
    {UVERBS_ATTR_CREATE_CQ_FLAGS, Kind::value, 4, false},
    {UVERBS_ATTR_CREATE_CQ_RESP_CQE, Kind::answer, 4},
    {UVERBS_ATTR_CREATE_CQ_EVENT_FD, Kind::handle, 0, false},
    {UVERBS_ATTR_UHW_IN, Kind::list, 1},
    {UVERBS_ATTR_UHW_OUT, Kind::answer, 4},
};
constexpr IoctlCommand::Attribute kCreateQp[] = {
    {UVERBS_ATTR_CREATE_QP_HANDLE, Kind::new_handle},
    {UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, Kind::handle, 0, false},
    {UVERBS_ATTR_CREATE_QP_PD_HANDLE, Kind::handle, 0, false},
    {UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, Kind::handle, 0, false},
    {UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, Kind::handle, 0, false},
    {UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, Kind::handle, 0, false},
    {UVERBS_ATTR_CREATE_QP_USER_HANDLE, Kind::value, 8},
    {UVERBS_ATTR_CREATE_QP_CAP, Kind::list, sizeof(ib_uverbs_qp_cap)},
    {UVERBS_ATTR_CREATE_QP_TYPE, Kind::value, 8},
    {UVERBS_ATTR_CREATE_QP_FLAGS, Kind::value, 4, false},
    {UVERBS_ATTR_CREATE_QP_EVENT_FD, Kind::handle, 0, false},
    {UVERBS_ATTR_CREATE_QP_RESP_CAP, Kind::answer, sizeof(ib_uverbs_qp_cap)},
    {UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, Kind::answer, 4},
    {UVERBS_ATTR_UHW_IN, Kind::list, 1},
    {UVERBS_ATTR_UHW_OUT, Kind::answer, 4, false},
};

constexpr IoctlCommand::Attribute kCreateSrq[] = {
    {UVERBS_ATTR_CREATE_SRQ_HANDLE, Kind::new_handle},
    {UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, Kind::handle},
    {UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE, Kind::handle, 0, false},
    {UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE, Kind::handle, 0, false},
    {UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, Kind::value, 8},
    {UVERBS_ATTR_CREATE_SRQ_MAX_WR, Kind::value, 4},
    {UVERBS_ATTR_CREATE_SRQ_MAX_SGE, Kind::value, 4},
    {UVERBS_ATTR_CREATE_SRQ_LIMIT, Kind::value, 4},
    {UVERBS_ATTR_CREATE_SRQ_TYPE, Kind::value, 8},
    {UVERBS_ATTR_CREATE_SRQ_EVENT_FD, Kind::handle, 0, false},
    {UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, Kind::answer, 4},
    {UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, Kind::answer, 4},
    {UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, Kind::answer, 4, false},
    {UVERBS_ATTR_UHW_IN, Kind::list, 1},
    {UVERBS_ATTR_UHW_OUT, Kind::answer, 4, false},
};

}  // namespace

const CommandFile::IoctlEntry CommandFile::kIoctlCommands[] = {
    {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, kCreateCq, &CommandFile::create_cq},
    {UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE, kCreateSrq, &CommandFile::create_srq},
    {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, kCreateQp, &CommandFile::create_qp},
};

int CommandFile::write(const void* bytes, std::size_t count) {
  Mlx5Command command;
  if (const int error = command.read(bytes, count); error != 0) return error;
  const std::lock_guard lock(mutex_);
  const auto tell = [&](int error) {
    if (error != 0) {
      TURNOUT_LOG(hca, debug, "mlx5 command failed: {}{}: {}", command.number(),
                  command.extended() ? " (extended)" : "", std::strerror(error));
    }
    return error;
  };
  if (const auto error = memory_commands_.run(command)) return tell(*error);
  for (const Entry& entry : kCommands) {
    if (entry.number != command.number() || entry.extended != command.extended()) continue;
    const bool opens = entry.run == &CommandFile::get_context;
    if (opens == (objects_.context != nullptr)) return EINVAL;
    return tell((this->*entry.run)(command));
  }
  TURNOUT_LOG(hca, debug, "mlx5 command failed: {}{}: this device does not have it",
              command.number(), command.extended() ? " (extended)" : "");
  return command.extended() ? EOPNOTSUPP : EINVAL;
}

int CommandFile::control(unsigned long request, const void* argument) {
  if (request != RDMA_VERBS_IOCTL) return ENOTTY;
  IoctlCommand command;
  if (const int error = command.read(argument); error != 0) return error;
  const std::lock_guard lock(mutex_);
  // A context is made by write().
  if (objects_.context == nullptr) return EPROTONOSUPPORT;
  const auto own = std::find_if(
      std::begin(kIoctlCommands), std::end(kIoctlCommands), [&](const IoctlEntry& entry) {
        return entry.object == command.object() && entry.method == command.method();
      });
  int error = 0;
  if (own != std::end(kIoctlCommands)) {
    error = command.check(own->attributes);
    if (error == 0) error = (this->*own->run)(command);
    if (error == 0) error = command.answer_error();
  } else if (const auto devx = devx_commands_.run(command)) {
    error = *devx;
  } else {
    error = ioctl_commands_.run(command);
  }
  if (error != 0) {
    TURNOUT_LOG(hca, debug, "mlx5 command failed: object {:#x}, method {:#x}: {}", command.object(),
                command.method(), std::strerror(error));
  }
  return error;
}

bool CommandFile::is_open() {
  const std::lock_guard lock(mutex_);
  return objects_.context != nullptr;
}

namespace {

// The program is told of an event: nothing of the object is looked at behind this, so it may end.
template <class Verbs>
void acknowledge(Verbs& object, std::uint32_t& completed) noexcept {
  pthread_mutex_lock(&object.mutex);
  ++completed;
  pthread_cond_broadcast(&object.cond);
  pthread_mutex_unlock(&object.mutex);
}

}  // namespace

int CommandFile::read_event(void* to) {
  if (!is_open()) return EIO;
  ibv_async_event event{};
  if (const int error = verbs().get_async_event(*objects_.context, event); error != 0) return error;
  ib_uverbs_async_event_desc out{};
  out.event_type = static_cast<std::uint32_t>(event.event_type);
  const auto tell = [&out](void* context, auto& object, std::uint32_t& completed) {
    auto& told = *static_cast<QueueTold*>(context);
    out.element = told.user_handle;
    ++told.events;
    acknowledge(object, completed);
  };
  switch (object_of(out.event_type)) {
    case EventObject::cq:
      tell(event.element.cq->cq_context, *event.element.cq,
           event.element.cq->async_events_completed);
      break;
    case EventObject::srq:
      tell(event.element.srq->srq_context, *event.element.srq, event.element.srq->events_completed);
      break;
    case EventObject::qp:
      tell(event.element.qp->qp_context, *event.element.qp, event.element.qp->events_completed);
      break;
    default:
      out.element = static_cast<std::uint64_t>(event.element.port_num);
      break;
  }
  std::memcpy(to, &out, sizeof out);
  return 0;
}

ssize_t CommandFile::read_channel(Channel& channel, void* to, std::size_t count) {
  const DevxCommands::EventChannel* devx = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (objects_.context == nullptr) return -EIO;
    devx = devx_commands_.channel(channel);
  }
  if (devx != nullptr) return DevxCommands::read(objects_.engine->events(), *devx, to, count);
  if (count < sizeof(ib_uverbs_comp_event_desc)) return -EINVAL;
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (const int error = objects_.context->data_path->get_cq_event(channel, &cq, &context);
      error != 0) {
    return -error;
  }
  auto& told = *static_cast<QueueTold*>(context);
  const ib_uverbs_comp_event_desc out{told.user_handle};
  ++told.completions;
  acknowledge(*cq, cq->comp_events_completed);
  std::memcpy(to, &out, sizeof out);
  return sizeof out;
}

void CommandFile::end() {
  const std::lock_guard lock(mutex_);
  if (objects_.context == nullptr) return;
  const QueueMaker::Made& made = queues_.made();
  TURNOUT_LOG(hca, info,
              "mlx5 context closed: {} queue pairs, {} shared receive queues, {} completion queues "
              "made, {} bytes of entries",
              made.queue_pairs, made.shared_queues, made.completion_queues, made.bytes);
  devx_commands_.end();
  objects_.qps.clear([this](QpObject& pair) { (void)queues_.end(pair); });
  objects_.srqs.clear([this](SrqObject& shared) { (void)queues_.end(shared); });
  objects_.cqs.clear([this](CqObject& queue) { (void)queues_.end(queue); });
  for (Channel* const channel : channels_) (void)verbs().destroy_channel(*channel);
  ioctl_commands_.end();
  memory_commands_.end();
  xrc_domains_.clear([this](XrcDomain& domain) { (void)verbs().close_xrcd(*domain.xrcd); });
  objects_.domains.clear([](FileObjects::Domain& domain) { (void)destroy_domain(*domain.pd); });
  channels_.clear();
  verbs().close(*objects_.context);
  objects_.context.reset();
}

}  // namespace turnout::hca
