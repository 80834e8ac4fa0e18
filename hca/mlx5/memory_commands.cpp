// SPDX-License-Identifier: BSD-3-Clause
#include "hca/mlx5/memory_commands.h"

#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include "hca/device/common_objects.h"

namespace turnout::hca {

const MemoryCommands::Entry MemoryCommands::kCommands[] = {
    {IB_USER_VERBS_CMD_ALLOC_PD, &MemoryCommands::alloc_pd},
    {IB_USER_VERBS_CMD_DEALLOC_PD, &MemoryCommands::dealloc_pd},
    {IB_USER_VERBS_CMD_REG_MR, &MemoryCommands::reg_mr},
    {IB_USER_VERBS_CMD_REREG_MR, &MemoryCommands::rereg_mr},
    {IB_USER_VERBS_CMD_DEREG_MR, &MemoryCommands::dereg_mr},
    {IB_USER_VERBS_CMD_ALLOC_MW, &MemoryCommands::alloc_mw},
    {IB_USER_VERBS_CMD_DEALLOC_MW, &MemoryCommands::dealloc_mw},
};

std::optional<int> MemoryCommands::run(Mlx5Command& command) {
  for (const Entry& entry : kCommands) {
    if (entry.number != command.number() || command.extended()) continue;
    if (objects_.context == nullptr) return EINVAL;
    return (this->*entry.run)(command);
  }
  return {};
}

void MemoryCommands::end() {
  windows_.clear([this](Window& window) { (void)objects_.verbs().dealloc_window(*window.mw); });
  objects_.regions.clear(
      [this](FileObjects::Region& region) { (void)objects_.verbs().deregister(*region.mr); });
}

int MemoryCommands::alloc_pd(Mlx5Command& command) {
  (void)command.request<ib_uverbs_alloc_pd>();
  Pd* const pd = objects_.verbs().alloc_pd(*objects_.context);
  if (pd == nullptr) return errno;
  const ib_uverbs_alloc_pd_resp answer{
      objects_.domains.add(std::unique_ptr<FileObjects::Domain>(new FileObjects::Domain{pd}))};
  return command.answer(answer, mlx5_ib_alloc_pd_resp{pd->number & 0xff'ffff});
}

int MemoryCommands::dealloc_pd(Mlx5Command& command) {
  const std::uint32_t handle = command.request<ib_uverbs_dealloc_pd>().pd_handle;
  const FileObjects::Domain* const domain = objects_.domains.find(handle);
  if (domain == nullptr) return EINVAL;
  if (const int error = destroy_domain(*domain->pd); error != 0) return error;
  objects_.domains.remove(handle);
  return 0;
}

int MemoryCommands::reg_mr(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_reg_mr>();
  const FileObjects::Domain* const domain = objects_.domains.find(asked.pd_handle);
  if (domain == nullptr) return EINVAL;
  Mr* const mr = objects_.verbs().register_memory(*domain->pd, reinterpret_cast<void*>(asked.start),
                                                  asked.length, asked.hca_va,
                                                  known_rights(asked.access_flags));
  if (mr == nullptr) return errno;
  return command.answer(ib_uverbs_reg_mr_resp{objects_.add(mr), mr->verbs.lkey, mr->verbs.rkey});
}

int MemoryCommands::rereg_mr(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_rereg_mr>();
  const FileObjects::Region* const region = objects_.regions.find(asked.mr_handle);
  if (region == nullptr) return EINVAL;
  constexpr std::uint32_t kKnown =
      IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  if ((asked.flags & ~kKnown) != 0 || asked.flags == 0) return EINVAL;
  Reregistration change;
  if ((asked.flags & IBV_REREG_MR_CHANGE_PD) != 0) {
    const FileObjects::Domain* const domain = objects_.domains.find(asked.pd_handle);
    if (domain == nullptr) return EINVAL;
    change.pd = domain->pd;
  }
  change.moves = (asked.flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  change.address = reinterpret_cast<void*>(asked.start);
  change.length = asked.length;
  change.changes_access = (asked.flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
  change.access = known_rights(asked.access_flags);
  if (const int error = objects_.verbs().reregister(*region->mr, change); error != 0) return error;
  return command.answer(ib_uverbs_rereg_mr_resp{region->mr->verbs.lkey, region->mr->verbs.rkey});
}

int MemoryCommands::dereg_mr(Mlx5Command& command) {
  const std::uint32_t handle = command.request<ib_uverbs_dereg_mr>().mr_handle;
  const FileObjects::Region* const region = objects_.regions.find(handle);
  if (region == nullptr) return EINVAL;
  if (const int error = objects_.verbs().deregister(*region->mr); error != 0) return error;
  objects_.regions.remove(handle);
  return 0;
}

int MemoryCommands::alloc_mw(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_alloc_mw>();
  const FileObjects::Domain* const domain = objects_.domains.find(asked.pd_handle);
  if (domain == nullptr || (asked.mw_type != IBV_MW_TYPE_1 && asked.mw_type != IBV_MW_TYPE_2)) {
    return EINVAL;
  }
  Mw* const mw =
      objects_.verbs().alloc_window(*domain->pd, static_cast<ibv_mw_type>(asked.mw_type));
  if (mw == nullptr) return errno;
  return command.answer(ib_uverbs_alloc_mw_resp{
      windows_.add(std::unique_ptr<Window>(new Window{mw})), mw->verbs.rkey});
}

int MemoryCommands::dealloc_mw(Mlx5Command& command) {
  const std::uint32_t handle = command.request<ib_uverbs_dealloc_mw>().mw_handle;
  const Window* const window = windows_.find(handle);
  if (window == nullptr) return EINVAL;
  if (const int error = objects_.verbs().dealloc_window(*window->mw); error != 0) return error;
  windows_.remove(handle);
  return 0;
}

}  // namespace turnout::hca
