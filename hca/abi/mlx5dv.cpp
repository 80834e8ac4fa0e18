// SPDX-License-Identifier: BSD-3-Clause
// libmlx5.so.1: the part of mlx5dv that Turnout implements. See export.h for how it reaches us.
#include <bit>
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

// Compression, size and padding are about entries in memory that nobody but us reads: what is valid
// is accepted and changes nothing.
int check_layout(const mlx5dv_cq_init_attr& dv) {
  constexpr std::uint64_t kKnown = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE |
                                   MLX5DV_CQ_INIT_ATTR_MASK_FLAGS |
                                   MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
  if ((dv.comp_mask & ~kKnown) != 0) return EOPNOTSUPP;
  const bool sized = (dv.comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE) != 0;
  if (sized && dv.cqe_size != 64 && dv.cqe_size != 128) return EINVAL;
  if ((dv.comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE) != 0 &&
      !std::has_single_bit(dv.cqe_comp_res_format)) {
    return EINVAL;
  }
  if ((dv.comp_mask & MLX5DV_CQ_INIT_ATTR_MASK_FLAGS) == 0) return 0;
  if (dv.flags >= MLX5DV_CQ_INIT_ATTR_FLAGS_RESERVED) return EINVAL;
  const bool pads = (dv.flags & MLX5DV_CQ_INIT_ATTR_FLAGS_CQE_PAD) != 0;
  return pads && (!sized || dv.cqe_size != 128) ? EINVAL : 0;
}

}  // namespace

// A program that hears yes may write an mlx5's queues in memory (UCX does): a setting can say no.
TURNOUT_EXPORT bool mlx5dv_is_supported(ibv_device* device) {
  return ops_of(device) != nullptr && ops_of(device)->is_supported();
}

TURNOUT_EXPORT ibv_context* mlx5dv_open_device(ibv_device* device, mlx5dv_context_attr* attr) {
  if (attr != nullptr && (attr->comp_mask != 0 || attr->flags != 0)) {
    return failed(EOPNOTSUPP);  // DEVX
  }
  if (ops_of(device) == nullptr) return failed(EOPNOTSUPP);
  return ops_of(device)->open_device(device);
}

TURNOUT_EXPORT int mlx5dv_query_device(ibv_context* context, mlx5dv_context* attr) {
  if (ops_of(context) == nullptr) return EOPNOTSUPP;
  const std::uint64_t asked = attr->comp_mask;
  attr->version = 0;
  attr->flags = MLX5DV_CONTEXT_FLAGS_CQE_V1 | MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP |
                MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD;
  attr->comp_mask = 0;
  mlx5dv_dci_streams_caps streams{};
  std::uint32_t paging = 0;
  ops_of(context)->capabilities(context, &streams, &paging);
  if ((asked & MLX5DV_CONTEXT_MASK_DC_ODP_CAPS) != 0) {
    attr->dc_odp_caps = paging;
    attr->comp_mask |= MLX5DV_CONTEXT_MASK_DC_ODP_CAPS;
  }
  if ((asked & MLX5DV_CONTEXT_MASK_DCI_STREAMS) != 0) {
    attr->dci_streams_caps = streams;
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
  return ops != nullptr ? ops->create_qp(context, attr, dc) : failed(EOPNOTSUPP);
}

TURNOUT_EXPORT ibv_cq_ex* mlx5dv_create_cq(ibv_context* context, ibv_cq_init_attr_ex* attr,
                                           mlx5dv_cq_init_attr* dv) {
  const Mlx5Ops* ops = ops_of(context);
  if (ops == nullptr) return failed(EOPNOTSUPP);
  if (const int error = dv != nullptr ? check_layout(*dv) : 0; error != 0) return failed(error);
  return ops->create_cq(context, attr);
}

TURNOUT_EXPORT mlx5dv_qp_ex* mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_ex* qp) {
  if (qp == nullptr) return failed(EINVAL);  // perftest asks so for a DCT
  const Mlx5Ops* ops = ops_of(qp->qp_base.context);
  return ops != nullptr ? ops->qp_ex(qp) : failed(EOPNOTSUPP);
}

TURNOUT_EXPORT int mlx5dv_dci_stream_id_reset(ibv_qp* qp, std::uint16_t stream) {
  const Mlx5Ops* ops = ops_of(qp->context);
  return ops != nullptr ? ops->reset_stream(qp, stream) : EOPNOTSUPP;
}

// Path information of an address handle, from a queue pair that has been told it: ours needs none.
TURNOUT_EXPORT int mlx5dv_map_ah_to_qp(ibv_ah* ah, std::uint32_t) {
  return ops_of(ah->context) != nullptr ? 0 : EOPNOTSUPP;
}

// Time stamps count nanoseconds of CLOCK_MONOTONIC: what converts them to nanoseconds of
// CLOCK_REALTIME, as mlx5's does.
TURNOUT_EXPORT int mlx5dv_get_clock_info(ibv_context* context, mlx5dv_clock_info* info) {
  if (ops_of(context) == nullptr) return EOPNOTSUPP;
  *info = {};
  info->nsec = clock_ns(CLOCK_REALTIME);
  info->last_cycles = clock_ns(CLOCK_MONOTONIC);
  info->mult = 1;
  info->mask = ~std::uint64_t{0};
  return 0;
}

// Nothing about steering is known.
TURNOUT_EXPORT int _mlx5dv_query_port(ibv_context* context, std::uint32_t port, mlx5dv_port* info,
                                      std::size_t size) {
  if (ops_of(context) == nullptr) return EOPNOTSUPP;
  if (port != kPort) return EINVAL;
  std::memset(static_cast<void*>(info), 0, size);
  return 0;
}

TURNOUT_EXPORT int mlx5dv_reserved_qpn_alloc(ibv_context* context, std::uint32_t* number) {
  const Mlx5Ops* ops = ops_of(context);
  return ops != nullptr ? ops->reserve_number(context, number) : EOPNOTSUPP;
}

TURNOUT_EXPORT int mlx5dv_reserved_qpn_dealloc(ibv_context* context, std::uint32_t number) {
  const Mlx5Ops* ops = ops_of(context);
  return ops != nullptr ? ops->release_number(context, number) : EOPNOTSUPP;
}
