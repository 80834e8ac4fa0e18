// SPDX-License-Identifier: BSD-3-Clause
// The interface between the two libraries.
//
// libmlx5.so.1 must work beside a foreign libibverbs.so.1 (or ours under another path), so it does
// not link to it: it reaches the implementation through Mlx5Ops, found behind the context or device
// and recognised by a magic number.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include "hca/device/export.h"
#include "hca/device/objects.h"

namespace turnout::hca {

struct Mlx5Ops {
  std::uint64_t size;  // of this struct, as the other library was built
  ibv_qp* (*create_qp)(ibv_context*, ibv_qp_init_attr_ex*, mlx5dv_qp_init_attr*);
  ibv_cq_ex* (*create_cq)(ibv_context*, ibv_cq_init_attr_ex*);
  mlx5dv_qp_ex* (*qp_ex)(ibv_qp_ex*);
  ibv_context* (*open_device)(ibv_device*);
  bool (*is_supported)();
  int (*reset_stream)(ibv_qp*, std::uint16_t);
  int (*reserve_number)(ibv_context*, std::uint32_t*);
  int (*release_number)(ibv_context*, std::uint32_t);
  // Caps of streams and on-demand paging, as the context's engine has them.
  void (*capabilities)(ibv_context*, mlx5dv_dci_streams_caps*, std::uint32_t* paging);
};

extern const Mlx5Ops kMlx5Ops;

}  // namespace turnout::hca
