// SPDX-License-Identifier: BSD-3-Clause
// The messages between two connection managers: those of the IB CM (IBTA 12.6, 12.11) over a Unix
// socket, with the fields that matter between processes of one host.
//
// Every message is one packet of exactly sizeof(Message) bytes: a plain struct in host byte order,
// because both ends are on one host. valid() checks a received message before any field is read.
// Plain values; any thread may call.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <type_traits>

#include "hca/cm/address.h"

namespace turnout::cm {

enum class Kind : std::uint8_t { req = 1, rep, rtu, rej, dreq, drep, sidr_req, sidr_rep };

// Reasons of a REJ, IBTA table 110 (12.6.7.2); the user sees them as the event's status.
enum Reason : std::uint32_t {
  kTimedOut = 4,
  kInvalidServiceId = 8,
  kConsumerDefined = 28,
  kVendorOptionNotSupported = 35,
};
// Status of a SIDR REP, IBTA 12.11.2.
enum SidrStatus : std::uint32_t { kSidrValid = 0, kSidrNoService = 1, kSidrRejected = 2 };

// Private data: what a user may give to each, rdma_connect(3), rdma_accept(3), IBTA 12.6. A request
// of the IP port spaces spends 36 bytes of the CM's field on addresses (IBTA annex A11).
// AF_IB has all of it.
inline constexpr std::uint8_t kMaxPrivate = 216;
[[nodiscard]] constexpr std::uint8_t private_limit(Kind kind, const Address& address) noexcept {
  constexpr std::uint8_t kByKind[] = {0, 92, 196, 0, 148, 0, 0, kMaxPrivate, 136};
  constexpr std::uint8_t kIpHeader = 36;
  const bool request = kind == Kind::req || kind == Kind::sidr_req;
  const std::uint8_t all = kByKind[static_cast<std::uint8_t>(kind)];
  return request && !address.ib() ? static_cast<std::uint8_t>(all - kIpHeader) : all;
}

struct Message {
  std::uint32_t magic = kMagic;
  Kind kind = Kind::req;
  std::uint8_t private_length = 0;
  std::uint16_t port_space = 0;
  std::uint32_t status = 0;  // REJ: reason; SIDR REP: status
  std::uint32_t qp_type = 0;
  std::uint32_t qpn = 0, psn = 0, qkey = 0;
  std::uint8_t responder_resources = 0, initiator_depth = 0;  // as the sender sees them
  std::uint8_t retry_count = 0, rnr_retry_count = 0, flow_control = 0, srq = 0;
  std::uint16_t lid = 0;
  std::uint32_t ece_vendor = 0, ece_options = 0;
  ibv_gid gid{};
  Address source, destination;  // requests
  std::uint8_t private_data[kMaxPrivate] = {};

  // Changes with the layout, so that versions that differ refuse each other.
  static constexpr std::uint32_t kMagic = 0x54'43'4d'02;
};
static_assert(std::is_trivially_copyable_v<Message>);

[[nodiscard]] bool valid(const Message& message) noexcept;

enum class Received : std::uint8_t { message, nothing, ended, damaged };
// The next packet of a non-blocking socket. `ended`: the peer has closed or died. `damaged`: not
// one of our messages; what follows on this socket cannot be trusted.
[[nodiscard]] Received receive(int fd, Message& message) noexcept;
// 0 or errno. Never waits: a peer that does not read gets EAGAIN, which ends the connection.
[[nodiscard]] int send(int fd, const Message& message) noexcept;

}  // namespace turnout::cm
