// SPDX-License-Identifier: BSD-3-Clause
// Protection domains, thread domains, and parent domains, which pair one of each; XRC domains.
//
// A thread domain promises that its objects are used by one thread: nothing of ours gets cheaper.
// A parent domain's allocators are for memory that a driver would take for queues; ours lie in the
// fabric's shared state, so they are never called.
#include <cerrno>
#include <memory>

#include "hca/abi/verbs.h"
#include "hca/device/common_objects.h"

using namespace turnout::hca;

namespace {

struct Td {
  ibv_td verbs;
  std::atomic<std::uint32_t> users;
};

}  // namespace

namespace turnout::hca {

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
  if (attr->comp_mask != 0) return failed(EINVAL);
  auto td = std::make_unique<Td>();
  td->verbs.context = context;
  ++context_of(context).users;
  return &td.release()->verbs;
}

int dealloc_td(ibv_td* verbs) {
  auto* td = reinterpret_cast<Td*>(verbs);
  if (td->users.load() != 0) return EBUSY;
  --context_of(verbs->context).users;
  delete td;
  return 0;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  constexpr unsigned kKnown =
      IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  if (attr->pd == nullptr || attr->pd->context != context || (attr->comp_mask & ~kKnown) != 0) {
    return failed(EINVAL);
  }
  Pd& of = pd_of(attr->pd);
  auto pd = std::make_unique<Pd>();
  pd->verbs.context = context;
  pd->verbs.handle = of.verbs.handle;
  pd->number = of.number;
  pd->parent_of = &of;
  pd->td = attr->td;
  ++of.users;
  if (attr->td != nullptr) ++reinterpret_cast<Td*>(attr->td)->users;
  ++context_of(context).users;
  return &pd.release()->verbs;
}

// ibv_open_xrcd(3); which masks are refused, and how, is rdma-core's.
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) {
  if (attr->comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED) return failed(EOPNOTSUPP);
  constexpr unsigned needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if ((attr->comp_mask & needed) != needed) return failed(EINVAL);
  return verbs_of(objects_of(context).open_xrcd(context_of(context), attr->fd, attr->oflags));
}

int close_xrcd(ibv_xrcd* xrcd) {
  return objects_of(xrcd).close_xrcd(*reinterpret_cast<Xrcd*>(xrcd));
}

}  // namespace turnout::hca

TURNOUT_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* context) {
  return verbs_of(objects_of(context).alloc_pd(context_of(context)));
}

TURNOUT_EXPORT int ibv_dealloc_pd(ibv_pd* verbs) {
  Pd& pd = pd_of(verbs);
  if (pd.parent_of == nullptr) return destroy_domain(pd);
  if (pd.users.load() != 0) return EBUSY;
  --pd.parent_of->users;
  if (pd.td != nullptr) --reinterpret_cast<Td*>(pd.td)->users;
  --context_of(verbs->context).users;
  delete &pd;
  return 0;
}

// Of another context, or another process.
TURNOUT_EXPORT ibv_pd* ibv_import_pd(ibv_context* context, std::uint32_t handle) {
  return verbs_of(objects_of(context).import_pd(context_of(context), handle));
}

TURNOUT_EXPORT void ibv_unimport_pd(ibv_pd* pd) {
  ibv_dealloc_pd(pd);
}
