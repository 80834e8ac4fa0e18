// SPDX-License-Identifier: BSD-3-Clause
// Rendezvous `put` and `putnr` (spec/rendezvous.md): the receiver offers the buffer of a receive
// that stands (RTR), the sender writes the message there, and the receiver finds it by its last
// byte, which differs from what the buffer held. Where it does not, or there is more to say than
// the offer foresaw, the last byte comes with a `landed` in the stream.
//
// Which message a receive takes is the receiver's to say, so both ends must agree that it is this
// one. They do, because an offer stands only while the sender knows all that the receiver knew:
//  - It names the receiver's place in the stream. A sender that is further declines it, and all
//    others made at that place: the messages under way may take the receive.
//  - The sender goes through the offers with every message it sends, on whatever way, in order; a
//    message that an offer accepts uses it up, as it will the receive. The receiver takes back an
//    offer when the stream brings a message for it.
//  - An offer is made only if every earlier receive that could take the same messages has one
//    that was made at the same place.
//  - Its memory is not that of another offer: the message of one would seem to be the other's.
//  - Messages of the stream wait until what is being written to offers is there; the receiver
//    looks for last bytes before it delivers one.
// So a message goes to the receive that MPI's order gives it, once.
//
// A queue pair that is made anew posts its requests again. A receiver that has found a message may
// have used its buffer for another since, so one without `landed` is not written again: the sender
// asks the receiver to fetch it unless it has it (RTS with `instead`).
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/log.h"
#include "core/endpoint/endpoint_core.h"

namespace turnout {
namespace {

// Receives looked through before one that stands behind more is not offered.
constexpr int kMostBefore = 256;
// Answers a peer may have us keep.
constexpr std::size_t kMostRevoked = std::size_t{1} << 16;

std::byte last_of(const Pieces& pieces) noexcept {
  for (std::uint32_t i = pieces.count; i-- > 0;) {
    const iovec& piece = pieces.iov[i];
    if (piece.iov_len > 0) return static_cast<const std::byte*>(piece.iov_base)[piece.iov_len - 1];
  }
  return {};
}

// What no message has written to is as it was [MPI 4.1, 3.2.4: a shorter message modifies only the
// places it takes].
void put_back_last(const Transfer& transfer) noexcept {
  if (transfer.last != nullptr && *transfer.last == transfer.unlike &&
      transfer.former != transfer.unlike) {
    *transfer.last = transfer.former;
  }
}

bool overlap(const iovec& a, const iovec& b) noexcept {
  const auto begin_of = [](const iovec& v) { return reinterpret_cast<std::uintptr_t>(v.iov_base); };
  return begin_of(a) < begin_of(b) + b.iov_len && begin_of(b) < begin_of(a) + a.iov_len;
}

bool has_changed(const Transfer& transfer) noexcept {
  return std::atomic_ref(*transfer.last).load(std::memory_order_acquire) != transfer.unlike;
}

}  // namespace

void EndpointCore::look_for_last(Transfer& transfer, std::byte* last, std::byte unlike) {
  // The program's own, perhaps, so it is not written to without need.
  if (*last != unlike) *last = unlike;
  transfer.last = last;
  transfer.unlike = unlike;
  polled_.push_back(&transfer);
}

bool EndpointCore::poll_last_bytes(const Peer* of) {
  bool moved = false;
  charge(Work::poll_ring, polled_.size());
  for (std::size_t i = 0; i < polled_.size();) {
    Transfer* const transfer = polled_[i];
    const bool offered = transfer->kind == Transfer::Kind::offered;
    if ((of != nullptr && (transfer->peer != of || !offered)) || !has_changed(*transfer)) {
      ++i;
      continue;
    }
    moved = true;
    if (offered) {
      end_offered(*transfer, transfer->completion, Status{});
    } else {
      end_read_early(*transfer);
    }
    i = 0;  // what ended has left the list, others may have too
  }
  return moved;
}

// --- at the receiver

// Whether such receives are offered at all.
bool EndpointCore::is_offered(const RecvRequest& request, const Peer& peer) const noexcept {
  const bool offers = rendezvous_ == Rendezvous::put || rendezvous_ == Rendezvous::putnr ||
                      rendezvous_ == Rendezvous::automatic;
  if (!offers || request.buffer.size() != 1 || request.multi) return false;
  const std::size_t threshold = settings_.rendezvous_threshold;
  const std::size_t fits = peer.eager_size - stream_overhead_;
  const std::size_t least = threshold != 0 ? std::min(threshold, fits) : fits;
  return request.buffer[0].iov_len > least && !over_datagrams() && !closing_ && !peer.self &&
         !peer.lost && peer.remote_index != wire::kUnknownIndex;
}

bool EndpointCore::may_offer(const RecvOperation& receive, Peer& peer) {
  int before = 0;
  for (const RecvOperation* r = matcher_.posted(receive.match.tagged).first(); r != &receive;
       r = r->next) {
    if (++before > kMostBefore) return false;
    // MPI forbids it to programs; some that measure do it.
    if (r->offered != nullptr && overlap(r->pieces.iov[0], receive.pieces.iov[0])) return false;
    const PostedMatch &a = r->match, &b = receive.match;
    if (a.peer != kAnyPeer && a.peer != b.peer) continue;
    if (b.tagged && ((a.tag ^ b.tag) & ~(a.ignore | b.ignore)) != 0) continue;
    if (r->offered == nullptr || r->offered->where.sequence != peer.receive_sequence) return false;
  }
  if (rendezvous_ == Rendezvous::automatic &&
      ((standing_offers_ > 0 && !is_registered(receive.pieces.iov[0], kPeerWrites)) ||
       !peer.offer_success.worth_trying())) {
    return false;
  }
  return transfers_.ready();
}

// Of a large message that is read or written. Where receives are offered if they are registered
// already, those that are not shall be the next time.
int EndpointCore::receive_access() const noexcept {
  return rendezvous_ == Rendezvous::automatic ? kPeerWrites : IBV_ACCESS_LOCAL_WRITE;
}

// A receive that is_offered() stands.
void EndpointCore::offer(RecvOperation& receive, Peer& peer) {
  if (!may_offer(receive, peer)) return;
  Transfer& transfer = *transfers_.take();
  transfer.kind = Transfer::Kind::offered;
  transfer.peer = &peer;
  if (Status status = register_pieces(transfer, receive.pieces, kPeerWrites); !status.ok()) {
    TURNOUT_LOG(protocol, debug, "no RTR sent for a receive: {}", status.text());
    drop_transfer(transfer);
    return;
  }
  transfer.receive = &receive;
  transfer.total = receive.pieces.total;
  transfer.pull = pulls_.add(&transfer);
  receive.offered = &transfer;
  ++peer.offered;
  ++standing_offers_;
  ++offers_;

  wire::Detail& offer = transfer.where;
  offer.address = transfer.local[0].address;
  offer.length = transfer.total;
  offer.transfer = transfer.pull;
  offer.tag = receive.match.tag;
  offer.ignore = receive.match.ignore;
  offer.data = peer.last_data;  // of its next message, too, as a rule
  offer.rkey = transfer.regions[0].rkey();
  offer.sequence = peer.receive_sequence;
  offer.flags = wire::flags_of(receive.match.tagged, peer.last_had_data);
  if (placement_.dc_in_order() && transfer.total <= settings_.rendezvous_segment) {
    std::byte* const last = reinterpret_cast<std::byte*>(offer.address) + offer.length - 1;
    offer.polled = 1;
    transfer.former = *last;
    if (!set_last_bytes_) {
      offer.last = std::to_integer<std::uint8_t>(transfer.former);
    } else if (rendezvous_ != Rendezvous::putnr) {
      offer.last = static_cast<std::uint8_t>(last_bytes_.next());
    }
    look_for_last(transfer, last, std::byte{offer.last});
  }
  transfer.completion.length = transfer.total;
  transfer.completion.tag = offer.tag;
  transfer.completion.data = offer.data;
  transfer.completion.flags =
      kRecv | (receive.match.tagged ? kTagged : kMessage) | (peer.last_had_data ? kRemoteData : 0u);
  transfer.completion.source = peer.id;
  transfer.completion.buffer = receive.pieces.iov[0].iov_base;
  wire::ControlMessage message;
  message.type = wire::Control::offer;
  send_control(peer, Purpose::credit, message, &offer);
}

// It stands no more: taken, or not. The transfer is gone.
void EndpointCore::close_offer(Transfer& transfer, bool taken) {
  transfer.receive->offered = nullptr;
  Peer& peer = *transfer.peer;
  peer.offer_success.count(taken);
  --peer.offered;
  --standing_offers_;
  pulls_.remove(transfer.pull);
  drop_transfer(transfer);
}

// The receive takes a message of the stream, or none any more.
void EndpointCore::withdraw(RecvOperation& receive) {
  Transfer& transfer = *receive.offered;
  if (!closing_) put_back_last(transfer);  // else the memory is the program's again, or gone
  close_offer(transfer, false);
}

// Its message is there, or cannot come.
void EndpointCore::end_offered(Transfer& transfer, const Completion& completion,
                               const Status& status) {
  const Completion ended = completion;  // it may be the transfer's own
  RecvOperation& receive = *transfer.receive;
  Peer& peer = *transfer.peer;
  close_offer(transfer, true);
  unpost(receive);
  ++delivered_;
  ++peer.window;
  peer.received.count(ended.length);
  peer.heard_since_tick = true;
  eviction_.touch(peer.eviction, false);
  end_receive(receive, ended, 0, status);
  on_message_counted(peer);
}

void EndpointCore::on_landed(Peer& peer, const wire::Header& header, const std::byte* payload) {
  wire::Landed landed;
  if (Status status = wire::parse_landed(payload, header.length, &landed); !status.ok()) {
    lose_peer(peer, status);
    return;
  }
  Transfer* const transfer = find_incoming(peer, landed.transfer, Transfer::Kind::offered);
  if (transfer == nullptr || landed.length > transfer->total) {
    lose_peer(peer,
              Status{Code::invalid,
                     fmt::format("{}: put completion for {} bytes of RTR {:#x}, which is not open",
                                 peer.address.to_string(), landed.length, landed.transfer)});
    return;
  }
  put_back_last(*transfer);
  if (landed.length > 0) {
    static_cast<std::byte*>(transfer->completion.buffer)[landed.length - 1] =
        std::byte{landed.last};
  }
  Completion completion = completion_of(header, peer.id, landed.length);
  completion.buffer = transfer->completion.buffer;
  end_offered(*transfer, completion, status_told(peer, landed.status, "write"));
}

// A message that was to be written to an offer, and is here already: its sender could not know.
bool EndpointCore::has_landed(Peer& peer, const wire::Rts& rts) {
  if (rts.instead == 0) return false;
  if (find_incoming(peer, rts.offer, Transfer::Kind::offered) != nullptr) return false;
  send_fin(peer, rts.operation, Status{});
  return true;
}

void EndpointCore::on_revoked(Peer& peer, std::uint64_t number) {
  const Transfer* const transfer = find_incoming(peer, number, Transfer::Kind::offered);
  // Else its message was faster.
  if (transfer != nullptr && transfer->receive->cancelled) end_cancelled(*transfer->receive);
}

// --- at the sender

void EndpointCore::on_offer(Peer& peer, const wire::Detail& offer) {
  if (over_datagrams() || closing_) return;
  const bool waiting = !peer.backlog.empty() && !holds(peer);
  bool declined = offer.sequence != peer.send_sequence || waiting ||
                  (peer.declines_offers && peer.declined_at == offer.sequence);
  if (!peer.offers || !peer.offers->bytes) {  // else made by on_revoke()
    Reservation bytes = Reservation::take(account_, MemoryKind::operations,
                                          sizeof(Offers) + kMostOffers * sizeof(Offer));
    if (bytes) {
      if (!peer.offers) peer.offers = std::make_unique<Offers>();
      peer.offers->open.reserve(kMostOffers);
      peer.offers->bytes = std::move(bytes);
    } else {
      declined = true;
    }
  }
  declined = declined || peer.offers->open.size() >= kMostOffers;
  if (!declined) {
    peer.offers->open.push_back({offer});
    if (holds(peer)) put_held(peer);
    return;
  }
  peer.declines_offers = true;
  peer.declined_at = offer.sequence;
  if (holds(peer)) {  // a better one will hardly come
    peer.offers->waits.count(false);
    release_held(peer);
  }
}

// --- at the sender, messages that wait for an offer: one that is on its way when they are sent is
// taken, where both sides reach a transfer at the same time. Nothing else waits for them; they go
// by RTS as soon as there is something, or an offer that cannot be taken, or after rtr_wait.

bool EndpointCore::may_hold(Peer& peer) {
  if (!peer.offers || !peer.offers->bytes || settings_.rtr_wait == 0 || closing_) return false;
  return peer.offers->holding || (peer.backlog.empty() && peer.offers->waits.worth_trying());
}

// May be held; it is prepared for both ways.
void EndpointCore::hold(SendOperation& operation) {
  Offers& offers = *operation.peer->offers;
  if (!std::exchange(offers.holding, true)) {
    offers.held_since = clock_.now();
    hold_until_ = std::min(hold_until_, offers.held_since + settings_.rtr_wait);
  }
  operation.peer->backlog.push_back(&operation);
  list_backlog(*operation.peer);
}

// An offer came, which may be for one of them; the others do not take the ones that were here
// before. Those behind the first may be put before it: what it takes is not what they take.
void EndpointCore::put_held(Peer& peer) {
  for (SendOperation* operation = peer.backlog.first(); operation != nullptr;
       operation = operation->next) {
    SendRequest request;
    request.tagged = (operation->flags & wire::kTagged) != 0;
    request.tag = operation->tag;
    const std::size_t at = find_offer(peer, request.tagged, request.tag);
    if (at == kNoOffer) continue;
    request.has_remote_data = (operation->flags & wire::kRemoteData) != 0;
    request.remote_data = operation->data;
    request.report = operation->report;
    const wire::Detail offer = peer.offers->open[at].detail;
    const bool may = may_put(peer, operation->pieces, offer);
    use_up_offer(peer, at);
    if (!may) {  // it takes the receive as a message of the stream
      release_held(peer);
      return;
    }
    peer.offers->waits.count(true);
    peer.backlog.remove(operation);
    // Nothing that can fail is left to do.
    (void)put(peer, request, operation->pieces, offer, operation);
    forget_awaiting(*operation);
    sends_.give_back(operation);
    break;
  }
  if (peer.backlog.empty()) peer.offers->holding = false;
}

// They go by RTS.
void EndpointCore::release_held(Peer& peer) {
  peer.offers->holding = false;
  (void)pump_backlog(peer);
}

void EndpointCore::release_overdue() {
  const Nanoseconds now = clock_.now();
  if (now < hold_until_) return;
  hold_until_ = INT64_MAX;
  for (std::size_t i = 0; i < backlogged_.size(); ++i) {
    Peer& peer = *backlogged_[i];
    if (!holds(peer)) continue;
    const Nanoseconds until = peer.offers->held_since + settings_.rtr_wait;
    if (now < until) {
      hold_until_ = std::min(hold_until_, until);
      continue;
    }
    peer.offers->waits.count(false);
    release_held(peer);
  }
}
// The first that accepts such a message.
std::size_t EndpointCore::find_offer(const Peer& peer, bool tagged,
                                     std::uint64_t tag) const noexcept {
  if (!peer.offers) return kNoOffer;
  const auto& open = peer.offers->open;
  for (std::size_t i = 0; i < open.size(); ++i) {
    if (open[i].accepts(tagged, tag)) return i;
  }
  return kNoOffer;
}

// A message is on its way that will take the receive.
void EndpointCore::use_up_offer(Peer& peer, std::size_t at) noexcept {
  if (at == kNoOffer || peer.lost) return;
  peer.offers->open.erase(peer.offers->open.begin() + static_cast<std::ptrdiff_t>(at));
}

// Else it goes through the stream.
bool EndpointCore::may_put(const Peer& peer, const Pieces& pieces, const wire::Detail& offer) {
  return (peer.backlog.empty() || holds(peer)) && pieces.total <= offer.length &&
         transfers_.ready() && sends_.ready();
}

// may_put(). After an error nothing was sent.
Status EndpointCore::put(Peer& peer, const SendRequest& request, const Pieces& pieces,
                         const wire::Detail& offer, SendOperation* held) {
  wire::Detail message = offer;  // what it says of the message, as it is
  message.tag = request.tag;
  message.data = request.remote_data;
  message.flags = wire::flags_of(request.tagged, request.has_remote_data);
  message.last = std::to_integer<std::uint8_t>(last_of(pieces));
  const bool foreseen =
      offer.polled != 0 && pieces.total == offer.length &&
      pieces.total <= settings_.rendezvous_segment && pieces.count == 1 &&
      message.flags == offer.flags && (!request.tagged || message.tag == offer.tag) &&
      (!request.has_remote_data || message.data == offer.data) && message.last != offer.last;
  Transfer& transfer = *transfers_.take();
  Status status;
  if (held != nullptr) {
    use_registrations(*held, &transfer);
  } else {
    status = register_pieces(transfer, pieces, 0);
  }
  if (!status.ok()) {
    drop_transfer(transfer);
    return status;
  }
  transfer.kind = Transfer::Kind::put;
  transfer.write = true;
  transfer.peer = &peer;
  // The last byte would tell that the message is there, as foreseen: `landed` brings it.
  const bool all = foreseen || offer.polled == 0 || pieces.total < offer.length;
  transfer.total = pieces.total - (all ? 0 : 1);
  transfer.remote[0] = {offer.address, transfer.total, offer.rkey, 0};
  transfer.remote_count = 1;
  transfer.where = message;
  transfer.report = request.report;
  transfer.completion.context = request.report.context;
  transfer.completion.length = pieces.total;
  transfer.completion.tag = request.tag;
  transfer.completion.flags = kSend | (request.tagged ? kTagged : kMessage);
  if (!foreseen) transfer.announcement = landed_for(transfer);
  ++peer.offers->writing;
  peer.sent.count(pieces.total);
  if (uses_feedback_) feedback_.count(peer.feedback_sent, peer.id, peer.data_queue);
  ++rendezvous_count_;
  ++puts_;
  if (!foreseen) ++puts_told_;
  pump(transfer);
  return {};
}

// A record is free.
SendOperation* EndpointCore::landed_for(const Transfer& transfer) {
  SendOperation* const told = sends_.take();
  told->peer = transfer.peer;
  told->type = wire::Type::landed;
  told->flags = transfer.where.flags;
  told->tag = transfer.where.tag;
  told->data = transfer.where.data;
  told->grant.transfer = transfer.where.transfer;
  told->grant.length = transfer.completion.length;
  told->grant.last = transfer.where.last;
  told->report = Report{nullptr, transfer.report.errors, nullptr, nullptr};
  return told;
}

// It stands before what waits in the backlog, which was sent later.
void EndpointCore::send_before_backlog(SendOperation& operation) {
  if (try_operation(operation)) return;
  if (holds(*operation.peer)) operation.peer->offers->holding = false;
  operation.peer->backlog.push_front(&operation);
  list_backlog(*operation.peer);
}

void EndpointCore::end_put(Transfer& transfer) {
  Peer& peer = *transfer.peer;
  --peer.offers->writing;
  release_regions(transfer);
  SendOperation* told = std::exchange(transfer.announcement, nullptr);
  if (peer.lost && told != nullptr) {
    sends_.give_back(told);
  } else if (!peer.lost) {
    // The receiver cannot find out by itself that nothing comes.
    if (told == nullptr && !transfer.status.ok() && sends_.ready()) told = landed_for(transfer);
    if (told != nullptr) {
      told->outcome = static_cast<std::uint32_t>(transfer.status.code());
      send_before_backlog(*told);
    }
  }
  if (transfer.status.ok()) {
    finish(transfer.report, transfer.completion);
  } else {
    fail(transfer.report, transfer.completion, transfer.status);
  }
  drop_transfer(transfer);
}

// Its request did not end before its queue pair broke.
void EndpointCore::fetch_instead(Transfer& transfer) {
  Peer& peer = *transfer.peer;
  SendOperation* const operation = sends_.take();
  if (operation == nullptr) {
    Status why{Code::over_budget,
               fmt::format("recovering a put failed: {}: TURNOUT_MEMORY_BUDGET={} has no room for "
                           "the request; raise it",
                           peer.address.to_string(), account_.budget())};
    lose_peer(peer, why);
    on_transfer_done(transfer, why);
    return;
  }
  const Transfer::Local& local = transfer.local[0];
  const iovec piece{reinterpret_cast<void*>(local.address), local.length};
  (void)operation->pieces.set({&piece, 1});
  operation->peer = &peer;
  operation->flags = transfer.where.flags;
  operation->tag = transfer.where.tag;
  operation->data = transfer.where.data;
  operation->report = transfer.report;
  operation->completion_flags = transfer.completion.flags;
  operation->rendezvous = operation->counted = true;
  operation->instead = transfer.where.transfer;
  --peer.offers->writing;
  drop_transfer(transfer);
  if (Status status = prepare_rendezvous(*operation); !status.ok()) {
    lose_peer(peer, status);
    end_send(*operation, status);
    return;
  }
  send_before_backlog(*operation);
}

void EndpointCore::on_revoke(Peer& peer, std::uint64_t number) {
  if (over_datagrams() || closing_) return;
  if (!peer.offers) {  // none was taken, so the answer waits for nothing
    peer.offers = std::make_unique<Offers>();
  }
  if (peer.offers->revoked.size() == kMostRevoked) {
    lose_peer(peer,
              Status{Code::invalid,
                     fmt::format("{}: cancels more than {} RTRs without waiting for an answer",
                                 peer.address.to_string(), kMostRevoked)});
    return;
  }
  std::erase_if(peer.offers->open,
                [number](const Offer& offer) { return offer.detail.transfer == number; });
  peer.offers->revoked.push_back(number);
  revoking_.push_back(&peer);
}

// In the stream, so that it comes after what was written and told.
bool EndpointCore::pump_revoked() {
  bool moved = false;
  for (std::size_t i = 0; i < revoking_.size();) {
    Peer& peer = *revoking_[i];
    while (!peer.lost && !peer.offers->revoked.empty() && sends_.ready()) {
      SendOperation& answer = *sends_.take();
      answer.peer = &peer;
      answer.type = wire::Type::revoked;
      answer.tag = peer.offers->revoked.back();
      peer.offers->revoked.pop_back();
      if (!peer.backlog.empty() || !try_operation(answer)) enqueue(answer);
      moved = true;
    }
    if (peer.lost || peer.offers->revoked.empty()) {
      revoking_[i] = revoking_.back();
      revoking_.pop_back();
    } else {
      ++i;
    }
  }
  return moved;
}

}  // namespace turnout
