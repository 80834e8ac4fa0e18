// SPDX-License-Identifier: BSD-3-Clause
#include "core/types/address.h"

#include <fmt/format.h>

#include <cstring>

namespace turnout {
namespace {
// CRC-32 (IEEE 802.3, reflected polynomial 0xEDB88320) of all that lies before it.
std::uint32_t checksum(const Address& address) noexcept {
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&address);
  std::uint32_t crc = 0xffffffffu;
  for (std::size_t i = 0; i < offsetof(Address, check); ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0xEDB88320u : 0u);
  }
  return ~crc;
}
}  // namespace

void Address::seal() noexcept {
  check = checksum(*this);
}

Result<Address> Address::decode(const void* bytes, std::size_t length) {
  if (length < sizeof(Address)) {
    return Status{Code::invalid,
                  fmt::format("address: {} bytes, {} expected", length, sizeof(Address))};
  }
  Address address;
  std::memcpy(&address, bytes, sizeof address);
  if (address.magic != kMagic) {
    return Status{Code::invalid, fmt::format("address: magic {:#06x}, {:#06x} expected; make sure "
                                             "that every rank uses the turnout provider",
                                             address.magic, kMagic)};
  }
  if (address.version != kVersion) {
    return Status{Code::version,
                  fmt::format("address: process {} uses protocol version {}, this process version "
                              "{}; use the same libturnout-fi.so for the whole job",
                              address.pid, address.version, kVersion)};
  }
  if (address.check != checksum(address)) {
    return Status{Code::invalid, "address: checksum mismatch"};
  }
  const unsigned data = address.data_qps(), credit = address.credit_qps(),
                 establishment = address.establishment_qps();
  if (data < 1 || data > kMaxDataQps || credit < 1 || credit > kMaxCreditQps || establishment < 1 ||
      establishment > kMaxEstablishmentQps) {
    return Status{Code::invalid, fmt::format("address: queue pair counts {}/{}/{} are out of range",
                                             data, credit, establishment)};
  }
  if (address.receive_size() < kLeastReceive || address.receive_size() > kMostReceive) {
    return Status{Code::invalid,
                  fmt::format("address: receive size of {} bytes is out of range: {} to {}",
                              address.receive_size(), kLeastReceive, kMostReceive)};
  }
  return address;
}

std::string Address::to_string() const {
  return fmt::format("turnout://lid-{}/{:016x}/pid-{}", lid, id, pid);
}

}  // namespace turnout
