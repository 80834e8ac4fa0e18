// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations (docs/decisions/014): requested in the stream, executed by the target's CPU
// when its program makes progress, and answered in the stream of the reverse direction. Segments of
// one-sided operations (atomic_segments.cpp) use the same path.
//
// Requests are queued in the backlog with messages, so neither starves the other. Answers are sent
// ahead of the backlog: their operation is complete, and only their own order matters. They are
// recorded until they are sent, see PeerAtomics.
#include "core/operations/atomic_engine.h"
#include "core/protocol/atomic_kernels.h"

namespace turnout {
namespace {

// Access that the memory must allow.
unsigned access_of(const wire::Atomic& request) noexcept {
  if (request.form == AtomicForm::update) return kAccessRemoteWrite;
  if (request.op == AtomicOp::read) return kAccessRemoteRead;
  return kAccessRemoteRead | kAccessRemoteWrite;
}

Status check(const AtomicRequest& request) {
  if (Status status = check_request(request.form, request.op, request.type, request.count);
      !status.ok()) {
    return status;
  }
  if (request.remote_address % alignment_of(request.type) != 0) {
    return {Code::invalid,
            fmt::format("atomic: address {:#x} is not aligned to {} bytes, the element size",
                        request.remote_address, alignment_of(request.type))};
  }
  if (request.has_remote_data && request.form != AtomicForm::update) {
    return {Code::invalid, "atomic: remote CQ data require an operation that fetches nothing"};
  }
  if (request.key > 0xffffffffu) {
    return {Code::permission, fmt::format("atomic: unknown key {:#x}", request.key)};
  }
  return {};
}

// Checks the number of bytes.
Status gather(std::span<const iovec> from, std::size_t bytes, const char* what, IoVec* iov) {
  if (!iov->set(from)) {
    return {Code::invalid,
            fmt::format("atomic: {} IOV entries of {}, at most {}", from.size(), what, kMaxIov)};
  }
  if (iov->total != bytes) {
    return {Code::invalid,
            fmt::format("atomic: {} bytes of {}, {} expected", iov->total, what, bytes)};
  }
  return {};
}

}  // namespace

// --- at the initiator

bool AtomicEngine::make_atomics(Peer& peer) {
  if (peer.state->atomics) [[likely]]
    return true;
  Reservation bytes =
      Reservation::take(context_.account, MemoryKind::operations, sizeof(PeerAtomics), 0, 1);
  if (!bytes) return false;
  peer.state.make().atomics = std::make_unique<PeerAtomics>();
  peer.state->atomics->bytes = std::move(bytes);
  return true;
}

Status AtomicEngine::atomic_now(const AtomicRequest& request) {
  Peer* const peer = peer_table_.find_peer(request.peer);
  if (peer == nullptr)
    return {Code::invalid, fmt::format("atomic: no such peer: {}", request.peer)};
  if (peer->lost) return peer->state->loss;
  if (Status status = check(request); !status.ok()) return status;
  wire::Atomic head{.address = request.remote_address,
                    .rkey = static_cast<std::uint32_t>(request.key),
                    .count = static_cast<std::uint16_t>(request.count),
                    .form = request.form,
                    .op = request.op,
                    .type = request.type};
  IoVec operands, compare, result;
  Status status = gather(request.operands, operand_bytes(head), "operands", &operands);
  if (status.ok())
    status = gather(request.compare, compare_bytes(head), "compare values", &compare);
  if (status.ok()) status = gather(request.result, fetched_bytes(head), "results", &result);
  if (!status.ok()) return status;

  if (context_.traits.connects_first) events_.use_one_sided(*peer);
  if (defers(*peer)) put_.release_deferred(*peer);
  // The answer arrives behind unexpected messages.
  if (peer->rx.retained > 0) (void)events_.relieve(*peer);
  if (peer->lost) return peer->state->loss;
  if (records_.atomics.in_use() >= records_.operation_limits.waiting)
    return SendEngine::too_many_wait();
  AtomicOperation* const operation = make_atomics(*peer)
                                         ? records_.take_for_caller(records_.atomics)
                                         : static_cast<AtomicOperation*>(nullptr);
  if (operation == nullptr) return records_.refusal();
  operation->peer = peer;
  operation->type = wire::Type::atomic;
  operation->flags = wire::flags_of(false, request.has_remote_data);
  operation->data = request.remote_data;
  operation->iov = result;
  operation->report = request.report;
  operation->completion_flags =
      kAtomic | (request.form == AtomicForm::update ? kRmaWrite : kRmaRead);
  operation->head = head;
  operands.copy_out(operation->values.data());
  compare.copy_out(operation->values.data() + operands.total);
  context_.charge(Work::copy, operands.total + compare.total);
  if (!peer->state->tx.backlog.empty() || !try_atomic(*operation)) backlog_.enqueue(*operation);
  return {};
}

// It is in no list.
bool AtomicEngine::try_atomic(AtomicOperation& operation) {
  Peer& peer = *operation.peer;
  PeerAtomics& atomics = *peer.state->atomics;
  if (atomics.asked.size() >= kAtomicWindow) return false;
  operation.head.number = atomics.next_number;
  StreamMessage message{.type = operation.type, .flags = operation.flags, .data = operation.data};
  std::array<std::byte, sizeof(wire::Atomic) + kAtomicLimit> bytes;
  wire::Segment segment;
  IoVec parts;
  if (operation.transfer != nullptr) {
    message.length = fill_segment(operation, &segment, &parts);
    message.iov = &parts;
  } else {
    const std::size_t values = operand_bytes(operation.head) + compare_bytes(operation.head);
    std::memcpy(bytes.data(), &operation.head, sizeof operation.head);
    std::memcpy(bytes.data() + sizeof operation.head, operation.values.data(), values);
    message.bytes = bytes.data();
    message.length = sizeof operation.head + values;
  }
  atomics.asked.push_back(&operation);
  if (!sender_.post_stream(peer, message)) {
    if (peer.lost) return true;  // the operation has ended
    atomics.asked.remove(&operation);
    return false;
  }
  ++atomics.next_number;
  return true;
}

void AtomicEngine::end_atomic(AtomicOperation& operation, Status status) {
  if (Transfer* const transfer = operation.transfer) {
    records_.atomics.give_back(&operation);
    events_.on_transfer_done(*transfer, std::move(status));
    return;
  }
  Completion done{.context = operation.report.context,
                  .length = operation.head.count * size_of(operation.head.type),
                  .flags = operation.completion_flags};
  if (status.ok()) {
    context_.finish(operation.report, done);
  } else {
    context_.fail(operation.report, done, std::move(status));
  }
  records_.atomics.give_back(&operation);
}

// The peer is lost.
void AtomicEngine::end_atomics(Peer& peer) {
  if (!peer.state->atomics) return;
  while (SendOperation* const operation = peer.state->atomics->asked.pop_front()) {
    backlog_.end_send(*operation, peer.state->loss);
  }
  peer.state->atomics->unsent = 0;
}

void AtomicEngine::on_answer(Peer& peer, const wire::Header& header, const std::byte* payload) {
  SendOperation* const first = owes_answers(peer) ? peer.state->atomics->asked.first() : nullptr;
  const auto damaged = [&](std::string_view what, std::uint64_t value) {
    events_.protocol_error(
        peer, fmt::format("response to a request has {} {}, not that of the oldest request", what,
                          value));
  };
  if (first == nullptr) return damaged("number", header.tag);
  auto& operation = static_cast<AtomicOperation&>(*first);
  if (header.tag != operation.head.number) return damaged("number", header.tag);
  std::size_t expected = 0;
  if (header.data == 0) {
    if (operation.type == wire::Type::atomic) expected = operation.iov.total;
    if (operation.type == wire::Type::get) expected = operation.length;
  }
  if (header.length != expected) return damaged("length", header.length);
  peer.state->atomics->asked.remove(&operation);
  if (header.data != 0) {
    const wire::Atomic& head = operation.head;
    const bool atomic = operation.type == wire::Type::atomic;
    end_atomic(
        operation,
        Status{Code::permission,
               fmt::format("{} denied: {}: {} bytes at {:#x} with key {:#x} (peer's status {})",
                           atomic ? "atomic operation" : "one-sided operation",
                           peer.address.to_string(),
                           atomic ? head.count * size_of(head.type) : operation.length,
                           head.address, head.rkey, header.data),
               EACCES});
    return;
  }
  if (!context_.closing && header.length > 0) {  // else the memory belongs to the program again
    if (operation.type == wire::Type::get) {
      std::memcpy(reinterpret_cast<std::byte*>(operation.local), payload, header.length);
    } else {
      operation.iov.copy_in(0, payload, header.length);
    }
    context_.charge(Work::copy, header.length);
  }
  end_atomic(operation, Status{});
}

// --- at the target

// Whether there is room for the answer to any request.
bool AtomicEngine::may_answer(Peer& peer) {
  if (!make_atomics(peer)) return false;
  PeerAtomics& atomics = *peer.state->atomics;
  if (!atomics.answers) [[unlikely]] {
    atomics.answer_bytes =
        Reservation::take(context_.account, MemoryKind::operations, sizeof(*atomics.answers), 0, 1);
    if (!atomics.answer_bytes) return false;
    atomics.answers = std::make_unique_for_overwrite<std::array<AtomicAnswer, kAtomicWindow>>();
  }
  return true;
}

// Requires may_answer().
void AtomicEngine::on_request(Peer& peer, const wire::Header& header, const std::byte* payload) {
  if (context_.closing)
    return;  // the memory belongs to the program again; the shutdown message ends the request
  PeerAtomics& atomics = *peer.state->atomics;
  Status status;
  if (atomics.unsent == kAtomicWindow) {
    status = {Code::invalid,
              fmt::format("more than {} requests without waiting for a response", kAtomicWindow)};
  } else if (header.type == wire::Type::atomic) {
    status = take_atomic(peer, header, payload);
  } else {
    status = take_segment(peer, header, payload);
  }
  if (!status.ok()) return events_.protocol_error(peer, status.text());
  if (!atomics.listed) send_answers(peer);
}

// Errors: the request is malformed.
Status AtomicEngine::take_atomic(Peer& peer, const wire::Header& header, const std::byte* payload) {
  wire::Atomic request;
  if (Status status = wire::parse_atomic(payload, header.length, &request); !status.ok()) {
    return status;
  }
  PeerAtomics& atomics = *peer.state->atomics;
  AtomicAnswer& answer = atomics.answer(atomics.unsent);
  answer.number = request.number;
  answer.reads = false;
  answer.code = carry_out(request, payload + sizeof request, answer.fetched.data());
  answer.length = static_cast<std::uint16_t>(answer.code == Code::ok ? fetched_bytes(request) : 0);
  context_.charge(Work::copy, header.length);
  ++atomics.unsent;
  if (answer.code != Code::ok) return {};
  const bool has_data = (header.flags & wire::kRemoteData) != 0;
  if (has_data)
    context_.report_write(request.count * size_of(request.type), header.data, peer.id, kAtomic);
  context_.count_access(fetched_bytes(request) == 0, request.rkey, has_data);
  return {};
}

Code AtomicEngine::carry_out(const wire::Atomic& request, const std::byte* values,
                             std::byte* fetched) noexcept {
  const std::size_t bytes = request.count * size_of(request.type);
  if (request.address % alignment_of(request.type) != 0) return Code::invalid;
  if (!context_.domain->allows(request.rkey, request.address, bytes, access_of(request))) {
    return Code::permission;
  }
  AtomicOperands with;
  if (has_operands(request.op)) with.operands = values;
  if (request.form == AtomicForm::compare) with.compare = values + bytes;
  execute(request.op, request.type, reinterpret_cast<std::byte*>(request.address), request.count,
          with, request.form == AtomicForm::update ? nullptr : fetched);
  return Code::ok;
}

// Sends as many as possible now.
void AtomicEngine::send_answers(Peer& peer) {
  PeerAtomics& atomics = *peer.state->atomics;
  while (atomics.unsent > 0) {
    AtomicAnswer& answer = atomics.answer(0);
    const std::byte* bytes = answer.fetched.data();
    if (answer.reads) {
      // The program may have deregistered the memory since the request arrived.
      if (!context_.domain->allows(answer.rkey, answer.address, answer.length, kAccessRemoteRead)) {
        answer.code = Code::permission;
        answer.length = 0;
      }
      bytes = reinterpret_cast<const std::byte*>(answer.address);
    }
    StreamMessage message{.type = wire::Type::answer,
                          .tag = answer.number,
                          .data = static_cast<std::uint64_t>(answer.code),
                          .bytes = bytes,
                          .length = answer.length};
    if (!sender_.post_stream(peer, message)) break;
    if (answer.reads) context_.charge(Work::copy, answer.length);
    if (peer.lost) return;
    atomics.first = (atomics.first + 1) % kAtomicWindow;
    --atomics.unsent;
  }
  if (atomics.unsent > 0 && !std::exchange(atomics.listed, true)) {
    answering_.push_back(&peer);
    context_.pending.add(Pending::atomic_answers);
  }
}

bool AtomicEngine::pump_answers() {
  bool moved = false;
  remove_done(answering_, [&](Peer& peer) {
    PeerAtomics& atomics = *peer.state->atomics;
    const std::uint32_t before = atomics.unsent;
    if (!peer.lost) send_answers(peer);
    moved = moved || atomics.unsent != before;
    const bool done = peer.lost || atomics.unsent == 0;
    if (done) atomics.listed = false;
    return done;
  });
  return moved;
}

}  // namespace turnout
