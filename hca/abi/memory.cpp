// SPDX-License-Identifier: BSD-3-Clause
// Memory regions and address handles.
#include <arpa/inet.h>

#include <cerrno>

#include "hca/abi/verbs.h"
#include "hca/device/common_objects.h"
#include "hca/device/identity.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

using namespace turnout::hca;

namespace {

ibv_mr* region(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, unsigned access) {
  if ((access & IBV_ACCESS_ON_DEMAND) != 0 && !identity().on_demand) return failed(EOPNOTSUPP);
  if ((access & IBV_ACCESS_ZERO_BASED) != 0) iova = 0;
  return verbs_of(objects_of(pd).register_memory(pd_of(pd), address, length, iova, access));
}

}  // namespace

namespace turnout::hca {

ibv_mr* alloc_null_mr(ibv_pd* pd) {
  if (!identity().null_regions) return failed(EOPNOTSUPP);
  return verbs_of(objects_of(pd).alloc_null_region(pd_of(pd)));
}

// Synchronous whether the program waits (IBV_ADVISE_MR_FLAG_FLUSH) or not.
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* list,
              std::uint32_t count) {
  if (!identity().on_demand) return EOPNOTSUPP;
  if ((flags & ~std::uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0 || count == 0) return EINVAL;
  if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE &&
      advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) {
    return EOPNOTSUPP;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const int error =
        objects_of(pd).prefetch(pd_of(pd), list[i], advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
                                advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT);
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace turnout::hca

TURNOUT_EXPORT ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
  return region(pd, address, length, reinterpret_cast<std::uintptr_t>(address),
                static_cast<unsigned>(access));
}

TURNOUT_EXPORT ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, std::size_t length,
                                       std::uint64_t iova, int access) {
  return region(pd, address, length, iova, static_cast<unsigned>(access));
}

TURNOUT_EXPORT ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length,
                                        std::uint64_t iova, unsigned access) {
  return region(pd, address, length, iova, access);
}

TURNOUT_EXPORT ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length,
                                         std::uint64_t iova, int fd, int access) {
  return verbs_of(objects_of(pd).register_file(pd_of(pd), offset, length, iova, fd,
                                               static_cast<unsigned>(access)));
}

TURNOUT_EXPORT int ibv_dereg_mr(ibv_mr* mr) {
  return objects_of(mr->pd).deregister(*reinterpret_cast<Mr*>(mr));
}

// On failure before anything changed the old region stays valid. Later ones leave it unusable.
TURNOUT_EXPORT int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address,
                                std::size_t length, int access) {
  constexpr int kKnown =
      IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  const bool changes_domain = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
  if (flags == 0 || (flags & ~kKnown) != 0 || (changes_domain && pd == nullptr) ||
      (moves && (length == 0 || address == nullptr)) ||
      (changes_domain && pd->context != mr->context)) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  Reregistration change;
  change.pd = changes_domain ? &pd_of(pd) : nullptr;
  change.moves = moves;
  change.address = address;
  change.length = length;
  change.changes_access = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
  change.access = static_cast<unsigned>(access);
  const int error = objects_of(mr).reregister(*reinterpret_cast<Mr*>(mr), change);
  if (error == 0) return 0;
  errno = error;
  return IBV_REREG_MR_ERR_INPUT;
}

// Of another context, or another process.
TURNOUT_EXPORT ibv_mr* ibv_import_mr(ibv_pd* pd, std::uint32_t handle) {
  return verbs_of(objects_of(pd).import_region(pd_of(pd), handle));
}

TURNOUT_EXPORT void ibv_unimport_mr(ibv_mr* mr) {
  ibv_dereg_mr(mr);
}

TURNOUT_EXPORT ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  return verbs_of(objects_of(pd).create_ah(pd_of(pd), *attr));
}

TURNOUT_EXPORT int ibv_destroy_ah(ibv_ah* ah) {
  destroy_address_handle(*reinterpret_cast<Ah*>(ah));
  return 0;
}

TURNOUT_EXPORT int ibv_init_ah_from_wc(ibv_context*, std::uint8_t port, ibv_wc* wc, ibv_grh* grh,
                                       ibv_ah_attr* attr) {
  *attr = {};
  attr->dlid = wc->slid;
  attr->sl = wc->sl;
  attr->src_path_bits = wc->dlid_path_bits;
  attr->port_num = port;
  if ((wc->wc_flags & IBV_WC_GRH) != 0) {
    attr->is_global = 1;
    attr->grh.dgid = grh->sgid;
    attr->grh.hop_limit = 0xff;
    const std::uint32_t word = ntohl(grh->version_tclass_flow);
    attr->grh.flow_label = word & 0xfffff;
    attr->grh.traffic_class = static_cast<std::uint8_t>(word >> 20);
  }
  return 0;
}

TURNOUT_EXPORT ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh,
                                             std::uint8_t port) {
  ibv_ah_attr attr;
  if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) != 0) return nullptr;
  return ibv_create_ah(pd, &attr);
}
