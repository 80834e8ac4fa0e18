// SPDX-License-Identifier: BSD-3-Clause
// What comes from whoever connects to the port of a passive endpoint.
#include "provider/connection_message.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using turnout::provider::ConnectionMessage;
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto length = ConnectionMessage::length_of(bytes);
  if (!length.ok()) return 0;
  if (length.value() > sizeof(ConnectionMessage::Header) + ConnectionMessage::kMostData)
    __builtin_trap();
  const auto message = ConnectionMessage::decode(bytes);
  // What is accepted has no more than it says, and is written as it was read.
  if (message.ok() && message.value().encode().size() != size) __builtin_trap();
  return 0;
}
