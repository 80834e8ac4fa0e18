// Shared receive queues, and posting of receives.
#include <cerrno>

#include "hca/abi/verbs.h"

using namespace turnout::hca;

namespace {

Srq& of(ibv_srq* srq) {
  return *reinterpret_cast<Srq*>(srq);
}
Engine& engine_of(ibv_srq* srq) {
  return *context_of(srq->context).engine;
}

}  // namespace

namespace turnout::hca {

ibv_srq* create_srq_ex(ibv_context*, ibv_srq_init_attr_ex* attr) {
  // verbs.h sends basic ones to ibv_create_srq: what comes here is XRC or tag matching.
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 && attr->srq_type != IBV_SRQT_BASIC) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0) {
    errno = EINVAL;
    return nullptr;
  }
  return ibv_create_srq(attr->pd, reinterpret_cast<ibv_srq_init_attr*>(attr));
}

int get_srq_num(ibv_srq* srq, std::uint32_t* number) {
  *number = of(srq).index;
  return 0;
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return engine_of(srq).post_srq_recv(of(srq), wr, bad);
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return context_of(qp->context).engine->post_recv(qp_of(qp), wr, bad);
}

}  // namespace turnout::hca

TURNOUT_EXPORT ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attr) {
  Srq* srq = context_of(pd->context).engine->create_srq(*reinterpret_cast<Pd*>(pd), *attr);
  return srq != nullptr ? &srq->verbs : nullptr;
}

TURNOUT_EXPORT int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attr, int mask) {
  return engine_of(srq).modify_srq(of(srq), *attr, mask);
}

TURNOUT_EXPORT int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attr) {
  return engine_of(srq).query_srq(of(srq), *attr);
}

TURNOUT_EXPORT int ibv_destroy_srq(ibv_srq* srq) {
  return engine_of(srq).destroy_srq(of(srq));
}
