// SPDX-License-Identifier: BSD-3-Clause
// Stream rsockets: an identifier of the connection manager, and a channel of data once it has a
// peer. rsocket(7), tcp(7).
//
// A listener accepts the requests of its peers whenever one of its calls looks, as far as its
// backlog goes: raccept() takes what is connected already. As in hca/cm/rsocket.h.
#pragma once

#include <rdma/rdma_cma.h>

#include <chrono>
#include <deque>
#include <memory>

#include "hca/cm/rsocket.h"
#include "hca/cm/rsocket_channel.h"
#include "hca/cm/rsocket_mappings.h"

namespace turnout::cm {

class RsocketStream final : public Rsocket {
 public:
  // Null and errno: EMFILE, ENODEV.
  [[nodiscard]] static std::shared_ptr<RsocketStream> make(int domain);

  explicit RsocketStream(int domain) : Rsocket(domain, SOCK_STREAM) {}
  ~RsocketStream() override;

  [[nodiscard]] int descriptor() const noexcept override { return channel_->fd; }
  [[nodiscard]] bool has_queues() const noexcept override { return data_ != nullptr; }
  [[nodiscard]] int bind(const sockaddr* address) override;
  [[nodiscard]] int listen(int backlog) override;
  [[nodiscard]] ssize_t try_accept(std::shared_ptr<Rsocket>& accepted) override;
  [[nodiscard]] int connect(const sockaddr* address) override;
  [[nodiscard]] ssize_t ends_connecting() override;
  [[nodiscard]] ssize_t try_send(IovCursor& from, int flags, const MessageAddress& to) override;
  [[nodiscard]] ssize_t try_receive(IovCursor& to, int flags, MessageAddress& from) override;
  [[nodiscard]] int shutdown(int how) override;
  [[nodiscard]] int local_name(sockaddr_storage& name) const override;
  [[nodiscard]] int peer_name(sockaddr_storage& name) const override;
  [[nodiscard]] short events() override;
  bool look() override;
  [[nodiscard]] bool arm() override;
  [[nodiscard]] int sleeping_descriptor(short events) const noexcept override;
  void advance() override;
  void close() override;
  void abandon() override;

  [[nodiscard]] bool listening() const noexcept { return state_ == StreamState::listening; }
  [[nodiscard]] int largest_segment() const noexcept;
  // riomap(), riounmap(), riowrite(). Errno values; a count or the negative of one.
  [[nodiscard]] int map(void* buffer, std::size_t length, int protection, off_t& offset);
  [[nodiscard]] int unmap(const void* buffer, std::size_t length);
  [[nodiscard]] ssize_t try_write(IovCursor& from, std::uint64_t offset);

 private:
  enum class StreamState : std::uint8_t {
    fresh,
    bound,
    listening,
    connecting,
    accepting,  // has accepted; the peer has not said yet that it knows
    connected,
    disconnected,  // what has arrived can still be read
    failed,        // the connection was not made
  };

  [[nodiscard]] int make_id();
  void drop_id();
  [[nodiscard]] bool has_peer() const noexcept {
    return state_ >= StreamState::accepting && state_ <= StreamState::disconnected;
  }
  void enter(StreamState state);
  void fail(int error);
  // at_times: for a caller that may spin. A look at the channel is a system call; data comes
  // without.
  enum class Look : std::uint8_t { now, at_times };
  [[nodiscard]] bool take_events(Look when = Look::now);
  void on_event(const rdma_cm_event& event);
  [[nodiscard]] int make_data();
  [[nodiscard]] int send_request();
  void take_requests();
  [[nodiscard]] int answer(rdma_cm_id* child, const void* data, std::size_t length,
                           const RsocketOptions& options);
  [[nodiscard]] int end_of_connection() const noexcept;
  [[nodiscard]] ssize_t answer_of_sending(std::size_t wanted, const IovCursor& from);
  void finish_if_due();
  void linger_on();

  rdma_event_channel* channel_ = nullptr;
  rdma_cm_id* id_ = nullptr;
  std::unique_ptr<RsocketChannel> data_;
  RsocketMappings mappings_;
  StreamState state_ = StreamState::fresh;
  std::chrono::steady_clock::time_point events_taken_{};
  bool read_shut_ = false, write_shut_ = false, finish_due_ = false;
  // A listener's.
  std::size_t backlog_ = 0;
  std::deque<std::shared_ptr<RsocketStream>> accepted_;
  int accept_error_ = 0;  // why a request waits
};

}  // namespace turnout::cm
