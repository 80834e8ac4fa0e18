// Messages out: which channel, eager or rendezvous, credits and the backlog of what must wait.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "core/connection/node_link.h"
#include "core/endpoint_core.h"

namespace turnout {
namespace {
constexpr std::uint32_t kMaxCreditsInHeader = 255;

Traffic traffic_of(wire::Type type) noexcept {
  switch (type) {
    case wire::Type::eager:
    case wire::Type::piece:
    case wire::Type::atomic:
    case wire::Type::answer:
      return Traffic::data;
    default:
      return Traffic::control;
  }
}
}  // namespace

// Payload bytes that one message to this peer can carry now.
std::size_t EndpointCore::room(const Peer& peer) const noexcept {
  std::size_t bytes = peer.eager_size - stream_overhead_;
  if (over_ring(peer.send_kind)) {
    // What goes into a ring may have to go over the start service, see recovery.cpp.
    bytes = std::min<std::size_t>(bytes, peer.ring_sender.entry_size - sizeof(wire::Header));
  }
  if (peer.remote_index == wire::kUnknownIndex) bytes -= sizeof(wire::Introduction);
  return bytes;
}

void EndpointCore::fill_header(Peer& peer, const StreamMessage& message, wire::Header* header) {
  header->tag = message.tag;
  header->data = message.data;
  header->sequence = peer.send_sequence++;
  header->index = peer.remote_index;
  header->length = static_cast<std::uint16_t>(
      message.length + ((message.flags & wire::kAcknowledge) != 0 ? wire::kOperationBytes : 0));
  header->type = message.type;
  header->flags = message.flags;
  hand_back(peer, header);
}

// As many credits as fit.
void EndpointCore::hand_back(Peer& peer, wire::Header* header) {
  header->credits = static_cast<std::uint8_t>(std::min(peer.owed, kMaxCreditsInHeader));
  peer.owed -= header->credits;
  // The peer knows its credits by the time it sends over RC.
  if (peer.own.owed > 0 && over_rc(peer.receive_kind)) [[unlikely]] {
    header->flags |= wire::kOwnCredits;
    header->ring_credits = static_cast<std::uint8_t>(std::min(peer.own.owed, kMaxCreditsInHeader));
    header->ring = static_cast<std::uint8_t>(peer.own.request);
    peer.own.owed -= header->ring_credits;
    peer.own.lent += header->ring_credits;
    return;
  }
  header->ring_credits = static_cast<std::uint8_t>(std::min(peer.owed_ring, kMaxCreditsInHeader));
  peer.owed_ring -= header->ring_credits;
  header->ring = static_cast<std::uint8_t>(peer.ring_request);
}

bool EndpointCore::post_stream(Peer& peer, const StreamMessage& message) {
  if (peer.send_state >= SendState::flushing) [[unlikely]] {
    if (peer.send_state == SendState::flushing) post_flush(peer);
    return false;
  }
  const bool ring = over_ring(peer.send_kind) &&
                    (peer.own_sender.request == 0 || !wire::serves_large(message.type));
  const bool posted = ring ? post_over_ring(peer, message) : post_over_base(peer, message);
  if (posted) {
    if (!message.counted && wire::is_message(message.type)) peer.sent.count(message.counts_as);
    if (hints_) count_sent(peer);
    if (tears_down()) victims_.touch(peer.use, over_rc(peer.send_kind));
    charge(Work::post, 1);
  }
  return posted;
}

// A peer must know us before it can be asked for something: if no message has told it yet, one that
// says nothing else does.
void EndpointCore::introduce(Peer& peer) {
  StreamMessage hello;
  hello.type = wire::Type::hello;
  if (peer.send_sequence == 0 && peer.backlog.empty()) (void)post_stream(peer, hello);
}

void EndpointCore::address_data(const Peer& peer, SendRecord* record) const noexcept {
  record->dct = peer.address.dct_number(peer.data_queue % peer.address.data_qps());
  record->ah = peer.ah;
  record->dc_key = peer.address.id;
}

// Where the payload lies in one piece; `gathered` has room for it.
const void* EndpointCore::in_one_piece(const StreamMessage& message, std::byte* gathered) {
  if (message.bytes != nullptr) return message.bytes;
  if (message.pieces->count == 1) return message.pieces->iov[0].iov_base;
  message.pieces->copy_out(gathered);
  return gathered;
}

bool EndpointCore::post_over_ring(Peer& peer, const StreamMessage& message) {
  RingSender& ring = peer.ring_sender;
  // Null: over DC.
  RcQueue* const rc = peer.send_kind == ChannelKind::rc_rdma ? peer.rc.get()
                      : over_xrc(peer.send_kind)             ? peer.xrc->link->queue.get()
                                                             : nullptr;
  const std::uint32_t srq = over_xrc(peer.send_kind) ? peer.xrc->srq : 0;
  MessageQueue& dc = *pool(Purpose::data)[peer.data_queue];
  if (ring.credits == 0 || (rc != nullptr ? rc->full() : dc.full())) return false;
  const bool acknowledged = (message.flags & wire::kAcknowledge) != 0;
  const std::size_t prefix = acknowledged ? wire::kOperationBytes : 0;
  const std::size_t bytes = prefix + message.length + sizeof(wire::Header);
  const std::uint64_t remote = ring.entry_end() - bytes;
  Status status;
  // What goes over DC stays in its buffer until done, see DcInitiator.
  const bool small = rc != nullptr && !acknowledged && rc->takes_inline(bytes);
  std::uint32_t buffer = kNoBuffer;
  if (!small) {
    buffer = send_pool_.take();
    if (buffer == kNoBuffer) return false;
  }
  wire::Header header;
  fill_header(peer, message, &header);
  header.lap = lap_of(ring.position, ring.entries);
  if (small) {
    std::byte gathered[kInjectLimit + sizeof(wire::Header) + 64];
    ibv_sge pieces[2];
    int count = 0;
    if (message.length > 0) {
      pieces[count++] = {reinterpret_cast<std::uint64_t>(in_one_piece(message, gathered)),
                         static_cast<std::uint32_t>(message.length), 0};
    }
    if (ring.checked) [[unlikely]] {
      const auto* payload = reinterpret_cast<const void*>(count > 0 ? pieces[0].addr : 0);
      header.index = ring_checksum(crc32c(0, payload, message.length), header);
      charge(Work::copy, bytes);
    }
    pieces[count++] = {reinterpret_cast<std::uint64_t>(&header), sizeof header, 0};
    status = rc->write_inline(pieces, count, remote, ring.rkey, peer.id, srq);
  } else {
    std::byte* const start = send_pool_.data(buffer);
    std::memcpy(start, &message.operation, prefix);
    std::byte* const to = start + prefix;
    if (message.bytes != nullptr) {
      std::memcpy(to, message.bytes, message.length);
    } else {
      message.pieces->copy_out(to);
    }
    if (ring.checked) [[unlikely]] {
      header.index = ring_checksum(crc32c(0, start, prefix + message.length), header);
      charge(Work::copy, bytes);
    }
    std::memcpy(to + message.length, &header, sizeof header);
    charge(Work::copy, bytes);
    SendRecord record;
    record.kind = SendRecord::Kind::message;
    record.pool = SendRecord::Pool::data;
    record.opcode = IBV_WR_RDMA_WRITE;
    record.peer = peer.id;
    record.buffer = buffer;
    record.local = reinterpret_cast<std::uint64_t>(start);
    record.lkey = send_pool_.lkey();
    record.length = static_cast<std::uint32_t>(bytes);
    record.remote = remote;
    record.rkey = ring.rkey;
    if (rc != nullptr) {
      record.dct = srq;
      status = rc->post(record);
    } else {
      address_data(peer, &record);
      status = dc.post(record);
    }
    if (!status.ok()) send_pool_.give_back(buffer);
  }
  profile_.count_sent(traffic_of(message.type), bytes);
  --ring.credits;
  ++ring.position;
  if (!status.ok()) lose_peer(peer, status);  // the sequence number is gone: the stream is broken
  return true;
}

// The message in this header takes a credit of the peer's shared receives, or of our own there.
void EndpointCore::spend_credit(Peer& peer, wire::Header* header) noexcept {
  if (peer.own_sender.request != 0) [[unlikely]] {
    --peer.own_sender.credits;
    return;
  }
  if (--peer.credits == 0) header->flags |= wire::kLastCredit;
}

bool EndpointCore::post_over_base(Peer& peer, const StreamMessage& message) {
  const bool own = peer.own_sender.request != 0;
  const bool rc = sends_over_rc(peer);
  MessageQueue& base = *pool(Purpose::data)[peer.data_queue];
  if (own) [[unlikely]] {
    if (peer.own_sender.credits <= wire::kOwnReserve) return false;
  } else if (peer.credits == 0) {
    if (peer.must_ask) [[unlikely]]
      ask_for_credit(peer);
    return false;
  }
  if (rc ? peer.rc->full() : base.full()) return false;
  const bool introduces = peer.remote_index == wire::kUnknownIndex;
  if (rc && !introduces && (message.flags & wire::kAcknowledge) == 0 &&
      peer.rc->takes_inline(sizeof(wire::Header) + message.length)) {
    return post_inline_over_rc(peer, message);
  }
  const std::uint32_t buffer = send_pool_.take();
  if (buffer == kNoBuffer) return false;
  wire::Header header;
  fill_header(peer, message, &header);
  spend_credit(peer, &header);
  std::byte* const whole = send_pool_.data(buffer);
  std::byte* start = whole;
  if (over_datagrams()) {
    wire::Datagram datagram;
    stamp(peer, wire::DatagramKind::data, &datagram);
    std::memcpy(start, &datagram, sizeof datagram);
    start += sizeof datagram;
  }
  std::byte* to = start + sizeof header;
  if (introduces) {
    header.flags |= wire::kIntroduced;
    wire::Introduction introduction;
    introduction.address = address_;
    introduction.index = peer.id;
    std::memcpy(to, &introduction, sizeof introduction);
    to += sizeof introduction;
  }
  std::memcpy(start, &header, sizeof header);
  if ((message.flags & wire::kAcknowledge) != 0) {
    std::memcpy(to, &message.operation, wire::kOperationBytes);
    to += wire::kOperationBytes;
  }
  if (message.bytes != nullptr) {
    std::memcpy(to, message.bytes, message.length);
  } else if (message.pieces != nullptr) {
    message.pieces->copy_out(to);
  }
  to += message.length;
  charge(Work::copy, message.length);
  SendRecord record;
  record.kind = SendRecord::Kind::message;
  record.pool = over_datagrams() ? SendRecord::Pool::kept : SendRecord::Pool::data;
  record.peer = peer.id;
  record.buffer = buffer;
  record.local = reinterpret_cast<std::uint64_t>(whole);
  record.lkey = send_pool_.lkey();
  record.length = static_cast<std::uint32_t>(to - whole);
  record.own = own;
  address_data(peer, &record);
  profile_.count_sent(traffic_of(message.type), record.length);
  if (Status status = rc ? peer.rc->post(record) : base.post(record); !status.ok()) {
    send_pool_.give_back(buffer);
    lose_peer(peer, status);
  } else if (over_datagrams()) {
    keep_until_acknowledged(peer, header.sequence, record);
  }
  return true;
}

// RC-SRQ or RC-SR, small: the adapter takes the bytes with the request. There are credits and a
// place.
bool EndpointCore::post_inline_over_rc(Peer& peer, const StreamMessage& message) {
  wire::Header header;
  fill_header(peer, message, &header);
  spend_credit(peer, &header);
  ibv_sge pieces[2] = {{reinterpret_cast<std::uint64_t>(&header), sizeof header, 0}, {}};
  std::byte gathered[kMostInline];
  if (message.length > 0) {
    pieces[1] = {reinterpret_cast<std::uint64_t>(in_one_piece(message, gathered)),
                 static_cast<std::uint32_t>(message.length), 0};
  }
  profile_.count_sent(traffic_of(message.type),
                      static_cast<std::uint32_t>(sizeof header + message.length));
  const bool own = peer.own_sender.request != 0;
  if (Status status = peer.rc->send_inline(pieces, message.length > 0 ? 2 : 1, peer.id, own);
      !status.ok()) {
    lose_peer(peer, status);
  }
  return true;
}

Status EndpointCore::send_now(const SendRequest& request) {
  Peer* const peer = find_peer(request.peer);
  if (peer == nullptr) return {Code::invalid, fmt::format("send: no peer {}", request.peer)};
  if (peer->lost) return peer->loss;
  Pieces pieces;
  if (!pieces.set(request.data)) {
    return {Code::invalid,
            fmt::format("send: {} pieces, at most {}", request.data.size(), kMaxIov)};
  }
  if (request.inject && pieces.total > kInjectLimit) {
    return {Code::invalid, fmt::format("send: {} bytes cannot be injected, at most {}",
                                       pieces.total, kInjectLimit)};
  }
  const std::uint8_t flags = wire::flags_of(request.tagged, request.has_remote_data);
  const std::uint32_t completion_flags = kSend | (request.tagged ? kTagged : kMessage);
  // An injected message has no completion that could wait for its delivery.
  const bool acknowledged = request.delivery_complete && !request.inject;
  const bool large = !request.inject && is_large(*peer, pieces.total);
  const bool eager = pieces.total <= room(*peer) && !large && !acknowledged;
  const std::size_t offered = find_offer(*peer, request.tagged, request.tag);
  if (offered != kNoOffer && large) {
    const wire::Detail& offer = peer->offers->open[offered].detail;
    if (may_put(*peer, pieces, offer)) {
      Status status = put(*peer, request, pieces, offer);
      if (status.ok()) use_up_offer(*peer, offered);
      return status;
    }
  }

  const bool wait = large && offered == kNoOffer && may_hold(*peer);
  if (!wait && holds(*peer)) release_held(*peer);
  if (eager && peer->backlog.empty() && !writes_to_offers(*peer)) {
    StreamMessage message;
    message.type = wire::Type::eager;
    message.flags = flags;
    message.tag = request.tag;
    message.data = request.remote_data;
    message.pieces = &pieces;
    message.length = message.counts_as = pieces.total;
    if (post_stream(*peer, message)) {
      Completion done;
      done.context = request.report.context;
      done.length = pieces.total;
      done.tag = request.tag;
      done.flags = completion_flags;
      finish(request.report, done);
      use_up_offer(*peer, offered);
      return {};
    }
  }
  if (peer->backlog.size() >= settings_.backlog) return {Code::again, "the peer has no room"};
  SendOperation* const operation = take_for_caller(sends_);
  if (operation == nullptr) return refusal();
  operation->peer = peer;
  operation->flags = flags;
  operation->tag = request.tag;
  operation->data = request.remote_data;
  operation->pieces = pieces;
  operation->report = request.report;
  operation->completion_flags = completion_flags;
  operation->rendezvous = large || pieces.total > peer->eager_size - stream_overhead_ -
                                                      sizeof(wire::Introduction) -
                                                      wire::kOperationBytes;
  operation->acknowledged = acknowledged && !operation->rendezvous;
  if (request.inject) {
    if (!account_.reserve(MemoryKind::operations, kInjectLimit)) {
      sends_.give_back(operation);
      return refusal();
    }
    operation->copy = std::make_unique<std::array<std::byte, kInjectLimit>>();
    pieces.copy_out(operation->copy->data());
    operation->pieces.iov[0] = {operation->copy->data(), pieces.total};
    operation->pieces.count = 1;
    operation->rendezvous = false;
  }
  if (operation->rendezvous) {
    if (Status status = prepare_rendezvous(*operation); !status.ok()) {
      sends_.give_back(operation);
      return status;
    }
  }
  if (wait) {
    hold(*operation);
    return {};
  }
  if (operation->acknowledged) {
    operation->flags |= wire::kAcknowledge;
    await_fin(*operation);
  }
  if (!peer->backlog.empty() || !try_operation(*operation)) enqueue(*operation);
  use_up_offer(*peer, offered);
  return {};
}

bool EndpointCore::is_large(const Peer& peer, std::size_t bytes) const noexcept {
  const std::size_t threshold = settings_.rendezvous_threshold;
  return bytes > room(peer) || (threshold != 0 && bytes > threshold);
}

// Gives the operation the id by which the peer's fin will name it.
void EndpointCore::await_fin(SendOperation& operation) {
  std::uint32_t slot;
  if (free_fin_slots_.empty()) {
    slot = static_cast<std::uint32_t>(awaiting_fin_.size());
    awaiting_fin_.push_back(nullptr);
  } else {
    slot = free_fin_slots_.back();
    free_fin_slots_.pop_back();
  }
  awaiting_fin_[slot] = &operation;
  operation.id = std::uint64_t{fin_generation_++} << 32 | slot;
}

void EndpointCore::forget_awaiting(SendOperation& operation) {
  if (operation.id == 0) return;
  const auto slot = static_cast<std::uint32_t>(operation.id);
  awaiting_fin_[slot] = nullptr;
  free_fin_slots_.push_back(slot);
  operation.id = 0;
}

// What was registered for an RTS serves a write of ours just as well.
void EndpointCore::use_registrations(SendOperation& operation, Transfer* transfer) {
  for (std::uint32_t i = 0; i < operation.pieces.count; ++i) {
    const iovec& piece = operation.pieces.iov[i];
    if (piece.iov_len == 0) continue;
    Registration& region = transfer->regions[transfer->local_count];
    region = std::move(operation.regions[i]);
    transfer->local[transfer->local_count++] = {reinterpret_cast<std::uint64_t>(piece.iov_base),
                                                piece.iov_len, region.lkey()};
  }
}

Status EndpointCore::prepare_rendezvous(SendOperation& operation) {
  const Pieces& pieces = operation.pieces;
  for (std::uint32_t i = 0; i < pieces.count; ++i) {
    if (pieces.iov[i].iov_len == 0) continue;
    Status status = register_buffer(pieces.iov[i], IBV_ACCESS_REMOTE_READ, &operation.regions[i]);
    if (!status.ok()) return status;
  }
  await_fin(operation);
  return {};
}

// Puts the operation on its way if channel and credits allow.
bool EndpointCore::try_operation(SendOperation& operation) {
  if (operation.type == wire::Type::atomic) {
    return try_atomic(static_cast<AtomicOperation&>(operation));
  }
  Peer& peer = *operation.peer;
  // What is being written has to be there first, but for what tells of it.
  if (writes_to_offers(peer) && operation.type != wire::Type::landed && operation.instead == 0) {
    return false;
  }
  StreamMessage message;
  message.flags = operation.flags;
  message.tag = operation.tag;
  message.data = operation.data;
  message.counted = operation.counted;
  if (operation.type == wire::Type::landed) {
    const wire::Landed landed{operation.grant.transfer,
                              operation.grant.length,
                              operation.outcome,
                              operation.grant.last,
                              {}};
    message.type = operation.type;
    message.bytes = reinterpret_cast<const std::byte*>(&landed);
    message.length = sizeof landed;
    if (!post_stream(peer, message)) return false;
    end_send(operation, Status{});
    return true;
  }
  if (!operation.rendezvous) {
    message.type = operation.type == wire::Type::none ? wire::Type::eager : operation.type;
    message.pieces = &operation.pieces;
    message.length = message.counts_as = operation.pieces.total;
    message.operation = operation.id;
    const bool acknowledged = operation.acknowledged;
    if (!post_stream(peer, message)) return false;
    if (acknowledged) {  // ended already if the peer was lost meanwhile
      if (peer.lost) return true;
      operation.announced = true;
      ++peer.awaiting_fin;
      return true;
    }
    end_send(operation, Status{});
    return true;
  }
  wire::Rts rts;
  rts.total = operation.pieces.total;
  rts.operation = operation.id;
  for (std::uint32_t i = 0; i < operation.pieces.count; ++i) {
    const iovec& piece = operation.pieces.iov[i];
    if (piece.iov_len == 0) continue;
    rts.segment[rts.segments++] = {reinterpret_cast<std::uint64_t>(piece.iov_base), piece.iov_len,
                                   operation.regions[i].rkey(), 0};
    rts.last = static_cast<const std::uint8_t*>(piece.iov_base)[piece.iov_len - 1];
  }
  if (operation.instead != 0) {
    rts.instead = 1;
    rts.offer = operation.instead;
  }
  std::array<std::byte, wire::kMostRtsBytes> bytes;
  message.type = wire::Type::rts;
  message.bytes = bytes.data();
  message.length = wire::write_rts(rts, bytes.data());
  message.counts_as = rts.total;
  if (!post_stream(peer, message)) return false;
  ++rendezvous_count_;
  if (peer.lost) return true;  // with it the operation has ended
  operation.announced = true;
  ++peer.awaiting_fin;
  return true;
}

void EndpointCore::enqueue(SendOperation& operation) {
  if (holds(*operation.peer)) operation.peer->offers->holding = false;
  operation.peer->backlog.push_back(&operation);
  list_backlog(*operation.peer);
}

void EndpointCore::list_backlog(Peer& peer) {
  if (std::exchange(peer.backlogged, true)) return;
  backlogged_.push_back(&peer);
}

void EndpointCore::end_send(SendOperation& operation, Status status) {
  if (operation.type == wire::Type::atomic) {
    end_atomic(static_cast<AtomicOperation&>(operation), std::move(status));
    return;
  }
  forget_awaiting(operation);
  if (operation.pull != 0) pulled_.remove(&operation);
  const bool failed = !status.ok();
  Completion done;
  done.context = operation.report.context;
  done.length = operation.pieces.total;
  done.tag = operation.tag;
  done.flags = operation.completion_flags;
  if (status.ok()) {
    finish(operation.report, done);
  } else {
    // An injected message has ended for its sender already: nobody knows this context.
    if (operation.copy) operation.report.queue = operation.report.errors = nullptr;
    fail(operation.report, done, std::move(status));
  }
  if (failed) {
    for (Registration& region : operation.regions) region.discard();
  }
  if (operation.copy) account_.release(MemoryKind::operations, kInjectLimit);
  sends_.give_back(&operation);
}

bool EndpointCore::pump_backlog(Peer& peer) {
  bool moved = false;
  while (SendOperation* const operation = peer.backlog.first()) {
    peer.backlog.remove(operation);
    if (!try_operation(*operation)) {
      peer.backlog.push_front(operation);
      break;
    }
    moved = true;
  }
  return moved;
}

bool EndpointCore::pump_backlogs() {
  bool moved = false;
  for (std::size_t i = 0; i < backlogged_.size();) {
    Peer& peer = *backlogged_[i];
    if (!holds(peer)) moved |= pump_backlog(peer);
    if (peer.backlog.empty()) {
      peer.backlogged = false;
      backlogged_[i] = backlogged_.back();
      backlogged_.pop_back();
    } else {
      ++i;
    }
  }
  return moved;
}

SendOperation* EndpointCore::find_awaiting(const Peer& peer, std::uint64_t id) const noexcept {
  const auto slot = static_cast<std::uint32_t>(id);
  SendOperation* const operation = slot < awaiting_fin_.size() ? awaiting_fin_[slot] : nullptr;
  const bool waits = operation != nullptr && operation->announced && operation->id == id &&
                     operation->peer == &peer;
  return waits ? operation : nullptr;
}

Status EndpointCore::status_told(const Peer& peer, std::uint32_t code, std::string_view verb) {
  if (code == 0) return {};
  return {Code::peer_lost,
          fmt::format("{} could not {} the message (its status {})", peer.address.to_string(), verb,
                      code),
          EIO};
}

void EndpointCore::on_fin(const wire::ControlMessage& message, Peer& peer) {
  SendOperation* const operation = find_awaiting(peer, message.operation);
  if (operation == nullptr) {
    TURNOUT_LOG(protocol, warn, "{}: FIN for operation {:#x}, which is not waiting",
                peer.address.to_string(), message.operation);
    return;
  }
  if (peer.awaiting_fin > 0) --peer.awaiting_fin;
  end_send(*operation, status_told(peer, message.status, "fetch"));
}

}  // namespace turnout
