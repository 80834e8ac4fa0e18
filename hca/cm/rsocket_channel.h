// SPDX-License-Identifier: BSD-3-Clause
// The two directions of a connected stream rsocket over its queue pair: a ring for each, credits,
// and what goes on beside the data (hca/cm/rsocket_protocol.h).
//
// What is sent is copied into the send buffer and written from there into the peer's ring. The
// reader returns credits when a quarter of the ring has been read, or half of the receives used.
// Nothing here waits. Owned by the socket, and used under its mutex; the identifier, whose queue
// pair it makes, must outlive it. Sizes in bytes; errors are errno values. A peer that breaks the
// protocol ends the connection: broken().
#pragma once

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <vector>

#include "hca/cm/rsocket_cursor.h"
#include "hca/cm/rsocket_memory.h"
#include "hca/cm/rsocket_options.h"
#include "hca/cm/rsocket_protocol.h"
#include "hca/cm/rsocket_queue.h"

namespace turnout::cm {

class RsocketChannel {
 public:
  RsocketChannel() = default;
  RsocketChannel(const RsocketChannel&) = delete;
  RsocketChannel& operator=(const RsocketChannel&) = delete;
  ~RsocketChannel();

  // The queue pair of `id`, with the receives that the peer may use.
  [[nodiscard]] int create(rdma_cm_id& id, const RsocketOptions& options);
  [[nodiscard]] Hello hello() const noexcept;
  // What the peer said; false where it is not valid. From now on there is something to send to.
  [[nodiscard]] bool adopt(const void* data, std::size_t length) noexcept;

  // Works off completions; true if there were any.
  bool poll();
  // For a caller that is going to sleep: the next completion makes queue().descriptor() readable.
  // True if nothing came meanwhile.
  [[nodiscard]] bool arm();
  [[nodiscard]] int descriptor() const noexcept { return queue_.descriptor(); }

  [[nodiscard]] bool broken() const noexcept { return broken_; }
  // The peer has sent its last byte, which may still be unread.
  [[nodiscard]] bool finished() const noexcept { return finished_; }
  // The peer has sent something: the connection is there.
  [[nodiscard]] bool heard() const noexcept { return posted_ != 0; }
  [[nodiscard]] std::size_t unread() const noexcept { return arrived_ - read_; }
  [[nodiscard]] std::size_t ring_size() const noexcept { return ring_size_; }
  [[nodiscard]] bool drained() const noexcept { return pending_.empty(); }

  // As much as there is room for, in one piece; 0: none. Announces mappings that wait first.
  [[nodiscard]] std::size_t room() const noexcept;
  std::size_t send(IovCursor& from);
  // Up to unread() bytes; `peek`: they stay, and `skip` of them are passed over.
  std::size_t read(IovCursor& to, bool peek, std::size_t skip = 0);
  // What comes is thrown away from now on.
  void discard();
  // Tells the peer that nothing follows; false: no room yet.
  [[nodiscard]] bool finish();

  // A mapping of this side, for the peer's table; sent before the next data.
  void announce(std::uint64_t index, const RemoteMapping& mapping);
  [[nodiscard]] std::uint32_t announceable() const noexcept { return peer_.iomaps; }
  // Null: the peer has nothing mapped there.
  [[nodiscard]] const RemoteMapping* find(std::uint64_t offset) const noexcept;
  // Into a mapping of the peer; 0: no room.
  std::size_t write(const RemoteMapping& to, std::uint64_t offset, IovCursor& from);

 private:
  void on_receive(const ibv_wc& wc);
  void on_control(const Control& control);
  void take_credits(const Control& control);
  void return_credits();
  [[nodiscard]] bool flush_announcements();
  [[nodiscard]] std::uint64_t messages_left() const noexcept;
  [[nodiscard]] bool send_control(Control control);
  // The place of the next byte in the send buffer, and how many fit there.
  [[nodiscard]] std::size_t send_space() const noexcept;
  [[nodiscard]] std::uint8_t* send_place() const noexcept;
  [[nodiscard]] bool post(ibv_send_wr& wr, std::uint32_t length, std::uint32_t held);
  [[nodiscard]] bool post_receive(std::uint64_t slot);
  [[nodiscard]] std::uint8_t* slot_at(std::uint64_t slot) const noexcept;

  RsocketMemory memory_;
  RsocketQueue queue_;
  rdma_cm_id* id_ = nullptr;
  std::uint32_t send_size_ = 0, ring_size_ = 0, receives_ = 0, sends_ = 0, inline_ = 0;
  Hello peer_{.ring_size = 0};
  bool broken_ = false, finished_ = false, discarding_ = false;

  // Since the beginning. Sending: bytes and messages, and what the peer has given back of them;
  // bytes that went through the send buffer, and those of them that are free again.
  std::uint64_t sent_ = 0, sent_messages_ = 0, peer_read_ = 0, peer_posted_ = 0;
  std::uint64_t buffered_ = 0, released_ = 0;
  // Bytes of the send buffer that each request in the send queue holds.
  Fifo<std::uint32_t> pending_;
  // Receiving: bytes that arrived and were read, receives posted again, and what of it was told.
  std::uint64_t arrived_ = 0, read_ = 0, posted_ = 0, told_read_ = 0, told_posted_ = 0;

  std::vector<RemoteMapping> mappings_;  // the peer's
  std::vector<Control> announcements_;   // not sent yet
};

}  // namespace turnout::cm
