// SPDX-License-Identifier: BSD-3-Clause
#include "hca/device/attributes.h"

#include <endian.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/settings.h"
#include "hca/device/identity.h"

namespace turnout::hca {

std::uint64_t port_guid() {
  const char* fabric = environment_value("fabric");
  utsname host{};
  uname(&host);
  const std::string text =
      std::string(host.nodename) + '/' + std::to_string(geteuid()) + '/' + (fabric ? fabric : "");
  std::uint64_t h = 1469598103934665603ULL;  // FNV-1a
  for (const char c : text) h = (h ^ static_cast<std::uint8_t>(c)) * 1099511628211ULL;
  // EUI-64 with the locally-administered bit.
  return (h & 0x00ff'ffff'ffff'ffffULL) | 0x0200'0000'0000'0000ULL;
}

std::uint64_t node_guid(const Context& context) noexcept {
  const auto* device = reinterpret_cast<const Device*>(context.verbs.context.device);
  return htobe64(device->guid + context.node);
}

ibv_device_attr device_attributes(const Context& context) noexcept {
  ibv_device_attr a{};
  if (context.virtual_clock) {
    std::snprintf(a.fw_ver, sizeof a.fw_ver, "virtual clock");  // the core knows it by this
  } else if (identity().firmware != nullptr) {
    std::snprintf(a.fw_ver, sizeof a.fw_ver, "%s", identity().firmware);
  } else {
    std::snprintf(a.fw_ver, sizeof a.fw_ver, "%d.%d", 1, static_cast<int>(kLayoutVersion));
  }
  a.node_guid = a.sys_image_guid = node_guid(context);
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
  if (!context.virtual_clock) {
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
  return a;
}

ibv_device_attr_ex extended_attributes(const Context& context) noexcept {
  ibv_device_attr_ex a{};
  a.orig_attr = device_attributes(context);
  a.completion_timestamp_mask = ~0ULL;
  a.hca_core_clock = 1'000'000;  // kHz: time stamps are nanoseconds of CLOCK_MONOTONIC
  a.device_cap_flags_ex = a.orig_attr.device_cap_flags;
  a.phys_port_cnt_ex = 1;
  a.max_dm_size = identity().device_memory;
  if (identity().on_demand && !context.virtual_clock) {
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
  return a;
}

ibv_port_attr port_attributes(const Context& context) noexcept {
  ibv_port_attr a{};
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
  // Of more nodes than there are unicast LIDs (IBTA 4.1.3) some share one; GIDs differ.
  constexpr std::uint32_t kUnicastLids = 0xbfff;
  a.lid = static_cast<std::uint16_t>(kLid + context.node % kUnicastLids);
  if (context.port_down.load(std::memory_order_relaxed)) {
    a.state = IBV_PORT_DOWN;
    a.phys_state = 2;  // Polling
  }
  return a;
}

}  // namespace turnout::hca
