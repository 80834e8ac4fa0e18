// SPDX-License-Identifier: BSD-3-Clause
#include "tests/hca/kill_worker.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace turnout::hca::kill_test {
namespace {

constexpr unsigned kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

void set_nonblocking(int fd) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

}  // namespace

KillWorker::KillWorker(SharedArea& shared, std::uint32_t rank, std::uint32_t ranks,
                       std::uint32_t incarnation, std::uint64_t seed)
    : shared_(shared),
      mine_(shared.rank[rank]),
      rank_(rank),
      ranks_(ranks),
      incarnation_(incarnation),
      random_(mix(seed) ^ (std::uint64_t{rank} << 32 | incarnation)) {}

void KillWorker::fail(const std::string& text) const {
  throw std::runtime_error(fmt::format("rank {}, incarnation {}: {}", rank_, incarnation_, text));
}
void KillWorker::need(bool ok, const char* what) const {
  if (!ok) fail(fmt::format("{}: {}", what, std::strerror(errno)));
}

KillWorker::Region KillWorker::make_region(std::size_t size, bool shared) {
  Region r;
  r.size = size;
  if (shared) {
    r.fd = memfd_create("hca_kill", MFD_CLOEXEC);
    need(r.fd >= 0 && ftruncate(r.fd, static_cast<off_t>(size)) == 0, "memfd");
  }
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                  shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, r.fd, 0);
  need(at != MAP_FAILED, "mmap");
  r.data = static_cast<std::uint8_t*>(at);
  r.mr = shared ? ibv_reg_dmabuf_mr(pd_, 0, size, reinterpret_cast<std::uint64_t>(at), r.fd,
                                    static_cast<int>(kAccess))
                : ibv_reg_mr(pd_, at, size, kAccess);
  need(r.mr != nullptr, "registering memory");
  return r;
}

void KillWorker::drop(Region& region) {
  need(ibv_dereg_mr(region.mr) == 0, "ibv_dereg_mr");
  munmap(region.data, region.size);
  if (region.fd >= 0) ::close(region.fd);
}

ibv_qp* KillWorker::make_qp(ibv_qp_type type, bool on_srq, bool dct) {
  ibv_qp_init_attr_ex a{};
  a.send_cq = dct ? nullptr : send_cq_;
  a.recv_cq = recv_cq_;
  a.srq = on_srq ? srq_ : nullptr;
  a.qp_type = type;
  a.comp_mask = IBV_QP_INIT_ATTR_PD;
  a.pd = pd_;
  if (!dct) a.cap = {64, on_srq ? 0U : kReceives, 1, 1, 0};
  ibv_qp* qp = nullptr;
  if (type == IBV_QPT_DRIVER) {
    mlx5dv_qp_init_attr dv{};
    dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    dv.dc_init_attr.dc_type = dct ? MLX5DV_DCTYPE_DCT : MLX5DV_DCTYPE_DCI;
    if (dct) {
      dv.dc_init_attr.dct_access_key = kDcKey;
    } else {
      a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      a.send_ops_flags = IBV_QP_EX_WITH_SEND;
    }
    qp = mlx5dv_create_qp(context_, &a, &dv);
  } else {
    qp = ibv_create_qp_ex(context_, &a);
  }
  need(qp != nullptr, "creating a queue pair");
  return qp;
}

void KillWorker::modify(ibv_qp* qp, ibv_qp_state state, std::uint32_t peer) {
  const bool rc = qp->qp_type == IBV_QPT_RC, ud = qp->qp_type == IBV_QPT_UD;
  const bool dct = qp == dct_;
  ibv_qp_attr a{};
  int mask = IBV_QP_STATE;
  a.qp_state = state;
  if (state == IBV_QPS_INIT) {
    a.port_num = 1;
    a.qkey = kQkey;
    a.qp_access_flags = kAccess & ~unsigned{IBV_ACCESS_LOCAL_WRITE};
    mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if (rc || dct) mask |= IBV_QP_ACCESS_FLAGS;
    if (ud) mask |= IBV_QP_QKEY;
  } else if (state == IBV_QPS_RTR) {
    a.path_mtu = IBV_MTU_4096;
    a.dest_qp_num = peer;
    a.max_dest_rd_atomic = 16;
    a.min_rnr_timer = 1;
    a.ah_attr.dlid = 1;
    a.ah_attr.port_num = 1;
    if (rc) {
      mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    } else if (dct) {
      mask |= IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV;
    } else if (!ud) {
      mask |= IBV_QP_PATH_MTU;
    }
  } else if (state == IBV_QPS_RTS) {
    a.timeout = kTimeout;
    a.retry_cnt = kRetries;
    a.rnr_retry = 7;
    a.max_rd_atomic = 16;
    mask |= IBV_QP_SQ_PSN;
    if (!ud) mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  errno = ibv_modify_qp(qp, &a, mask);
  need(errno == 0, "ibv_modify_qp");
}

void KillWorker::ready(ibv_qp* qp, std::uint32_t peer) {
  if (qp->state == IBV_QPS_RESET) modify(qp, IBV_QPS_INIT, peer);
  modify(qp, IBV_QPS_RTR, peer);
  modify(qp, IBV_QPS_RTS, peer);
}

void KillWorker::open() {
  ibv_device** list = ibv_get_device_list(nullptr);
  need(list != nullptr && list[0] != nullptr, "ibv_get_device_list");
  context_ = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  need(context_ != nullptr, "ibv_open_device");
  set_nonblocking(context_->async_fd);
  pd_ = ibv_alloc_pd(context_);
  need(pd_ != nullptr, "ibv_alloc_pd");
  channel_ = ibv_create_comp_channel(context_);
  need(channel_ != nullptr, "ibv_create_comp_channel");
  set_nonblocking(channel_->fd);
  send_cq_ = ibv_create_cq(context_, 1024, nullptr, nullptr, 0);
  recv_cq_ = ibv_create_cq(context_, 1024, nullptr, channel_, 0);
  need(send_cq_ != nullptr && recv_cq_ != nullptr, "ibv_create_cq");
  ibv_srq_init_attr srq{};
  srq.attr = {kSharedReceives, 1, 0};
  srq_ = ibv_create_srq(pd_, &srq);
  need(srq_ != nullptr, "ibv_create_srq");
  // Each of the two kinds of memory is a target and a source, by turns.
  const bool shared = ((rank_ + incarnation_) & 1) != 0;
  target_ = make_region(inbox_at(ranks_, 0), shared);
  local_ = make_region(std::size_t{blocks()} * kSharedReceives * kStride, !shared);
  for (std::uint32_t i = 0; i < kConstantBytes / 8; ++i) {
    const std::uint64_t word = constant(rank_, incarnation_, i);
    std::memcpy(target_.data + kConstantAt + i * 8, &word, 8);
  }
  for (std::uint32_t i = 0; i < kSharedReceives; ++i) post_shared_receive(i);
  ibv_ah_attr ah{};
  ah.dlid = 1;
  ah.port_num = 1;
  ah_ = ibv_create_ah(pd_, &ah);
  need(ah_ != nullptr, "ibv_create_ah");
  ud_ = make_qp(IBV_QPT_UD, true, false);
  ready(ud_, 0);
  dci_ = make_qp(IBV_QPT_DRIVER, false, false);
  ready(dci_, 0);
  dct_ = make_qp(IBV_QPT_DRIVER, true, true);
  modify(dct_, IBV_QPS_INIT, 0);
  modify(dct_, IBV_QPS_RTR, 0);

  mine_.key = target_.mr->rkey;
  mine_.address = reinterpret_cast<std::uint64_t>(target_.data);
  mine_.dct = dct_->qp_num;
  mine_.ud = ud_->qp_num;
  mine_.open = incarnation_;
}

void KillWorker::close() {
  for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
    if (links_[peer].qp != nullptr) need(ibv_destroy_qp(links_[peer].qp) == 0, "ibv_destroy_qp");
  }
  for (ibv_qp* qp : {ud_, dci_, dct_}) need(ibv_destroy_qp(qp) == 0, "ibv_destroy_qp");
  need(ibv_destroy_ah(ah_) == 0, "ibv_destroy_ah");
  need(ibv_destroy_srq(srq_) == 0, "ibv_destroy_srq");
  for (ibv_cq* cq : {send_cq_, recv_cq_}) need(ibv_destroy_cq(cq) == 0, "ibv_destroy_cq");
  need(ibv_destroy_comp_channel(channel_) == 0, "ibv_destroy_comp_channel");
  drop(target_);
  drop(local_);
  need(ibv_dealloc_pd(pd_) == 0, "ibv_dealloc_pd");
  need(ibv_close_device(context_) == 0, "ibv_close_device");
}

void KillWorker::end_link(std::uint32_t peer) {
  Link& link = links_[peer];
  const std::int64_t failed_at = link.failed_at;
  modify(link.qp, IBV_QPS_ERR, 0);
  // What it took of the shared receives must come back before it goes.
  while (poll()) {
  }
  need(ibv_destroy_qp(link.qp) == 0, "ibv_destroy_qp");
  End& end = mine_.end[peer];
  end.told_at = failed_at;
  end.told = link.peer_incarnation;
  link = Link{};
  ibv_async_event event{};
  while (ibv_get_async_event(context_, &event) == 0) ibv_ack_async_event(&event);
}

void KillWorker::maintain(std::uint32_t peer) {
  Link& link = links_[peer];
  RankArea& theirs = shared_.rank[peer];
  End& end = mine_.end[peer];
  if (link.state == State::broken) end_link(peer);
  if (link.state == State::down) {
    const std::uint32_t killed = theirs.killed.load(), open = theirs.open.load();
    if (killed > end.told.load()) {
      end.told_at = 0;  // we never knew it
      end.told = killed;
    }
    if (open <= killed) return;
    link.peer_incarnation = open;
    link.qp = make_qp(IBV_QPT_RC, on_srq(peer), false);
    modify(link.qp, IBV_QPS_INIT, 0);
    if (!on_srq(peer)) {
      for (std::uint32_t i = 0; i < kReceives; ++i) post_receive(link.qp, peer, i);
    }
    std::memset(target_.data + counter_at(peer), 0, 8);
    end.taken = 0;
    end.dc_taken = 0;
    end.number = link.qp->qp_num;
    end.offered = ticket(incarnation_, open);
    link.state = State::offered;
  }
  const std::uint64_t answer = ticket(link.peer_incarnation, incarnation_);
  if (link.state == State::offered && theirs.end[rank_].offered.load() == answer) {
    ready(link.qp, theirs.end[rank_].number.load());
    end.ready = ticket(incarnation_, link.peer_incarnation);
    link.state = State::connected;
  }
  if (link.state == State::connected && theirs.end[rank_].ready.load() == answer) {
    link.state = State::up;
  }
  // Nothing is sent on it yet, so no completion will tell.
  if (link.state != State::up && was_killed(peer, link.peer_incarnation)) end_link(peer);
}

void KillWorker::rest() {
  if (++idle_ < 64) return;
  if ((rank_ & 1) == 0) {  // it polls
    usleep(20);
    return;
  }
  need(ibv_req_notify_cq(recv_cq_, 0) == 0, "ibv_req_notify_cq");
  if (poll()) return;
  pollfd wait{channel_->fd, POLLIN, 0};
  ::poll(&wait, 1, 1);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(channel_, &cq, &context) == 0) {
    if (cq != recv_cq_) fail("an event of a CQ that has no channel");
    ibv_ack_cq_events(cq, 1);
  }
}

bool KillWorker::is_quiet() const {
  const auto quiet = [](const Link& link) { return link.posted == link.done; };
  return std::all_of(links_.begin(), links_.end(), quiet) && dc_requests_.empty() &&
         ud_posted_ == ud_done_;
}

void KillWorker::tell_quiet() {
  for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
    mine_.end[peer].sent = links_[peer].sent;
    mine_.end[peer].dc_sent = links_[peer].dc_sent;
  }
  mine_.quiet = incarnation_;
}

void KillWorker::run() {
  open();
  for (;;) {
    const Phase phase = shared_.phase.load();
    if (phase == Phase::leave) break;
    bool busy = false;
    for (std::uint32_t peer = 0; peer < ranks_; ++peer) {
      if (peer == rank_) continue;
      maintain(peer);
      if (phase == Phase::load && links_[peer].state == State::up) busy |= post_some(peer);
    }
    if (dci_failed_ && dc_requests_.empty()) {
      modify(dci_, IBV_QPS_RESET, 0);
      ready(dci_, 0);
      dci_failed_ = false;
    }
    busy |= poll();
    if (phase == Phase::stop && is_quiet() && mine_.quiet.load() != incarnation_) tell_quiet();
    if (busy) {
      idle_ = 0;
    } else {
      rest();
    }
  }
  if (poll()) fail("completions after everything was received");
  close();
}

}  // namespace turnout::hca::kill_test
