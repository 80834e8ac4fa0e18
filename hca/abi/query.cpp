// SPDX-License-Identifier: BSD-3-Clause
// Queries: what the device and its port say about themselves.
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "hca/abi/verbs.h"
#include "hca/device/identity.h"

#undef ibv_query_port

using namespace turnout::hca;

namespace {

// Of the node's adapter, network order: nodes of one world are one device to its processes.
std::uint64_t guid_of(ibv_context* context) noexcept {
  return htobe64(be64toh(ibv_get_device_guid(context->device)) + context_of(context).node);
}

constexpr int kGids = 8;  // of the table; the first is there

constexpr __be16 kDefaultPkey = 0xffff;  // IBTA 10.9.2: default partition, full member

void fill(ibv_context* context, ibv_device_attr& a) {
  a = {};
  if (context_of(context).virtual_clock) {
    std::snprintf(a.fw_ver, sizeof a.fw_ver, "virtual clock");  // the core knows it by this
  } else if (identity().firmware != nullptr) {
    std::snprintf(a.fw_ver, sizeof a.fw_ver, "%s", identity().firmware);
  } else {
    std::snprintf(a.fw_ver, sizeof a.fw_ver, "%d.%d", 1, static_cast<int>(kLayoutVersion));
  }
  a.node_guid = a.sys_image_guid = guid_of(context);
  a.max_mr_size = kMaxMrBytes;
  a.page_size_cap = kPage;
  a.vendor_id = identity().vendor_id;
  a.vendor_part_id = identity().part_id;
  a.hw_ver = kLayoutVersion;
  a.max_qp = kMaxQps - kFirstQp;
  a.max_qp_wr = kMaxQpWr;
  a.device_cap_flags =
      IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SYS_IMAGE_GUID;
  if (identity().xrc) a.device_cap_flags |= IBV_DEVICE_XRC;
  a.max_sge = a.max_sge_rd = kMaxSge;
  a.max_cq = kMaxCqs;
  a.max_cqe = static_cast<int>(identity().max_cqe);
  a.max_mr = kMaxMrs - 1;
  a.max_pd = 1 << 24;
  a.max_qp_rd_atom = a.max_qp_init_rd_atom = kMaxRdAtomic;
  a.max_res_rd_atom = static_cast<int>(kMaxRdAtomic * kMaxQps);
  // Atomic among requests to one region, and with the processor's instructions only where the
  // region is pages of a file.
  a.atomic_cap = IBV_ATOMIC_HCA;
  a.max_ah = 1 << 30;
  if (!context_of(context).virtual_clock) {
    a.max_mcast_grp = a.max_total_mcast_qp_attach = a.max_mcast_qp_attach = kMaxMulticasts;
    if (identity().windows) {
      a.max_mw = kMaxMrs - 1;
      a.device_cap_flags |= IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
    }
  }
  a.max_srq = kMaxSrqs;
  a.max_srq_wr = kMaxSrqWr;
  a.max_srq_sge = kMaxSge;
  a.max_pkeys = 1;
  a.local_ca_ack_delay = 0;
  a.phys_port_cnt = 1;
}

void fill(ibv_port_attr& a) {
  a = {};
  a.state = IBV_PORT_ACTIVE;
  a.max_mtu = a.active_mtu = IBV_MTU_4096;
  a.gid_tbl_len = kGids;
  a.port_cap_flags = IBV_PORT_SYS_IMAGE_GUID_SUP;
  a.max_msg_sz = kMaxMessage;
  a.pkey_tbl_len = 1;
  a.lid = kLid;
  a.sm_lid = kLid;
  a.max_vl_num = 1;
  a.subnet_timeout = 18;  // opensm's default
  a.active_width = 2;     // 4X
  a.active_speed = 64;    // HDR
  a.phys_state = 5;       // LinkUp
  a.link_layer = IBV_LINK_LAYER_INFINIBAND;
}

}  // namespace

namespace turnout::hca {

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t size) {
  if (port != kPort) return EINVAL;
  ibv_port_attr a;
  fill(a);
  // Of more nodes than there are unicast LIDs (IBTA 4.1.3) some share one; GIDs differ.
  constexpr std::uint32_t kUnicastLids = 0xbfff;
  a.lid = static_cast<std::uint16_t>(kLid + context_of(context).node % kUnicastLids);
  if (context_of(context).port_down.load(std::memory_order_relaxed)) {
    a.state = IBV_PORT_DOWN;
    a.phys_state = 2;  // Polling
  }
  std::memset(attr, 0, size);
  std::memcpy(attr, &a, std::min(size, sizeof a));
  return 0;
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, std::size_t size) {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  if (size < sizeof(ibv_device_attr)) return EINVAL;
  ibv_device_attr_ex a{};
  fill(context, a.orig_attr);
  a.completion_timestamp_mask = ~0ULL;
  a.hca_core_clock = 1'000'000;  // kHz: time stamps are nanoseconds of CLOCK_MONOTONIC
  a.device_cap_flags_ex = a.orig_attr.device_cap_flags;
  a.phys_port_cnt_ex = 1;
  a.max_dm_size = identity().device_memory;
  if (identity().on_demand && !context_of(context).virtual_clock) {
    // Nothing is pinned: every page faults in when it is touched.
    constexpr std::uint32_t kDatagram =
        IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
    constexpr std::uint32_t kUnreliable = kDatagram | IBV_ODP_SUPPORT_WRITE;
    constexpr std::uint32_t kReliable = kUnreliable | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
    a.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
    a.odp_caps.per_transport_caps.rc_odp_caps = kReliable;
    a.odp_caps.per_transport_caps.uc_odp_caps = kUnreliable;
    a.odp_caps.per_transport_caps.ud_odp_caps = kDatagram;
    a.xrc_odp_caps = kReliable;
  }
  std::memset(attr, 0, size);
  std::memcpy(attr, &a, std::min(size, sizeof a));
  return 0;
}

int query_rt_values(ibv_context*, ibv_values_ex* values) {
  if ((values->comp_mask & ~static_cast<unsigned>(IBV_VALUES_MASK_RAW_CLOCK)) != 0) return EINVAL;
  if ((values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0) {
    // rdma-core gives the raw counter in both fields; ours counts nanoseconds.
    clock_gettime(CLOCK_MONOTONIC, &values->raw_clock);
  }
  return 0;
}

}  // namespace turnout::hca

TURNOUT_EXPORT int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  fill(context, *attr);
  return 0;
}

// The old struct: ibv_port_attr up to `link_layer` and `flags` (44's ABI keeps these 44 bytes).
TURNOUT_EXPORT int ibv_query_port(ibv_context* context, std::uint8_t port,
                                  struct _compat_ibv_port_attr* attr) {
  return query_port(context, port, reinterpret_cast<ibv_port_attr*>(attr),
                    offsetof(ibv_port_attr, port_cap_flags2));
}

TURNOUT_EXPORT int ibv_query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
  if (port != kPort || index < 0 || index >= kGids) return result_of(EINVAL);
  *gid = {};
  if (index != 0) return 0;  // an entry that nobody has filled
  gid->global.subnet_prefix = htobe64(0xfe80'0000'0000'0000ULL);
  gid->global.interface_id = guid_of(context);
  return 0;
}

TURNOUT_EXPORT int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                                     ibv_gid_entry* entry, std::uint32_t flags, std::size_t size) {
  if (flags != 0 || port != kPort || size < sizeof(ibv_gid_entry)) return EINVAL;
  if (index >= kGids) return EINVAL;
  if (index != 0) return ENODATA;
  *entry = {};
  ibv_query_gid(context, kPort, 0, &entry->gid);
  entry->port_num = port;
  entry->gid_type = IBV_GID_TYPE_IB;
  return 0;
}

TURNOUT_EXPORT ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries,
                                            std::size_t max_entries, std::uint32_t flags,
                                            std::size_t size) {
  if (flags != 0 || size < sizeof(ibv_gid_entry)) return -EINVAL;
  if (max_entries == 0) return -EINVAL;
  const int error = _ibv_query_gid_ex(context, kPort, 0, entries, 0, size);
  return error != 0 ? -error : 1;
}

TURNOUT_EXPORT int ibv_query_pkey(ibv_context*, std::uint8_t port, int index, __be16* pkey) {
  if (port != kPort || index != 0) return result_of(EINVAL);
  *pkey = kDefaultPkey;
  return 0;
}

TURNOUT_EXPORT int ibv_get_pkey_index(ibv_context*, std::uint8_t port, __be16 pkey) {
  return result_of(port == kPort && pkey == kDefaultPkey ? 0 : EINVAL);
}

// Attempts of the queue pairs of this context that found no receive at their target: what a kernel
// has in sysfs, by port, as hw_counters/rnr_nak_retry_err.
TURNOUT_EXPORT std::uint64_t turnout_rnr_retries(ibv_context* context) {
  return context_of(context).rnr_retries.load(std::memory_order_relaxed);
}
