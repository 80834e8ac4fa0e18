// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/xrc_target.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "core/transport/path.h"

namespace turnout {
namespace {
constexpr const char* kName = "XRC target";
}

Status XrcTarget::make(const verbs::Device& device, const XrcDomain& domain,
                       const XrcInitiator& initiator, const QpTuning& tuning) {
  ibv_qp_init_attr_ex init{};
  init.qp_type = IBV_QPT_XRC_RECV;
  init.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  init.xrcd = domain.get();
  qp_.reset(ibv_create_qp_ex(device.context(), &init));
  if (!qp_) return verbs::failure("ibv_create_qp_ex", kName, errno);
  ibv_qp_attr attr{};
  attr.port_num = device.port_number();
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  attr.path_mtu = device.port().active_mtu;
  attr.dest_qp_num = qp_number_of(initiator.qp_id);
  attr.rq_psn = first_psn_of(initiator.qp_id);
  attr.min_rnr_timer = kMinRnrTimer;
  attr.ah_attr = path_to(device, initiator.lid, initiator.gid);
  attr.timeout = tuning.ack_timeout;
  return modify_qp(qp_.get(), attr, kName,
                   {{IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS},
                    {IBV_QPS_RTR, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER},
                    {IBV_QPS_RTS, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN}});
}

Status XrcTarget::open(const verbs::Device& device, const XrcDomain& domain, std::uint32_t number,
                       const XrcInitiator& initiator) {
  ibv_qp_open_attr attr{};
  attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  attr.qp_num = number;
  attr.xrcd = domain.get();
  attr.qp_type = IBV_QPT_XRC_RECV;
  qp_.reset(ibv_open_qp(device.context(), &attr));
  if (!qp_) {
    return {Code::again,
            fmt::format("opening the XRC target failed: queue pair {} no longer exists: {}", number,
                        std::strerror(errno)),
            errno};
  }
  // Numbers are given anew.
  ibv_qp_attr is{};
  ibv_qp_init_attr init{};
  const int error = ibv_query_qp(qp_.get(), &is, IBV_QP_STATE | IBV_QP_DEST_QPN | IBV_QP_AV, &init);
  if (error != 0) return verbs::failure("ibv_query_qp", kName, error);
  const bool ready = is.qp_state == IBV_QPS_RTR || is.qp_state == IBV_QPS_RTS;
  const ibv_ah_attr path = path_to(device, initiator.lid, initiator.gid);
  const bool same =
      is.dest_qp_num == qp_number_of(initiator.qp_id) && is.ah_attr.dlid == path.dlid &&
      (path.is_global == 0 || std::memcmp(is.ah_attr.grh.dgid.raw, path.grh.dgid.raw, 16) == 0);
  if (ready && same) return {};
  qp_.reset();
  return {
      Code::again,
      fmt::format("opening the XRC target failed: queue pair {} failed, or its number was reused",
                  number)};
}

Status XrcTarget::fail() {
  return modify_qp(qp_.get(), {}, kName, {{IBV_QPS_ERR, 0}});
}

}  // namespace turnout
