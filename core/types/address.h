// SPDX-License-Identifier: BSD-3-Clause
// Address: how one endpoint names itself to another. 64 bytes, exchanged by the application (an MPI
// library's business-card exchange), so it is untrusted input: decode() checks every field.
//
// Byte order is little-endian; both ends of a job run the same architecture.
#pragma once

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/status.h"

namespace turnout {

inline constexpr std::size_t kMaxDataQps = 4;
inline constexpr std::size_t kMaxCreditQps = 2;
inline constexpr std::size_t kMaxEstablishmentQps = 2;

using DctNumber = std::array<std::uint8_t, 3>;  // of a DCT or a UD queue pair
[[nodiscard]] inline std::uint32_t number_of(const DctNumber& number) noexcept {
  return number[0] | std::uint32_t{number[1]} << 8 | std::uint32_t{number[2]} << 16;
}

struct Address {
  static constexpr std::uint16_t kMagic = 0x5455;  // "UT"
  static constexpr std::uint8_t kVersion = 16;     // of address, wire and ring layouts together
  static constexpr std::uint32_t kSizeUnit = 64;   // of data receives and ring entries, bytes
  static constexpr std::uint32_t kLeastReceive = 512, kMostReceive = 64 * 1024;  // bytes
  static constexpr std::uint16_t kDatagrams = 1u << 15;
  // Bits of `id` that are the rank, where processes of a job are to know each other's: with the
  // setting `prediction`, and in simulations. Elsewhere all of it is random.
  static constexpr unsigned kRankBits = 24;

  std::uint16_t magic = kMagic;
  std::uint8_t version = kVersion;
  std::uint8_t counts = 0;  // data targets (bits 0-3), credit (4-5), establishment (6-7)
  std::uint16_t lid = 0;
  // Data receive size / kSizeUnit (bits 0-10), log2 of first credits (11-14), UD (15).
  std::uint16_t sizes = 0;
  std::uint64_t id = 0;  // unique per endpoint: never reused within a job
  std::array<std::uint8_t, 16> gid{};
  std::uint32_t pid = 0;  // of the process, for messages to people
  using Numbers = std::array<DctNumber, kMaxDataQps + kMaxCreditQps + kMaxEstablishmentQps>;
  Numbers dct{};            // of DCTs, or of UD queue pairs: data, credit, establishment
  std::uint32_t check = 0;  // CRC-32 of all bytes before it

  [[nodiscard]] static constexpr std::uint32_t rank_in(std::uint64_t id) noexcept {
    return static_cast<std::uint32_t>(id & ((std::uint64_t{1} << kRankBits) - 1));
  }
  [[nodiscard]] unsigned data_qps() const noexcept { return counts & 15u; }
  [[nodiscard]] unsigned credit_qps() const noexcept { return counts >> 4 & 3u; }
  [[nodiscard]] unsigned establishment_qps() const noexcept { return counts >> 6 & 3u; }
  [[nodiscard]] static std::uint32_t receive_size(std::uint16_t sizes) noexcept {
    return (sizes & 2047u) * kSizeUnit;
  }
  [[nodiscard]] std::uint32_t receive_size() const noexcept { return receive_size(sizes); }
  // Its queue pairs are UD ones: it starts on UD-sendrecv.
  [[nodiscard]] bool datagrams() const noexcept { return (sizes & kDatagrams) != 0; }
  [[nodiscard]] std::uint32_t credits() const noexcept { return 1u << (sizes >> 11 & 15u); }
  // Bytes, a multiple of kSizeUnit and at most 64 KiB; a power of two.
  void set_sizes(std::uint32_t receive_size, std::uint32_t credits, bool datagrams) noexcept {
    sizes = static_cast<std::uint16_t>(receive_size / kSizeUnit |
                                       static_cast<unsigned>(std::bit_width(credits) - 1) << 11 |
                                       (datagrams ? kDatagrams : 0u));
  }
  [[nodiscard]] std::uint32_t dct_number(std::size_t i) const noexcept { return number_of(dct[i]); }
  void set_dct_number(std::size_t i, std::uint32_t number) noexcept {
    dct[i] = {static_cast<std::uint8_t>(number), static_cast<std::uint8_t>(number >> 8),
              static_cast<std::uint8_t>(number >> 16)};
  }

  // Computes `check`.
  void seal() noexcept { check = checksum(); }
  // CRC-32 (IEEE 802.3, reflected polynomial 0xEDB88320) of all that lies before it.
  [[nodiscard]] std::uint32_t checksum() const noexcept {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(this);
    std::uint32_t crc = 0xffffffffu;
    for (std::size_t i = 0; i < offsetof(Address, check); ++i) {
      crc ^= bytes[i];
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0xEDB88320u : 0u);
    }
    return ~crc;
  }
  // Errors: invalid (magic, check, counts, sizes), version (another Turnout).
  [[nodiscard]] static Result<Address> decode(const void* bytes, std::size_t length) {
    if (length < sizeof(Address)) {
      return Status{Code::invalid,
                    fmt::format("address: {} bytes, {} expected", length, sizeof(Address))};
    }
    Address address;
    std::memcpy(&address, bytes, sizeof address);
    if (address.magic != kMagic) {
      return Status{Code::invalid,
                    fmt::format("address: magic {:#06x}, {:#06x} expected; make sure "
                                "that every rank uses the turnout provider",
                                address.magic, kMagic)};
    }
    if (address.version != kVersion) {
      return Status{
          Code::version,
          fmt::format("address: process {} uses protocol version {}, this process version "
                      "{}; use the same libturnout-fi.so for the whole job",
                      address.pid, address.version, kVersion)};
    }
    if (address.check != address.checksum()) {
      return Status{Code::invalid, "address: checksum mismatch"};
    }
    const unsigned data = address.data_qps(), credit = address.credit_qps(),
                   establishment = address.establishment_qps();
    if (data < 1 || data > kMaxDataQps || credit < 1 || credit > kMaxCreditQps ||
        establishment < 1 || establishment > kMaxEstablishmentQps) {
      return Status{Code::invalid,
                    fmt::format("address: queue pair counts {}/{}/{} are out of range", data,
                                credit, establishment)};
    }
    if (address.receive_size() < kLeastReceive || address.receive_size() > kMostReceive) {
      return Status{Code::invalid,
                    fmt::format("address: receive size of {} bytes is out of range: {} to {}",
                                address.receive_size(), kLeastReceive, kMostReceive)};
    }
    return address;
  }
  [[nodiscard]] std::string to_string() const {
    return fmt::format("turnout://lid-{}/{:016x}/pid-{}", lid, id, pid);
  }
  friend bool operator==(const Address&, const Address&) = default;
};
static_assert(sizeof(Address) == 64);

}  // namespace turnout
