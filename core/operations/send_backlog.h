// SPDX-License-Identifier: BSD-3-Clause
// SendBacklog: send operations that wait: in the backlog of their peer until they can be sent, or
// by number for the peer's FIN or for the adapter. A number has a generation, so that a FIN for an
// operation that has ended finds nothing.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include "core/state/component.h"

namespace turnout {

class SendBacklog : Component {
 public:
  explicit SendBacklog(EndpointState& state) : Component(state) {}

  void await_fin(SendOperation& operation);
  void forget_awaiting(SendOperation& operation);
  static void use_registrations(SendOperation& operation, Transfer* transfer);
  // Its whole buffer is.
  [[nodiscard]] static bool is_registered(const SendOperation& operation) noexcept;
  void enqueue(SendOperation& operation);
  void list_backlog(Peer& peer);
  void end_send(SendOperation& operation, Status status);
  // The operation that waits for this peer's FIN; null: none.
  [[nodiscard]] SendOperation* find_awaiting(const Peer& peer, std::uint64_t id) const noexcept;
  // The one that waits for the adapter to deliver its requests to this peer; null: none.
  [[nodiscard]] SendOperation* find_confirmed(const Peer& peer, std::uint64_t id) const noexcept;
  // The Status for a peer's status code of a large message; `verb`: fetch, ...
  [[nodiscard]] static Status status_reported(const Peer& peer, std::uint32_t code,
                                              std::string_view verb);
  void send_before_backlog(SendOperation& operation);
  [[nodiscard]] LinkedList<SendOperation>& fragmented() noexcept { return fragmented_; }
  [[nodiscard]] std::vector<Peer*>& backlogged() noexcept { return backlogged_; }
  [[nodiscard]] std::vector<SendOperation*>& awaiting_fin() noexcept { return awaiting_fin_; }

 private:
  [[nodiscard]] SendOperation* find(const Peer& peer, std::uint64_t id) const noexcept;

  LinkedList<SendOperation> fragmented_;  // being sent in fragments
  std::vector<Peer*> backlogged_;
  std::vector<SendOperation*> awaiting_fin_;  // by the low half of the operation's id
  std::vector<std::uint32_t> free_fin_slots_;
  std::uint32_t fin_generation_ = 1;
};

}  // namespace turnout
