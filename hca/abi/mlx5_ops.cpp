// The functions behind libmlx5.so.1.
#include <cerrno>

#include "hca/abi/verbs.h"

namespace turnout::hca {
namespace {

ibv_cq_ex* create_cq(ibv_context* context, ibv_cq_init_attr_ex* attr) {
  return create_cq_ex(context, attr);
}

mlx5dv_qp_ex* qp_ex(ibv_qp_ex* ex) {
  Qp& qp = qp_of(ex);
  if (qp.magic == kObjectMagic && qp.extended) return &qp.dv;
  errno = EOPNOTSUPP;
  return nullptr;
}

ibv_context* open_device(ibv_device* device) {
  return ibv_open_device(device);
}

}  // namespace

const Mlx5Ops kMlx5Ops = {sizeof(Mlx5Ops), create_qp_dc, create_cq, qp_ex, open_device};

}  // namespace turnout::hca
