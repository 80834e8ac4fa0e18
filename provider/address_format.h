// SPDX-License-Identifier: BSD-3-Clause
// AddressFormat: how a program writes the names of endpoints, which is fi_info's addr_format: as
// Turnout's own 64 bytes (an Address or a ServiceAddress), as an internet address (FI_SOCKADDR_IN,
// FI_SOCKADDR_IN6) or as a text (FI_ADDR_STR).
//
// An internet address names an endpoint that listens there and tells its Address, as a
// ServiceAddress does (AddressServer); endpoints of these formats always listen. A text is what
// fi_av_straddr makes of an Address, or turnout://HOST:PORT.
//
// A value; any thread. Programs and peers write these names, so decode() checks them. Source:
// fi_getinfo(3), fi_av(3), fi_cm(3).
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "core/types/address.h"
#include "provider/service_address.h"

namespace turnout::provider {

using Name = std::variant<Address, ServiceAddress>;

class AddressFormat {
 public:
  // Of fi_info::addr_format; what is no format of ours is Turnout's own. FI_SOCKADDR is
  // FI_SOCKADDR_IN here; fi_getinfo answers with one of the two.
  explicit AddressFormat(std::uint32_t number = FI_FORMAT_UNSPEC) noexcept;
  [[nodiscard]] static bool is_offered(std::uint32_t number) noexcept;

  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  [[nodiscard]] bool is_own() const noexcept { return !is_internet() && !is_text(); }
  [[nodiscard]] bool is_text() const noexcept { return number_ == FI_ADDR_STR; }
  [[nodiscard]] bool is_internet() const noexcept {
    return number_ == FI_SOCKADDR_IN || number_ == FI_SOCKADDR_IN6;
  }
  // AF_INET, AF_INET6 or AF_UNSPEC: of the internet addresses that it can write.
  [[nodiscard]] int family() const noexcept;

  // `length`: bytes that are there. May ask a name server about a text. Errors: invalid, and those
  // of Address::decode.
  [[nodiscard]] Result<Name> decode(const void* bytes, std::size_t length) const;
  // SCHEME://HOST:PORT, or the text of an Address. The socket is of the family, if it says one.
  [[nodiscard]] static Result<Name> decode_text(const std::string& text, int family = AF_UNSPEC);
  // As fi_connect and fi_av_straddr give a name, without a length.
  [[nodiscard]] Result<Name> decode(const void* bytes) const;
  // Number `i` of an array of fi_av_insert.
  [[nodiscard]] Result<Name> decode_at(const void* array, std::size_t i) const;
  // What fi_getname gives, a text with its end. Empty: there is no such
  // form of it, as of an Address as an internet address.
  [[nodiscard]] std::vector<std::byte> encode(const Name& name) const;
  // For people (fi_av_straddr).
  [[nodiscard]] std::string describe(const Name& name) const;
  // All addresses of this host, with a port that the system chooses. Precondition: is_internet().
  [[nodiscard]] ServiceAddress anywhere() const noexcept;

 private:
  std::uint32_t number_;
};

// What a program gave as the source of an endpoint. None: it is no name of a service, which is
// logged.
[[nodiscard]] std::optional<ServiceAddress> name_given(const AddressFormat& format,
                                                       const void* bytes, std::size_t length);
// The answer of fi_getname and fi_getpeer: as much of an encoded name as fits into *length bytes,
// which then says how long it is. 0, -FI_ETOOSMALL, -FI_EINVAL, -FI_EADDRNOTAVAIL (it has no form
// in the format).
[[nodiscard]] int put_name(const std::vector<std::byte>& name, void* out,
                           std::size_t* length) noexcept;

}  // namespace turnout::provider
