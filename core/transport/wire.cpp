// SPDX-License-Identifier: BSD-3-Clause
#include "core/transport/wire.h"

#include <fmt/format.h>

#include <cassert>
#include <cstring>

#include "base/index_of.h"

namespace turnout::wire {

std::string_view explain(Refusal refusal) noexcept {
  constexpr std::array<std::string_view, 9> kWords = {
      "accepted",
      "no room in its memory budget",
      "its limit of active RC queue pairs is reached",
      "it is shutting down",
      "its adapter does not support this channel",
      "it is disconnecting",
      "its connection to this node failed",
      "the pair has, or is setting up, a connection of the other kind",
      "its request timed out",
  };
  return name_of(kWords, refusal, "unknown reason");
}

Status check_header(const Header& header) {
  if (header.type < Type::eager || header.type > Type::fin) {
    return {Code::invalid,
            fmt::format("message: unknown type {}", static_cast<unsigned>(header.type))};
  }
  constexpr unsigned known =
      kTagged | kRemoteData | kWireup | kAcknowledge | kLastCredit | kPrivateCredits | kUncredited;
  if ((header.flags & ~known) != 0) {
    return {Code::invalid, fmt::format("message: unknown flags {:#x}", header.flags)};
  }
  if ((header.flags & kAcknowledge) != 0 &&
      (header.type != Type::eager || header.length < kOperationBytes)) {
    return {Code::invalid, "message: acknowledgement requested without an operation"};
  }
  if (header.type == Type::fin && header.length != 0) {
    return {Code::invalid, fmt::format("message: FIN with {} bytes", header.length)};
  }
  if (header.type == Type::rma_data && header.length != sizeof(RemoteEvent) &&
      (header.length != 0 || (header.flags & kRemoteData) == 0)) {
    return {Code::invalid, fmt::format("message: remote event with {} bytes", header.length)};
  }
  if (header.type == Type::eager_first && header.length <= kTotalBytes) {
    return {Code::invalid, "message: first fragment without data"};
  }
  return {};
}

Status parse_total(const Header& header, const std::byte* payload, std::uint64_t* total) {
  assert(header.type == Type::eager_first && header.length > kTotalBytes);
  std::memcpy(total, payload, sizeof *total);
  const std::size_t first = header.length - kTotalBytes;
  if (*total <= first || *total > kMostFragmented) {
    return {Code::invalid,
            fmt::format("message: length {}, its first fragment has {} bytes", *total, first)};
  }
  return {};
}

Status parse_data(const std::byte* bytes, std::size_t length, Parsed* parsed) {
  if (length < sizeof(Header)) {
    return {Code::invalid, fmt::format("message: {} bytes are shorter than a header", length)};
  }
  std::memcpy(&parsed->header, bytes, sizeof(Header));
  if (Status status = check_header(parsed->header); !status.ok()) return status;
  std::size_t at = sizeof(Header);
  parsed->wireup = nullptr;
  if ((parsed->header.flags & kWireup) != 0) {
    if (length < at + sizeof(WireupRequest)) {
      return {Code::invalid, "message: truncated wire-up request"};
    }
    parsed->wireup = reinterpret_cast<const WireupRequest*>(bytes + at);
    at += sizeof(WireupRequest);
  }
  if (at + parsed->header.length != length) {
    return {Code::invalid, fmt::format("message: length {} does not fit the {} bytes received",
                                       parsed->header.length, length)};
  }
  parsed->payload = bytes + at;
  return {};
}

Status parse_datagram(const std::byte* bytes, std::size_t length, Datagram* datagram) {
  if (length < sizeof(Datagram)) {
    return {Code::invalid, fmt::format("datagram: {} bytes are shorter than the header", length)};
  }
  std::memcpy(datagram, bytes, sizeof *datagram);
  const std::size_t body = length - sizeof(Datagram);
  std::size_t expected = 0;
  switch (datagram->kind) {
    case DatagramKind::data:
      return {};
    case DatagramKind::ack:
      break;
    case DatagramKind::control:
    case DatagramKind::reject:
      expected = sizeof(ControlMessage);
      break;
    case DatagramKind::probe:
      expected = sizeof(WireupRequest);
      break;
    default:
      return {Code::invalid,
              fmt::format("datagram: unknown kind {}", static_cast<unsigned>(datagram->kind))};
  }
  if (body != expected) {
    return {Code::invalid, fmt::format("datagram: {} bytes of payload, {} expected for kind {}",
                                       body, expected, static_cast<unsigned>(datagram->kind))};
  }
  return {};
}

Status parse_control(const std::byte* bytes, std::size_t length, ControlMessage* message,
                     Detail* detail) {
  if (length < sizeof(ControlMessage)) {
    return {Code::invalid,
            fmt::format("control message: {} bytes, {} expected", length, sizeof(ControlMessage))};
  }
  std::memcpy(message, bytes, sizeof *message);
  const std::size_t more = has_detail(message->type) ? sizeof(Detail) : 0;
  if (length != sizeof(ControlMessage) + more) {
    return {Code::invalid,
            fmt::format("control message: {} bytes, {} expected for type {}", length,
                        sizeof(ControlMessage) + more, static_cast<unsigned>(message->type))};
  }
  switch (message->type) {
    case Control::disconnect:
      if (message->qp_id != 0) return {};
      return {Code::invalid, "disconnect: invalid queue pair number 0"};
    case Control::cts:
    case Control::rtr:
      std::memcpy(detail, bytes + sizeof *message, sizeof *detail);
      if (detail->length > 0 && detail->address <= UINT64_MAX - detail->length) return {};
      return {Code::invalid, fmt::format("{}: {} bytes at {:#x}: out of range",
                                         message->type == Control::cts ? "CTS" : "RTR",
                                         detail->length, detail->address)};
    case Control::feedback:
      if (message->credits <= kWhole && message->ring_credits <= kWhole &&
          message->ring_entries <= kMostQueuePairs && message->qp_id <= kMostQueuePairs &&
          message->refusal <= Refusal::budget) {
        return {};
      }
      return {
          Code::invalid,
          fmt::format(
              "feedback: shares {} and {} of {}, {} queue pairs, {} processes, refusal {}: out of "
              "range",
              message->credits, message->ring_credits, kWhole, message->ring_entries,
              message->qp_id, static_cast<unsigned>(message->refusal))};
    default:
      if (exists(message->type)) return {};
      return {Code::invalid, fmt::format("control message: unknown type {}",
                                         static_cast<unsigned>(message->type))};
  }
}

Status parse_rts(const std::byte* payload, std::size_t length, Rts* rts) {
  if (length < kRtsBase) return {Code::invalid, "RTS: truncated"};
  std::memcpy(static_cast<void*>(rts), payload, kRtsBase);
  if (rts->segments > kMaxSegments) {
    return {Code::invalid,
            fmt::format("RTS: {} segments, at most {}", rts->segments, kMaxSegments)};
  }
  if (rts->has_rtr > 1) {
    return {Code::invalid, fmt::format("RTS: fallback flag is {}, at most 1", rts->has_rtr)};
  }
  const std::size_t segments = rts->segments * sizeof(RtsSegment);
  if (length != kRtsBase + segments + rts->has_rtr * sizeof rts->rtr) {
    return {Code::invalid, "RTS: length and number of segments do not match"};
  }
  std::memcpy(static_cast<void*>(rts->segment), payload + kRtsBase, segments);
  if (rts->has_rtr != 0) {
    std::memcpy(&rts->rtr, payload + kRtsBase + segments, sizeof rts->rtr);
  }
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < rts->segments; ++i) {
    if (rts->segment[i].length > rts->total - sum) {
      return {Code::invalid, "RTS: segments are longer than the message"};
    }
    sum += rts->segment[i].length;
  }
  if (sum != rts->total && !rts->is_unregistered())
    return {Code::invalid, "RTS: segment lengths do not add up to the message length"};
  return {};
}

std::size_t write_rts(const Rts& rts, std::byte* to) noexcept {
  const std::size_t segments = rts.segments * sizeof(RtsSegment);
  std::memcpy(to, static_cast<const void*>(&rts), kRtsBase);
  std::memcpy(to + kRtsBase, static_cast<const void*>(rts.segment), segments);
  if (rts.has_rtr == 0) return kRtsBase + segments;
  std::memcpy(to + kRtsBase + segments, &rts.rtr, sizeof rts.rtr);
  return kRtsBase + segments + sizeof rts.rtr;
}

Status parse_remote_event(const std::byte* payload, std::size_t length, RemoteEvent* event) {
  if (length != sizeof(RemoteEvent)) {
    return {Code::invalid,
            fmt::format("remote event: {} bytes, {} expected", length, sizeof(RemoteEvent))};
  }
  std::memcpy(event, payload, sizeof *event);
  if (event->read > 1)
    return {Code::invalid, fmt::format("remote event: unknown kind {}", event->read)};
  return {};
}

Status parse_put_completion(const std::byte* payload, std::size_t length,
                            PutCompletion* completion) {
  if (length != sizeof(PutCompletion)) {
    return {Code::invalid,
            fmt::format("put completion: {} bytes, {} expected", length, sizeof(PutCompletion))};
  }
  std::memcpy(completion, payload, sizeof *completion);
  return {};
}

Status parse_atomic(const std::byte* payload, std::size_t length, Atomic* atomic) {
  if (length < sizeof(Atomic)) {
    return {Code::invalid, fmt::format("atomic: {} bytes are shorter than the fixed part", length)};
  }
  std::memcpy(atomic, payload, sizeof *atomic);
  if (Status status = check_request(atomic->form, atomic->op, atomic->type, atomic->count);
      !status.ok()) {
    return status;
  }
  if (length != sizeof(Atomic) + operand_bytes(*atomic) + compare_bytes(*atomic)) {
    return {Code::invalid, fmt::format("atomic: length {} does not fit {} elements of type {}",
                                       length, atomic->count, static_cast<unsigned>(atomic->type))};
  }
  return {};
}

Status parse_segment(Type type, const std::byte* payload, std::size_t length, Segment* segment) {
  if (length < sizeof(Segment)) {
    return {Code::invalid,
            fmt::format("segment: {} bytes are shorter than the fixed part", length)};
  }
  std::memcpy(segment, payload, sizeof *segment);
  const std::size_t data = type == Type::put ? segment->length : 0;
  if (segment->length == 0 || segment->length > kMostMessage || length != sizeof(Segment) + data) {
    return {Code::invalid, fmt::format("segment: length {} does not fit {} bytes {}", length,
                                       segment->length, type == Type::put ? "put" : "got")};
  }
  return {};
}

}  // namespace turnout::wire
