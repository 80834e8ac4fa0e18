// SPDX-License-Identifier: BSD-3-Clause
#include "provider/address_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/log.h"
#include "provider/info.h"

namespace turnout::provider {
namespace {

std::size_t length_of_family(int family) noexcept {
  return family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
}

Result<Name> as_name(Result<Address>&& address) {
  if (!address.ok()) return address.status();
  return Name(address.value());
}
Result<Name> as_name(Result<ServiceAddress>&& service) {
  if (!service.ok()) return service.status();
  return Name(service.value());
}

Result<Name> decode_internet(const void* bytes, std::size_t length, int family) {
  const std::size_t needed = length_of_family(family);
  if (length < needed)
    return Status{Code::invalid,
                  fmt::format("internet address: {} bytes, {} expected", length, needed)};
  ServiceAddress service;
  service.count = 1;
  std::memcpy(service.sockets[0].data(), bytes, needed);
  if (service.socket()->sa_family != family)
    return Status{Code::invalid, fmt::format("internet address: family {}, {} expected",
                                             service.socket()->sa_family, family)};
  return Name(service);
}

std::vector<std::byte> bytes_of(const void* from, std::size_t length) {
  const auto* const bytes = static_cast<const std::byte*>(from);
  return {bytes, bytes + length};
}

}  // namespace

bool AddressFormat::is_offered(std::uint32_t number) noexcept {
  return number == FI_FORMAT_UNSPEC || number == kAddressFormat || number == FI_SOCKADDR ||
         number == FI_SOCKADDR_IN || number == FI_SOCKADDR_IN6 || number == FI_ADDR_STR;
}

AddressFormat::AddressFormat(std::uint32_t number) noexcept : number_(number) {
  if (number == FI_SOCKADDR) number_ = FI_SOCKADDR_IN;
  if (number == FI_FORMAT_UNSPEC || !is_offered(number)) number_ = kAddressFormat;
}

int AddressFormat::family() const noexcept {
  return number_ == FI_SOCKADDR_IN ? AF_INET : number_ == FI_SOCKADDR_IN6 ? AF_INET6 : AF_UNSPEC;
}

// An IPv6 address is in brackets.
Result<Name> AddressFormat::decode_text(const std::string& text, int family) {
  if (is_address_text(text.c_str())) return as_name(address_of(text));
  const std::size_t scheme = text.find("://"), port = text.rfind(':');
  struct Scheme {
    std::string_view name;
    int family;
  };
  constexpr Scheme kSchemes[] = {{"turnout", AF_UNSPEC},
                                 {"fi_sockaddr", AF_UNSPEC},
                                 {"fi_sockaddr_in", AF_INET},
                                 {"fi_sockaddr_in6", AF_INET6}};
  const auto* const known =
      std::find_if(std::begin(kSchemes), std::end(kSchemes), [&](const Scheme& one) {
        return one.name == std::string_view(text).substr(0, std::min(scheme, text.size()));
      });
  if (scheme == text.npos || known == std::end(kSchemes) || port == scheme ||
      port + 1 == text.size())
    return Status{
        Code::invalid,
        fmt::format("address {}: neither the text of an address nor turnout://HOST:PORT", text)};
  if (family != AF_UNSPEC && known->family != AF_UNSPEC && family != known->family)
    return Status{Code::invalid, fmt::format("address {}: of another family", text)};
  std::string host = text.substr(scheme + 3, port - scheme - 3);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return as_name(ServiceAddress::look_up(host.c_str(), text.c_str() + port + 1,
                                         {.family = family != AF_UNSPEC ? family : known->family}));
}

Result<Name> AddressFormat::decode(const void* bytes, std::size_t length) const {
  if (is_internet()) return decode_internet(bytes, length, family());
  if (is_text()) {
    const char* const text = static_cast<const char*>(bytes);
    return decode_text(std::string(text, strnlen(text, length)));
  }
  if (length >= sizeof(ServiceAddress::magic) && ServiceAddress::is_one(bytes))
    return as_name(ServiceAddress::decode(bytes, length));
  return as_name(Address::decode(bytes, length));
}

Result<Name> AddressFormat::decode(const void* bytes) const {
  if (is_text()) return decode_text(static_cast<const char*>(bytes));
  return decode(bytes, is_internet() ? length_of_family(family()) : sizeof(Address));
}

Result<Name> AddressFormat::decode_at(const void* array, std::size_t i) const {
  if (is_text()) {
    const char* const text = static_cast<const char* const*>(array)[i];
    if (text == nullptr) return Status{Code::invalid, "address: no text"};
    return decode_text(text);
  }
  const std::size_t each = is_internet() ? length_of_family(family()) : sizeof(Address);
  return decode(static_cast<const std::byte*>(array) + i * each);
}

std::vector<std::byte> AddressFormat::encode(const Name& name) const {
  const auto* const service = std::get_if<ServiceAddress>(&name);
  if (is_text()) {
    const std::string text =
        service != nullptr ? service->to_string() : text_of(std::get<Address>(name));
    return bytes_of(text.c_str(), text.size() + 1);
  }
  if (is_own()) {
    return std::visit([](const auto& one) { return bytes_of(&one, sizeof one); }, name);
  }
  for (std::size_t i = 0; service != nullptr && i < service->count; ++i) {
    if (service->socket(i)->sa_family == family())
      return bytes_of(service->socket(i), length_of(service->socket(i)));
  }
  return {};
}

std::string AddressFormat::describe(const Name& name) const {
  const auto* const service = std::get_if<ServiceAddress>(&name);
  if (service == nullptr) return text_of(std::get<Address>(name));
  const std::string text = service->to_string();
  if (!is_internet()) return text;
  return (number_ == FI_SOCKADDR_IN ? "fi_sockaddr_in" : "fi_sockaddr_in6") +
         text.substr(text.find("://"));
}

ServiceAddress AddressFormat::anywhere() const noexcept {
  sockaddr_in6 all{};  // zeros after the family, in either one
  all.sin6_family = static_cast<sa_family_t>(family());
  ServiceAddress name;
  name.count = 1;
  std::memcpy(name.sockets[0].data(), &all, sizeof all);
  return name;
}

std::optional<ServiceAddress> name_given(const AddressFormat& format, const void* bytes,
                                         std::size_t length) {
  const Result<Name> given = format.decode(bytes, length);
  const auto* const service = given.ok() ? std::get_if<ServiceAddress>(&given.value()) : nullptr;
  if (service != nullptr) return *service;
  TURNOUT_LOG(provider, warn, "naming an endpoint failed: {}; take src_addr of fi_getinfo",
              given.ok() ? "not the address of a service" : given.status().text());
  return std::nullopt;
}

int put_name(const std::vector<std::byte>& name, void* out, std::size_t* length) noexcept {
  if (name.empty()) return -FI_EADDRNOTAVAIL;
  const std::size_t room = *length;
  *length = name.size();
  if (room != 0 && out == nullptr) return -FI_EINVAL;
  if (room != 0) std::memcpy(out, name.data(), std::min(room, name.size()));
  return room < name.size() ? -FI_ETOOSMALL : 0;
}

}  // namespace turnout::provider
