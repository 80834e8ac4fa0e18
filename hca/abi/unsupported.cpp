// SPDX-License-Identifier: BSD-3-Clause
// Public functions that this adapter has no use for: each answers EOPNOTSUPP, and says so once in
// the log. And the 1.0 versions of names, whose structs went out of use in 2007.
#include <cerrno>
#include <mutex>
#include <set>
#include <string_view>

#include "base/log.h"
#include "hca/abi/verbs.h"

using namespace turnout::hca;

namespace turnout::hca {

int unsupported(const char* name) {
  static std::mutex mutex;
  static auto* said = new std::set<std::string_view>;
  const std::lock_guard lock(mutex);
  if (said->insert(name).second) {
    TURNOUT_LOG(hca, info, "{} failed: not supported by the virtual adapter", name);
  }
  return EOPNOTSUPP;
}

}  // namespace turnout::hca

TURNOUT_EXPORT int ibv_resolve_eth_l2_from_gid(ibv_context*, ibv_ah_attr*, uint8_t*, uint16_t*) {
  return result_of(unsupported("ibv_resolve_eth_l2_from_gid"));
}

// Nothing is pinned, so nothing needs to be kept from a fork's child.
TURNOUT_EXPORT int ibv_fork_init() {
  return 0;
}
TURNOUT_EXPORT ibv_fork_status ibv_is_fork_initialized() {
  return IBV_FORK_UNNEEDED;
}
TURNOUT_EXPORT int ibv_dontfork_range(void*, std::size_t) {
  return 0;
}
TURNOUT_EXPORT int ibv_dofork_range(void*, std::size_t) {
  return 0;
}

// There is no kernel device, so no sysfs and no conversion from kernel structs.
TURNOUT_EXPORT const char* ibv_get_sysfs_path() {
  return "/sys";
}
TURNOUT_EXPORT int ibv_read_sysfs_file(const char*, const char*, char*, std::size_t) {
  return result_of(ENOENT);
}
#define TURNOUT_NO_COPY(name)  \
  TURNOUT_EXPORT void name() { \
    unsupported(#name);        \
  }
TURNOUT_NO_COPY(ibv_copy_qp_attr_from_kern)
TURNOUT_NO_COPY(ibv_copy_ah_attr_from_kern)
TURNOUT_NO_COPY(ibv_copy_path_rec_from_kern)
TURNOUT_NO_COPY(ibv_copy_path_rec_to_kern)

// Bound to an old version: returns EOPNOTSUPP (or null and errno) whatever it is given.
#define TURNOUT_OLD_POINTER(symbol, version)                                             \
  extern "C" __attribute__((visibility("default"), used)) void* turnout_old_##symbol() { \
    return failed(unsupported(#symbol "@" version));                                     \
  }                                                                                      \
  __asm__(".symver turnout_old_" #symbol "," #symbol "@" version);
#define TURNOUT_OLD_INT(symbol, version)                                               \
  extern "C" __attribute__((visibility("default"), used)) int turnout_old_##symbol() { \
    return unsupported(#symbol "@" version);                                           \
  }                                                                                    \
  __asm__(".symver turnout_old_" #symbol "," #symbol "@" version);

TURNOUT_OLD_INT(ibv_ack_async_event, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_ack_cq_events, "IBVERBS_1.0")
TURNOUT_OLD_POINTER(ibv_alloc_pd, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_attach_mcast, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_close_device, "IBVERBS_1.0")
TURNOUT_OLD_POINTER(ibv_create_ah, "IBVERBS_1.0")
TURNOUT_OLD_POINTER(ibv_create_cq, "IBVERBS_1.0")
TURNOUT_OLD_POINTER(ibv_create_qp, "IBVERBS_1.0")
TURNOUT_OLD_POINTER(ibv_create_srq, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_dealloc_pd, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_dereg_mr, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_destroy_ah, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_destroy_cq, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_destroy_qp, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_destroy_srq, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_detach_mcast, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_free_device_list, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_get_async_event, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_get_cq_event, "IBVERBS_1.0")
TURNOUT_OLD_POINTER(ibv_get_device_guid, "IBVERBS_1.0")
TURNOUT_OLD_POINTER(ibv_get_device_list, "IBVERBS_1.0")
TURNOUT_OLD_POINTER(ibv_get_device_name, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_modify_qp, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_modify_srq, "IBVERBS_1.0")
TURNOUT_OLD_POINTER(ibv_open_device, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_query_device, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_query_gid, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_query_pkey, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_query_port, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_query_qp, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_query_srq, "IBVERBS_1.0")
TURNOUT_OLD_POINTER(ibv_reg_mr, "IBVERBS_1.0")
TURNOUT_OLD_INT(ibv_register_driver, "IBVERBS_1.1")
TURNOUT_OLD_INT(ibv_resize_cq, "IBVERBS_1.0")
