// SPDX-License-Identifier: BSD-3-Clause
#include "tests/fuzz/tables_world.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "hca/device/objects.h"

namespace turnout::hca::fuzz {
namespace {

constexpr int kAll = int{IBV_ACCESS_LOCAL_WRITE} | IBV_ACCESS_REMOTE_WRITE |
                     IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;

template <class T>
T* made(T* object, const char* what) {
  if (object == nullptr) broken(what);
  return object;
}

ibv_qp_init_attr_ex attributes(const World& w, ibv_qp_type type, ibv_srq* srq) {
  ibv_qp_init_attr_ex a{};
  a.send_cq = w.cqs[0];
  a.recv_cq = w.cqs[type == IBV_QPT_UD ? 2 : 1];
  a.srq = srq;
  a.cap = {8, srq != nullptr ? 0U : 8U, 3, 2, 64};
  a.qp_type = type;
  a.comp_mask = IBV_QP_INIT_ATTR_PD;
  a.pd = w.pds[0];
  return a;
}

ibv_qp* datacenter(const World& w, mlx5dv_dc_type type) {
  ibv_qp_init_attr_ex a = attributes(w, IBV_QPT_DRIVER, w.srqs[0]);
  mlx5dv_qp_init_attr dv{};
  dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  dv.dc_init_attr.dc_type = type;
  if (type == MLX5DV_DCTYPE_DCT) {
    a.send_cq = nullptr;
    a.cap = {};
    dv.dc_init_attr.dct_access_key = kDcKey;
  } else {
    a.srq = nullptr;
    a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    a.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
                       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  }
  return mlx5dv_create_qp(w.context, &a, &dv);
}

}  // namespace

void broken(const char* what) {
  std::fprintf(stderr, "tables_fuzz: %s (errno %d)\n", what, errno);
  std::abort();
}

World::World() {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  context = made(ibv_open_device(list[0]), "ibv_open_device");
  ibv_free_device_list(list);
  auto opened = Fabric::open(std::getenv("TURNOUT_FABRIC"), Layout::minimum_size);
  if (!opened) broken("Fabric::open");
  fabric = opened.value();
  base_ = reinterpret_cast<std::byte*>(&fabric->header());
  for (ibv_pd*& pd : pds) pd = made(ibv_alloc_pd(context), "ibv_alloc_pd");
  channel = made(ibv_create_comp_channel(context), "ibv_create_comp_channel");
  for (const int fd : {channel->fd, context->async_fd}) fcntl(fd, F_SETFL, O_NONBLOCK);
  cqs[0] = made(ibv_create_cq(context, 32, nullptr, channel, 0), "ibv_create_cq");
  cqs[1] = made(ibv_create_cq(context, 16, nullptr, nullptr, 0), "ibv_create_cq");
  ibv_cq_init_attr_ex timed{};
  timed.cqe = 16;
  timed.wc_flags = static_cast<std::uint64_t>(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
  timed.channel = channel;
  cqs[2] = ibv_cq_ex_to_cq(made(ibv_create_cq_ex(context, &timed), "ibv_create_cq_ex"));
  pieces[1].kind = pieces[2].kind = Piece::Kind::file;
  pieces[3].kind = Piece::Kind::read_only;
  for (Piece& piece : pieces) {
    register_piece(piece);
    made(piece.mr, "ibv_reg_mr");
  }
  windows[0] = made(ibv_alloc_mw(pds[0], IBV_MW_TYPE_1), "ibv_alloc_mw");
  windows[1] = made(ibv_alloc_mw(pds[0], IBV_MW_TYPE_2), "ibv_alloc_mw");
  ibv_ah_attr ah_attr{};
  ah_attr.dlid = kLid;
  ah_attr.port_num = kPort;
  ah = made(ibv_create_ah(pds[0], &ah_attr), "ibv_create_ah");
  group.raw[0] = 0xff;
  group.raw[15] = 7;
  ah_attr.dlid = 0xc001;
  ah_attr.is_global = 1;
  ah_attr.grh.dgid = group;
  group_ah = made(ibv_create_ah(pds[0], &ah_attr), "ibv_create_ah");
  make_queue_pairs();
  if (ibv_attach_mcast(qps[ud], &group, 0xc001) != 0) broken("ibv_attach_mcast");
  note_rings();
}

void World::make_queue_pairs() {
  ibv_srq_init_attr srq{};
  srq.attr = {8, 2, 0};
  srqs[0] = made(ibv_create_srq(pds[0], &srq), "ibv_create_srq");
  ibv_xrcd_init_attr domain{};
  domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  domain.fd = -1;
  domain.oflags = O_CREAT;
  xrcd = made(ibv_open_xrcd(context, &domain), "ibv_open_xrcd");
  ibv_srq_init_attr_ex xrc{};
  xrc.attr = {8, 2, 0};
  xrc.comp_mask =
      IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  xrc.srq_type = IBV_SRQT_XRC;
  xrc.pd = pds[0];
  xrc.xrcd = xrcd;
  xrc.cq = cqs[1];
  srqs[1] = made(ibv_create_srq_ex(context, &xrc), "ibv_create_srq_ex");
  const auto create = [&](ibv_qp_type type, ibv_srq* shared) {
    ibv_qp_init_attr_ex a = attributes(*this, type, shared);
    if (type == IBV_QPT_XRC_RECV) {
      a = {};
      a.qp_type = type;
      a.comp_mask = IBV_QP_INIT_ATTR_XRCD;
      a.xrcd = xrcd;
    }
    return made(ibv_create_qp_ex(context, &a), "ibv_create_qp_ex");
  };
  qps[rc_a] = create(IBV_QPT_RC, nullptr);
  qps[rc_b] = create(IBV_QPT_RC, nullptr);
  qps[uc_a] = create(IBV_QPT_UC, nullptr);
  qps[uc_b] = create(IBV_QPT_UC, nullptr);
  qps[ud] = create(IBV_QPT_UD, nullptr);
  qps[dci] = made(datacenter(*this, MLX5DV_DCTYPE_DCI), "DCI");
  qps[dct] = made(datacenter(*this, MLX5DV_DCTYPE_DCT), "DCT");
  qps[initiator] = create(IBV_QPT_XRC_SEND, nullptr);
  qps[target] = create(IBV_QPT_XRC_RECV, nullptr);
  qps[rc_shared] = create(IBV_QPT_RC, srqs[0]);
  for (std::uint8_t i = 0; i < kQps; ++i) connect(static_cast<Which>(i));
  dct_number = qps[dct]->qp_num;
}

void World::connect(Which which) {
  static constexpr Which kPeer[kQps] = {rc_b, rc_a, uc_b,   uc_a,      ud,
                                        dci,  dct,  target, initiator, rc_shared};
  ibv_qp* qp = qps[which];
  const bool connected = which != ud && which != dci && which != dct;
  const bool acknowledged = which != uc_a && which != uc_b && which != ud;
  ibv_qp_attr a{};
  if (which != dct) (void)ibv_modify_qp(qp, &a, IBV_QP_STATE);  // reset
  a.qp_state = IBV_QPS_INIT;
  a.port_num = kPort;
  a.qkey = kQkey;
  a.qp_access_flags =
      unsigned{IBV_ACCESS_REMOTE_WRITE} | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  if (connected || which == dct) mask |= IBV_QP_ACCESS_FLAGS;
  if (which == ud) mask |= IBV_QP_QKEY;
  (void)ibv_modify_qp(qp, &a, mask);
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = IBV_MTU_4096;
  a.dest_qp_num = qps[kPeer[which]]->qp_num;
  a.max_dest_rd_atomic = 4;
  a.min_rnr_timer = 1;
  a.ah_attr.dlid = kLid;
  a.ah_attr.port_num = kPort;
  mask = IBV_QP_STATE;
  if (connected) mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  if (connected && acknowledged) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  if (which == dci) mask |= IBV_QP_PATH_MTU;
  if (which == dct) mask |= IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV;
  (void)ibv_modify_qp(qp, &a, mask);
  if (which == dct) return;
  a.qp_state = IBV_QPS_RTS;
  a.timeout = 1;  // 8 us
  a.retry_cnt = 1;
  a.rnr_retry = 1;
  a.max_rd_atomic = 4;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (acknowledged) {
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  (void)ibv_modify_qp(qp, &a, mask);
}

void World::register_piece(Piece& piece) {
  switch (piece.kind) {
    case Piece::Kind::heap:
      // Of malloc: what is touched beside it or after it is given back is seen.
      piece.data = static_cast<std::uint8_t*>(std::calloc(1, kPieceBytes));
      piece.mr = ibv_reg_mr(pds[0], piece.data, kPieceBytes, kAll);
      break;
    case Piece::Kind::file: {
      piece.fd = memfd_create("piece", MFD_CLOEXEC);
      if (ftruncate(piece.fd, kPieceBytes) != 0) broken("ftruncate");
      void* data = mmap(nullptr, kPieceBytes, PROT_READ | PROT_WRITE, MAP_SHARED, piece.fd, 0);
      piece.data = static_cast<std::uint8_t*>(data);
      piece.mr = ibv_reg_dmabuf_mr(pds[0], 0, kPieceBytes, reinterpret_cast<std::uint64_t>(data),
                                   piece.fd, kAll);
      break;
    }
    case Piece::Kind::read_only: {
      void* data = mmap(nullptr, kPieceBytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      piece.data = static_cast<std::uint8_t*>(data);
      piece.mr = ibv_reg_mr(pds[0], data, kPieceBytes, int{IBV_ACCESS_REMOTE_READ});
      break;
    }
  }
}

void World::replace(Piece& piece) {
  if (piece.mr != nullptr && ibv_dereg_mr(piece.mr) != 0) return;  // has windows
  piece.mr = nullptr;
  if (piece.kind == Piece::Kind::heap) {
    std::free(piece.data);
  } else {
    munmap(piece.data, kPieceBytes);
  }
  if (piece.fd >= 0) close(piece.fd);
  piece.fd = -1;
  register_piece(piece);
}

void World::note_rings() {
  const auto note = [&](std::uint64_t ring, std::uint64_t bytes) {
    rings_.push_back({static_cast<std::byte*>(fabric->heap(ring, bytes)), bytes});
  };
  locks_.push_back(&fabric->header().table_lock);
  locks_.push_back(&fabric->process(slot_of(fabric->me())).atomics);
  for (ibv_cq* cq : cqs) {
    CqRecord& r = fabric->cq(cq->handle);
    note(r.ring, r.slots * sizeof(Cqe));
    locks_.push_back(&r.lock);
  }
  const auto queue = [&](ReceiveQueue& q) {
    locks_.push_back(&q.lock);
    if (q.slots != 0) note(q.ring, q.slots * receive_stride(q.max_sge));
  };
  for (ibv_qp* qp : qps) queue(fabric->qp(qp->handle).rq);
  for (ibv_srq* srq : srqs) queue(fabric->srq(srq->handle).rq);
}

Range World::range(Area area, std::uint32_t choice) const {
  const auto of = [](auto& record) {
    return Range{reinterpret_cast<std::byte*>(&record), sizeof record};
  };
  switch (area) {
    case Area::header:
      return of(fabric->header());
    case Area::process:
      return of(fabric->process(choice % 3));
    case Area::hazard:
      return of(fabric->hazard(qps[choice % kQps]->handle));
    case Area::qp:
      return of(fabric->qp(qps[choice % kQps]->handle));
    case Area::cq:
      return of(fabric->cq(cqs[choice % cqs.size()]->handle));
    case Area::srq:
      return of(fabric->srq(srqs[choice % srqs.size()]->handle));
    case Area::mr: {
      const std::uint32_t n = choice % (pieces.size() + windows.size());
      if (n >= pieces.size()) return of(fabric->mr(windows[n - pieces.size()]->handle));
      return of(fabric->mr(pieces[n].mr != nullptr ? pieces[n].mr->handle : 1));
    }
    case Area::xrcd:
      return of(fabric->xrcd(choice % 2));
    case Area::handle:
      return of(fabric->xrc_handle(choice % 4));
    case Area::multicast:
      return of(fabric->multicast(choice % 2));
    case Area::tag:
      return {base_ + Layout::tags, 64 * sizeof(PageTag)};
    default:
      return rings_[choice % rings_.size()];
  }
}

World::~World() {
  const auto gone = [](int error, const char* what) {
    errno = error;
    if (error != 0) broken(what);
  };
  // What a record says decides whether a queue pair is in a group, and a region has windows: they
  // must say the truth, or nothing can be destroyed.
  std::uint64_t gid[2];
  std::memcpy(gid, group.raw, sizeof gid);
  for (int n = 0; n < 256 && qp_of(qps[ud]).attached.load() != 0; ++n) {
    MulticastRecord& r = fabric->multicast(0);
    fabric->header().multicast_high.store(1);
    r.owner.store(fabric->me());
    r.qpn.store(qps[ud]->qp_num);
    r.gid[0].store(gid[0]);
    r.gid[1].store(gid[1]);
    (void)ibv_detach_mcast(qps[ud], &group, 0xc001);
  }
  for (ibv_qp* qp : qps) gone(ibv_destroy_qp(qp), "ibv_destroy_qp");
  for (ibv_srq* srq : srqs) gone(ibv_destroy_srq(srq), "ibv_destroy_srq");
  gone(ibv_close_xrcd(xrcd), "ibv_close_xrcd");
  for (ibv_cq* cq : cqs) gone(ibv_destroy_cq(cq), "ibv_destroy_cq");
  for (ibv_ah* one : {ah, group_ah}) gone(ibv_destroy_ah(one), "ibv_destroy_ah");
  for (ibv_mw* window : windows) gone(ibv_dealloc_mw(window), "ibv_dealloc_mw");
  for (Piece& piece : pieces) {
    if (piece.mr != nullptr && ibv_dereg_mr(piece.mr) != 0) {
      fabric->header().mr_high.store(1);
      gone(ibv_dereg_mr(piece.mr), "ibv_dereg_mr");
    }
    if (piece.kind == Piece::Kind::heap) {
      std::free(piece.data);
    } else {
      munmap(piece.data, kPieceBytes);
    }
    if (piece.fd >= 0) close(piece.fd);
  }
  gone(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
  for (ibv_pd* pd : pds) gone(ibv_dealloc_pd(pd), "ibv_dealloc_pd");
  gone(ibv_close_device(context), "ibv_close_device");
  fabric.reset();
}

}  // namespace turnout::hca::fuzz
