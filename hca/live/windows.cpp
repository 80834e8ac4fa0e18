// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/windows.h"

#include <cerrno>
#include <memory>

#include "hca/device/rules.h"
#include "hca/live/fork_guard.h"

namespace turnout::hca {
namespace {

// What a window may allow to others, and that a region with these rights cannot.
bool may_allow(unsigned wanted, unsigned region) {
  constexpr unsigned kKnown = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                              IBV_ACCESS_ZERO_BASED;
  constexpr unsigned kWrites = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  return (wanted & ~kKnown) == 0 &&
         ((wanted & kWrites) == 0 || (region & IBV_ACCESS_LOCAL_WRITE) != 0);
}

}  // namespace

Mw* LiveWindows::alloc(Pd& pd, ibv_mw_type type) {
  if (const int error = refuse_child(pd.verbs.context); error != 0) return failed(error);
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return failed(EINVAL);
  auto mw = std::make_unique<Mw>();
  {
    const TableGuard guard(fabric);
    const std::uint32_t index = memory.reserve_record();
    if (index == kNone) return failed(ENOMEM);
    MrRecord& r = fabric.mr(index);
    r.window =
        static_cast<std::uint32_t>(type == IBV_MW_TYPE_1 ? WindowKind::type_1 : WindowKind::type_2);
    r.kind = static_cast<std::uint32_t>(MrKind::process) & 0xf;
    r.generation = (r.generation + 1) & 0xff;
    r.pd = pd.number;
    r.access = 0;
    r.length = 0;
    r.fd = -1;
    r.bound_to = 0;
    r.window_qp = 0;
    mw->index = index;
    mw->verbs.rkey = index << 8 | r.generation;
  }
  mw->verbs.context = pd.verbs.context;
  mw->verbs.pd = &pd.verbs;
  mw->verbs.handle = mw->index;
  mw->verbs.type = type;
  ++pd.users;
  return mw.release();
}

int LiveWindows::dealloc(Mw& mw) {
  if (const int error = refuse_child(mw.verbs.context); error != 0) return error;
  MrRecord& r = fabric.mr(mw.index);
  const std::uint32_t key = r.key.exchange(0, std::memory_order_seq_cst);
  if (key != 0) hazards.wait_unused(key, 0);
  memory.disown(mw.index);
  r.bound_to = 0;
  r.owner.store(0, std::memory_order_release);
  --pd_of(mw.verbs.pd).users;
  delete &mw;
  return 0;
}

ibv_wc_status LiveWindows::bind(const Qp& qp, const SendWqe& wqe) noexcept {
  const std::uint32_t index = wqe.rkey >> 8;
  if (index == 0 || index >= kMaxMrs) return IBV_WC_MW_BIND_ERR;
  MrRecord& r = fabric.mr(index);
  const auto kind = static_cast<WindowKind>(r.window);
  if (r.owner.load(std::memory_order_relaxed) != fabric.me() || kind == WindowKind::none ||
      r.pd != wqe.bind_pd || r.pd != qp.record->pd) {
    return IBV_WC_MW_BIND_ERR;
  }
  const std::uint32_t before = r.key.load(std::memory_order_relaxed);
  // IBTA 10.6.7.2.2: of type 2 only one that is not bound.
  if (kind == WindowKind::type_2 && (before != 0 || wqe.bind_length == 0)) {
    return IBV_WC_MW_BIND_ERR;
  }
  const std::uint32_t region = wqe.bind_lkey >> 8;
  if (wqe.bind_length != 0) {
    if (region == 0 || region >= kMaxMrs) return IBV_WC_MW_BIND_ERR;
    const MrRecord& of = fabric.mr(region);
    if (of.owner.load(std::memory_order_relaxed) != fabric.me() || of.window != 0 ||
        static_cast<MrKind>(of.kind) == MrKind::list ||
        of.key.load(std::memory_order_acquire) != wqe.bind_lkey || of.pd != r.pd ||
        (of.access & IBV_ACCESS_MW_BIND) == 0 || !may_allow(wqe.bind_access, of.access) ||
        !covers(of.iova, of.length, wqe.remote, wqe.bind_length)) {
      return IBV_WC_MW_BIND_ERR;
    }
  }
  r.key.store(0, std::memory_order_seq_cst);
  if (before != 0) hazards.wait_unused(before, 0, &qp);
  r.generation = wqe.rkey & 0xff;
  r.bound_to = region;
  if (wqe.bind_length == 0) return IBV_WC_SUCCESS;
  const MrRecord& of = fabric.mr(region);
  r.kind = of.kind;
  r.access = wqe.bind_access & 0xffff;
  r.iova = (wqe.bind_access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : wqe.remote;
  r.length = wqe.bind_length;
  r.address = of.address + (wqe.remote - of.iova);
  r.inode = of.inode;
  r.device = of.device;
  r.fd = of.fd;
  r.window_qp = qp.number;
  r.mapped.store(0, std::memory_order_relaxed);
  r.registration.fetch_add(1, std::memory_order_relaxed);
  if (static_cast<MrKind>(r.kind) == MrKind::process &&
      !memory.own_window(wqe.rkey, wqe.bind_lkey, wqe.remote, r.iova, wqe.bind_length)) {
    return IBV_WC_MW_BIND_ERR;
  }
  r.key.store(wqe.rkey, std::memory_order_release);
  return IBV_WC_SUCCESS;
}

ibv_wc_status LiveWindows::invalidate(const Qp& qp, const SendWqe& wqe) noexcept {
  std::uint32_t key = wqe.imm;
  const std::uint32_t index = key >> 8;
  if (key == 0 || index >= kMaxMrs) return IBV_WC_MW_BIND_ERR;
  MrRecord& r = fabric.mr(index);
  if (r.owner.load(std::memory_order_relaxed) != fabric.me() ||
      static_cast<WindowKind>(r.window) != WindowKind::type_2 || r.window_qp != qp.number ||
      !r.key.compare_exchange_strong(key, 0, std::memory_order_seq_cst)) {
    return IBV_WC_MW_BIND_ERR;
  }
  hazards.wait_unused(wqe.imm, 0, &qp);
  return IBV_WC_SUCCESS;
}

bool LiveWindows::may_invalidate(std::uint32_t key, const RequestTarget& target) const noexcept {
  const std::uint32_t index = key >> 8;
  if (key == 0 || index >= kMaxMrs) return false;
  const MrRecord& r = fabric.mr(index);
  return r.key.load(std::memory_order_acquire) == key &&
         static_cast<WindowKind>(r.window) == WindowKind::type_2 && r.pd == target.pd &&
         r.window_qp == target.number;
}

}  // namespace turnout::hca
