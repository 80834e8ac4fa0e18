// SPDX-License-Identifier: BSD-3-Clause
// Connection: that of an FI_EP_MSG endpoint to its one peer, from the request to the end.
//
// A TCP connection carries the request and the answer, each with the Address of its sender's
// endpoint; messages go between the endpoints as everywhere in Turnout. The TCP connection stays
// open: the end of it is how each side learns that the other has shut down or died.
//
//   connecting -> awaiting_reply -> connected -> ended      who connects
//   receiving_request -> requested -> connected -> ended    who accepts
//   Every state may go to ended.
//
// Shared by its endpoint (or by the manager, before there is one) and the manager's thread. Any
// thread; has its own lock, which is taken before that of an event queue. Errors: -FI_E*. Source:
// fi_cm(3), fi_eq(3).
#pragma once

#include <rdma/fabric.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/file_descriptor.h"
#include "provider/connection_manager.h"
#include "provider/connection_message.h"
#include "provider/service_address.h"

namespace turnout::provider {

struct EventQueue;
class Listener;

class Connection final : public Watched, public std::enable_shared_from_this<Connection> {
 public:
  enum class State : std::uint8_t {
    connecting,
    awaiting_reply,
    receiving_request,
    requested,
    connected,
    ended
  };

  struct Way {
    ServiceAddress to;  // who listens there
    Descriptor from;    // a socket that is bound; none: any
  };
  // Begins to connect `own`'s endpoint. The outcome is an event of `endpoint` in `events`.
  [[nodiscard]] static int begin(ConnectionManager& manager, Way way, const Address& own,
                                 std::span<const std::byte> data, ::fid* endpoint,
                                 EventQueue& events, std::shared_ptr<Connection>& made);
  // Takes a socket that the listener has accepted: the listener reports the request that comes.
  static void receive(ConnectionManager& manager, Descriptor socket,
                      std::shared_ptr<Listener> listener);
  ~Connection() override;

  // What a program gets as fi_info::handle.
  [[nodiscard]] ::fid* handle() noexcept { return &handle_; }
  // The request becomes the connection of this endpoint: its events go there.
  void give_to(::fid* endpoint, EventQueue& events);
  // Errors: -FI_EOPBADSTATE; -FI_ECONNABORTED: the peer has gone.
  [[nodiscard]] int accept(const Address& own, std::span<const std::byte> data);
  [[nodiscard]] int reject(std::span<const std::byte> data);
  // Ends it: the peer gets FI_SHUTDOWN, this side nothing more.
  void end() noexcept;

  [[nodiscard]] State state() const noexcept { return state_.load(std::memory_order_acquire); }
  // An end of its socket: this host's, or the peer's. Without sockets (count 0): it has none.
  [[nodiscard]] ServiceAddress end_of_socket(bool peers);
  // Where it is requested or connected.
  [[nodiscard]] const Address& peer() const noexcept { return peer_; }

  void ready() noexcept override;
  void tick() noexcept override;

 private:
  using Clock = std::chrono::steady_clock;
  // For the request of who has connected: somebody else may hold the socket, and say nothing.
  static constexpr std::chrono::seconds kPatience{10};

  Connection(ConnectionManager& manager, State state);

  // All with the lock held.
  [[nodiscard]] ServiceAddress end_of(bool peers) const noexcept;
  [[nodiscard]] int connect_next();
  [[nodiscard]] Descriptor socket_towards(const sockaddr& peer);
  void finish_connecting();
  // Takes what has arrived; true: `received_` is a whole message.
  [[nodiscard]] bool receive_message();
  void handle_message();
  [[nodiscard]] int send(ConnectionMessage::Kind kind, const Address& own,
                         std::span<const std::byte> data);
  void fail(int error, std::span<const std::byte> data = {});
  [[nodiscard]] int write(std::span<const std::byte> bytes) noexcept;
  void close() noexcept;
  void finish() noexcept;
  void report(std::uint32_t event, std::span<const std::byte> data = {});

  ConnectionManager& manager_;
  std::mutex mutex_;
  std::atomic<State> state_;
  Descriptor socket_;
  Way way_;
  std::size_t next_ = 0;  // socket address of `way_.to` that is tried next
  std::vector<std::byte> request_;
  std::vector<std::byte> received_;
  Address peer_{};
  ::fid handle_{};
  ::fid* endpoint_ = nullptr;
  EventQueue* events_ = nullptr;        // null: nobody wants to know
  std::shared_ptr<Listener> listener_;  // until the request was reported
  Clock::time_point deadline_;          // for the request
};

}  // namespace turnout::provider
