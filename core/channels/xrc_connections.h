// SPDX-License-Identifier: BSD-3-Clause
// XrcConnections: connections of a process to all processes of a node (XRC): made when first
// needed, shared by its peers there, dropped when idle.
//
// The endpoint owns it; the thread that drives the endpoint calls it.
#pragma once

#include <map>

#include "core/channels/rc_pool.h"
#include "core/connection/xrc_connection.h"

namespace turnout {

class XrcConnections : MessagingUser {
 public:
  XrcConnections(EndpointState& state, Messaging& messaging, RcPool& rc)
      : MessagingUser(state, messaging), rc_(rc) {}

  [[nodiscard]] Status open_xrc();
  // Connections to nodes exist or can be created.
  [[nodiscard]] bool may_use_xrc() const noexcept;
  [[nodiscard]] bool has_xrc();
  void take_xrc_request(Peer& peer, std::uint32_t srq);
  void on_xrc_ready(Peer& peer, const wire::ControlMessage& message);
  void end_xrc_job(RcJob& job);
  void refuse_xrc(Peer& peer, wire::Refusal why);
  void release_xrc_connection(Peer& peer);
  void discard_xrc_connection(XrcConnection& link);
  void look_after_xrc_connections(Nanoseconds now);
  void probe_xrc_connection(XrcConnection& link);
  static void drop_if_idle(Peer& peer) noexcept;
  void on_xrc_accept(Peer& peer, const wire::ControlMessage& message);
  void start_target_job(std::unique_ptr<XrcTargetJob> job);
  void end_target_job(XrcTargetJob& job);
  void release_target(Peer& peer);
  void forget_xrc(Peer& peer);
  [[nodiscard]] std::map<NodeKey, std::unique_ptr<XrcConnection>>& xrc_connections() noexcept {
    return xrc_connections_;
  }
  [[nodiscard]] std::vector<Peer*>& xrc_lost() noexcept { return xrc_lost_; }

 private:
  [[nodiscard]] XrcConnection* xrc_connection_to(const Address& address, Status* status);
  // Null: none.
  [[nodiscard]] XrcConnection* find_xrc_connection(const NodeKey& node) const noexcept {
    const auto found = xrc_connections_.find(node);
    return found == xrc_connections_.end() ? nullptr : found->second.get();
  }
  [[nodiscard]] bool make_xrc(Peer& peer);
  void advance_xrc_connection(XrcConnection& link);
  void begin_xrc(Peer& peer);
  void refuse_xrc_connection(XrcConnection& link, const Status& status);
  void destroy_initiator(std::unique_ptr<RcQueue> queue);
  void close_target(XrcTarget target);

  RcPool& rc_;

  bool xrc_failed_ = false;  // opening it failed
  std::map<NodeKey, std::unique_ptr<XrcConnection>> xrc_connections_;
  std::vector<Peer*> xrc_lost_;  // with messages lost on such connections
};

}  // namespace turnout
