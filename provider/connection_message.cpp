// SPDX-License-Identifier: BSD-3-Clause
#include "provider/connection_message.h"

#include <fmt/format.h>

#include <cassert>
#include <cstring>

namespace turnout::provider {

std::vector<std::byte> ConnectionMessage::encode() const {
  assert(data.size() <= kMostData);
  Header header;
  header.kind = kind;
  header.length = static_cast<std::uint16_t>(data.size());
  header.address = address;
  std::vector<std::byte> bytes(sizeof header + data.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!data.empty()) std::memcpy(bytes.data() + sizeof header, data.data(), data.size());
  return bytes;
}

Result<std::size_t> ConnectionMessage::length_of(std::span<const std::byte> received) {
  Header header;
  if (received.size() < sizeof header) return sizeof header;
  std::memcpy(static_cast<void*>(&header), received.data(), sizeof header);
  if (header.magic != Header::kMagic || header.version != Header::kVersion) {
    return Status{Code::version, fmt::format("connection message: magic {:#06x}, version {}",
                                             header.magic, header.version)};
  }
  if (header.kind < Kind::request || header.kind > Kind::reject) {
    return Status{Code::invalid,
                  fmt::format("connection message: kind {}", static_cast<unsigned>(header.kind))};
  }
  if (header.length > kMostData) {
    return Status{Code::invalid,
                  fmt::format("connection message: {} bytes of data", header.length)};
  }
  return sizeof header + header.length;
}

Result<ConnectionMessage> ConnectionMessage::decode(std::span<const std::byte> received) {
  const Result<std::size_t> length = length_of(received);
  if (!length.ok()) return length.status();
  if (received.size() != length.value()) {
    return Status{Code::invalid, fmt::format("connection message: {} bytes, {} expected",
                                             received.size(), length.value())};
  }
  Header header;
  std::memcpy(static_cast<void*>(&header), received.data(), sizeof header);
  ConnectionMessage message;
  message.kind = header.kind;
  message.data.assign(received.begin() + sizeof header, received.end());
  if (message.kind != Kind::reject) {
    const Result<Address> address = Address::decode(&header.address, sizeof header.address);
    if (!address.ok()) return address.status();
    message.address = address.value();
  }
  return message;
}

}  // namespace turnout::provider
