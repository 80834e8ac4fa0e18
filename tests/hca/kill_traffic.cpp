// SPDX-License-Identifier: BSD-3-Clause
// The load of a KillWorker: what it posts, and what must come of it.
//
// wr_id of a request: its kind (Kind) << 32 | peer << 16. Of a receive: peer << 16 | slot, or
// kOfSrq | slot.
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/hca/kill_worker.h"

namespace turnout::hca::kill_test {
namespace {

constexpr std::uint64_t kOfSrq = 1ULL << 32;

std::uint64_t request_id(Kind kind, std::uint32_t peer) {
  return std::uint64_t(kind) << 32 | std::uint64_t{peer} << 16;
}

}  // namespace

std::uint32_t KillWorker::random_length() {
  // Mostly short, now and then as long as may be: a death in the middle needs a middle.
  const std::uint32_t most = random(8) == 0 ? kMaxMessageBytes : 256;
  return kLeastMessageBytes + random((most - kLeastMessageBytes) / 8 + 1) * 8;
}

void KillWorker::post_receive(ibv_qp* qp, std::uint32_t peer, std::uint32_t slot) {
  ibv_sge sge = piece(local(receives_block(peer), slot), kStride);
  ibv_recv_wr wr{std::uint64_t{peer} << 16 | slot, nullptr, &sge, 1}, *bad = nullptr;
  errno = ibv_post_recv(qp, &wr, &bad);
  need(errno == 0, "ibv_post_recv");
}

void KillWorker::post_shared_receive(std::uint32_t slot) {
  std::uint8_t* at = local(srq_block(), slot);
  std::memset(at, 0, kLeastMessageBytes);
  ibv_sge sge = piece(at, kStride);
  ibv_recv_wr wr{kOfSrq | slot, nullptr, &sge, 1}, *bad = nullptr;
  errno = ibv_post_srq_recv(srq_, &wr, &bad);
  need(errno == 0, "ibv_post_srq_recv");
}

bool KillWorker::post_some(std::uint32_t peer) {
  Link& link = links_[peer];
  if (random(8) == 0) post_dc(peer);
  if (random(8) == 0) post_datagram(peer);
  if (link.posted - link.done == kWindow) return false;
  const RankArea& theirs = shared_.rank[peer];
  const bool full = link.sent - theirs.end[rank_].taken.load() >= kUnchecked;
  const std::uint32_t choice = full ? 60 + random(160) : random(100);
  if (choice >= 100) return false;  // reads alone would leave the processor to nobody
  Request request{IBV_WR_SEND, static_cast<std::uint32_t>(link.posted % kWindow), 8, 0};
  std::uint64_t remote = theirs.address.load();
  std::uint8_t* at = local(requests_block(peer), request.slot);
  if (choice < 60) {
    request.length = random_length();
    write_message(at, {rank_, peer, incarnation_, Kind::rc, link.sent + 1, request.length, 0});
    ++link.sent;
    if (choice >= 35) {
      request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
      remote += inbox_at(rank_, link.written++);
    }
  } else if (choice < 80) {
    request.opcode = IBV_WR_RDMA_READ;
    request.length = random_length();
    request.offset = random((kConstantBytes - request.length) / 8) * 8;
    remote += kConstantAt + request.offset;
  } else {
    request.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
    remote += counter_at(rank_);
  }
  ibv_sge sge = piece(at, request.length);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = request_id(Kind::rc, peer);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = request.opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.imm_data = htonl(static_cast<std::uint32_t>(link.written));
  if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic = {remote, 1, 0, theirs.key.load()};
  } else {
    wr.wr.rdma = {remote, theirs.key.load()};
  }
  ++link.posted;
  link.requests.push_back(request);
  errno = ibv_post_send(link.qp, &wr, &bad);
  need(errno == 0, "ibv_post_send");
  return true;
}

void KillWorker::post_datagram(std::uint32_t peer) {
  if (ud_posted_ - ud_done_ == kDatagrams) return;
  std::uint8_t* at = local(ud_block(), static_cast<std::uint32_t>(ud_posted_ % kDatagrams));
  const std::uint32_t length = random_length();
  write_message(at, {rank_, peer, incarnation_, Kind::ud, ++links_[peer].ud_sent, length, 0});
  ibv_sge sge = piece(at, length);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = request_id(Kind::ud, peer);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.ud = {ah_, shared_.rank[peer].ud.load(), kQkey};
  ++ud_posted_;
  errno = ibv_post_send(ud_, &wr, &bad);
  need(errno == 0, "ibv_post_send of a datagram");
}

void KillWorker::post_dc(std::uint32_t peer) {
  Link& link = links_[peer];
  if (dci_failed_ || dc_requests_.size() == kDcWindow) return;
  std::uint8_t* at = local(dc_block(), static_cast<std::uint32_t>(dc_posted_++ % kDcWindow));
  const std::uint32_t length = random_length();
  write_message(at, {rank_, peer, incarnation_, Kind::dc, ++link.dc_sent, length, 0});
  dc_requests_.push_back({peer, link.peer_incarnation, link.dc_sent});
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(dci_);
  ibv_wr_start(ex);
  ex->wr_id = request_id(Kind::dc, peer);
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(ex);
  mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(ex), ah_, shared_.rank[peer].dct.load(),
                        kDcKey);
  const ibv_sge sge = piece(at, length);
  ibv_wr_set_sge(ex, sge.lkey, sge.addr, sge.length);
  errno = ibv_wr_complete(ex);
  need(errno == 0, "ibv_wr_complete");
}

bool KillWorker::poll() {
  ibv_wc wc[16];
  const int done = ibv_poll_cq(send_cq_, 16, wc);
  need(done >= 0, "ibv_poll_cq of requests");
  for (int i = 0; i < done; ++i) {
    const auto kind = static_cast<Kind>(wc[i].wr_id >> 32);
    if (kind == Kind::rc) {
      take_done(wc[i]);
    } else if (kind == Kind::dc) {
      take_dc_done(wc[i]);
    } else {
      ++ud_done_;
      if (wc[i].status != IBV_WC_SUCCESS) {
        fail(fmt::format("a datagram ended with {}", ibv_wc_status_str(wc[i].status)));
      }
    }
  }
  const int received = ibv_poll_cq(recv_cq_, 16, wc);
  need(received >= 0, "ibv_poll_cq of receives");
  for (int i = 0; i < received; ++i) take_received(wc[i]);
  return done + received > 0;
}

void KillWorker::connection_failed(std::uint32_t peer, const ibv_wc& wc, bool receive) {
  Link& link = links_[peer];
  if (!was_killed(peer, link.peer_incarnation)) {
    fail(fmt::format("{} on the connection to rank {}, which lives", ibv_wc_status_str(wc.status),
                     peer));
  }
  // Behind the first error everything is flushed; a receive may be polled before the request.
  const bool first_request = !receive && !link.failed_request;
  if (wc.status != IBV_WC_WR_FLUSH_ERR && !(first_request && wc.status == IBV_WC_RETRY_EXC_ERR)) {
    fail(fmt::format("{} on the connection to rank {}, which was killed",
                     ibv_wc_status_str(wc.status), peer));
  }
  if (!receive) link.failed_request = true;
  ++mine_.errors;
  if (link.failed_at == 0) link.failed_at = now_ns();
  link.state = State::broken;
}

void KillWorker::take_done(const ibv_wc& wc) {
  const auto peer = static_cast<std::uint32_t>(wc.wr_id >> 16 & 0xff);
  Link& link = links_[peer];
  if (link.qp == nullptr || wc.qp_num != link.qp->qp_num || link.requests.empty()) {
    fail(fmt::format("a completion of queue pair {:#x} to rank {} that nothing was posted for",
                     wc.qp_num, peer));
  }
  const Request request = link.requests.front();
  link.requests.pop_front();
  ++link.done;
  if (wc.status != IBV_WC_SUCCESS) {
    connection_failed(peer, wc, false);
    return;
  }
  if (link.failed_request) fail(fmt::format("success behind an error, to rank {}", peer));
  ++mine_.checked;
  const std::uint8_t* at = local(requests_block(peer), request.slot);
  if (request.opcode == IBV_WR_RDMA_READ) {
    for (std::uint32_t i = 0; i < request.length; i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, at + i, 8);
      if (word != constant(peer, link.peer_incarnation, (request.offset + i) / 8)) {
        fail(fmt::format("read {} bytes at {} of rank {}: wrong at {}", request.length,
                         request.offset, peer, i));
      }
    }
  } else if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    std::uint64_t old = 0;
    std::memcpy(&old, at, 8);
    if (old != link.added) {
      fail(fmt::format("fetch-add at rank {} found {}, not {}", peer, old, link.added));
    }
    ++link.added;
  }
}

void KillWorker::take_dc_done(const ibv_wc& wc) {
  if (dc_requests_.empty()) fail("a completion of the DCI that nothing was posted for");
  const DcRequest request = dc_requests_.front();
  dc_requests_.pop_front();
  Link& link = links_[request.peer];
  if (wc.status == IBV_WC_SUCCESS) {
    if (dci_failed_) fail("success behind an error of the DCI");
    ++mine_.checked;
    return;
  }
  // Behind the one that went to the dead everything is flushed, whomever it went to.
  if (dci_failed_
          ? wc.status != IBV_WC_WR_FLUSH_ERR
          : wc.status != IBV_WC_RETRY_EXC_ERR || !was_killed(request.peer, request.incarnation)) {
    fail(fmt::format("{} of the DCI, request to rank {}, which {}", ibv_wc_status_str(wc.status),
                     request.peer,
                     was_killed(request.peer, request.incarnation) ? "was killed" : "lives"));
  }
  dci_failed_ = true;
  ++mine_.errors;
  // What was flushed never reached its target: its number is used again.
  if (link.peer_incarnation == request.incarnation) {
    link.dc_sent = std::min(link.dc_sent, request.sequence - 1);
  }
}

void KillWorker::check_message(const std::uint8_t* data, std::uint32_t length, Kind kind,
                               std::uint32_t peer) {
  MessageHead head{};
  std::memcpy(&head, data, sizeof head);
  if (kind != Kind::rc) peer = head.from;
  const bool known = peer < ranks_ && head.from == peer && head.to == rank_ && head.kind == kind;
  if (!known || head.length != length || head.incarnation != links_[peer].peer_incarnation) {
    fail(
        fmt::format("a message of {} bytes, kind {}, from rank {} says: from {} to {}, "
                    "incarnation {}, kind {}, {} bytes, number {}",
                    length, static_cast<int>(kind), peer, head.from, head.to, head.incarnation,
                    static_cast<int>(head.kind), head.length, head.sequence));
  }
  if (!is_whole(data, head)) {
    fail(fmt::format("message {} of rank {} ({} bytes) is damaged", head.sequence, peer, length));
  }
  Link& link = links_[peer];
  std::uint64_t& last = kind == Kind::rc   ? link.received
                        : kind == Kind::dc ? link.dc_received
                                           : link.ud_received;
  // Datagrams get lost, but do not overtake each other.
  if (kind == Kind::ud ? head.sequence <= last : head.sequence != last + 1) {
    fail(fmt::format("message {} of rank {} came behind {}", head.sequence, peer, last));
  }
  last = head.sequence;
  ++mine_.checked;
  End& end = mine_.end[peer];
  if (kind == Kind::rc) {
    end.taken = link.received;
    ++end.moved;
  } else if (kind == Kind::dc) {
    end.dc_taken = link.dc_received;
  }
}

void KillWorker::take_received(const ibv_wc& wc) {
  const auto slot = static_cast<std::uint32_t>(wc.wr_id & 0xffff);
  const bool shared = (wc.wr_id & kOfSrq) != 0;
  std::uint32_t peer = 0;
  while (peer < ranks_ && (links_[peer].qp == nullptr || links_[peer].qp->qp_num != wc.qp_num)) {
    ++peer;
  }
  const Kind kind = wc.qp_num == ud_->qp_num    ? Kind::ud
                    : wc.qp_num == dct_->qp_num ? Kind::dc
                                                : Kind::rc;
  if (kind == Kind::rc && peer == ranks_) {
    fail(fmt::format("a receive of queue pair {:#x}, which is none of ours", wc.qp_num));
  }
  const std::uint8_t* at = shared ? local(srq_block(), slot) : local(receives_block(peer), slot);
  if (wc.status != IBV_WC_SUCCESS) {
    if (kind != Kind::rc) {
      fail(fmt::format("a receive of kind {} ended with {}", static_cast<int>(kind),
                       ibv_wc_status_str(wc.status)));
    }
    connection_failed(peer, wc, true);
  } else if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    Link& link = links_[peer];
    const std::uint8_t* written = target_.data + inbox_at(peer, link.writes_taken++);
    if (ntohl(wc.imm_data) != static_cast<std::uint32_t>(link.writes_taken)) {
      fail(fmt::format("immediate data {} of rank {}, not {}", ntohl(wc.imm_data), peer,
                       link.writes_taken));
    }
    check_message(written, wc.byte_len, kind, peer);
  } else if (kind == Kind::ud) {
    check_message(at + sizeof(ibv_grh), wc.byte_len - std::uint32_t{sizeof(ibv_grh)}, kind, peer);
  } else {
    check_message(at, wc.byte_len, kind, peer);
  }
  if (shared) {
    post_shared_receive(slot);
  } else if (links_[peer].state != State::broken) {
    post_receive(links_[peer].qp, peer, slot);
  }
}

}  // namespace turnout::hca::kill_test
