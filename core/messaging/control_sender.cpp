// SPDX-License-Identifier: BSD-3-Clause
#include "core/messaging/control_sender.h"
#include "base/log.h"

namespace turnout {

bool ControlSender::post_control(Peer& peer, bool credit, const ControlBytes& bytes) {
  const std::uint8_t at = credit ? peer.credit_queue : peer.establishment_queue;
  const Address address = peer.address.whole();
  const unsigned first = address.data_qps() + (credit ? 0 : address.credit_qps());
  const unsigned n = credit ? address.credit_qps() : address.establishment_qps();
  Status status;
  if (!post_control(*resources_.pool(credit ? Purpose::credit : Purpose::establishment)[at],
                    peer.id, address, *peer.address.port, first + at % n, bytes, &status)) {
    return false;
  }
  context_.charge(Work::post, 1);
  if (!status.ok()) events_.lose_peer(peer, status);
  return true;
}

// To the target number `target` of that address. False: no room now.
bool ControlSender::post_control(MessageQueue& queue, PeerId peer, const Address& address,
                                 const RemotePort& port, unsigned target,
                                 const ControlBytes& message, Status* status) {
  if (queue.full()) return false;
  const std::uint32_t buffer = resources_.control_send_pool.take();
  if (buffer == kNoBuffer) return false;
  std::byte* const bytes = resources_.control_send_pool.data(buffer);
  const std::size_t head = message.head != nullptr ? sizeof *message.head : 0;
  if (head > 0) std::memcpy(bytes, message.head, head);
  if (message.length > 0) std::memcpy(bytes + head, message.body, message.length);
  const std::size_t more = message.detail != nullptr ? sizeof *message.detail : 0;
  if (more > 0) std::memcpy(bytes + head + message.length, message.detail, more);
  SendRecord record{.kind = SendRecord::Kind::message,
                    .pool = SendRecord::Pool::control,
                    .peer = peer,
                    .buffer = buffer,
                    .length = static_cast<std::uint32_t>(head + message.length + more),
                    .lkey = resources_.control_send_pool.lkey(),
                    .dct = address.dct_number(target),
                    .local = reinterpret_cast<std::uint64_t>(bytes),
                    .ah = port.handle.get(),
                    .dc_key = address.id};
  record.signalled =
      context_.closing;  // a peer may exit on our shutdown message, so it must not be sent twice
  *status = queue.post(record);
  context_.profile.count_sent(Traffic::control, record.length);
  if (!status->ok()) resources_.control_send_pool.give_back(buffer);
  return true;
}

}  // namespace turnout
