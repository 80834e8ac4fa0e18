// SPDX-License-Identifier: BSD-3-Clause
// What the benchmarks over plain verbs have in common: they end at the first error, and connect RC
// queue pairs with perftest's values.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace turnout::bench {

[[noreturn]] inline void fail(const char* what, int error = errno) {
  std::fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, std::strerror(error));
  std::_Exit(1);
}
inline void expect(bool good, const char* what) {
  if (!good) fail(what);
}
inline void succeed(int error, const char* what) {
  if (error != 0) fail(what, error);
}

inline void to_init(ibv_qp* qp, unsigned access) {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.port_num = 1;
  a.qp_access_flags = access;
  succeed(
      ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
      "to INIT");
}

// From INIT to RTS, with queue pair `peer` of the port `lid`.
inline void connect(ibv_qp* qp, std::uint32_t peer, std::uint32_t lid, ibv_mtu mtu) {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = mtu;
  a.dest_qp_num = peer;
  a.max_dest_rd_atomic = 1;
  a.min_rnr_timer = 12;  // perftest's MIN_RNR_TIMER
  a.ah_attr.dlid = static_cast<std::uint16_t>(lid);
  a.ah_attr.port_num = 1;
  succeed(ibv_modify_qp(qp, &a,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
          "to RTR");
  a.qp_state = IBV_QPS_RTS;
  a.timeout = 14;  // perftest's DEF_QP_TIME
  a.retry_cnt = 7;
  a.rnr_retry = 7;
  a.max_rd_atomic = 1;
  succeed(ibv_modify_qp(qp, &a,
                        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                            IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
          "to RTS");
}

}  // namespace turnout::bench
