// libmlx5.so.1: the part of mlx5dv that Turnout implements. See export.h for how it reaches us.
#include <cerrno>
#include <cstring>

#include "hca/abi/export.h"

using namespace turnout::hca;

namespace {

const Mlx5Ops* ops_of(ibv_context* context) {
  if (context == nullptr || context->abi_compat != __VERBS_ABI_IS_EXTENDED) return nullptr;
  const verbs_context* v = verbs_get_ctx(context);
  if (v->sz < sizeof(verbs_context) || v->priv == nullptr) return nullptr;
  const auto* part = reinterpret_cast<const ContextPrivate*>(v->priv);
  if (part->magic != kObjectMagic || part->mlx5->size < sizeof(Mlx5Ops)) return nullptr;
  return part->mlx5;
}

const Mlx5Ops* ops_of(ibv_device* device) {
  // Compared by name first: behind a foreign ibv_device there may be less than we read.
  if (device == nullptr || std::strcmp(device->name, kDeviceName) != 0) return nullptr;
  const auto* d = reinterpret_cast<const Device*>(device);
  return d->magic == kObjectMagic && d->mlx5->size >= sizeof(Mlx5Ops) ? d->mlx5 : nullptr;
}

template <class T>
T* none(int error) {
  errno = error;
  return nullptr;
}

}  // namespace

// A program that hears yes may go on to write an mlx5's queues in memory (UCX does): so there is a
// setting to say no.
TURNOUT_EXPORT bool mlx5dv_is_supported(ibv_device* device) {
  return ops_of(device) != nullptr && ops_of(device)->is_supported();
}

TURNOUT_EXPORT ibv_context* mlx5dv_open_device(ibv_device* device, mlx5dv_context_attr* attr) {
  if (attr != nullptr && (attr->comp_mask != 0 || attr->flags != 0)) {
    return none<ibv_context>(EOPNOTSUPP);  // DEVX
  }
  if (ops_of(device) == nullptr) return none<ibv_context>(EOPNOTSUPP);
  return ops_of(device)->open_device(device);
}

TURNOUT_EXPORT int mlx5dv_query_device(ibv_context* context, mlx5dv_context* attr) {
  if (ops_of(context) == nullptr) return EOPNOTSUPP;
  const std::uint64_t asked = attr->comp_mask;
  attr->version = 0;
  attr->flags = MLX5DV_CONTEXT_FLAGS_CQE_V1;
  attr->comp_mask = 0;
  // Nothing of these is there, and saying so needs only zeros.
  if ((asked & MLX5DV_CONTEXT_MASK_DC_ODP_CAPS) != 0) {
    attr->dc_odp_caps = 0;
    attr->comp_mask |= MLX5DV_CONTEXT_MASK_DC_ODP_CAPS;
  }
  if ((asked & MLX5DV_CONTEXT_MASK_DCI_STREAMS) != 0) {
    attr->dci_streams_caps = {};
    attr->comp_mask |= MLX5DV_CONTEXT_MASK_DCI_STREAMS;
  }
  if ((asked & MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS) != 0) {
    attr->num_lag_ports = 1;
    attr->comp_mask |= MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS;
  }
  return 0;
}

TURNOUT_EXPORT ibv_qp* mlx5dv_create_qp(ibv_context* context, ibv_qp_init_attr_ex* attr,
                                        mlx5dv_qp_init_attr* dc) {
  const Mlx5Ops* ops = ops_of(context);
  return ops != nullptr ? ops->create_qp(context, attr, dc) : none<ibv_qp>(EOPNOTSUPP);
}

TURNOUT_EXPORT ibv_cq_ex* mlx5dv_create_cq(ibv_context* context, ibv_cq_init_attr_ex* attr,
                                           mlx5dv_cq_init_attr* dv) {
  const Mlx5Ops* ops = ops_of(context);
  // Compression and padding are about entries in memory that nobody but us reads.
  if (ops == nullptr || (dv != nullptr && dv->comp_mask != 0)) return none<ibv_cq_ex>(EOPNOTSUPP);
  return ops->create_cq(context, attr);
}

TURNOUT_EXPORT mlx5dv_qp_ex* mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_ex* qp) {
  const Mlx5Ops* ops = ops_of(qp->qp_base.context);
  return ops != nullptr ? ops->qp_ex(qp) : none<mlx5dv_qp_ex>(EOPNOTSUPP);
}
