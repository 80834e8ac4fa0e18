// SPDX-License-Identifier: BSD-3-Clause
// Datagram rsockets: a UDP socket of the kernel, which has the address, and a UD queue pair, over
// which messages go once the queue pair of their destination is known. rsocket(7), udp(7).
//
// The first messages to a destination go through the UDP socket, with a header that names the
// sender's queue pair; the receiver answers with its own. What is known is asked again after a
// second, since another process may have the address by then. Messages that are longer than the
// MTU always take the UDP socket. Either way a message may be lost, as datagrams may. As in
// hca/cm/rsocket.h.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/file_descriptor.h"
#include "hca/cm/address.h"
#include "hca/cm/rsocket.h"
#include "hca/cm/rsocket_memory.h"
#include "hca/cm/rsocket_protocol.h"
#include "hca/cm/rsocket_queue.h"

namespace turnout::cm {

class RsocketDatagram final : public Rsocket {
 public:
  // Null and errno.
  [[nodiscard]] static std::shared_ptr<RsocketDatagram> make(int domain);

  explicit RsocketDatagram(int domain) : Rsocket(domain, SOCK_DGRAM) {}
  ~RsocketDatagram() override;

  [[nodiscard]] int descriptor() const noexcept override { return number_.get(); }
  [[nodiscard]] bool has_queues() const noexcept override { return queues_ != nullptr; }
  [[nodiscard]] int bind(const sockaddr* address) override;
  [[nodiscard]] int listen(int backlog) override;
  [[nodiscard]] ssize_t try_accept(std::shared_ptr<Rsocket>& accepted) override;
  [[nodiscard]] int connect(const sockaddr* address) override;
  [[nodiscard]] ssize_t ends_connecting() override { return 0; }
  [[nodiscard]] ssize_t try_send(IovCursor& from, int flags, const MessageAddress& to) override;
  [[nodiscard]] ssize_t try_receive(IovCursor& to, int flags, MessageAddress& from) override;
  [[nodiscard]] int shutdown(int how) override;
  [[nodiscard]] int local_name(sockaddr_storage& name) const override;
  [[nodiscard]] int peer_name(sockaddr_storage& name) const override;
  [[nodiscard]] short events() override;
  bool look() override;
  [[nodiscard]] bool arm() override;
  void advance() override {}
  void close() override;
  void abandon() override;

 private:
  using Time = std::chrono::steady_clock::time_point;
  struct AddressLess {
    bool operator()(const Address& a, const Address& b) const noexcept;
  };
  struct Peer {
    std::uint32_t queue_pair = 0, key = 0;  // 0: not known
    Time confirmed{}, asked{};
  };
  struct Arrived {
    Address from;
    std::optional<std::uint32_t> slot;  // a receive's; else:
    std::vector<std::uint8_t> bytes;
    std::uint32_t length = 0;
  };
  // What the adapter has of it.
  struct Queues {
    RsocketMemory memory;
    RsocketQueue queue;
    ibv_ah* route = nullptr;  // to the one port that there is
    ibv_qp* qp = nullptr;
    std::uint32_t sends = 0, receives = 0, key = 0;
    std::uint64_t posted = 0, completed = 0;  // sends
    ~Queues();
  };

  [[nodiscard]] int make_queues();
  [[nodiscard]] int create(Queues& queues) const;
  [[nodiscard]] bool post_receive(std::uint32_t slot);
  [[nodiscard]] std::uint8_t* slot_at(std::uint32_t slot) const noexcept;
  bool look_at_both();
  bool take_datagrams();
  void on_datagram(const DatagramHeader& header, const Address& from,
                   std::vector<std::uint8_t> bytes);
  bool take_completions();
  void drop_front();
  [[nodiscard]] ssize_t send_over_queue(IovCursor& from, const Peer& peer);
  [[nodiscard]] ssize_t send_over_udp(IovCursor& from, Peer& peer, const MessageAddress& to);
  [[nodiscard]] DatagramHeader header(DatagramKind kind) const noexcept;
  [[nodiscard]] bool known(const Address& address);
  [[nodiscard]] bool trusts(const Address& destination) const;

  Descriptor number_, udp_;
  std::unique_ptr<Queues> queues_;
  std::optional<Address> connected_;
  bool read_shut_ = false, write_shut_ = false;
  std::map<Address, Peer, AddressLess> peers_;
  std::map<std::uint32_t, Address> senders_;  // by queue pair
  std::deque<Arrived> arrived_;
  std::size_t arrived_bytes_ = 0;  // of those from UDP
};

}  // namespace turnout::cm
