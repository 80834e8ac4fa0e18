// SPDX-License-Identifier: BSD-3-Clause
#include "hca/mlx5/command_file.h"

#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl.h>

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
    {IB_USER_VERBS_CMD_ALLOC_PD, false, &CommandFile::alloc_pd},
    {IB_USER_VERBS_CMD_DEALLOC_PD, false, &CommandFile::dealloc_pd},
    {IB_USER_VERBS_CMD_OPEN_XRCD, false, &CommandFile::open_xrcd},
    {IB_USER_VERBS_CMD_CLOSE_XRCD, false, &CommandFile::close_xrcd},
    {IB_USER_VERBS_CMD_REG_MR, false, &CommandFile::reg_mr},
    {IB_USER_VERBS_CMD_REREG_MR, false, &CommandFile::rereg_mr},
    {IB_USER_VERBS_CMD_DEREG_MR, false, &CommandFile::dereg_mr},
    {IB_USER_VERBS_CMD_ALLOC_MW, false, &CommandFile::alloc_mw},
    {IB_USER_VERBS_CMD_DEALLOC_MW, false, &CommandFile::dealloc_mw},
    {IB_USER_VERBS_CMD_ATTACH_MCAST, false, &CommandFile::attach_mcast},
    {IB_USER_VERBS_CMD_DETACH_MCAST, false, &CommandFile::detach_mcast},
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

int CommandFile::write(const void* bytes, std::size_t count) {
  Mlx5Command command;
  if (const int error = command.read(bytes, count); error != 0) return error;
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : kCommands) {
    if (entry.number != command.number() || entry.extended != command.extended()) continue;
    const bool opens = entry.run == &CommandFile::get_context;
    if (opens == (objects_.context != nullptr)) return EINVAL;
    const int error = (this->*entry.run)(command);
    if (error != 0) {
      TURNOUT_LOG(hca, debug, "mlx5 command failed: {}{}: {}", command.number(),
                  command.extended() ? " (extended)" : "", std::strerror(error));
    }
    return error;
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
  const int error = ioctl_commands_.run(command);
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
    auto& told = *static_cast<Told*>(context);
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

int CommandFile::read_completion(Channel& channel, void* to) {
  if (!is_open()) return EIO;
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (const int error = objects_.context->data_path->get_cq_event(channel, &cq, &context);
      error != 0) {
    return error;
  }
  auto& told = *static_cast<Told*>(context);
  const ib_uverbs_comp_event_desc out{told.user_handle};
  ++told.completions;
  acknowledge(*cq, cq->comp_events_completed);
  std::memcpy(to, &out, sizeof out);
  return 0;
}

void CommandFile::end() {
  const std::lock_guard lock(mutex_);
  if (objects_.context == nullptr) return;
  qps_.clear([this](Pair& pair) { (void)end(pair); });
  srqs_.clear([this](Shared& shared) { (void)verbs().destroy_srq(*shared.srq); });
  cqs_.clear([this](Queue& queue) { (void)end(queue); });
  for (Channel* const channel : channels_) (void)verbs().destroy_channel(*channel);
  windows_.clear([this](Window& window) { (void)verbs().dealloc_window(*window.mw); });
  ioctl_commands_.end();
  objects_.regions.clear(
      [this](FileObjects::Region& region) { (void)verbs().deregister(*region.mr); });
  xrc_domains_.clear([this](XrcDomain& domain) { (void)verbs().close_xrcd(*domain.xrcd); });
  objects_.domains.clear([](FileObjects::Domain& domain) { (void)destroy_domain(*domain.pd); });
  channels_.clear();
  verbs().close(*objects_.context);
  objects_.context.reset();
}

}  // namespace turnout::hca
