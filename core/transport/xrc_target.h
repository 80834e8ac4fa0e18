// SPDX-License-Identifier: BSD-3-Clause
// XrcTarget: this process's handle of the XRC queue pair that is connected to the initiator of one
// remote process (ibv_create_qp_ex(3), ibv_open_qp(3)).
//
// The first process of a node that a sender contacts creates it, the others open it. The adapter
// counts the handles and destroys it with the last. All writes of that sender to the node's
// processes use it, so a process that moves it to the error state affects all of them. One thread
// at a time.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "core/transport/dc_queue.h"
#include "core/transport/path.h"
#include "core/transport/qp_id.h"
#include "core/transport/xrc_domain.h"

namespace turnout {

// The sender's end.
struct XrcInitiator {
  std::uint32_t qp_id = 0;  // see qp_id.h
  std::uint16_t lid = 0;
  std::array<std::uint8_t, 16> gid{};
};

class XrcTarget {
 public:
  // Connected with the initiator. Errors: system, unsupported.
  [[nodiscard]] Status make(const verbs::Device& device, const XrcDomain& domain,
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
  // Another process made it. Errors: again (it is gone, or another's by now).
  [[nodiscard]] Status open(const verbs::Device& device, const XrcDomain& domain,
                            std::uint32_t number, const XrcInitiator& initiator) {
    ibv_qp_open_attr attr{};
    attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    attr.qp_num = number;
    attr.xrcd = domain.get();
    attr.qp_type = IBV_QPT_XRC_RECV;
    qp_.reset(ibv_open_qp(device.context(), &attr));
    if (!qp_) {
      return {Code::again,
              fmt::format("opening the XRC target failed: queue pair {} no longer exists: {}",
                          number, std::strerror(errno)),
              errno};
    }
    // Numbers are given anew.
    ibv_qp_attr is{};
    ibv_qp_init_attr init{};
    const int error =
        ibv_query_qp(qp_.get(), &is, IBV_QP_STATE | IBV_QP_DEST_QPN | IBV_QP_AV, &init);
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
  // Nothing comes over it any more, to any process.
  [[nodiscard]] Status fail() { return modify_qp(qp_.get(), {}, kName, {{IBV_QPS_ERR, 0}}); }
  void close() noexcept { qp_.reset(); }

  [[nodiscard]] explicit operator bool() const noexcept { return qp_ != nullptr; }
  [[nodiscard]] std::uint32_t number() const noexcept { return qp_->qp_num; }

 private:
  static constexpr const char* kName = "XRC target";

  verbs::Qp qp_;
};

}  // namespace turnout
