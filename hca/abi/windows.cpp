// SPDX-License-Identifier: BSD-3-Clause
// Memory windows and multicast groups: what programs call.
#include <cerrno>
#include <mutex>

#include "hca/abi/verbs.h"
#include "hca/device/identity.h"

using namespace turnout::hca;

namespace turnout::hca {

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  if (!identity().windows) return failed(EOPNOTSUPP);
  return verbs_of(objects_of(pd).alloc_window(pd_of(pd), type));
}

int dealloc_mw(ibv_mw* mw) {
  return objects_of(mw).dealloc_window(*reinterpret_cast<Mw*>(mw));
}

void set_binding(SendWqe& wqe, const ibv_mw& mw, std::uint32_t key,
                 const ibv_mw_bind_info& info) noexcept {
  wqe.rkey = key;
  wqe.remote = info.addr;
  wqe.bind_length = info.length;
  wqe.bind_access = info.mw_access_flags;
  wqe.bind_lkey = info.mr != nullptr ? info.mr->lkey : 0;
  wqe.bind_pd = reinterpret_cast<const Pd*>(mw.pd)->number;
}

// Of type 1: verbs.h lets no other through. A window has a new key from the call on.
int bind_mw(ibv_qp* verbs, ibv_mw* mw, ibv_mw_bind* bind) {
  Qp& qp = qp_of(verbs);
  if (bind->bind_info.mr != nullptr && bind->bind_info.mr->context != mw->context) return EINVAL;
  const std::uint32_t key = ibv_inc_rkey(mw->rkey);
  const std::lock_guard lock(qp.sq_lock);
  SendWqe& w = qp.scratch;
  begin_request(w, bind->wr_id, IBV_WR_BIND_MW, bind->send_flags);
  set_binding(w, *mw, key, bind->bind_info);
  const int error = data_path_of(verbs).send(qp, w);
  if (error == 0) mw->rkey = key;
  return error;
}

}  // namespace turnout::hca

TURNOUT_EXPORT int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t) {
  return objects_of(qp).attach(qp_of(qp), *gid);
}

TURNOUT_EXPORT int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t) {
  return objects_of(qp).detach(qp_of(qp), *gid);
}
