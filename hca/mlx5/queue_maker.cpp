// SPDX-License-Identifier: BSD-3-Clause
#include "hca/mlx5/queue_maker.h"

#include <bit>

#include "hca/device/common_objects.h"
#include "hca/device/qp_state.h"
#include "hca/device/queue_pair.h"
#include "hca/live/mlx5_queues.h"
#include "hca/mlx5/program_memory.h"

namespace turnout::hca {

int QueueMaker::make(const CqRequest& request, const mlx5_ib_create_cq& mlx5,
                     std::unique_ptr<CqObject>& made) {
  // The library asks for one less than it has: a power of two.
  if (request.cqe >= kMaxCqe || (mlx5.cqe_size != 64 && mlx5.cqe_size != 128)) return EINVAL;
  // One of the formats. A device that may compress need not.
  constexpr unsigned kFormats = MLX5_IB_CQE_RES_FORMAT_HASH | MLX5_IB_CQE_RES_FORMAT_CSUM |
                                MLX5_IB_CQE_RES_FORMAT_CSUM_STRIDX;
  if (mlx5.cqe_comp_en != 0 && (!std::has_single_bit(mlx5.cqe_comp_res_format) ||
                                (mlx5.cqe_comp_res_format & kFormats) == 0)) {
    return EINVAL;
  }
  constexpr std::uint32_t kKnownFlags =
      MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD | MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX;
  if ((mlx5.flags & ~kKnownFlags) != 0) return EOPNOTSUPP;
  if ((mlx5.flags & MLX5_IB_CREATE_CQ_FLAGS_CQE_128B_PAD) != 0 && mlx5.cqe_size != 128) {
    return EINVAL;
  }
  const std::uint32_t entries = std::bit_ceil(request.cqe + 1);
  if ((mlx5.db_addr & 7) != 0 || (mlx5.buf_addr & 63) != 0) return EINVAL;
  if (!is_writable(mlx5.buf_addr, std::uint64_t{entries} * mlx5.cqe_size) ||
      !is_writable(mlx5.db_addr, 8)) {
    return EFAULT;
  }
  auto queue = std::make_unique<CqObject>(request.user_handle);
  ibv_cq_init_attr_ex attr{};
  attr.cqe = entries;
  attr.cq_context = &queue->told;
  attr.comp_vector = request.comp_vector;
  attr.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;  // every entry of an mlx5 has it
  if (request.channel != nullptr) attr.channel = &request.channel->verbs;
  Cq* const cq = objects_.verbs().create_cq(*objects_.context, attr);
  if (cq == nullptr) return errno;
  Mlx5CqRecord where{};
  where.buffer = mlx5.buf_addr;
  where.doorbell = mlx5.db_addr;
  where.entries = entries;
  where.stride = mlx5.cqe_size;
  where.unchecked = request.unchecked ? 1 : 0;
  objects_.engine->mlx5_queues().attach(*cq, where);
  queue->doorbell.cq = queue->cq = cq;
  queue->doorbell.doorbell = mlx5.db_addr;
  queue->doorbell.queues = &objects_.engine->mlx5_queues();
  Doorbells::instance().add(queue->doorbell);
  made = std::move(queue);
  ++made_.completion_queues;
  made_.bytes += std::uint64_t{entries} * mlx5.cqe_size;
  return 0;
}

int QueueMaker::make(const SrqRequest& request, const mlx5_ib_create_srq& mlx5,
                     std::unique_ptr<SrqObject>& made) {
  ibv_srq_init_attr attr{};
  attr.attr = request.limits;
  if (attr.attr.max_wr >= kMaxSrqWr || attr.attr.max_sge > kMaxSge ||
      (mlx5.flags & ~std::uint32_t{MLX5_SRQ_FLAG_SIGNATURE}) != 0) {
    return EINVAL;
  }
  if ((mlx5.flags & MLX5_SRQ_FLAG_SIGNATURE) != 0) return EOPNOTSUPP;
  // As libmlx5 and the kernel compute them.
  const std::uint32_t entries = std::bit_ceil(attr.attr.max_wr + 1);
  const std::uint32_t stride =
      std::max(32U, std::bit_ceil((1 + std::max(attr.attr.max_sge, 1U)) * kMlx5UnitBytes));
  if ((mlx5.db_addr & 3) != 0 || (mlx5.buf_addr & 15) != 0) return EINVAL;
  if (!is_writable(mlx5.buf_addr, std::uint64_t{entries} * stride) ||
      !is_writable(mlx5.db_addr, 4)) {
    return EFAULT;
  }
  auto shared = std::make_unique<SrqObject>(request.user_handle);
  attr.srq_context = &shared->told;
  attr.attr.max_wr = std::max(1U, entries - 1);
  attr.attr.max_sge = std::min(kMaxSge, stride / kMlx5UnitBytes - 1);
  Srq* const srq = objects_.verbs().create_srq(*request.pd, attr, request.xrcd, request.cq);
  if (srq == nullptr) return errno;
  shared->srq = srq;
  Mlx5ReceiveRecord where{};
  where.buffer = mlx5.buf_addr;
  where.doorbell = mlx5.db_addr;
  where.entries = entries;
  where.stride = stride;
  where.user_index = mlx5.uidx & 0xff'ffff;
  where.entries_are = request.cyclic ? Mlx5Entries::headed : Mlx5Entries::list;
  objects_.engine->mlx5_queues().attach(*srq, where);
  made = std::move(shared);
  ++made_.shared_queues;
  made_.bytes += std::uint64_t{entries} * stride;
  return 0;
}

int QueueMaker::make(const QpRequest& request, const mlx5_ib_create_qp& mlx5,
                     std::unique_ptr<QpObject>& made) {
  const ib_uverbs_ex_create_qp& asked = request.asked;
  constexpr std::uint32_t kKnownFlags = MLX5_QP_FLAG_SCATTER_CQE | MLX5_QP_FLAG_ALLOW_SCATTER_CQE |
                                        MLX5_QP_FLAG_TYPE_DCT | MLX5_QP_FLAG_TYPE_DCI |
                                        MLX5_QP_FLAG_BFREG_INDEX | MLX5_QP_FLAG_UAR_PAGE_INDEX |
                                        MLX5_QP_FLAG_DCI_STREAM;
  if ((mlx5.flags & ~kKnownFlags) != 0 || asked.comp_mask != 0) return EOPNOTSUPP;
  if ((asked.create_flags & ~std::uint32_t{IBV_QP_CREATE_BLOCK_SELF_MCAST_LB}) != 0) {
    return EOPNOTSUPP;
  }
  ibv_qp_init_attr_ex attr{};
  auto pair = std::make_unique<QpObject>(asked.user_handle);
  attr.qp_context = &pair->told;
  attr.qp_type = static_cast<ibv_qp_type>(asked.qp_type);
  mlx5dv_qp_init_attr dc{};
  const mlx5dv_qp_init_attr* driver = nullptr;
  if (attr.qp_type == IBV_QPT_DRIVER) {
    const bool target = (mlx5.flags & MLX5_QP_FLAG_TYPE_DCT) != 0;
    if (!target && (mlx5.flags & MLX5_QP_FLAG_TYPE_DCI) == 0) return EOPNOTSUPP;
    dc.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    dc.dc_init_attr.dc_type = target ? MLX5DV_DCTYPE_DCT : MLX5DV_DCTYPE_DCI;
    if (target) dc.dc_init_attr.dct_access_key = mlx5.access_key;
    if ((mlx5.flags & MLX5_QP_FLAG_DCI_STREAM) != 0) {
      if (mlx5.dci_streams.log_num_concurent > kMaxLogStreams ||
          mlx5.dci_streams.log_num_errored > kMaxLogStreams) {
        return EINVAL;
      }
      dc.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
      dc.dc_init_attr.dci_streams.log_num_concurent = mlx5.dci_streams.log_num_concurent;
      dc.dc_init_attr.dci_streams.log_num_errored = mlx5.dci_streams.log_num_errored;
    }
    driver = &dc;
  }
  if (request.xrcd != nullptr) {
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = &request.xrcd->verbs;
  } else {
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = &request.pd->verbs;
    const bool is_target = driver != nullptr && dc.dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT;
    if (request.send != nullptr && !is_target) attr.send_cq = ibv_cq_ex_to_cq(&request.send->verbs);
    if (request.receive != nullptr) attr.recv_cq = ibv_cq_ex_to_cq(&request.receive->verbs);
    if (request.srq != nullptr) attr.srq = &request.srq->verbs;
  }
  const QpKind kind = kind_of(attr, driver);
  if (kind == QpKind::none) return EOPNOTSUPP;
  const bool sends = kind != QpKind::dct && kind != QpKind::xrc_tgt;
  const bool receives = has_own_receives(kind, attr) && mlx5.rq_wqe_count != 0;
  constexpr std::uint32_t kMaxShift = 9;
  const std::uint32_t shift = mlx5.rq_wqe_shift;
  std::uint64_t receive_bytes = 0;
  if (asked.max_send_sge > kMaxSge || asked.max_recv_sge > kMaxSge) return EINVAL;
  if (receives) {
    if (!std::has_single_bit(mlx5.rq_wqe_count) || mlx5.rq_wqe_count > kMaxQpWr || shift < 4 ||
        shift > kMaxShift) {
      return EINVAL;
    }
    receive_bytes = std::uint64_t{mlx5.rq_wqe_count} << shift;
  }
  if (sends && (!std::has_single_bit(mlx5.sq_wqe_count) || mlx5.sq_wqe_count > kMaxQpWr)) {
    // An initiator that only receives has none.
    if (mlx5.sq_wqe_count != 0) return EINVAL;
  }
  const std::uint64_t send_bytes = sends ? std::uint64_t{mlx5.sq_wqe_count} * kMlx5BlockBytes : 0;
  if (receive_bytes + send_bytes != 0) {
    if ((mlx5.buf_addr & 63) != 0 || (mlx5.db_addr & 7) != 0) return EINVAL;
    if (!is_writable(mlx5.buf_addr, receive_bytes + send_bytes) || !is_writable(mlx5.db_addr, 8)) {
      return EFAULT;
    }
  }
  // The ring only holds what was fetched ahead.
  constexpr std::uint32_t kAhead = 64;
  attr.cap.max_send_wr = std::max(1U, mlx5.sq_wqe_count);
  attr.cap.max_send_sge = kMaxSge;
  attr.cap.max_inline_data = kMaxInline;
  if (receives) {
    attr.cap.max_recv_wr = std::min(mlx5.rq_wqe_count, kAhead);
    attr.cap.max_recv_sge = std::min(kMaxSge, (1U << shift) / kMlx5UnitBytes);
  }
  Qp* const qp = objects_.verbs().create_qp(*objects_.context, attr, driver);
  if (qp == nullptr) return errno;
  qp->hears_itself = asked.create_flags == 0;
  Mlx5ReceiveRecord where{};
  where.buffer = receives ? mlx5.buf_addr : 0;
  where.doorbell = mlx5.db_addr;
  where.entries = mlx5.rq_wqe_count;
  where.stride = receives ? 1U << shift : 0;
  where.user_index = mlx5.uidx & 0xff'ffff;
  objects_.engine->mlx5_queues().attach(*qp, where);
  Mlx5SendQueue::Place place;
  if (send_bytes != 0) {
    place = {mlx5.buf_addr + receive_bytes, mlx5.sq_wqe_count, mlx5.db_addr, mlx5.uidx & 0xff'ffff};
  }
  pair->qp = qp;
  pair->queue.emplace(*qp, place);
  // The library knows of its sends itself.
  if (receives) {
    pair->receives = {mlx5.rq_wqe_count, (1U << shift) / kMlx5UnitBytes};
  }
  if (send_bytes != 0) Doorbells::instance().add(*pair->queue);
  made = std::move(pair);
  ++made_.queue_pairs;
  made_.bytes += receive_bytes + send_bytes;
  return 0;
}

int QueueMaker::modify(QpObject& pair, const ibv_qp_attr& attr, int mask) {
  if (const int error = objects_.verbs().modify_qp(*pair.qp, attr, mask); error != 0) return error;
  if ((mask & IBV_QP_STATE) != 0) {
    if (attr.qp_state == IBV_QPS_RESET) pair.queue->restart();
    if (attr.qp_state == IBV_QPS_RTS || attr.qp_state == IBV_QPS_ERR) pair.queue->run();
  }
  return 0;
}

int QueueMaker::end(CqObject& queue) {
  if (queue.cq->users.load() != 0) return EBUSY;
  Doorbells::instance().remove(queue.doorbell);
  return objects_.verbs().destroy_cq(*queue.cq);
}

int QueueMaker::end(SrqObject& shared) {
  return objects_.verbs().destroy_srq(*shared.srq);
}

int QueueMaker::end(QpObject& pair) {
  if (pair.qp->attached.load() != 0) return EBUSY;
  Doorbells::instance().remove(*pair.queue);
  return objects_.verbs().destroy_qp(*pair.qp);
}

}  // namespace turnout::hca
