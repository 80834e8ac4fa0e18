// SPDX-License-Identifier: BSD-3-Clause
#include "record/ucx/objects.h"

#include "record/sum.h"

namespace turnout::record::ucx {

// Longer addresses than this are all there are.
std::uint64_t worker_name(const void* address) noexcept {
  return Recorder::name_of({static_cast<const std::byte*>(address), 9});
}

Objects& Objects::get() {
  static Objects& one = *new Objects;
  return one;
}

void Objects::made_endpoint(Recorder& recorder, Endpoint endpoint, const void* address) {
  const auto lock = recorder.guard();
  endpoints_[endpoint] = recorder.peer(worker_name(address));
}

PeerId Objects::peer_of(Recorder& recorder, Endpoint endpoint) const {
  const auto lock = recorder.guard();
  const auto found = endpoints_.find(endpoint);
  return found == endpoints_.end() ? kAnyPeer : found->second;
}

void Objects::made_datatype(Recorder& recorder, std::uint64_t type, const Generic& generic) {
  const auto lock = recorder.guard();
  datatypes_[type] = generic;
}

// Of ucp_datatype_t: the class is in its lowest three bits.
std::uint64_t Objects::bytes_of(Recorder& recorder, const void* buffer, std::size_t count,
                                const RequestParam* param) const {
  const std::uint64_t type = (param->set & kDatatype) != 0 ? param->datatype : 1u << 3;
  switch (type & 7) {
    case 0:
      return count * (type >> 3);
    case 2:
      return sum_of(static_cast<const Piece*>(buffer), count, &Piece::length);
    case 7: {
      Generic generic{};
      {
        const auto lock = recorder.guard();
        const auto found = datatypes_.find(type);
        if (found == datatypes_.end()) return 0;
        generic = found->second;
      }
      void* const state = generic.ops.start_pack(generic.context, buffer, count);
      const std::size_t length = generic.ops.packed_size(state);
      generic.ops.finish(state);
      return length;
    }
    default:
      return 0;
  }
}

void Objects::probed(Recorder& recorder, void* message, const TagInfo& info) {
  const auto lock = recorder.guard();
  messages_[message] = info;
}

TagInfo Objects::take_probed(Recorder& recorder, void* message) {
  const auto lock = recorder.guard();
  const auto found = messages_.extract(message);
  return found.empty() ? TagInfo{} : found.mapped();
}

}  // namespace turnout::record::ucx
