// SPDX-License-Identifier: BSD-3-Clause
#include "core/operations/posted_receives.h"
#include "base/log.h"

namespace turnout {

// Not a ring's entry.
void PostedReceives::release_receive(Peer& peer, UnexpectedMessage::Storage storage,
                                     std::uint32_t buffer) {
  switch (storage) {
    case UnexpectedMessage::Storage::buffer:
      post_again(buffer);
      credits_.return_credit(peer);
      break;
    case UnexpectedMessage::Storage::private_receive:
      private_receives_.return_private_receive(buffer);
      break;
    case UnexpectedMessage::Storage::heap:
      credits_.return_credit(peer);
      break;
    case UnexpectedMessage::Storage::ring:
    case UnexpectedMessage::Storage::none:
      break;
  }
}

void PostedReceives::receive_part(RecvOperation& receive, Peer& peer, const wire::Header& header,
                                  const std::byte* payload) {
  Completion completion = completion_of(header, peer.id, 0);
  const std::size_t offset = receive.used;
  const std::size_t free = receive.iov.total - offset;
  std::size_t length = header.length;
  if ((header.flags & wire::kAcknowledge) != 0) {
    acknowledge(peer, payload);
    payload += wire::kOperationBytes;
    length -= wire::kOperationBytes;
  }
  const std::size_t n = std::min(length, free);
  receive.iov.copy_in(offset, payload, n);
  context_.charge(Work::copy, n);
  completion.length = n;
  if (receive.iov.count > 0) {
    completion.buffer = static_cast<std::byte*>(receive.iov.parts[0].iov_base) + offset;
  }
  if (receive.multi) receive.used += n;
  end_receive(receive, completion, length - n, Status{});
}

// The sender waits for delivery.
void PostedReceives::acknowledge(Peer& peer, const std::byte* payload) {
  std::uint64_t operation;
  std::memcpy(&operation, payload, sizeof operation);
  control_.send_fin(peer, operation, Status{});
}

// A message of this receive is complete: reports it, and retires the receive when it is exhausted.
void PostedReceives::end_receive(RecvOperation& receive, const Completion& ended,
                                 std::size_t overflow, Status status) {
  Completion completion = ended;
  completion.context = receive.report.context;
  if (status.ok() && overflow > 0) {
    status = Status{Code::truncated,
                    fmt::format("the message exceeds its receive buffer by {} bytes", overflow)};
  }
  bool gone = !receive.multi;
  if (receive.multi) {
    if (!receive.exhausted &&
        receive.iov.total - receive.used < std::max<std::size_t>(receive.min_free, 1)) {
      receive.exhausted = true;
      unpost(receive);
    }
    gone = receive.exhausted && receive.transfers == 0;
    if (gone) completion.flags |= kMultiRecvDone;
  }
  if (gone) unpost(receive);
  if (status.ok()) {
    context_.finish(receive.report, completion);
  } else {
    context_.fail(receive.report, completion, std::move(status), overflow);
  }
  if (gone) {
    if (receive.match.peer != kAnyPeer)
      --peer_table_.peers()[receive.match.peer].rx.directed_receives;
    records_.receives.give_back(&receive);
  }
}

void PostedReceives::end_cancelled(RecvOperation& receive) {
  unpost(receive);
  if (receive.match.peer != kAnyPeer)
    --peer_table_.peers()[receive.match.peer].rx.directed_receives;
  Completion completion{.context = receive.report.context,
                        .tag = receive.match.tag,
                        .flags = kRecv | (receive.match.tagged ? kTagged : kMessage) |
                                 (receive.multi ? static_cast<unsigned>(kMultiRecvDone) : 0u)};
  context_.fail(receive.report, completion, Status{Code::canceled, "cancelled"});
  records_.receives.give_back(&receive);
}

}  // namespace turnout
