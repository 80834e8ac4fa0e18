// SPDX-License-Identifier: BSD-3-Clause
// RdmaEngine: transfers by RDMA: rendezvous reads (getcqe) and one-sided operations, in segments,
// and what is left of each when the last is done.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include <array>

#include "core/operations/posted_receives.h"
#include "core/operations/send_backlog.h"

namespace turnout {

class RdmaEngine : MessagingUser {
 public:
  RdmaEngine(EndpointState& state, Messaging& messaging, PostedReceives& posted,
             SendBacklog& backlog)
      : MessagingUser(state, messaging), posted_(posted), backlog_(backlog) {}

  [[nodiscard]] bool reaches_over_rc(const Peer& peer) const noexcept;
  bool pump(Transfer& transfer);
  [[nodiscard]] Status register_iov(Transfer& transfer, const IoVec& iov, int access);
  void end_read_early(Transfer& transfer);
  bool pump_transfers();
  // The target denied access.
  [[nodiscard]] static bool refuses_key(ibv_wc_status status) noexcept;
  [[nodiscard]] static Status refused_key(const Peer& peer, const SendRecord& record,
                                          ibv_wc_status status);
  void drop_transfer(Transfer& transfer);
  void end_transfer(Transfer& transfer);
  [[nodiscard]] std::size_t most_by_message(const Peer& peer) const noexcept;
  [[nodiscard]] int receive_access() const noexcept;
  void poll_for_last_byte(Transfer& transfer, std::byte* last, std::byte sentinel);
  [[nodiscard]] std::vector<Transfer*>& polled() noexcept { return polled_; }
  void list(Transfer& transfer) noexcept;
  [[nodiscard]] LinkedList<Transfer>& active_transfers() noexcept { return active_transfers_; }
  void set_posts_in_progress(bool value) noexcept { posts_in_progress_ = value; }

 private:
  [[nodiscard]] bool leaves_posting(const Transfer& transfer) const noexcept;
  [[nodiscard]] bool post_segment(Transfer& transfer, std::uint64_t length);
  // To the sender of a message that was read.
  void send_fin(Transfer& transfer);
  struct Timed {
    const Transfer* transfer = nullptr;
    Nanoseconds time = 0;
  };
  [[nodiscard]] Timed* find_timed(const Transfer* transfer) noexcept;
  void note_read(const Transfer& transfer) noexcept;
  [[nodiscard]] Nanoseconds read_at(const Transfer& transfer) noexcept;

  PostedReceives& posted_;
  SendBacklog& backlog_;

  std::vector<Transfer*> polled_;  // whose last byte is polled
  LinkedList<Transfer> active_transfers_;
  // Reads of messages whose senders may measure how long they take: as many as are usually posted
  // before the first one's completion is looked at.
  std::array<Timed, 16> timed_;
  bool posts_in_progress_ = false;  // large messages are posted by progress(), see leaves_posting()
};

}  // namespace turnout
