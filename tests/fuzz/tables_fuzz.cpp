// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: the virtual adapter's shared state, which any process of the user may damage.
//
// An input is a program: bytes of chosen records are overwritten, verbs are called. Whatever the
// tables say, no call may crash, touch what is not its own, or hang. Not tried: a lock whose word
// names a process that lives, this one included, for that is a lock which is held.
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/fuzz/tables_world.h"

namespace turnout::hca::fuzz {
namespace {

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  [[nodiscard]] bool empty() const { return left_ == 0; }
  // What is missing at the end is 0.
  template <class T>
  T get() {
    T value{};
    const std::size_t n = std::min(sizeof value, left_);
    std::memcpy(&value, data_, n);
    data_ += n;
    left_ -= n;
    return value;
  }
  std::uint8_t byte() { return get<std::uint8_t>(); }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

constexpr Token kDead = make_token(1, 1);
constexpr std::uint32_t kNoPid = 0x3fff'fff0;  // above the kernel's highest

std::uint64_t interesting(World& w, Input& in, std::uint64_t now) {
  const std::uint8_t choice = in.byte();
  const std::uint8_t more = in.byte();
  switch (choice % 16) {
    case 0:
      return 0;
    case 1:
      return ~std::uint64_t{0};
    case 2:
      return std::uint64_t{1} << (more & 63);
    case 3:
      return (std::uint64_t{1} << (more & 63)) - 1;
    case 4:
      return now + 1 + more;
    case 5:
      return now - 1 - more;
    case 6:
      return now << (more & 31);
    case 7:
      return now ^ std::uint64_t{1} << (more & 63);
    case 8:
      return w.fabric->me();
    case 9:
      return kDead;
    case 10:
      return static_cast<std::uint64_t>(getpid());
    case 11:
      return w.qps[more % World::kQps]->qp_num;
    case 12:
      return std::uint64_t{w.qps[more % World::kQps]->qp_num} << 32;
    case 13: {
      const Piece& piece = w.pieces[more % w.pieces.size()];
      return piece.mr != nullptr ? piece.mr->rkey : 0;
    }
    case 14:
      return reinterpret_cast<std::uint64_t>(w.pieces[more % w.pieces.size()].data);
    default:
      return static_cast<std::uint64_t>(w.rings()[more % w.rings().size()].start -
                                        reinterpret_cast<std::byte*>(&w.fabric->header()));
  }
}

void damage(World& w, Input& in) {
  const auto area = static_cast<World::Area>(in.byte() % static_cast<int>(World::Area::kAreas));
  const Range range = w.range(area, in.byte());
  const std::uint8_t how = in.byte();
  std::size_t offset = in.get<std::uint16_t>() % range.size;
  std::size_t size = 1 + how % 16;
  if ((how & 0x80) == 0) {
    size = (how & 0x40) != 0 ? 8 : 4;
    offset = offset / size * size;
    std::uint64_t value = 0;
    std::memcpy(&value, range.start + offset, size);
    value = interesting(w, in, value);
    std::memcpy(range.start + offset, &value, size);
  } else {
    size = std::min(size, range.size - offset);
    for (std::size_t i = 0; i < size; ++i) range.start[offset + i] = std::byte{in.byte()};
  }
  for (Lock* lock : w.locks()) {
    auto* at = reinterpret_cast<std::byte*>(lock);
    if (at + sizeof *lock <= range.start + offset || at >= range.start + offset + size) continue;
    if (lock->owner.load() == w.fabric->me()) lock->owner.store(w.fabric->me() ^ 0x40000000);
  }
}

// A process that is gone had some of the records.
void haunt(World& w, Input& in) {
  ProcessRecord& p = w.fabric->process(slot_of(kDead));
  p.generation = 1;
  p.pid = kNoPid;
  p.start_time = 1;
  p.token.store(kDead);
  w.fabric->header().process_high.store(2);
  QpRecord& qp = w.fabric->qp(w.qps[in.byte() % World::kQps]->handle);
  const std::uint8_t what = in.byte();
  if ((what & 1) != 0) qp.owner.store(kDead);
  if ((what & 2) != 0) qp.taken.store(1 + (what >> 7));
  if ((what & 4) != 0) qp.taken_owner.store(w.fabric->me());
  if ((what & 8) != 0) qp.taken_index.store(w.qps[in.byte() % World::kQps]->handle);
  if ((what & 16) != 0) w.fabric->cq(w.cqs[in.byte() % w.cqs.size()]->handle).owner.store(kDead);
  if ((what & 32) != 0) w.fabric->srq(w.srqs[in.byte() % 2]->handle).owner.store(kDead);
  if ((what & 64) != 0) {
    const Piece& piece = w.pieces[in.byte() % w.pieces.size()];
    if (piece.mr != nullptr) w.fabric->mr(piece.mr->handle).owner.store(kDead);
  }
}

ibv_sge any_sge(World& w, Input& in, bool inside) {
  const Piece& piece = w.pieces[in.byte() % w.pieces.size()];
  const std::uint32_t length = in.byte();
  std::uint64_t offset = in.get<std::uint16_t>() % (kPieceBytes + 64);
  if (inside) offset = std::min<std::uint64_t>(offset, kPieceBytes - length);
  return {reinterpret_cast<std::uint64_t>(piece.data) + offset, length,
          piece.mr != nullptr ? piece.mr->lkey : 0};
}

std::uint32_t any_key(World& w, Input& in) {
  const std::uint8_t choice = in.byte();
  if (choice >= 0xf0) return in.get<std::uint32_t>();
  const std::size_t n = choice % (w.pieces.size() + w.windows.size());
  if (n >= w.pieces.size()) return w.windows[n - w.pieces.size()]->rkey;
  return w.pieces[n].mr != nullptr ? w.pieces[n].mr->rkey : 0;
}

void build(World& w, Input& in, ibv_wr_opcode opcode, const ibv_sge* sges, int count) {
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(w.qps[World::dci]);
  const std::uint64_t remote = any_sge(w, in, false).addr;
  const std::uint32_t key = any_key(w, in);
  ibv_wr_start(ex);
  ex->wr_id = 7;
  ex->wr_flags = IBV_SEND_SIGNALED;
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
      ibv_wr_rdma_write(ex, key, remote);
      break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      ibv_wr_rdma_write_imm(ex, key, remote, 5);
      break;
    case IBV_WR_RDMA_READ:
      ibv_wr_rdma_read(ex, key, remote);
      break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      ibv_wr_atomic_fetch_add(ex, key, remote, 1);
      break;
    default:
      ibv_wr_send(ex);
      break;
  }
  mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(ex), w.ah, w.dct_number, kDcKey);
  ibv_wr_set_sge_list(ex, static_cast<std::size_t>(count), sges);
  (void)ibv_wr_complete(ex);
}

void send(World& w, Input& in) {
  static constexpr ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND,          IBV_WR_SEND_WITH_IMM,
                                               IBV_WR_RDMA_WRITE,    IBV_WR_RDMA_WRITE_WITH_IMM,
                                               IBV_WR_RDMA_READ,     IBV_WR_ATOMIC_CMP_AND_SWP,
                                               IBV_WR_SEND_WITH_INV, IBV_WR_ATOMIC_FETCH_AND_ADD,
                                               IBV_WR_LOCAL_INV,     IBV_WR_BIND_MW};
  const std::uint8_t which = in.byte() % World::kQps;
  const ibv_wr_opcode opcode = kOpcodes[in.byte() % std::size(kOpcodes)];
  const std::uint8_t flags = in.byte();
  const bool is_inline = (flags & 0x20) != 0;
  ibv_sge sges[3];
  const int count = flags % 4;
  for (int i = 0; i < count; ++i) sges[i] = any_sge(w, in, is_inline);
  if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    for (ibv_sge& sge : sges) sge.length = 8;
  }
  if (which == World::dci) {
    build(w, in, opcode, sges, count);
    return;
  }
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = flags;
  wr.sg_list = sges;
  wr.num_sge = count;
  wr.opcode = opcode;
  wr.send_flags = ((flags & 0x40) != 0 ? 0U : unsigned{IBV_SEND_SIGNALED}) |
                  (is_inline ? unsigned{IBV_SEND_INLINE} : 0U) |
                  ((flags & 0x80) != 0 ? unsigned{IBV_SEND_SOLICITED} : 0U);
  const std::uint64_t remote = any_sge(w, in, false).addr;
  const std::uint32_t key = any_key(w, in);
  if (which == World::ud) {
    wr.wr.ud.ah = (flags & 0x10) != 0 ? w.group_ah : w.ah;
    wr.wr.ud.remote_qpn = w.qps[World::ud]->qp_num;
    wr.wr.ud.remote_qkey = kQkey;
  } else if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic = {remote & ~std::uint64_t{7}, 0, 1, key};
  } else {
    wr.wr.rdma = {remote, key};
  }
  if (which == World::initiator) ibv_get_srq_num(w.srqs[1], &wr.qp_type.xrc.remote_srqn);
  if (opcode == IBV_WR_LOCAL_INV || opcode == IBV_WR_SEND_WITH_INV) wr.invalidate_rkey = key;
  if (opcode == IBV_WR_BIND_MW) {
    ibv_mw* window = w.windows[1];
    const Piece& piece = w.pieces[in.byte() % w.pieces.size()];
    const ibv_sge part = any_sge(w, in, false);
    wr.bind_mw = {window,
                  ibv_inc_rkey(window->rkey),
                  {piece.mr, part.addr, part.length, IBV_ACCESS_REMOTE_WRITE}};
    if (ibv_post_send(w.qps[which], &wr, &bad) == 0) window->rkey = wr.bind_mw.rkey;
    return;
  }
  (void)ibv_post_send(w.qps[which], &wr, &bad);
}

void receive(World& w, Input& in) {
  const std::uint8_t which = in.byte() % (World::kQps + 2);
  ibv_sge sges[2] = {any_sge(w, in, false), any_sge(w, in, false)};
  ibv_recv_wr wr{in.byte(), nullptr, sges, in.byte() % 3}, *bad = nullptr;
  if (which < World::kQps) {
    (void)ibv_post_recv(w.qps[which], &wr, &bad);
  } else {
    (void)ibv_post_srq_recv(w.srqs[which - World::kQps], &wr, &bad);
  }
}

void poll(World& w) {
  ibv_wc wc[8];
  for (ibv_cq* cq : w.cqs) {
    const int n = ibv_poll_cq(cq, 8, wc);
    if (n > 8) broken("ibv_poll_cq");
  }
  ibv_cq_ex* timed = reinterpret_cast<ibv_cq_ex*>(w.cqs[2]);
  ibv_poll_cq_attr attr{};
  if (ibv_start_poll(timed, &attr) == 0) {
    (void)ibv_wc_read_completion_ts(timed);
    (void)ibv_next_poll(timed);
    ibv_end_poll(timed);
  }
}

void events(World& w) {
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  while (ibv_get_cq_event(w.channel, &cq, &cq_context) == 0) ibv_ack_cq_events(cq, 1);
  ibv_async_event event;
  while (ibv_get_async_event(w.context, &event) == 0) ibv_ack_async_event(&event);
}

void modify(World& w, Input& in) {
  ibv_qp* qp = w.qps[in.byte() % World::kQps];
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  (void)ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
  attr = {};
  attr.qp_state = static_cast<ibv_qp_state>(in.byte() % 7);
  (void)ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

// Small objects that come and go.
void churn(World& w, Input& in) {
  switch (in.byte() % 7) {
    case 0:
      if (ibv_cq* cq = ibv_create_cq(w.context, 1 + in.byte(), nullptr, w.channel, 0);
          cq != nullptr) {
        if (ibv_destroy_cq(cq) != 0) broken("ibv_destroy_cq");
      }
      break;
    case 1: {
      ibv_qp_init_attr attr{};
      attr.send_cq = attr.recv_cq = w.cqs[in.byte() % w.cqs.size()];
      attr.cap = {4, 4, 1, 1, 0};
      attr.qp_type = IBV_QPT_RC;
      if (ibv_qp* qp = ibv_create_qp(w.pds[1], &attr); qp != nullptr) {
        if (ibv_destroy_qp(qp) != 0) broken("ibv_destroy_qp");
      }
      break;
    }
    case 2: {
      ibv_srq_init_attr attr{};
      attr.attr = {4, 1, 0};
      if (ibv_srq* srq = ibv_create_srq(w.pds[1], &attr); srq != nullptr) {
        if (ibv_destroy_srq(srq) != 0) broken("ibv_destroy_srq");
      }
      break;
    }
    case 3: {
      ibv_qp_open_attr attr{};
      attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
      attr.qp_num = w.qps[World::target]->qp_num;
      attr.xrcd = w.xrcd;
      attr.qp_type = IBV_QPT_XRC_RECV;
      if (ibv_qp* qp = ibv_open_qp(w.context, &attr); qp != nullptr) {
        if (ibv_destroy_qp(qp) != 0) broken("ibv_destroy_qp");
      }
      break;
    }
    case 4:
      (void)ibv_resize_cq(w.cqs[in.byte() % w.cqs.size()], 1 + in.byte() % 64);
      break;
    case 5: {
      ibv_mw*& window = w.windows[in.byte() % 2];
      const ibv_mw_type type = window->type;
      if (ibv_dealloc_mw(window) != 0) broken("ibv_dealloc_mw");
      window = ibv_alloc_mw(w.pds[0], type);
      if (window == nullptr) broken("ibv_alloc_mw");
      break;
    }
    default: {
      const Piece& piece = w.pieces[in.byte() % w.pieces.size()];
      if (piece.mr != nullptr && piece.kind != Piece::Kind::read_only) {
        (void)ibv_rereg_mr(piece.mr, IBV_REREG_MR_CHANGE_PD, w.pds[in.byte() % 2], nullptr, 0, 0);
      }
      break;
    }
  }
}

void other(World& w, Input& in) {
  ibv_qp* qp = w.qps[World::ud];
  switch (in.byte() % 8) {
    case 0:
      (void)ibv_attach_mcast(qp, &w.group, 0xc001);
      break;
    case 1:
      (void)ibv_detach_mcast(qp, &w.group, 0xc001);
      break;
    case 2: {
      const Piece& piece = w.pieces[in.byte() % w.pieces.size()];
      const ibv_sge part = any_sge(w, in, false);
      ibv_mw_bind bind{1, IBV_SEND_SIGNALED, {piece.mr, part.addr, part.length, 0}};
      bind.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
      if (piece.mr != nullptr) (void)ibv_bind_mw(w.qps[World::rc_a], w.windows[0], &bind);
      break;
    }
    case 3: {
      ibv_sge part = any_sge(w, in, false);
      (void)ibv_advise_mr(w.pds[0], IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, &part, 1);
      break;
    }
    case 4: {
      ibv_srq* srq = w.srqs[in.byte() % 2];
      ibv_srq_attr attr{};
      (void)ibv_query_srq(srq, &attr);
      attr.srq_limit = in.byte() % 4;
      (void)ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT);
      break;
    }
    case 5:
      for (ibv_cq* cq : w.cqs) (void)ibv_req_notify_cq(cq, in.byte() % 2);
      break;
    case 6:
      w.replace(w.pieces[in.byte() % w.pieces.size()]);
      break;
    default:
      (void)w.fabric->reap_dead();
      break;
  }
}

}  // namespace
}  // namespace turnout::hca::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  setenv("TURNOUT_FABRIC", ("fuzz." + std::to_string(getpid())).c_str(), 1);
  setenv("TURNOUT_FABRIC_SIZE", std::to_string(turnout::hca::Layout::minimum_size).c_str(), 1);
  setenv("TURNOUT_LOG", "off", 1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout::hca::fuzz;
  constexpr int kSteps = 96;  // a damaged lock costs milliseconds
  World world;
  Input in(data, size);
  for (int step = 0; step < kSteps && !in.empty(); ++step) {
    switch (in.byte() % 16) {
      case 0:
      case 1:
      case 2:
      case 3:
        damage(world, in);
        break;
      case 4:
        haunt(world, in);
        break;
      case 5:
      case 6:
      case 7:
      case 8:
        send(world, in);
        break;
      case 9:
      case 10:
        receive(world, in);
        break;
      case 11:
        poll(world);
        break;
      case 12:
        modify(world, in);
        break;
      case 13:
        churn(world, in);
        break;
      case 14:
        other(world, in);
        break;
      default:
        world.connect(static_cast<World::Which>(in.byte() % World::kQps));
        break;
    }
    events(world);
  }
  poll(world);
  events(world);
  return 0;
}
