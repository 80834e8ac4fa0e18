// Protection domains, memory regions, address handles.
#include <arpa/inet.h>

#include <cerrno>
#include <cstring>

#include "hca/abi/verbs.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

using namespace turnout::hca;

namespace {

Engine& engine_of(const ibv_pd* pd) {
  return *context_of(pd->context).engine;
}

ibv_mr* region(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, unsigned access) {
  Mr* mr = engine_of(pd).register_memory(*reinterpret_cast<Pd*>(pd), address, length, iova, access);
  return mr != nullptr ? &mr->verbs : nullptr;
}

}  // namespace

namespace turnout::hca {

// A thread domain promises that its objects are used by one thread: nothing of ours gets cheaper.
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
  if (attr->comp_mask != 0) {
    errno = EINVAL;
    return nullptr;
  }
  ++context_of(context).users;
  return new ibv_td{context};
}

int dealloc_td(ibv_td* td) {
  --context_of(td->context).users;
  delete td;
  return 0;
}

}  // namespace turnout::hca

TURNOUT_EXPORT ibv_pd* ibv_alloc_pd(ibv_context* context) {
  Pd* pd = context_of(context).engine->alloc_pd(context_of(context));
  return pd != nullptr ? &pd->verbs : nullptr;
}

TURNOUT_EXPORT int ibv_dealloc_pd(ibv_pd* pd) {
  return engine_of(pd).dealloc_pd(*reinterpret_cast<Pd*>(pd));
}

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
  Mr* mr = engine_of(pd).register_file(*reinterpret_cast<Pd*>(pd), offset, length, iova, fd,
                                       static_cast<unsigned>(access));
  return mr != nullptr ? &mr->verbs : nullptr;
}

TURNOUT_EXPORT int ibv_dereg_mr(ibv_mr* mr) {
  return engine_of(mr->pd).deregister(*reinterpret_cast<Mr*>(mr));
}

TURNOUT_EXPORT int ibv_rereg_mr(ibv_mr*, int, ibv_pd*, void*, std::size_t, int) {
  errno = unsupported("ibv_rereg_mr");
  return IBV_REREG_MR_ERR_INPUT;  // the old region stays valid
}

TURNOUT_EXPORT ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  Ah* ah = engine_of(pd).create_ah(*reinterpret_cast<Pd*>(pd), *attr);
  return ah != nullptr ? &ah->verbs : nullptr;
}

TURNOUT_EXPORT int ibv_destroy_ah(ibv_ah* ah) {
  return engine_of(ah->pd).destroy_ah(*reinterpret_cast<Ah*>(ah));
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
