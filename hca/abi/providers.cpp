// SPDX-License-Identifier: BSD-3-Clause
// IBVERBS_PRIVATE_34: what rdma-core's own plug-ins (libefa, libmlx4, libmana) and a few of its
// programs take from libibverbs beside the public verbs. All names must be there, or the loader
// refuses whoever needs one of them: pyverbs and perftest link to libefa. A plug-in finds nothing
// to drive here, so it is never called; what it would call answers EOPNOTSUPP, or null and errno,
// whatever its arguments. No prototypes: rdma-core does not install driver.h.
#include <cerrno>

#include "hca/abi/verbs.h"

using namespace turnout::hca;

#define TURNOUT_PRIVATE extern "C" __attribute__((visibility("default"), used))
#define TURNOUT_NO_POINTER(name)       \
  TURNOUT_PRIVATE void* name() {       \
    return failed(unsupported(#name)); \
  }
#define TURNOUT_NO_INT(name)   \
  TURNOUT_PRIVATE int name() { \
    return unsupported(#name); \
  }
// Called when the library is loaded or for its side effect alone.
#define TURNOUT_NOTHING(name) \
  TURNOUT_PRIVATE void name() {}

// Kernel drivers may vanish and destroy objects nevertheless; ours does not.
extern "C" __attribute__((visibility("default"))) bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy = false;

TURNOUT_NOTHING(verbs_register_driver_34)
TURNOUT_NOTHING(verbs_init_cq)
TURNOUT_NOTHING(verbs_set_ops)
TURNOUT_NOTHING(verbs_uninit_context)
TURNOUT_NOTHING(__verbs_log)  // NOLINT: rdma-core's name
TURNOUT_NO_POINTER(_verbs_init_and_alloc_context)

TURNOUT_PRIVATE ibv_context* verbs_open_device(ibv_device* device, void*) {
  return ibv_open_device(device);
}

// What kind of address an entry of the GID table is; ibv_devinfo and pyverbs ask so. The answer's
// values are their own: 0 for IB and RoCE v1, 1 for RoCE v2.
TURNOUT_PRIVATE int ibv_query_gid_type(ibv_context* context, std::uint8_t port, unsigned index,
                                       unsigned* type) {
  ibv_gid_entry entry;
  const int error = _ibv_query_gid_ex(context, port, index, &entry, 0, sizeof entry);
  if (error != 0) return result_of(error == ENODATA ? EINVAL : error);
  *type = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 1 : 0;
  return 0;
}

// There is no sysfs entry of ours.
TURNOUT_PRIVATE int ibv_read_ibdev_sysfs_file(char*, std::size_t, void*, const char*, ...) {
  return result_of(ENOENT);
}

TURNOUT_PRIVATE unsigned __ioctl_final_num_attrs(unsigned) {  // NOLINT: rdma-core's name
  return 0;
}

TURNOUT_NO_INT(execute_ioctl)
TURNOUT_NO_INT(ibv_cmd_advise_mr)
TURNOUT_NO_INT(ibv_cmd_alloc_dm)
TURNOUT_NO_INT(ibv_cmd_alloc_mw)
TURNOUT_NO_INT(ibv_cmd_alloc_pd)
TURNOUT_NO_INT(ibv_cmd_attach_mcast)
TURNOUT_NO_INT(ibv_cmd_close_xrcd)
TURNOUT_NO_INT(ibv_cmd_create_ah)
TURNOUT_NO_INT(ibv_cmd_create_counters)
TURNOUT_NO_INT(ibv_cmd_create_cq)
TURNOUT_NO_INT(ibv_cmd_create_cq_ex)
TURNOUT_NO_INT(ibv_cmd_create_flow)
TURNOUT_NO_INT(ibv_cmd_create_flow_action_esp)
TURNOUT_NO_INT(ibv_cmd_create_qp)
TURNOUT_NO_INT(ibv_cmd_create_qp_ex)
TURNOUT_NO_INT(ibv_cmd_create_qp_ex2)
TURNOUT_NO_INT(ibv_cmd_create_rwq_ind_table)
TURNOUT_NO_INT(ibv_cmd_create_srq)
TURNOUT_NO_INT(ibv_cmd_create_srq_ex)
TURNOUT_NO_INT(ibv_cmd_create_wq)
TURNOUT_NO_INT(ibv_cmd_dealloc_mw)
TURNOUT_NO_INT(ibv_cmd_dealloc_pd)
TURNOUT_NO_INT(ibv_cmd_dereg_mr)
TURNOUT_NO_INT(ibv_cmd_destroy_ah)
TURNOUT_NO_INT(ibv_cmd_destroy_counters)
TURNOUT_NO_INT(ibv_cmd_destroy_cq)
TURNOUT_NO_INT(ibv_cmd_destroy_flow)
TURNOUT_NO_INT(ibv_cmd_destroy_flow_action)
TURNOUT_NO_INT(ibv_cmd_destroy_qp)
TURNOUT_NO_INT(ibv_cmd_destroy_rwq_ind_table)
TURNOUT_NO_INT(ibv_cmd_destroy_srq)
TURNOUT_NO_INT(ibv_cmd_destroy_wq)
TURNOUT_NO_INT(ibv_cmd_detach_mcast)
TURNOUT_NO_INT(ibv_cmd_free_dm)
TURNOUT_NO_INT(ibv_cmd_get_context)
TURNOUT_NO_INT(ibv_cmd_modify_cq)
TURNOUT_NO_INT(ibv_cmd_modify_flow_action_esp)
TURNOUT_NO_INT(ibv_cmd_modify_qp)
TURNOUT_NO_INT(ibv_cmd_modify_qp_ex)
TURNOUT_NO_INT(ibv_cmd_modify_srq)
TURNOUT_NO_INT(ibv_cmd_modify_wq)
TURNOUT_NO_INT(ibv_cmd_open_qp)
TURNOUT_NO_INT(ibv_cmd_open_xrcd)
TURNOUT_NO_INT(ibv_cmd_poll_cq)
TURNOUT_NO_INT(ibv_cmd_post_recv)
TURNOUT_NO_INT(ibv_cmd_post_send)
TURNOUT_NO_INT(ibv_cmd_post_srq_recv)
TURNOUT_NO_INT(ibv_cmd_query_context)
TURNOUT_NO_INT(ibv_cmd_query_device_any)
TURNOUT_NO_INT(ibv_cmd_query_mr)
TURNOUT_NO_INT(ibv_cmd_query_port)
TURNOUT_NO_INT(ibv_cmd_query_qp)
TURNOUT_NO_INT(ibv_cmd_query_srq)
TURNOUT_NO_INT(ibv_cmd_read_counters)
TURNOUT_NO_INT(ibv_cmd_reg_dm_mr)
TURNOUT_NO_INT(ibv_cmd_reg_dmabuf_mr)
TURNOUT_NO_INT(ibv_cmd_reg_mr)
TURNOUT_NO_INT(ibv_cmd_req_notify_cq)
TURNOUT_NO_INT(ibv_cmd_rereg_mr)
TURNOUT_NO_INT(ibv_cmd_resize_cq)
