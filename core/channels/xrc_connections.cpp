// SPDX-License-Identifier: BSD-3-Clause
// XRC: one connection of this process to a node serves all processes there (teardown.md, XRC; the
// verbs: IBTA vol. 1, annex A14). So a process has one connection per node, not per process.
//
// The sender's connection serves one direction; the other direction of the pair has its own. The
// receiver requests it as any ring (J1), with the number of its XRC receive queue. The sender
// creates its initiator for the receiver's node, once for all processes there, and accepts (J2)
// with its number. If there is no target yet the receiver creates one, in the domain that the
// processes of its node share; otherwise it opens the one that the accept names. It answers (J3,
// ready), with the number of a new target. The sender connects, if not connected, and switches (J4,
// J5).
//
// On a switch back the receiver closes its handle of the target when everything has arrived, and
// sends `closed`, as over RC. The adapter counts the handles, the sender the peers that use its
// initiator: both are destroyed with their last user. A peer whose accept names a target that was
// destroyed meanwhile cannot open it; it sends `closed` and may request again.
#include "core/channels/xrc_connections.h"
#include "base/log.h"

namespace turnout {

Status XrcConnections::open_xrc() {
  auto domain = XrcDomain::open(*context_.device, resources_.receive_cq.get());
  if (!domain) return domain.status();
  if (context_.placement.rc_in_order()) {
    resources_.xrc = std::move(domain).value();
    return {};
  }
  // Rings are requested before any XRC queue pair exists that could report its placement order.
  RcQueue queue(static_cast<std::uint32_t>(resources_.queues.size()), 1,
                resources_.unsignalled_data, 0, 0, context_.account);
  if (Status status =
          queue.create(*context_.device, resources_.send_cq.get(), resources_.receive_cq.get(),
                       resources_.data_srq.get(), 0, 1, context_.tuning);
      !status.ok()) {
    return status;
  }
  context_.placement.set_rc(Placement::ask_rc(queue, *context_.device));
  resources_.xrc = std::move(domain).value();
  return {};
}

bool XrcConnections::may_use_xrc() const noexcept {
  const bool chosen = context_.traits.uses_feedback && context_.settings.xrc == "auto" &&
                      !context_.over_datagrams() && !xrc_failed_ &&
                      (context_.device->attributes().device_cap_flags & IBV_DEVICE_XRC) != 0;
  return resources_.xrc != nullptr || chosen;
}

// Opened on first use: most jobs never use it.
bool XrcConnections::has_xrc() {
  if (resources_.xrc || !may_use_xrc()) return resources_.xrc != nullptr;
  if (Status status = open_xrc(); !status.ok()) {
    TURNOUT_LOG(connection, warn, "opening the XRC domain failed: {}; XRC is not used",
                status.text());
    xrc_failed_ = true;
  }
  return resources_.xrc != nullptr;
}

void XrcConnections::drop_if_idle(Peer& peer) noexcept {
  if (peer.connection->xrc && peer.connection->xrc->idle()) peer.connect().xrc.reset();
}

// False: the budget has no room for the peer's state.
bool XrcConnections::make_xrc(Peer& peer) {
  if (peer.connection->xrc) return true;
  Reservation bytes = Reservation::take(context_.account, MemoryKind::peers, sizeof(PeerXrc),
                                        peer_table_.reserved_headroom());
  if (!bytes) return false;
  peer.connect().xrc = std::make_unique<PeerXrc>();
  peer.connection->xrc->record = std::move(bytes);
  return true;
}

// At the sender. Null: none exists and none can be created; see `status`.
XrcConnection* XrcConnections::xrc_connection_to(const Address& address, Status* status) {
  const NodeKey node{address.lid, address.gid};
  if (XrcConnection* const link = find_xrc_connection(node)) return link;
  if (rc_.active_rc() >= context_.settings.max_active_rc || !rc_.may_make_rc()) {
    *status = {Code::again,
               "RC queue pair limit reached (TURNOUT_MAX_ACTIVE_RC, or rc_pool in TURNOUT_TUNING)"};
    return nullptr;
  }
  // Frees the slot of a connection kept for reuse.
  while (!resources_.rc_pool.empty() &&
         rc_.active_rc() + rc_.resetting_rc() + resources_.rc_pool.size() >=
             rc_.connection_slots()) {
    rc_.forget_rc(std::move(resources_.rc_pool.back()));
    resources_.rc_pool.pop_back();
  }
  if (!rc_.reserve_rc()) {
    *status = {Code::over_budget, "no memory within the budget for a queue pair"};
    return nullptr;
  }
  auto link = std::make_unique<XrcConnection>();
  link->node = node;
  auto job = std::make_unique<RcJob>(link.get());
  rc_.add_queue(job.get());
  link->job = job.get();
  rc_.start_job(std::move(job));
  return xrc_connections_.emplace(node, std::move(link)).first->second.get();
}

// On J1; `srq`: its number.
void XrcConnections::take_xrc_request(Peer& peer, std::uint32_t srq) {
  if (!make_xrc(peer)) return events_.answer_refusal(peer, wire::Refusal::budget);
  Status status;
  XrcConnection* const link = xrc_connection_to(peer.address.whole(), &status);
  if (link == nullptr) {
    drop_if_idle(peer);
    events_.answer_refusal(peer, RcPool::refusal_of(peer, status));
    return;
  }
  PeerXrc& xrc = *peer.connection->xrc;
  xrc.link = link;
  xrc.srq = srq;
  link->users.push_back(&peer);
  peer.tx.state = SendState::preparing;
  advance_xrc_connection(*link);
}

// Takes the next step that its state allows. May destroy an unused link.
void XrcConnections::advance_xrc_connection(XrcConnection& link) {
  if (link.users.empty()) return discard_xrc_connection(link);
  if (link.job != nullptr) return;
  const std::vector<Peer*> users = link.users;
  const NodeKey node = link.node;
  for (Peer* const peer : users) {
    if (find_xrc_connection(node) != &link) return;  // the last of them was lost
    if (peer->tx.state != SendState::preparing) continue;
    if (link.target == 0) {
      if (link.asked != nullptr) return;
      link.asked = peer;
      link.asked_at = context_.clock.now();
    }
    peer->tx.state = SendState::accepted;
    control_.send_control(*peer, Purpose::establishment,
                          {.type = wire::Control::accept,
                           .request = peer->change->answer.request,
                           .qp_id = link.queue->qp_id(),
                           .operation = link.target});
  }
}

// On J3.
void XrcConnections::on_xrc_ready(Peer& peer, const wire::ControlMessage& message) {
  if (!peer.connection->xrc || peer.connection->xrc->link == nullptr) return;
  XrcConnection& link = *peer.connection->xrc->link;
  if (link.asked != &peer) {
    if (link.target != 0 && link.job == nullptr) begin_xrc(peer);
    return;
  }
  if (link.job != nullptr || message.qp_id == 0) {
    TURNOUT_LOG(connection, warn, "ignored an unexpected ready message: {}: target {}",
                peer.address.to_string(), message.qp_id);
    return;
  }
  link.target = message.qp_id;
  auto job = std::make_unique<RcJob>(&link);
  job->queue = std::move(link.queue);
  RcPool::connect_with(job.get(), peer, link.target);
  link.job = job.get();
  rc_.start_job(std::move(job));
}

// J4: the peer's ring is written over the link from here on.
void XrcConnections::begin_xrc(Peer& peer) {
  peer.tx.state = SendState::steady;
  if (peer.tx.kind != ChannelKind::dc_rdma) peer.state.make().tx.ring = peer.change->answer.ring;
  events_.switch_sending(peer, ChannelKind::xrc_rdma, peer.change->answer.request);
}

void XrcConnections::end_xrc_job(RcJob& job) {
  if (job.after != RcJob::After::use) {
    rc_.count_reset_end();
    rc_.forget_rc(std::move(job.queue));
    return;
  }
  if (job.link == nullptr) {  // abandoned meanwhile
    rc_.count_reset_end();
    destroy_initiator(std::move(job.queue));
    return;
  }
  XrcConnection& link = *job.link;
  link.job = nullptr;
  link.queue = std::move(job.queue);
  if (!job.status.ok()) {
    TURNOUT_LOG(connection, warn,
                "XRC connection failed: node with LID {}: {}; its peers continue without it",
                link.node.first, job.status.text());
    refuse_xrc_connection(link, job.status);
    return;
  }
  if (job.remote_qp_id != 0) {
    ++eviction_.report().made;
    const NodeKey node = link.node;
    Peer* const asked = std::exchange(link.asked, nullptr);
    if (asked != nullptr && asked->tx.state == SendState::accepted) begin_xrc(*asked);
    if (find_xrc_connection(node) != &link) return;  // it was lost
  }
  advance_xrc_connection(link);
}

// Creating or connecting it failed.
void XrcConnections::refuse_xrc_connection(XrcConnection& link, const Status& status) {
  const std::vector<Peer*> users = std::exchange(link.users, {});
  discard_xrc_connection(link);
  for (Peer* const peer : users) peer->connection->xrc->link = nullptr;
  for (Peer* const peer : users) {
    refuse_xrc(*peer, RcPool::refusal_of(*peer, status));
    drop_if_idle(*peer);
  }
}

// For a peer that waits for the link, or was accepted and not written to yet. An accepted peer may
// have refused meanwhile, and then has no ring for a fallback to DC.
void XrcConnections::refuse_xrc(Peer& peer, wire::Refusal why) {
  const bool accepted = peer.tx.state == SendState::accepted;
  peer.tx.state = SendState::steady;
  if (accepted) {
    events_.refuse(peer, peer.change->answer.request, why);
  } else {
    events_.answer_refusal(peer, why);
  }
}

// The peer is no longer written to over the link.
void XrcConnections::release_xrc_connection(Peer& peer) {
  if (!peer.connection->xrc || peer.connection->xrc->link == nullptr) return;
  XrcConnection& link = *std::exchange(peer.connect().xrc->link, nullptr);
  std::erase(link.users, &peer);
  if (link.asked == &peer) link.asked = nullptr;
  drop_if_idle(peer);
  advance_xrc_connection(link);
}

// A peer that was asked to create the target and does not answer, because it computes, delays the
// others of its node for a limited time only.
void XrcConnections::look_after_xrc_connections(Nanoseconds now) {
  std::vector<Peer*> late;
  for (const auto& [node, link] : xrc_connections_) {
    const bool waits = link->asked != nullptr && link->job == nullptr;
    if (waits && now - link->asked_at >= context_.settings.keepalive / 4)
      late.push_back(link->asked);
  }
  for (Peer* const peer : late) {
    if (peer->lost || !peer->connection->xrc || peer->connection->xrc->link == nullptr) continue;
    refuse_xrc(*peer, wire::Refusal::late);
    release_xrc_connection(*peer);
  }
}

// Its completion proves that the earlier writes are complete.
void XrcConnections::probe_xrc_connection(XrcConnection& link) {
  if (!link.queue || link.queue->idle() || link.queue->full()) return;
  Peer& peer = *link.users.front();
  SendRecord record{.kind = SendRecord::Kind::probe,
                    .opcode = IBV_WR_RDMA_WRITE,
                    .peer = peer.id,
                    .dct = peer.connection->xrc->srq};
  ++peer.probes;
  context_.profile.count_sent(Traffic::control, 0);
  if (Status status = link.queue->post(record); !status.ok()) {
    --peer.probes;
    TURNOUT_LOG(connection, warn,
                "probing an XRC connection failed: {}: {}; the connection is kept",
                peer.address.to_string(), status.text());
  }
}

// Unused.
void XrcConnections::discard_xrc_connection(XrcConnection& link) {
  rc_.count_inactive();
  rc_.count_reset();
  if (link.job != nullptr) {  // see end_xrc_job()
    link.job->link = nullptr;
  } else {
    for (const SendRecord& record : link.queue->take_all()) events_.retire(record);
    rc_.count_reset_end();
    destroy_initiator(std::move(link.queue));
  }
  xrc_connections_.erase(NodeKey(link.node));
}

void XrcConnections::destroy_initiator(std::unique_ptr<RcQueue> queue) {
  if (queue->qp() == nullptr) return rc_.forget_rc(std::move(queue));
  auto job = std::make_unique<RcJob>(nullptr);
  job->queue = std::move(queue);
  job->after = RcJob::After::nothing;
  rc_.count_reset();
  rc_.start_job(std::move(job));
}

// At the receiver, on J2.
void XrcConnections::on_xrc_accept(Peer& peer, const wire::ControlMessage& message) {
  if (message.operation > 0xffffff) {
    return events_.protocol_error(
        peer, fmt::format("accept: invalid target number {}", message.operation));
  }
  const auto named = static_cast<std::uint32_t>(message.operation);
  peer.rx.state = ReceiveState::connecting;
  Status status;
  if (!make_xrc(peer)) {
    return events_.target_failed(
        peer, {Code::over_budget, "no memory within the budget for an XRC target"});
  }
  PeerXrc& xrc = *peer.connection->xrc;
  if (xrc.target || xrc.job != nullptr) {
    status = {Code::again, "the previous connection is still closing"};
  } else if (named == 0) {
    xrc.bytes = Reservation::take(context_.account, MemoryKind::queue_pairs,
                                  queue_pair_bytes(QpService::dct, 0, 0, 0),
                                  peer_table_.reserved_headroom(), 1);
    if (!xrc.bytes) {
      status = {Code::over_budget, "no memory within the budget for an XRC target"};
    }
  }
  if (!status.ok()) return events_.target_failed(peer, status);
  auto job = std::make_unique<XrcTargetJob>(
      &peer, named == 0 ? XrcTargetJob::Step::make : XrcTargetJob::Step::open);
  job->initiator = {message.qp_id, peer.address.port->lid, peer.address.port->gid};
  job->number = named;
  job->device = context_.device;
  job->domain = resources_.xrc.get();
  job->tuning = context_.tuning;
  start_target_job(std::move(job));
}

void XrcConnections::start_target_job(std::unique_ptr<XrcTargetJob> job) {
  if (job->peer != nullptr) job->peer->connection->xrc->job = job.get();
  rc_.start(std::move(job));
}

void XrcConnections::end_target_job(XrcTargetJob& job) {
  if (job.peer == nullptr) {
    if (job.target) close_target(std::move(job.target));
    return;
  }
  Peer& peer = *job.peer;
  PeerXrc& xrc = *peer.connection->xrc;
  xrc.job = nullptr;
  if (job.step == XrcTargetJob::Step::fail) {
    if (!job.status.ok()) {
      TURNOUT_LOG(connection, warn, "stopping an XRC target failed: {}: {}; recovery continues",
                  peer.address.to_string(), job.status.text());
    }
    events_.send_xrc_replay(peer);
    return;
  }
  if (!job.status.ok()) {
    xrc.bytes = Reservation();
    events_.target_failed(peer, job.status);
    return;
  }
  const bool made = job.step == XrcTargetJob::Step::make;
  xrc.target = std::move(job.target);
  peer.rx.state = ReceiveState::accepted;
  control_.send_control(peer, Purpose::establishment,
                        {.type = wire::Control::ready,
                         .request = peer.change->request,
                         .qp_id = made ? xrc.target.number() : 0});
}

// Everything that the peer wrote over it has arrived, or never will.
void XrcConnections::release_target(Peer& peer) {
  if (!peer.connection->xrc) return;
  PeerXrc& xrc = *peer.connection->xrc;
  xrc.bytes = Reservation();
  if (xrc.job != nullptr) {  // see end_target_job()
    xrc.job->peer = nullptr;
    xrc.job = nullptr;
  }
  if (xrc.target) close_target(std::move(xrc.target));
  drop_if_idle(peer);
}

void XrcConnections::close_target(XrcTarget target) {
  auto job = std::make_unique<XrcTargetJob>(nullptr, XrcTargetJob::Step::close);
  job->target = std::move(target);
  start_target_job(std::move(job));
}

// The peer is lost.
void XrcConnections::forget_xrc(Peer& peer) {
  if (!peer.connection->xrc) return;
  if (const std::unique_ptr<Recovery> lost = std::move(peer.connect().xrc->lost)) {
    std::erase(xrc_lost_, &peer);
    events_.give_up_lost(*lost);
  }
  peer.connection->xrc->failed = false;
  release_target(peer);
  release_xrc_connection(peer);
}

}  // namespace turnout
