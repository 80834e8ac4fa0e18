// SPDX-License-Identifier: BSD-3-Clause
#include "tests/verbs/bed.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

namespace turnout::conform {
namespace {

template <class Object>
Object* made(Object* object, const char* verb) {
  if (object == nullptr) throw Cannot(fmt::format("{}: {}", verb, name_of(errno)));
  return object;
}

template <class Object, int (*Destroy)(Object*)>
int destroy(void* object) {
  return Destroy(static_cast<Object*>(object));
}

// Of an address of IPv4, over UDP if there is a choice (RoCE version 2): the last of the table.
int usual_gid(ibv_context* context, const ibv_port_attr& port) {
  int found = 0;
  if (port.link_layer != IBV_LINK_LAYER_ETHERNET) return found;
  for (int i = 0; i < port.gid_tbl_len && i < 16; ++i) {
    ibv_gid gid{};
    if (ibv_query_gid(context, 1, i, &gid) != 0) break;
    in6_addr address{};
    std::memcpy(&address, gid.raw, sizeof address);
    if (IN6_IS_ADDR_V4MAPPED(&address)) found = i;
  }
  return found;
}

std::string_view opcode_of(ibv_wc_opcode opcode) {
  switch (opcode) {
    case IBV_WC_SEND:
      return "SEND";
    case IBV_WC_RDMA_WRITE:
      return "RDMA_WRITE";
    case IBV_WC_RDMA_READ:
      return "RDMA_READ";
    case IBV_WC_COMP_SWAP:
      return "COMP_SWAP";
    case IBV_WC_FETCH_ADD:
      return "FETCH_ADD";
    case IBV_WC_BIND_MW:
      return "BIND_MW";
    case IBV_WC_LOCAL_INV:
      return "LOCAL_INV";
    case IBV_WC_RECV:
      return "RECV";
    case IBV_WC_RECV_RDMA_WITH_IMM:
      return "RECV_RDMA_WITH_IMM";
    default:
      return "another opcode";
  }
}

std::string_view status_of(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return "SUCCESS";
    case IBV_WC_LOC_LEN_ERR:
      return "LOC_LEN_ERR";
    case IBV_WC_LOC_QP_OP_ERR:
      return "LOC_QP_OP_ERR";
    case IBV_WC_LOC_PROT_ERR:
      return "LOC_PROT_ERR";
    case IBV_WC_WR_FLUSH_ERR:
      return "WR_FLUSH_ERR";
    case IBV_WC_MW_BIND_ERR:
      return "MW_BIND_ERR";
    case IBV_WC_LOC_ACCESS_ERR:
      return "LOC_ACCESS_ERR";
    case IBV_WC_REM_INV_REQ_ERR:
      return "REM_INV_REQ_ERR";
    case IBV_WC_REM_ACCESS_ERR:
      return "REM_ACCESS_ERR";
    case IBV_WC_REM_OP_ERR:
      return "REM_OP_ERR";
    case IBV_WC_RETRY_EXC_ERR:
      return "RETRY_EXC_ERR";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "RNR_RETRY_EXC_ERR";
    case IBV_WC_GENERAL_ERR:
      return "GENERAL_ERR";
    default:
      return "another status";
  }
}

std::string_view event_of(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_CQ_ERR:
      return "CQ_ERR";
    case IBV_EVENT_QP_FATAL:
      return "QP_FATAL";
    case IBV_EVENT_QP_REQ_ERR:
      return "QP_REQ_ERR";
    case IBV_EVENT_QP_ACCESS_ERR:
      return "QP_ACCESS_ERR";
    case IBV_EVENT_COMM_EST:
      return "COMM_EST";
    case IBV_EVENT_SQ_DRAINED:
      return "SQ_DRAINED";
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return "SRQ_LIMIT_REACHED";
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return "QP_LAST_WQE_REACHED";
    case IBV_EVENT_SRQ_ERR:
      return "SRQ_ERR";
    default:
      return "another event";
  }
}

}  // namespace

std::string name_of(int error) {
  if (error == 0) return "ok";
  const char* const name = strerrorname_np(error > 0 ? error : errno);
  return name != nullptr ? name : fmt::format("errno {}", error);
}

std::string name_of(ibv_qp_state state) {
  constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state <= IBV_QPS_ERR ? kNames[state] : "another state";
}

void must(const std::string& outcome, const char* what) {
  if (outcome != "ok") throw Cannot(fmt::format("{}: {}", what, outcome));
}

Bed::Bed(const Choice& chosen) : choice(chosen) {
  int count = 0;
  ibv_device** const list = ibv_get_device_list(&count);
  for (int i = 0; i < count && context == nullptr; ++i) {
    if (!choice.device.empty() && choice.device != ibv_get_device_name(list[i])) continue;
    ibv_context* const one = ibv_open_device(list[i]);
    if (one == nullptr) continue;
    if (ibv_query_port(one, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE) {
      context = one;
    } else {
      ibv_close_device(one);
    }
  }
  if (list != nullptr) ibv_free_device_list(list);
  if (context == nullptr) throw Cannot("no adapter with an active port");
  pd = made(ibv_alloc_pd(context), "ibv_alloc_pd");
  must(name_of(ibv_query_device(context, &attributes)), "ibv_query_device");
  gid_index = choice.gid_index >= 0 ? choice.gid_index : usual_gid(context, port);
  must(name_of(ibv_query_gid(context, 1, gid_index, &gid)), "ibv_query_gid");
}

Bed::~Bed() {
  while (!made_.empty()) {
    const auto [object, destroy] = made_.back();
    made_.pop_back();
    (void)destroy(object);
  }
  if (pd != nullptr) ibv_dealloc_pd(pd);
  if (context != nullptr) ibv_close_device(context);
}

void Bed::forget(const void* object) {
  std::erase_if(made_, [&](const auto& one) { return one.first == object; });
}

ibv_pd* Bed::domain() {
  ibv_pd* const one = made(ibv_alloc_pd(context), "ibv_alloc_pd");
  made_.emplace_back(one, &destroy<ibv_pd, ibv_dealloc_pd>);
  return one;
}

ibv_comp_channel* Bed::channel() {
  ibv_comp_channel* const one = made(ibv_create_comp_channel(context), "ibv_create_comp_channel");
  made_.emplace_back(one, &destroy<ibv_comp_channel, ibv_destroy_comp_channel>);
  return one;
}

ibv_cq* Bed::cq(int entries, ibv_comp_channel* on) {
  ibv_cq* const one = made(ibv_create_cq(context, entries, nullptr, on, 0), "ibv_create_cq");
  made_.emplace_back(one, &destroy<ibv_cq, ibv_destroy_cq>);
  return one;
}

ibv_srq* Bed::srq(std::uint32_t max_wr) {
  ibv_srq_init_attr attr{};
  attr.attr.max_wr = max_wr;
  attr.attr.max_sge = 2;
  ibv_srq* const one = made(ibv_create_srq(pd, &attr), "ibv_create_srq");
  made_.emplace_back(one, &destroy<ibv_srq, ibv_destroy_srq>);
  return one;
}

ibv_qp* Bed::qp(const QpAsk& ask) {
  ibv_qp_init_attr attr{};
  attr.qp_type = ask.type;
  attr.send_cq = attr.recv_cq = ask.cq != nullptr ? ask.cq : cq();
  attr.srq = ask.srq;
  attr.sq_sig_all = ask.signal_all ? 1 : 0;
  attr.cap = {ask.send_wr, ask.recv_wr, ask.sge, ask.sge, ask.inline_data};
  ibv_qp* const one = made(ibv_create_qp(ask.pd != nullptr ? ask.pd : pd, &attr), "ibv_create_qp");
  made_.emplace_back(one, &destroy<ibv_qp, ibv_destroy_qp>);
  return one;
}

Memory Bed::memory(std::size_t size, int access, ibv_pd* in) {
  bytes_.push_back(std::make_unique<std::uint8_t[]>(size));
  Memory memory{bytes_.back().get(), size, nullptr};
  memory.mr =
      made(ibv_reg_mr(in != nullptr ? in : pd, memory.data, size, static_cast<unsigned>(access)),
           "ibv_reg_mr");
  made_.emplace_back(memory.mr, &destroy<ibv_mr, ibv_dereg_mr>);
  return memory;
}

ibv_ah* Bed::ah(const Where& to) {
  ibv_ah_attr attr = path(to);
  ibv_ah* const one = made(ibv_create_ah(pd, &attr), "ibv_create_ah");
  made_.emplace_back(one, &destroy<ibv_ah, ibv_destroy_ah>);
  return one;
}

ibv_mw* Bed::window(ibv_mw_type type) {
  ibv_mw* const one = made(ibv_alloc_mw(pd, type), "ibv_alloc_mw");
  made_.emplace_back(one,
                     [](void* window) { return ibv_dealloc_mw(static_cast<ibv_mw*>(window)); });
  return one;
}

Where Bed::where(const ibv_qp* qp) const {
  return {qp->qp_num, port.lid, gid};
}

ibv_ah_attr Bed::path(const Where& to) const {
  ibv_ah_attr path{};
  path.dlid = static_cast<std::uint16_t>(to.lid);
  path.port_num = 1;
  if (global()) {
    path.is_global = 1;
    path.grh.dgid = to.gid;
    path.grh.sgid_index = static_cast<std::uint8_t>(gid_index);
    path.grh.hop_limit = 64;
  }
  return path;
}

Pair::Pair(Bed& on, const QpAsk& ask, const Link& link) : bed(on) {
  a = bed.qp(ask);
  b = bed.qp(ask);
  connect(a, bed, bed.where(b), link);
  connect(b, bed, bed.where(a), link);
  local = bed.memory();
  remote = bed.memory();
}

Request write_of(const Pair& pair, std::size_t length) {
  return {.opcode = IBV_WR_RDMA_WRITE,
          .pieces = {pair.local.sge(0, length)},
          .remote = pair.remote.at(),
          .rkey = pair.remote.mr->rkey};
}

std::string post(ibv_qp* qp, const Request& request) {
  std::vector<ibv_sge> pieces = request.pieces;
  ibv_send_wr wr{};
  wr.wr_id = request.id;
  wr.opcode = request.opcode;
  wr.send_flags = request.flags;
  wr.sg_list = pieces.data();
  wr.num_sge = static_cast<int>(pieces.size());
  wr.imm_data = request.opcode == IBV_WR_SEND_WITH_INV || request.opcode == IBV_WR_LOCAL_INV
                    ? request.imm
                    : htonl(request.imm);
  if (qp->qp_type == IBV_QPT_UD) {
    wr.wr.ud = {request.ah, request.number, request.qkey};
  } else if (request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
             request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic = {request.remote, request.compare_add, request.swap, request.rkey};
  } else {
    wr.wr.rdma = {request.remote, request.rkey};
  }
  ibv_send_wr* bad = nullptr;
  return name_of(ibv_post_send(qp, &wr, &bad));
}

std::string receive(ibv_qp* qp, const std::vector<ibv_sge>& pieces, std::uint64_t id) {
  std::vector<ibv_sge> list = pieces;
  ibv_recv_wr wr{id, nullptr, list.data(), static_cast<int>(list.size())};
  ibv_recv_wr* bad = nullptr;
  return name_of(ibv_post_recv(qp, &wr, &bad));
}

std::string receive(ibv_srq* srq, const std::vector<ibv_sge>& pieces, std::uint64_t id) {
  std::vector<ibv_sge> list = pieces;
  ibv_recv_wr wr{id, nullptr, list.data(), static_cast<int>(list.size())};
  ibv_recv_wr* bad = nullptr;
  return name_of(ibv_post_srq_recv(srq, &wr, &bad));
}

std::string to_init(ibv_qp* qp, const Link& link) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = static_cast<unsigned>(link.access);
  attr.qkey = kQkey;
  const int own = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  return name_of(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | own));
}

std::string to_rtr(ibv_qp* qp, const Bed& bed, const Where& peer, const Link& link) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = bed.port.active_mtu;
  attr.dest_qp_num = peer.number;
  attr.rq_psn = link.rq_psn;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = link.min_rnr_timer;
  attr.ah_attr = bed.path(peer);
  int mask = IBV_QP_STATE;
  if (qp->qp_type != IBV_QPT_UD)
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (qp->qp_type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  return name_of(ibv_modify_qp(qp, &attr, mask));
}

std::string to_rts(ibv_qp* qp, const Link& link) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = link.timeout;
  attr.retry_cnt = link.retry_count;
  attr.rnr_retry = link.rnr_retry;
  attr.max_rd_atomic = 1;
  attr.sq_psn = link.sq_psn;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (qp->qp_type == IBV_QPT_RC)
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  return name_of(ibv_modify_qp(qp, &attr, mask));
}

void connect(ibv_qp* qp, const Bed& bed, const Where& peer, const Link& link) {
  must(to_init(qp, link), "to INIT");
  must(to_rtr(qp, bed, peer, link), "to RTR");
  must(to_rts(qp, link), "to RTS");
}

std::string move(ibv_qp* qp, ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  return name_of(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

std::optional<ibv_wc> poll(ibv_cq* cq, int milliseconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::milliseconds(milliseconds);
  for (;;) {
    ibv_wc wc{};
    const int count = ibv_poll_cq(cq, 1, &wc);
    if (count > 0) return wc;
    if (count < 0) throw Cannot("ibv_poll_cq fails");
    if (Clock::now() > end) return std::nullopt;
    std::this_thread::yield();
  }
}

std::string words(const ibv_wc& wc) {
  if (wc.status != IBV_WC_SUCCESS) return std::string(status_of(wc.status));
  std::string text = fmt::format("SUCCESS {}", opcode_of(wc.opcode));
  if ((wc.opcode & IBV_WC_RECV) != 0) {
    text += fmt::format(" {} B", wc.byte_len);
    if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) text += fmt::format(" imm {}", ntohl(wc.imm_data));
    if ((wc.wc_flags & IBV_WC_WITH_INV) != 0) text += " invalidated";
  }
  return text;
}

std::string done(ibv_cq* cq, int milliseconds) {
  const auto wc = poll(cq, milliseconds);
  return wc ? words(*wc) : "nothing";
}

std::string event(const Bed& bed, int milliseconds) {
  pollfd fd{bed.context->async_fd, POLLIN, 0};
  if (::poll(&fd, 1, milliseconds) <= 0) return "no event";
  ibv_async_event event{};
  if (ibv_get_async_event(bed.context, &event) != 0) return name_of(errno);
  ibv_ack_async_event(&event);
  return std::string(event_of(event.event_type));
}

std::string state_of(ibv_qp* qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  if (const int error = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init); error != 0)
    return name_of(error);
  return name_of(attr.qp_state);
}

}  // namespace turnout::conform
