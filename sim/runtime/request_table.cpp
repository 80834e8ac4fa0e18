// SPDX-License-Identifier: BSD-3-Clause
#include "sim/runtime/request_table.h"

#include <fmt/format.h>

#include <array>

namespace turnout::sim {

const char* words_of(OperationKind kind) noexcept {
  constexpr std::array kWords = {"send to", "receive from", "put to", "get from", "add to"};
  return kWords[static_cast<std::size_t>(kind)];
}

Request RequestTable::open(const Rank::StartAwaiter& operation) {
  if (free_.empty()) {
    free_.push_back(Request(static_cast<std::uint32_t>(entries_.size())));
    entries_.push_back(std::make_unique<Entry>());
  }
  const Request request = free_.back();
  free_.pop_back();
  Entry& entry = this->entry(request);
  entry.kind = operation.kind;
  entry.used = true;
  entry.done = false;
  entry.peer = operation.peer;
  entry.bytes = operation.bytes;
  entry.tag = operation.tag;
  entry.received = {};
  entry.error.clear();
  entry.content.ordered = false;
  if (operation.kind != OperationKind::send) entry.content.filled = 0;
  return request;
}

void RequestTable::abandon(Request request) {
  entry(request).used = false;
  free_.push_back(request);
}

// A buffer is memory of its own, which only grows: by giving it back and getting another, as free
// and malloc would. Where the process really has it is not seen: kept registrations depend on what
// the program does only.
void RequestTable::make_room(Entry& entry) {
  std::vector<std::byte>& buffer = entry.content.buffer;
  if (entry.bytes > buffer.capacity()) {
    forget_(buffer.data(), buffer.capacity());
    buffer = {};
    buffer.reserve(entry.bytes);
  }
  if (buffer.size() != entry.bytes) entry.content.filled = 0;
  buffer.resize(entry.bytes);
}

Received RequestTable::take(Request request) {
  if (request.index() >= entries_.size() || !entry(request).used) {
    throw SimulationError("waiting for a request that has already completed");
  }
  Entry& entry = this->entry(request);
  entry.done = false;
  abandon(request);
  if (!entry.error.empty()) {
    throw OperationError(fmt::format("{} rank {}, {} bytes, tag {}: {}", words_of(entry.kind),
                                     entry.peer, entry.bytes, entry.tag, entry.error));
  }
  return entry.received;
}

std::string RequestTable::text(Request request) const {
  const Entry& entry = *entries_[request.index()];
  return fmt::format("{} rank {}, {} bytes, tag {}", words_of(entry.kind),
                     entry.peer == kAnySource ? "any" : std::to_string(entry.peer), entry.bytes,
                     entry.tag);
}

}  // namespace turnout::sim
