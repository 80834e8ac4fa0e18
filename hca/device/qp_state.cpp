// SPDX-License-Identifier: BSD-3-Clause
#include "hca/device/qp_state.h"

#include <cerrno>

namespace turnout::hca {
namespace {

struct Rule {
  unsigned kinds;  // a bit for each
  QpPhase from, to;
  int required, optional;
};

constexpr unsigned bit_of(QpKind kind) {
  return 1U << static_cast<unsigned>(kind);
}
constexpr unsigned rc = bit_of(QpKind::rc), uc = bit_of(QpKind::uc), ud = bit_of(QpKind::ud),
                   dci = bit_of(QpKind::dci), dct = bit_of(QpKind::dct),
                   initiator = bit_of(QpKind::xrc_ini), target = bit_of(QpKind::xrc_tgt),
                   connected = rc | uc | initiator | target;
constexpr QpPhase reset = QpPhase::reset, init = QpPhase::init, rtr = QpPhase::rtr,
                  rts = QpPhase::rts, sqd = QpPhase::sqd, sqe = QpPhase::sqe;

constexpr int kAtPort = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
constexpr int kAccess = IBV_QP_ACCESS_FLAGS;
constexpr int kPeer = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
constexpr int kAnswers = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRequests =
    IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT;
constexpr int kAlternate = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
constexpr int kAnyTime = IBV_QP_CUR_STATE | kAccess | kAlternate;

// Transitions to reset and err are in check_transition: they are alike for all.
constexpr Rule kRules[] = {
    {connected | dct, reset, init, kAtPort | kAccess, 0},
    {connected, init, init, 0, kAtPort | kAccess},
    {rc | target, init, rtr, kPeer | kAnswers, IBV_QP_PKEY_INDEX | kAccess | IBV_QP_ALT_PATH},
    {uc | initiator, init, rtr, kPeer, IBV_QP_PKEY_INDEX | kAccess | IBV_QP_ALT_PATH},
    {rc, rtr, rts, IBV_QP_SQ_PSN | kRequests, kAnyTime | IBV_QP_MIN_RNR_TIMER},
    {initiator, rtr, rts, IBV_QP_SQ_PSN | kRequests, kAnyTime},
    {target, rtr, rts, IBV_QP_SQ_PSN | IBV_QP_TIMEOUT, kAnyTime | IBV_QP_MIN_RNR_TIMER},
    {uc, rtr, rts, IBV_QP_SQ_PSN, kAnyTime},
    {rc | target, rts, rts, 0, kAnyTime | IBV_QP_MIN_RNR_TIMER},
    {uc | initiator, rts, rts, 0, kAnyTime},
    {connected | ud, rts, sqd, 0, IBV_QP_EN_SQD_ASYNC_NOTIFY},
    {rc | target, sqd, rts, 0, kAnyTime | IBV_QP_MIN_RNR_TIMER},
    {uc | initiator, sqd, rts, 0, kAnyTime},
    {rc, sqd, sqd, 0, kAtPort | kAccess | IBV_QP_AV | kRequests | kAnswers | kAlternate},
    {initiator, sqd, sqd, 0, kAtPort | kAccess | IBV_QP_AV | kRequests | kAlternate},
    {target, sqd, sqd, 0, kAtPort | kAccess | IBV_QP_AV | IBV_QP_TIMEOUT | kAnswers | kAlternate},
    {uc, sqd, sqd, 0, kAtPort | kAccess | IBV_QP_AV | kAlternate},
    {uc, sqe, rts, 0, IBV_QP_CUR_STATE | kAccess},

    {ud, reset, init, kAtPort | IBV_QP_QKEY, 0},
    {ud, init, init, 0, kAtPort | IBV_QP_QKEY},
    {ud, init, rtr, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {ud, rtr, rts, IBV_QP_SQ_PSN, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {ud, rts, rts, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {ud, sqd, rts, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},
    {ud, sqd, sqd, 0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY},
    {ud, sqe, rts, 0, IBV_QP_CUR_STATE | IBV_QP_QKEY},

    {dci, reset, init, kAtPort, 0},
    {dci, init, init, 0, kAtPort},
    {dci, init, rtr, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX | IBV_QP_AV},
    {dci, rtr, rts, IBV_QP_SQ_PSN | kRequests, IBV_QP_MIN_RNR_TIMER},
    {dci, rts, rts, 0, IBV_QP_MIN_RNR_TIMER},

    {dct, init, rtr, IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER, 0},
};

}  // namespace

ibv_qp_state to_verbs(QpPhase phase) noexcept {
  return phase >= QpPhase::free ? IBV_QPS_UNKNOWN  // or of a record that is damaged
                                : static_cast<ibv_qp_state>(static_cast<int>(phase));
}

bool from_verbs(ibv_qp_state state, QpPhase& phase) noexcept {
  if (static_cast<int>(state) < IBV_QPS_RESET || static_cast<int>(state) > IBV_QPS_ERR)
    return false;
  phase = static_cast<QpPhase>(static_cast<int>(state));
  return true;
}

int used_mask(QpKind kind, int mask) noexcept {
  if (kind == QpKind::xrc_ini) return mask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (kind == QpKind::xrc_tgt) {
    return mask & ~(IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
  }
  return mask;
}

int check_transition(QpKind kind, QpPhase from, QpPhase to, int mask, const char** why) noexcept {
  const int given = mask & ~IBV_QP_STATE;
  if (to == QpPhase::reset || to == QpPhase::err) {
    *why = "a DCT cannot enter this state; destroy it instead";
    if (kind == QpKind::dct) return EINVAL;
    *why = "there is no transition from reset to err";
    if (to == QpPhase::err && from == QpPhase::reset) return EINVAL;
    *why = "a transition to reset or err takes no attributes";
    return (given & ~IBV_QP_CUR_STATE) == 0 ? 0 : EINVAL;
  }
  for (const Rule& rule : kRules) {
    if ((rule.kinds & bit_of(kind)) == 0 || rule.from != from || rule.to != to) continue;
    *why = "a required attribute is missing in the mask";
    if ((given & rule.required) != rule.required) return EINVAL;
    *why = "the mask has an attribute that this transition does not allow";
    return (given & ~(rule.required | rule.optional)) == 0 ? 0 : EINVAL;
  }
  *why = "no such transition";
  return EINVAL;
}

int check_values(const ibv_qp_attr& attr, int mask, const char** why) noexcept {
  const auto bad = [&](int bit, bool wrong, const char* text) {
    if ((mask & bit) == 0 || !wrong) return false;
    *why = text;
    return true;
  };
  if (bad(IBV_QP_PKEY_INDEX, attr.pkey_index != 0, "pkey_index: only index 0 exists") ||
      bad(IBV_QP_PORT, attr.port_num != kPort, "port_num: only port 1 exists") ||
      bad(IBV_QP_PATH_MTU, attr.path_mtu < IBV_MTU_256 || attr.path_mtu > IBV_MTU_4096,
          "path_mtu is invalid") ||
      bad(IBV_QP_DEST_QPN, attr.dest_qp_num > 0xffffff, "dest_qp_num exceeds 24 bits") ||
      bad(IBV_QP_MIN_RNR_TIMER, attr.min_rnr_timer > 31, "min_rnr_timer exceeds 31") ||
      bad(IBV_QP_TIMEOUT, attr.timeout > 31, "timeout exceeds 31") ||
      bad(IBV_QP_RETRY_CNT, attr.retry_cnt > 7, "retry_cnt exceeds 7") ||
      bad(IBV_QP_RNR_RETRY, attr.rnr_retry > 7, "rnr_retry exceeds 7") ||
      bad(IBV_QP_MAX_QP_RD_ATOMIC, attr.max_rd_atomic > kMaxRdAtomic,
          "max_rd_atomic exceeds the device limit") ||
      bad(IBV_QP_MAX_DEST_RD_ATOMIC, attr.max_dest_rd_atomic > kMaxRdAtomic,
          "max_dest_rd_atomic exceeds the device limit") ||
      bad(IBV_QP_AV, attr.ah_attr.port_num != kPort, "ah_attr.port_num: only port 1 exists") ||
      bad(IBV_QP_AV, attr.ah_attr.is_global != 0 && attr.ah_attr.grh.sgid_index != 0,
          "ah_attr.grh.sgid_index: only index 0 exists") ||
      bad(IBV_QP_CAP, true, "resizing queues is not supported")) {
    return EINVAL;
  }
  return 0;
}

int check_modification(QpKind kind, QpPhase from, const ibv_qp_attr& attr, int mask, QpPhase& to,
                       const char** why) noexcept {
  to = from;
  QpPhase assumed = from;
  *why = "qp_state is invalid";
  if ((mask & IBV_QP_STATE) != 0 && !from_verbs(attr.qp_state, to)) return EINVAL;
  *why = "cur_qp_state is not the current state";
  if ((mask & IBV_QP_CUR_STATE) != 0 &&
      (!from_verbs(attr.cur_qp_state, assumed) || assumed != from)) {
    return EINVAL;
  }
  if (const int error = check_transition(kind, from, to, mask, why); error != 0) return error;
  return check_values(attr, mask, why);
}

}  // namespace turnout::hca
