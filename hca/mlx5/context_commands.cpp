// SPDX-License-Identifier: BSD-3-Clause
// Commands of a context: its creation, queries, XRC domains, groups.
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <cstdio>

#include "base/log.h"
#include "hca/device/attributes.h"
#include "hca/device/common_objects.h"
#include "hca/mlx5/command_file.h"
#include "hca/mlx5/store_instruction.h"

namespace turnout::hca {
namespace {

// The device of this process, as the engine's objects name it.
Device& the_device() {
  static auto* const device = [] {
    auto* d = new Device{};
    d->verbs.node_type = IBV_NODE_CA;
    d->verbs.transport_type = IBV_TRANSPORT_IB;
    d->magic = kObjectMagic;
    d->guid = port_guid();
    return d;
  }();
  return *device;
}

// "16.35.2000": three numbers of 16 bits.
std::uint64_t firmware_number(const char* text) noexcept {
  unsigned major_number = 0, minor_number = 0, sub = 0;
  std::sscanf(text, "%u.%u.%u", &major_number, &minor_number, &sub);
  return std::uint64_t{major_number} << 32 | std::uint64_t{minor_number & 0xffff} << 16 |
         (sub & 0xffff);
}

ib_uverbs_query_device_resp answer_of(const ibv_device_attr& a) noexcept {
  const auto number = [](int value) { return static_cast<std::uint32_t>(value); };
  ib_uverbs_query_device_resp out{};
  out.fw_ver = firmware_number(a.fw_ver);
  out.node_guid = a.node_guid;
  out.sys_image_guid = a.sys_image_guid;
  out.max_mr_size = a.max_mr_size;
  out.page_size_cap = a.page_size_cap;
  out.vendor_id = a.vendor_id;
  out.vendor_part_id = a.vendor_part_id;
  out.hw_ver = a.hw_ver;
  out.max_qp = number(a.max_qp);
  out.max_qp_wr = number(a.max_qp_wr);
  out.device_cap_flags = a.device_cap_flags;
  out.max_sge = number(a.max_sge);
  out.max_sge_rd = number(a.max_sge_rd);
  out.max_cq = number(a.max_cq);
  out.max_cqe = number(a.max_cqe) - 1;  // libmlx5 has one more, and then a power of two
  out.max_mr = number(a.max_mr);
  out.max_pd = number(a.max_pd);
  out.max_qp_rd_atom = number(a.max_qp_rd_atom);
  out.max_res_rd_atom = number(a.max_res_rd_atom);
  out.max_qp_init_rd_atom = number(a.max_qp_init_rd_atom);
  out.atomic_cap = static_cast<std::uint32_t>(a.atomic_cap);
  out.max_mw = number(a.max_mw);
  out.max_mcast_grp = number(a.max_mcast_grp);
  out.max_mcast_qp_attach = number(a.max_mcast_qp_attach);
  out.max_total_mcast_qp_attach = number(a.max_total_mcast_qp_attach);
  out.max_ah = number(a.max_ah);
  out.max_srq = number(a.max_srq);
  out.max_srq_wr = number(a.max_srq_wr) - 1;
  out.max_srq_sge = number(a.max_srq_sge);
  out.max_pkeys = a.max_pkeys;
  out.local_ca_ack_delay = a.local_ca_ack_delay;
  out.phys_port_cnt = a.phys_port_cnt;
  return out;
}

}  // namespace

int CommandFile::get_context(Mlx5Command& command) {
  (void)command.request<ib_uverbs_get_context>();
  const auto asked = command.driver_request<mlx5_ib_alloc_ucontext_req_v2>();
  constexpr std::uint32_t kKnownFlags = MLX5_IB_ALLOC_UCTX_DEVX;
  if ((asked.flags & ~kKnownFlags) != 0 || asked.total_num_bfregs == 0) return EINVAL;
  constexpr std::uint32_t kRegistersOfPage = 2;  // mlx5: of blue flame, four a page with two used
  constexpr std::uint32_t kMaxRegisters = 1024;
  if (asked.total_num_bfregs > kMaxRegisters) return ENOMEM;
  auto context = std::make_unique<Context>();
  ibv_context& c = context->verbs.context;
  c.device = &the_device().verbs;
  c.cmd_fd = -1;
  c.async_fd = -1;
  c.num_comp_vectors = kCompletionVectors;
  pthread_mutex_init(&c.mutex, nullptr);
  const auto opened = LiveEngine::open(*context);
  if (!opened) {
    const Status status = opened.status();
    TURNOUT_LOG(hca, error, "opening the virtual adapter failed: mlx5: {}", status.text());
    return status.sys_errno() != 0 ? status.sys_errno() : ENODEV;
  }
  objects_.engine = opened.value();
  objects_.devx = (asked.flags & MLX5_IB_ALLOC_UCTX_DEVX) != 0;
  objects_.context = std::move(context);
  ib_uverbs_get_context_resp answer{};
  const int fd = events_.add(*this, nullptr, c.async_fd);
  if (fd < 0) {
    const int error = errno;
    verbs().close(*objects_.context);
    objects_.context.reset();
    return error;
  }
  answer.async_fd = static_cast<std::uint32_t>(fd);
  answer.num_comp_vectors = kCompletionVectors;
  mlx5_ib_alloc_ucontext_resp& driver = objects_.description;
  driver = {};
  driver.qp_tab_size = kMaxQps;
  driver.bf_reg_size = 0;  // stores of eight bytes only: each store is a fault
  // Doorbell pages are made as they are needed (ioctl_commands.h), or all at once.
  if ((asked.lib_caps & MLX5_LIB_CAP_DYN_UAR) != 0) {
    driver.num_dyn_bfregs = kMaxRegisters;
  } else {
    driver.tot_bfregs =
        (asked.total_num_bfregs + kRegistersOfPage - 1) / kRegistersOfPage * kRegistersOfPage;
  }
  driver.cache_line_size = 64;
  driver.max_sq_desc_sz = kMlx5MaxBlocks * kMlx5BlockBytes;
  driver.max_rq_desc_sz = kMaxSge * kMlx5UnitBytes;
  driver.max_send_wqebb = kMaxQpWr;
  driver.max_recv_wr = kMaxQpWr;
  driver.max_srq_recv_wr = kMaxSrqWr - 1;
  driver.num_ports = 1;
  driver.response_length = sizeof driver;
  driver.cqe_version = std::min<std::uint8_t>(asked.max_cqe_version, 1);
  driver.cmds_supp_uhw = MLX5_USER_CMDS_SUPP_UHW_QUERY_DEVICE;
  if (MappedPages::instance().make_clock())
    driver.clock_info_versions = 1U << MLX5_IB_CLOCK_INFO_V1;
  if (kKnowsLoads) {
    driver.comp_mask = MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET;
    driver.hca_core_clock_offset = kClockRegister;
  }
  driver.log_uar_size = 12;
  driver.num_uars_per_page = 1;
  return command.answer(answer, driver);
}

int CommandFile::query_device(Mlx5Command& command) {
  (void)command.request<ib_uverbs_query_device>();
  return command.answer(answer_of(device_attributes(*objects_.context)));
}

int CommandFile::query_device_extended(Mlx5Command& command) {
  if (command.request<ib_uverbs_ex_query_device>().comp_mask != 0) return EINVAL;
  const ibv_device_attr_ex a = extended_attributes(*objects_.context);
  ib_uverbs_ex_query_device_resp out{};
  out.base = answer_of(a.orig_attr);
  out.response_length = sizeof out;
  out.odp_caps.general_caps = a.odp_caps.general_caps;
  out.odp_caps.per_transport_caps.rc_odp_caps = a.odp_caps.per_transport_caps.rc_odp_caps;
  out.odp_caps.per_transport_caps.uc_odp_caps = a.odp_caps.per_transport_caps.uc_odp_caps;
  out.odp_caps.per_transport_caps.ud_odp_caps = a.odp_caps.per_transport_caps.ud_odp_caps;
  out.timestamp_mask = a.completion_timestamp_mask;
  out.hca_core_clock = a.hca_core_clock;
  out.device_cap_flags_ex = a.device_cap_flags_ex;
  out.xrc_odp_caps = a.xrc_odp_caps;
  out.max_dm_size = a.max_dm_size;
  constexpr std::uint32_t kMaxCompressed = 64;  // ConnectX-5's
  mlx5_ib_query_device_resp driver{};
  driver.response_length = sizeof driver;
  driver.flags =
      MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_COMP | MLX5_IB_QUERY_DEV_RESP_FLAGS_CQE_128B_PAD;
  // A device that may compress completions need not.
  driver.cqe_comp_caps.max_num = kMaxCompressed;
  driver.cqe_comp_caps.supported_format = MLX5_IB_CQE_RES_FORMAT_HASH |
                                          MLX5_IB_CQE_RES_FORMAT_CSUM |
                                          MLX5_IB_CQE_RES_FORMAT_CSUM_STRIDX;
  driver.dci_streams_caps.max_log_num_concurent = kMaxLogStreams;
  driver.dci_streams_caps.max_log_num_errored = kMaxLogStreams;
  return command.answer(out, driver);
}

int CommandFile::query_port(Mlx5Command& command) {
  if (command.request<ib_uverbs_query_port>().port_num != kPort) return EINVAL;
  const ibv_port_attr a = port_attributes(*objects_.context);
  ib_uverbs_query_port_resp out{};
  out.port_cap_flags = a.port_cap_flags;
  out.max_msg_sz = a.max_msg_sz;
  out.gid_tbl_len = static_cast<std::uint32_t>(a.gid_tbl_len);
  out.pkey_tbl_len = a.pkey_tbl_len;
  out.lid = a.lid;
  out.sm_lid = a.sm_lid;
  out.state = static_cast<std::uint8_t>(a.state);
  out.max_mtu = static_cast<std::uint8_t>(a.max_mtu);
  out.active_mtu = static_cast<std::uint8_t>(a.active_mtu);
  out.max_vl_num = a.max_vl_num;
  out.subnet_timeout = a.subnet_timeout;
  out.active_width = a.active_width;
  out.active_speed = a.active_speed;
  out.phys_state = a.phys_state;
  out.link_layer = a.link_layer;
  return command.answer(out);
}

int CommandFile::open_xrcd(Mlx5Command& command) {
  const auto asked = command.request<ib_uverbs_open_xrcd>();
  Xrcd* const xrcd = verbs().open_xrcd(*objects_.context, static_cast<int>(asked.fd),
                                       static_cast<int>(asked.oflags));
  if (xrcd == nullptr) return errno;
  return command.answer(
      ib_uverbs_open_xrcd_resp{xrc_domains_.add(std::unique_ptr<XrcDomain>(new XrcDomain{xrcd}))});
}

int CommandFile::close_xrcd(Mlx5Command& command) {
  const std::uint32_t handle = command.request<ib_uverbs_close_xrcd>().xrcd_handle;
  const XrcDomain* const domain = xrc_domains_.find(handle);
  if (domain == nullptr) return EINVAL;
  if (const int error = verbs().close_xrcd(*domain->xrcd); error != 0) return error;
  xrc_domains_.remove(handle);
  return 0;
}

int CommandFile::change_mcast(Mlx5Command& command) {
  static_assert(sizeof(ib_uverbs_attach_mcast) == sizeof(ib_uverbs_detach_mcast));
  const auto asked = command.request<ib_uverbs_attach_mcast>();  // the other says the same
  const QpObject* const pair = objects_.qps.find(asked.qp_handle);
  if (pair == nullptr) return EINVAL;
  ibv_gid group;
  std::memcpy(group.raw, asked.gid, sizeof group.raw);
  const bool attaches = command.number() == IB_USER_VERBS_CMD_ATTACH_MCAST;
  return attaches ? verbs().attach(*pair->qp, group) : verbs().detach(*pair->qp, group);
}

}  // namespace turnout::hca
