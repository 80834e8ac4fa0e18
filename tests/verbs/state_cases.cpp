// SPDX-License-Identifier: BSD-3-Clause
// IBTA 10.3.1 and table 91 (as ibv_modify_qp(3) has it).
#include <fmt/format.h>

#include "tests/verbs/cases.h"

namespace turnout::conform {
namespace {

struct Attribute {
  int bit;
  const char* name;
};
constexpr Attribute kAttributes[] = {
    {IBV_QP_CUR_STATE, "CUR_STATE"},
    {IBV_QP_ACCESS_FLAGS, "ACCESS_FLAGS"},
    {IBV_QP_PKEY_INDEX, "PKEY_INDEX"},
    {IBV_QP_PORT, "PORT"},
    {IBV_QP_QKEY, "QKEY"},
    {IBV_QP_AV, "AV"},
    {IBV_QP_PATH_MTU, "PATH_MTU"},
    {IBV_QP_TIMEOUT, "TIMEOUT"},
    {IBV_QP_RETRY_CNT, "RETRY_CNT"},
    {IBV_QP_RNR_RETRY, "RNR_RETRY"},
    {IBV_QP_RQ_PSN, "RQ_PSN"},
    {IBV_QP_MAX_QP_RD_ATOMIC, "MAX_QP_RD_ATOMIC"},
    {IBV_QP_MIN_RNR_TIMER, "MIN_RNR_TIMER"},
    {IBV_QP_SQ_PSN, "SQ_PSN"},
    {IBV_QP_MAX_DEST_RD_ATOMIC, "MAX_DEST_RD_ATOMIC"},
    {IBV_QP_CAP, "CAP"},
    {IBV_QP_DEST_QPN, "DEST_QPN"},
};
struct Type {
  ibv_qp_type type;
  const char* name;
};
constexpr Type kTypes[] = {{IBV_QPT_RC, "RC"}, {IBV_QPT_UC, "UC"}, {IBV_QPT_UD, "UD"}};
constexpr ibv_qp_state kStates[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR,
                                    IBV_QPS_RTS,   IBV_QPS_SQD,  IBV_QPS_ERR};

// What the step to a state needs, of those that come with none besides: all.
int needed(ibv_qp_type type, ibv_qp_state to) {
  const bool ud = type == IBV_QPT_UD, rc = type == IBV_QPT_RC;
  switch (to) {
    case IBV_QPS_INIT:
      return IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
    case IBV_QPS_RTR:
      if (ud) return 0;
      return IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
             (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
    case IBV_QPS_RTS:
      return IBV_QP_SQ_PSN |
             (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                 : 0);
    default:
      return 0;
  }
}

// Values that every step takes.
ibv_qp_attr values(const Bed& bed, const ibv_qp* qp, ibv_qp_state to) {
  ibv_qp_attr attr{};
  attr.qp_state = to;
  attr.port_num = 1;
  attr.qkey = kQkey;
  attr.path_mtu = bed.port.active_mtu;
  attr.dest_qp_num = qp->qp_num;
  attr.ah_attr = bed.path(bed.where(qp));
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 1;
  attr.min_rnr_timer = 1;
  attr.timeout = 10;
  attr.cap.max_send_wr = attr.cap.max_recv_wr = 16;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  return attr;
}

std::string step(const Bed& bed, ibv_qp* qp, ibv_qp_state to, int mask) {
  ibv_qp_attr attr = values(bed, qp, to);
  attr.cur_qp_state = qp->state;
  return name_of(ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask));
}

void walk(const Bed& bed, ibv_qp* qp, ibv_qp_state to) {
  constexpr ibv_qp_state kWay[] = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD};
  if (to == IBV_QPS_ERR) {
    walk(bed, qp, IBV_QPS_INIT);
    must(step(bed, qp, IBV_QPS_ERR, 0), "to ERR");
    return;
  }
  for (const ibv_qp_state next : kWay) {
    if (to == IBV_QPS_RESET || to < next) return;
    must(step(bed, qp, next, needed(qp->qp_type, next)), "on the way");
  }
}

QpAsk of(ibv_qp_type type) {
  QpAsk ask;
  ask.type = type;
  return ask;
}

std::string leads_to(Bed& bed, ibv_qp_type type, ibv_qp_state from) {
  std::string text;
  for (const ibv_qp_state to : kStates) {
    ibv_qp* const qp = bed.qp(of(type));
    walk(bed, qp, from);
    // What a step forwards needs is wrong for one that is none.
    const bool forwards = (from == IBV_QPS_RESET && to == IBV_QPS_INIT) ||
                          (from == IBV_QPS_INIT && to == IBV_QPS_RTR) ||
                          (from == IBV_QPS_RTR && to == IBV_QPS_RTS);
    if (step(bed, qp, to, forwards ? needed(type, to) : 0) != "ok") continue;
    if (!text.empty()) text += " ";
    text += name_of(to);
  }
  return text;
}

ibv_qp_state before(ibv_qp_state to) {
  return static_cast<ibv_qp_state>(to - 1);
}

// Attributes without which the step is refused, of those that it needs; or with which, of the
// others.
std::string refused(Bed& bed, ibv_qp_type type, ibv_qp_state to, bool without) {
  std::string text;
  const int all = needed(type, to);
  for (const Attribute& one : kAttributes) {
    if (((all & one.bit) != 0) != without) continue;
    ibv_qp* const qp = bed.qp(of(type));
    walk(bed, qp, before(to));
    if (step(bed, qp, to, all ^ one.bit) == "ok") continue;
    if (!text.empty()) text += " ";
    text += one.name;
  }
  return text.empty() ? "none" : text;
}

// One value out of range in the step to that state.
std::string value(Bed& bed, ibv_qp_state to, const std::function<void(ibv_qp_attr&)>& spoil) {
  ibv_qp* const qp = bed.qp();
  walk(bed, qp, before(to));
  ibv_qp_attr attr = values(bed, qp, to);
  spoil(attr);
  return name_of(ibv_modify_qp(qp, &attr, IBV_QP_STATE | needed(IBV_QPT_RC, to)));
}

std::string wrong_current_state(Bed& bed) {
  ibv_qp* const qp = bed.qp();
  walk(bed, qp, IBV_QPS_RTR);
  ibv_qp_attr attr = values(bed, qp, IBV_QPS_RTS);
  attr.cur_qp_state = IBV_QPS_INIT;
  return name_of(
      ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE | needed(IBV_QPT_RC, IBV_QPS_RTS)));
}

std::string posts(Bed& bed, ibv_qp_state state) {
  ibv_qp* const qp = bed.qp();
  const Memory memory = bed.memory();
  walk(bed, qp, state);
  const std::string sent = post(qp, {.pieces = {memory.sge(0, 8)}});
  return fmt::format("send {}, receive {}", sent, receive(qp, {memory.sge(0, 8)}));
}

// SQD: nothing more is sent until it is RTS again.
std::string drained(Bed& bed) {
  const Pair pair(bed);
  must(receive(pair.b, {pair.remote.sge(0, 8)}), "receive");
  must(move(pair.a, IBV_QPS_SQD), "to SQD");
  const std::string posted = post(pair.a, {.pieces = {pair.local.sge(0, 8)}});
  const std::string held = done(pair.a->send_cq, kNothing);
  must(move(pair.a, IBV_QPS_RTS), "to RTS");
  return fmt::format("post {}, then {}, in RTS {}", posted, held, done(pair.a->send_cq));
}

std::string drained_event(Bed& bed) {
  const Pair pair(bed);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  must(name_of(ibv_modify_qp(pair.a, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY)), "to SQD");
  return event(bed);
}

// The first message at a queue pair that is ready to receive only.
std::string established_event(Bed& bed) {
  ibv_qp* const a = bed.qp();
  ibv_qp* const b = bed.qp();
  const Memory memory = bed.memory();
  connect(a, bed, bed.where(b));
  must(to_init(b), "to INIT");
  must(to_rtr(b, bed, bed.where(a)), "to RTR");
  must(receive(b, {memory.sge(0, 8)}), "receive");
  must(post(a, {.pieces = {memory.sge(64, 8)}}), "post");
  const std::string sent = done(a->send_cq);
  return fmt::format("{}, {}", sent, event(bed));
}

}  // namespace

std::vector<Case> state_cases() {
  std::vector<Case> all;
  for (const Type& type : kTypes) {
    for (const ibv_qp_state from : kStates) {
      all.push_back({fmt::format("state: {} {} leads to", type.name, name_of(from)),
                     [=](Bed& bed) { return leads_to(bed, type.type, from); }});
    }
    for (const ibv_qp_state to : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      all.push_back({fmt::format("state: {} to {}, refused without", type.name, name_of(to)),
                     [=](Bed& bed) { return refused(bed, type.type, to, true); }});
      all.push_back({fmt::format("state: {} to {}, refused with", type.name, name_of(to)),
                     [=](Bed& bed) { return refused(bed, type.type, to, false); }});
    }
  }
  const auto spoilt = [&](const char* name, ibv_qp_state to, void (*spoil)(ibv_qp_attr&)) {
    all.push_back(
        {fmt::format("value: {}", name), [=](Bed& bed) { return value(bed, to, spoil); }});
  };
  spoilt("port 2 of 1", IBV_QPS_INIT, [](ibv_qp_attr& a) { a.port_num = 2; });
  spoilt("P_Key index 1000", IBV_QPS_INIT, [](ibv_qp_attr& a) { a.pkey_index = 1000; });
  spoilt("path MTU 0", IBV_QPS_RTR, [](ibv_qp_attr& a) { a.path_mtu = static_cast<ibv_mtu>(0); });
  spoilt("path MTU 6", IBV_QPS_RTR, [](ibv_qp_attr& a) { a.path_mtu = static_cast<ibv_mtu>(6); });
  spoilt("RNR timer 32", IBV_QPS_RTR, [](ibv_qp_attr& a) { a.min_rnr_timer = 32; });
  spoilt("max_dest_rd_atomic 255", IBV_QPS_RTR, [](ibv_qp_attr& a) { a.max_dest_rd_atomic = 255; });
  spoilt("path port 2", IBV_QPS_RTR, [](ibv_qp_attr& a) { a.ah_attr.port_num = 2; });
  spoilt("path GID index 255", IBV_QPS_RTR, [](ibv_qp_attr& a) {
    a.ah_attr.is_global = 1;
    a.ah_attr.grh.sgid_index = 255;
  });
  spoilt("timeout 32", IBV_QPS_RTS, [](ibv_qp_attr& a) { a.timeout = 32; });
  spoilt("retry_cnt 8", IBV_QPS_RTS, [](ibv_qp_attr& a) { a.retry_cnt = 8; });
  spoilt("rnr_retry 8", IBV_QPS_RTS, [](ibv_qp_attr& a) { a.rnr_retry = 8; });
  spoilt("max_rd_atomic 255", IBV_QPS_RTS, [](ibv_qp_attr& a) { a.max_rd_atomic = 255; });
  all.push_back({"value: wrong current state", wrong_current_state});
  for (const ibv_qp_state state : kStates) {
    all.push_back(
        {fmt::format("post: in {}", name_of(state)), [=](Bed& bed) { return posts(bed, state); }});
  }
  all.push_back({"state: post in SQD", drained});
  all.push_back({"event: SQD with notification", drained_event});
  all.push_back({"event: message in RTR", established_event});
  return all;
}

}  // namespace turnout::conform
