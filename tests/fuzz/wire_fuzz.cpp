// SPDX-License-Identifier: BSD-3-Clause
// libFuzzer target: every parser of what peers send.
#include <cstddef>
#include <cstdint>

#include "core/transport/wire.h"
#include "core/types/address.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace turnout;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  wire::Parsed parsed;
  if (wire::parse_data(bytes, size, &parsed).ok()) {
    if (parsed.payload + parsed.header.length != bytes + size) __builtin_trap();
    std::uint64_t total = 0;
    if (parsed.header.type == wire::Type::eager_first &&
        wire::parse_total(parsed.header, parsed.payload, &total).ok() &&
        total <= parsed.header.length - wire::kTotalBytes) {
      __builtin_trap();
    }
  }
  wire::Datagram datagram;
  (void)wire::parse_datagram(bytes, size, &datagram).ok();
  wire::ControlMessage control;
  wire::Detail detail;
  if (wire::parse_control(bytes, size, &control, &detail).ok() &&
      control.type == wire::Control::disconnect && control.qp_id == 0) {
    __builtin_trap();
  }
  wire::Rts rts;
  if (wire::parse_rts(bytes, size, &rts).ok() && rts.segments > wire::kMaxSegments)
    __builtin_trap();
  wire::PutCompletion completion;
  (void)wire::parse_put_completion(bytes, size, &completion).ok();
  wire::Atomic atomic;
  if (wire::parse_atomic(bytes, size, &atomic).ok() &&
      sizeof atomic + wire::operand_bytes(atomic) + wire::compare_bytes(atomic) != size) {
    __builtin_trap();
  }
  wire::Segment segment;
  if (wire::parse_segment(wire::Type::put, bytes, size, &segment).ok() &&
      sizeof segment + segment.length != size) {
    __builtin_trap();
  }
  (void)Address::decode(data, size).ok();
  return 0;
}
