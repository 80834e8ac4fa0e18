// SPDX-License-Identifier: BSD-3-Clause
#include "hca/cm/rsocket_channel.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"

namespace turnout::cm {
namespace {

constexpr std::uint32_t kSlotBytes = sizeof(Control);
// Entries of the send queue that data leaves to controls.
constexpr std::uint32_t kSendReserve = kControlReserve;

}  // namespace

RsocketChannel::~RsocketChannel() {
  // Before the queue and the memory that it uses.
  if (id_ != nullptr && id_->qp != nullptr) rdma_destroy_qp(id_);
}

int RsocketChannel::create(rdma_cm_id& id, const RsocketOptions& o) {
  send_size_ = o.send_buffer;
  ring_size_ = o.receive_buffer;
  receives_ = o.receive_queue + kControlReserve;
  sends_ = o.send_queue + kSendReserve;
  mappings_.resize(o.iomaps);
  if (const int error = memory_.create(
          id.pd, std::size_t{send_size_} + std::size_t{receives_} * kSlotBytes, ring_size_);
      error != 0) {
    return error;
  }
  if (const int error = queue_.create(id.verbs, sends_ + receives_); error != 0) return error;
  ibv_qp_init_attr attr{};
  attr.qp_type = IBV_QPT_RC;
  attr.send_cq = attr.recv_cq = queue_.verbs();
  attr.sq_sig_all = 1;
  // Controls are always inline: they have no place in the send buffer.
  attr.cap = {sends_, receives_, 1, 1, std::max<std::uint32_t>(o.inline_data, kSlotBytes)};
  if (rdma_create_qp(&id, id.pd, &attr) != 0) return errno;
  id_ = &id;
  inline_ = o.inline_data;
  pending_.set_capacity(sends_);
  for (std::uint32_t slot = 0; slot < receives_; ++slot) {
    if (!post_receive(slot)) return errno;
  }
  posted_ = 0;
  return 0;
}

Hello RsocketChannel::hello() const noexcept {
  Hello h;
  h.ring_key = memory_.remote_key();
  h.ring_size = ring_size_;
  h.ring_address = reinterpret_cast<std::uintptr_t>(memory_.remote());
  h.receives = receives_;
  h.iomaps = static_cast<std::uint32_t>(mappings_.size());
  return h;
}

bool RsocketChannel::adopt(const void* data, std::size_t length) noexcept {
  // The field is longer than what was put into it.
  Hello h;
  if (data == nullptr || length < sizeof h) return false;
  std::memcpy(&h, data, sizeof h);
  if (!valid(h)) return false;
  peer_ = h;
  return true;
}

bool RsocketChannel::poll() {
  ibv_wc all[16];
  int n = 0;
  bool some = false;
  while (!broken_ && (n = ibv_poll_cq(queue_.verbs(), 16, all)) != 0) {
    if (n < 0) broken_ = true;
    some = true;
    for (int i = 0; i < n && !broken_; ++i) {
      const ibv_wc& wc = all[i];
      if (wc.status != IBV_WC_SUCCESS) {
        broken_ = true;
      } else if ((wc.opcode & IBV_WC_RECV) != 0) {
        on_receive(wc);
      } else if (!pending_.empty()) {
        released_ += pending_.pop();
      }
    }
  }
  if (some && !broken_) return_credits();
  return some;
}

bool RsocketChannel::arm() {
  if (broken_) return true;  // nothing more comes of it; the end is the connection manager's to say
  return queue_.arm() && !poll();
}

void RsocketChannel::on_receive(const ibv_wc& wc) {
  if (wc.wr_id >= receives_) {
    broken_ = true;
    return;
  }
  if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    const std::uint32_t length = ntohl(wc.imm_data);
    if (length > ring_size_ - unread() || finished_) {
      broken_ = true;
    } else {
      arrived_ += length;
      if (discarding_) read_ = arrived_;
    }
  } else {
    Control control;
    std::memcpy(&control, slot_at(wc.wr_id), sizeof control);
    if (wc.byte_len != sizeof control || !valid(control, mappings_.size())) {
      broken_ = true;
    } else {
      on_control(control);
    }
  }
  if (broken_) {
    TURNOUT_LOG(hca, warn,
                "reading from an rsocket failed: invalid message; closing the connection, use one "
                "version of Turnout in all processes");
  } else if (!post_receive(wc.wr_id)) {
    broken_ = true;
  }
}

void RsocketChannel::on_control(const Control& control) {
  take_credits(control);
  if (control.kind == ControlKind::finished) finished_ = true;
  if (control.kind == ControlKind::mapping) mappings_[control.index] = control.mapping;
}

void RsocketChannel::take_credits(const Control& c) {
  if (c.bytes_read < peer_read_ || c.bytes_read > sent_ || c.receives_posted < peer_posted_ ||
      c.receives_posted > sent_messages_) {
    broken_ = true;
    return;
  }
  peer_read_ = c.bytes_read;
  peer_posted_ = c.receives_posted;
}

void RsocketChannel::return_credits() {
  const bool due = read_ - told_read_ >= ring_size_ / 4 || posted_ - told_posted_ >= receives_ / 2;
  if (due) static_cast<void>(send_control({}));  // no room: with the next look
}

std::uint64_t RsocketChannel::messages_left() const noexcept {
  const std::uint64_t under_way = sent_messages_ - peer_posted_;
  return peer_.receives > under_way ? peer_.receives - under_way : 0;
}

bool RsocketChannel::send_control(Control control) {
  if (broken_ || messages_left() == 0 || pending_.full()) return false;
  control.bytes_read = read_;
  control.receives_posted = posted_;
  ibv_sge part{reinterpret_cast<std::uintptr_t>(&control), sizeof control, 0};
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_INLINE;
  wr.sg_list = &part;
  wr.num_sge = 1;
  if (!post(wr, sizeof control, 0)) return false;
  ++sent_messages_;
  told_read_ = control.bytes_read;
  told_posted_ = control.receives_posted;
  return true;
}

std::uint8_t* RsocketChannel::send_place() const noexcept {
  return memory_.own() + buffered_ % send_size_;
}

std::size_t RsocketChannel::send_space() const noexcept {
  if (broken_ || pending_.size() + kSendReserve >= sends_) return 0;
  return std::min<std::uint64_t>(send_size_ - (buffered_ - released_),
                                 send_size_ - buffered_ % send_size_);
}

std::size_t RsocketChannel::room() const noexcept {
  if (peer_.ring_size == 0 || messages_left() <= kControlReserve) return 0;
  // Pieces of a quarter, so that the reader is at one while the next is written.
  const std::uint64_t size = peer_.ring_size;
  return std::min<std::uint64_t>({send_space(), size - (sent_ - peer_read_), size - sent_ % size,
                                  std::max<std::uint64_t>(size / 4, 1)});
}

std::size_t RsocketChannel::send(IovCursor& from) {
  if (!flush_announcements()) return 0;
  const std::size_t length = std::min(room(), from.left());
  if (length == 0) return 0;
  from.copy_out(send_place(), length);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.imm_data = htonl(static_cast<std::uint32_t>(length));
  wr.wr.rdma.remote_addr = peer_.ring_address + sent_ % peer_.ring_size;
  wr.wr.rdma.rkey = peer_.ring_key;
  ibv_sge part{reinterpret_cast<std::uintptr_t>(send_place()), static_cast<std::uint32_t>(length),
               memory_.own_key()};
  wr.sg_list = &part;
  wr.num_sge = 1;
  if (!post(wr, part.length, part.length)) return 0;
  ++sent_messages_;
  sent_ += length;
  return length;
}

std::size_t RsocketChannel::write(const RemoteMapping& to, std::uint64_t offset, IovCursor& from) {
  const std::uint64_t at = offset - to.offset;
  const std::size_t length = std::min<std::uint64_t>({send_space(), from.left(), to.length - at});
  if (length == 0) return 0;
  from.copy_out(send_place(), length);
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.wr.rdma.remote_addr = to.address + at;
  wr.wr.rdma.rkey = to.key;
  ibv_sge part{reinterpret_cast<std::uintptr_t>(send_place()), static_cast<std::uint32_t>(length),
               memory_.own_key()};
  wr.sg_list = &part;
  wr.num_sge = 1;
  return post(wr, part.length, part.length) ? length : 0;
}

bool RsocketChannel::post(ibv_send_wr& wr, std::uint32_t length, std::uint32_t held) {
  if (length <= inline_) wr.send_flags |= IBV_SEND_INLINE;
  ibv_send_wr* bad = nullptr;
  if (ibv_post_send(id_->qp, &wr, &bad) != 0) {
    broken_ = true;
    return false;
  }
  pending_.push(held);
  buffered_ += held;
  return true;
}

std::uint8_t* RsocketChannel::slot_at(std::uint64_t slot) const noexcept {
  return memory_.own() + send_size_ + slot * kSlotBytes;
}

bool RsocketChannel::post_receive(std::uint64_t slot) {
  ibv_sge part{reinterpret_cast<std::uintptr_t>(slot_at(slot)), kSlotBytes, memory_.own_key()};
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.wr_id = slot;
  wr.sg_list = &part;
  wr.num_sge = 1;
  if (const int error = ibv_post_recv(id_->qp, &wr, &bad); error != 0) {
    errno = error;
    return false;
  }
  ++posted_;
  return true;
}

std::size_t RsocketChannel::read(IovCursor& to, bool peek, std::size_t skip) {
  std::uint64_t at = read_ + skip;
  std::size_t length = std::min<std::uint64_t>(to.left(), arrived_ - at);
  const std::size_t all = length;
  while (length != 0) {
    const std::uint64_t place = at % ring_size_;
    const std::size_t piece = std::min<std::uint64_t>(length, ring_size_ - place);
    to.copy_in(memory_.remote() + place, piece);
    at += piece;
    length -= piece;
  }
  if (!peek) {
    read_ = at;
    return_credits();
  }
  return all;
}

void RsocketChannel::discard() {
  discarding_ = true;
  read_ = arrived_;
  return_credits();
}

bool RsocketChannel::finish() {
  if (!flush_announcements()) return false;
  Control control;
  control.kind = ControlKind::finished;
  return send_control(control);
}

void RsocketChannel::announce(std::uint64_t index, const RemoteMapping& mapping) {
  Control control;
  control.kind = ControlKind::mapping;
  control.index = index;
  control.mapping = mapping;
  announcements_.push_back(control);
}

bool RsocketChannel::flush_announcements() {
  while (!announcements_.empty()) {
    if (messages_left() <= kControlReserve || pending_.size() + kSendReserve >= sends_ ||
        !send_control(announcements_.front())) {
      return false;
    }
    announcements_.erase(announcements_.begin());
  }
  return true;
}

const RemoteMapping* RsocketChannel::find(std::uint64_t offset) const noexcept {
  const auto found =
      std::find_if(mappings_.begin(), mappings_.end(), [offset](const RemoteMapping& m) {
        return offset >= m.offset && offset - m.offset < m.length;
      });
  return found != mappings_.end() ? &*found : nullptr;
}

}  // namespace turnout::cm
