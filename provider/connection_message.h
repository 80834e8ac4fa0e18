// SPDX-License-Identifier: BSD-3-Clause
// ConnectionMessage: what the two ends of a connection between FI_EP_MSG endpoints tell each other
// over TCP: a request with the Address of who connects, and the answer to it, each with data of
// the program.
//
// A value; any thread. Comes from other hosts, so decode() checks every field. Integers are in host
// order, as in an Address: both ends must have the same, which the magic number shows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "core/types/address.h"

namespace turnout::provider {

struct ConnectionMessage {
  enum class Kind : std::uint8_t { request = 1, accept = 2, reject = 3 };
  // Bytes of data that a program may add (FI_OPT_CM_DATA_SIZE); rdma_cm's requests have 56.
  static constexpr std::size_t kMostData = 256;

  struct Header {
    static constexpr std::uint16_t kMagic = 0x4354;  // "TC"
    static constexpr std::uint8_t kVersion = 1;
    std::uint16_t magic = kMagic;
    std::uint8_t version = kVersion;
    Kind kind = Kind::request;
    std::uint16_t length = 0;  // of the data
    std::uint16_t reserved = 0;
    Address address;  // of the sender's endpoint; of a rejection without meaning
  };
  static_assert(sizeof(Header) == 8 + sizeof(Address));

  Kind kind = Kind::request;
  Address address;
  std::vector<std::byte> data;

  [[nodiscard]] std::vector<std::byte> encode() const;
  // Bytes of the message that begins with these, or of the part of it that says so if there are
  // fewer. Errors: version (other software, or another version of Turnout), invalid (the field).
  [[nodiscard]] static Result<std::size_t> length_of(std::span<const std::byte> received);
  // Precondition: as many bytes as length_of() says. Errors: invalid, and those of Address::decode.
  [[nodiscard]] static Result<ConnectionMessage> decode(std::span<const std::byte> received);
};

}  // namespace turnout::provider
