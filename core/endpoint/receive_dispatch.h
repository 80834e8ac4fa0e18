// SPDX-License-Identifier: BSD-3-Clause
// ReceiveDispatch: completions of receives and control messages: to the component that each is for.
#pragma once

#include "core/endpoint/components.h"

namespace turnout {

class ReceiveDispatch : ComponentsUser {
 public:
  using ComponentsUser::ComponentsUser;

  bool poll_receive_queue() {
    ibv_wc entries[kPollBatch];
    const int n = ibv_poll_cq(resources_.receive_cq.get(), kPollBatch, entries);
    context_.charge(Work::poll_cq, 1);
    return n != 0 && take_entries(entries, n);
  }
  [[nodiscard]] bool on_wireup_request(const wire::WireupRequest& wireup, PeerId* id);
  // Handles acknowledgements and liveness.
  void take_ud_header(Peer& peer, const wire::Datagram& datagram);

 private:
  // `count` as of ibv_poll_cq(3).
  bool take_entries(const ibv_wc* entries, int count);
  void note_shutdowns(std::span<const ibv_wc> entries) noexcept;
  void on_private_receive(const ibv_wc& wc);
  void on_private_message(Peer& peer, std::uint32_t buffer, std::uint32_t length);
  void on_private_control(Peer& peer, const wire::Parsed& parsed);
  void on_control(std::uint32_t buffer, std::uint32_t length);
  void handle_control(Peer& peer, const wire::ControlMessage& message, const wire::Detail& detail);
  void on_datagram(bool control, std::uint32_t buffer, std::uint32_t length);
  void on_control_datagram(const std::byte* bytes, std::uint32_t length);
  void answer_unknown_peer(const wire::WireupRequest& wireup);
};

}  // namespace turnout
