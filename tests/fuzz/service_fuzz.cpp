// SPDX-License-Identifier: BSD-3-Clause
// What programs hand in as names of endpoints, and what comes from whoever listens at a port: bytes
// in place of a ServiceAddress, text in place of that of an Address.
#include <algorithm>
#include <cstring>
#include <string>

#include "provider/service_address.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using turnout::Address;
  using turnout::provider::ServiceAddress;
  std::uint8_t bytes[sizeof(Address)] = {};
  std::memcpy(bytes, data, std::min(size, sizeof bytes));
  if (const auto name = ServiceAddress::decode(bytes, size); name.ok()) {
    if (name.value().to_string().find(std::to_string(name.value().port())) == std::string::npos)
      __builtin_trap();
  }
  const std::string text(reinterpret_cast<const char*>(data), size);
  // A text that is accepted says the same as the address.
  if (const auto address = turnout::provider::address_of(text); address.ok()) {
    const auto again = turnout::provider::address_of(turnout::provider::text_of(address.value()));
    if (!again.ok() || again.value() != address.value()) __builtin_trap();
  }
  return 0;
}
