// SPDX-License-Identifier: BSD-3-Clause
// The work-request builders (ibv_wr_post(3), mlx5dv_wr_post(3)): between ibv_wr_start and
// ibv_wr_complete requests are assembled in the queue pair, then all executed or none.
//
// wr_start takes the queue pair's sq_lock, wr_complete and wr_abort give it back.
#include <cerrno>
#include <cstring>

#include "hca/abi/verbs.h"

namespace turnout::hca {
namespace {

void start(ibv_qp_ex* ex) {
  Qp& qp = qp_of(ex);
  qp.sq_lock.lock();
  qp.build.open = true;
  qp.build.error = 0;
  qp.build.count = 0;
}

// Begins the next request of the batch.
SendWqe& begin(ibv_qp_ex* ex, ibv_wr_opcode opcode) {
  Qp& qp = qp_of(ex);
  if (qp.build.count++ != 0) qp.build.batch.push_back(qp.scratch);
  begin_request(qp.scratch, ex->wr_id, opcode, ex->wr_flags);
  return qp.scratch;
}

void send(ibv_qp_ex* ex) {
  begin(ex, IBV_WR_SEND);
}
void send_imm(ibv_qp_ex* ex, __be32 imm) {
  begin(ex, IBV_WR_SEND_WITH_IMM).imm = imm;
}
void rdma(ibv_qp_ex* ex, ibv_wr_opcode opcode, std::uint32_t rkey, std::uint64_t address) {
  SendWqe& w = begin(ex, opcode);
  w.rkey = rkey;
  w.remote = address;
}
void rdma_write(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address) {
  rdma(ex, IBV_WR_RDMA_WRITE, rkey, address);
}
void rdma_write_imm(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address, __be32 imm) {
  rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, address);
  qp_of(ex).scratch.imm = imm;
}
void rdma_read(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address) {
  rdma(ex, IBV_WR_RDMA_READ, rkey, address);
}
void compare_swap(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address, std::uint64_t compare,
                  std::uint64_t swap) {
  rdma(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, address);
  qp_of(ex).scratch.compare_add = compare;
  qp_of(ex).scratch.swap = swap;
}
void fetch_add(ibv_qp_ex* ex, std::uint32_t rkey, std::uint64_t address, std::uint64_t add) {
  rdma(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, address);
  qp_of(ex).scratch.compare_add = add;
}

void send_inv(ibv_qp_ex* ex, std::uint32_t rkey) {
  begin(ex, IBV_WR_SEND_WITH_INV).imm = rkey;
}
void local_inv(ibv_qp_ex* ex, std::uint32_t rkey) {
  begin(ex, IBV_WR_LOCAL_INV).imm = rkey;
}
void bind_window(ibv_qp_ex* ex, ibv_mw* mw, std::uint32_t rkey, const ibv_mw_bind_info* info) {
  if (mw->type != IBV_MW_TYPE_2 || rkey >> 8 != mw->rkey >> 8) qp_of(ex).build.error = EINVAL;
  set_binding(begin(ex, IBV_WR_BIND_MW), *mw, rkey, *info);
}

void set_sge_list(ibv_qp_ex* ex, std::size_t count, const ibv_sge* list) {
  Qp& qp = qp_of(ex);
  if (count > qp.init.cap.max_send_sge) {
    qp.build.error = EINVAL;
    return;
  }
  SendWqe& w = qp.scratch;
  w.num_sge = static_cast<std::uint8_t>(count);
  for (std::size_t i = 0; i < count; ++i) w.sge[i] = list[i];
}
void set_sge(ibv_qp_ex* ex, std::uint32_t lkey, std::uint64_t address, std::uint32_t length) {
  const ibv_sge sge{address, length, lkey};
  set_sge_list(ex, 1, &sge);
}
void set_inline_list(ibv_qp_ex* ex, std::size_t count, const ibv_data_buf* list) {
  Qp& qp = qp_of(ex);
  SendWqe& w = qp.scratch;
  std::size_t length = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (list[i].length > qp.init.cap.max_inline_data - length) {
      qp.build.error = EINVAL;
      return;
    }
    std::memcpy(w.data + length, list[i].addr, list[i].length);
    length += list[i].length;
  }
  w.is_inline = true;
  w.length = static_cast<std::uint32_t>(length);
}
void set_inline(ibv_qp_ex* ex, void* address, std::size_t length) {
  const ibv_data_buf one{address, length};
  set_inline_list(ex, 1, &one);
}

void set_ud_addr(ibv_qp_ex* ex, ibv_ah* ah, std::uint32_t number, std::uint32_t qkey) {
  set_datagram_address(qp_of(ex), qp_of(ex).scratch, ah, number, qkey);
}
void set_xrc_srqn(ibv_qp_ex* ex, std::uint32_t number) {
  SendWqe& w = qp_of(ex).scratch;
  w.addressed = true;
  w.srqn = number;
}
void set_dc_addr(mlx5dv_qp_ex* dv, ibv_ah* ah, std::uint32_t number, std::uint64_t key) {
  SendWqe& w = qp_of(dv).scratch;
  w.addressed = true;
  w.reachable = reinterpret_cast<const Ah*>(ah)->reachable;
  w.dest_qpn = number;
  w.dc_key = key;
  w.stream = 0;
}

void set_dc_addr_stream(mlx5dv_qp_ex* dv, ibv_ah* ah, std::uint32_t number, std::uint64_t key,
                        std::uint16_t stream) {
  set_dc_addr(dv, ah, number, key);
  qp_of(dv).scratch.stream = stream;
}

void finish(Qp& qp) {
  qp.build.batch.clear();
  qp.build.open = false;
  qp.sq_lock.unlock();
}

int complete(ibv_qp_ex* ex) {
  Qp& qp = qp_of(ex);
  DataPath& data_path = data_path_of(&qp.verbs.qp_base);
  int error = qp.build.error;
  if (error == 0 && qp.build.count == 1) [[likely]] {
    error = data_path.send(qp, qp.scratch);
  } else if (error == 0 && qp.build.count > 1) {
    // All or nothing: room and checks for the whole batch before any of it is seen by a peer.
    if (qp.posted + qp.build.count - qp.reclaimed.load(std::memory_order_acquire) >
        qp.init.cap.max_send_wr) {
      error = ENOMEM;
    }
    for (std::size_t i = 0; error == 0 && i < qp.build.batch.size(); ++i) {
      error = data_path.check(qp, qp.build.batch[i]);
    }
    if (error == 0) error = data_path.check(qp, qp.scratch);
    if (error == 0) {
      const SendWqe last = qp.scratch;
      for (std::size_t i = 0; error == 0 && i < qp.build.batch.size(); ++i) {
        error = data_path.send(qp, qp.build.batch[i]);
      }
      qp.scratch = last;
      if (error == 0) error = data_path.send(qp, qp.scratch);
    }
  }
  finish(qp);
  return error;
}

void abort_batch(ibv_qp_ex* ex) {
  finish(qp_of(ex));
}

}  // namespace

void begin_request(SendWqe& w, std::uint64_t id, ibv_wr_opcode opcode, unsigned flags) noexcept {
  w.wr_id = id;
  w.opcode = static_cast<std::uint8_t>(opcode);
  w.flags = static_cast<std::uint8_t>(flags);
  w.num_sge = 0;
  w.is_inline = false;
  w.reachable = true;
  w.multicast = false;
  w.addressed = false;
  w.length = 0;
  w.rkey = 0;
  w.imm = 0;
}

void set_datagram_address(const Qp& qp, SendWqe& w, const ibv_ah* ah, std::uint32_t number,
                          std::uint32_t qkey) noexcept {
  const auto& to = *reinterpret_cast<const Ah*>(ah);
  w.addressed = true;
  w.reachable = to.reachable;
  w.global = to.attr.is_global != 0;
  w.multicast = to.multicast;
  if (w.multicast) std::memcpy(w.group, to.attr.grh.dgid.raw, sizeof w.group);
  w.dest_qpn = number;
  // IBTA 10.2.5: the top bit asks for the queue pair's own key.
  w.qkey = (qkey & 0x8000'0000U) != 0 ? qp.attr.qkey : qkey;
}

void fill_builders(Qp& qp, std::uint64_t send_ops) {
  ibv_qp_ex& v = qp.verbs;
  v.wr_start = start;
  v.wr_complete = complete;
  v.wr_abort = abort_batch;
  v.wr_set_sge = set_sge;
  v.wr_set_sge_list = set_sge_list;
  v.wr_set_inline_data = set_inline;
  v.wr_set_inline_data_list = set_inline_list;
  if (qp.kind == QpKind::ud) v.wr_set_ud_addr = set_ud_addr;
  if (qp.kind == QpKind::xrc_ini) v.wr_set_xrc_srqn = set_xrc_srqn;
  if (qp.kind == QpKind::dci) qp.dv.wr_set_dc_addr = set_dc_addr;
  // perftest names a stream to a DCI without any.
  if (qp.kind == QpKind::dci) qp.dv.wr_set_dc_addr_stream = set_dc_addr_stream;
  if ((send_ops & IBV_QP_EX_WITH_SEND) != 0) v.wr_send = send;
  if ((send_ops & IBV_QP_EX_WITH_SEND_WITH_IMM) != 0) v.wr_send_imm = send_imm;
  if (qp.kind == QpKind::ud) return;
  if ((send_ops & IBV_QP_EX_WITH_SEND_WITH_INV) != 0) v.wr_send_inv = send_inv;
  if ((send_ops & IBV_QP_EX_WITH_LOCAL_INV) != 0) v.wr_local_inv = local_inv;
  if ((send_ops & IBV_QP_EX_WITH_BIND_MW) != 0) v.wr_bind_mw = bind_window;
  if ((send_ops & IBV_QP_EX_WITH_RDMA_WRITE) != 0) v.wr_rdma_write = rdma_write;
  if ((send_ops & IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM) != 0) v.wr_rdma_write_imm = rdma_write_imm;
  if ((send_ops & IBV_QP_EX_WITH_RDMA_READ) != 0) v.wr_rdma_read = rdma_read;
  if ((send_ops & IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP) != 0) v.wr_atomic_cmp_swp = compare_swap;
  if ((send_ops & IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD) != 0) v.wr_atomic_fetch_add = fetch_add;
}

}  // namespace turnout::hca
