// SPDX-License-Identifier: BSD-3-Clause
// RequestTable: the operations of a simulated rank from their start until they were waited for, and
// the buffers of those whose content is checked.
//
// An entry's address stays the same; it is the context of the endpoint's completion. Entries and
// buffers are used again. Owned by the rank; in the simulation's thread. Errors: SimulationError.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/runtime/content_checker.h"
#include "sim/runtime/one_sided_memory.h"
#include "sim/runtime/rank.h"

namespace turnout::sim {

using OperationKind = Rank::StartAwaiter::Kind;

// "send to", "receive from", ...
[[nodiscard]] const char* words_of(OperationKind kind) noexcept;

class RequestTable {
 public:
  struct Entry {
    OperationKind kind{};
    bool used = false, done = false;
    std::uint32_t peer = 0;
    std::uint64_t bytes = 0, tag = 0;
    Received received;
    std::string error;          // not empty: it failed
    std::uint64_t fetched = 0;  // by an add
    MessageContent content;
    std::optional<ReachedMemory::Place> place;  // of a put or get whose content is checked
  };
  // Memory that a buffer had and no longer has.
  using Forget = std::function<void(const std::byte* memory, std::size_t bytes)>;

  explicit RequestTable(Forget forget) : forget_(std::move(forget)) {}

  [[nodiscard]] Request open(const Rank::StartAwaiter& operation);
  void abandon(Request request);  // it did not start
  [[nodiscard]] Entry& entry(Request request) noexcept { return *entries_[request.index()]; }
  // Gives the buffer the operation's bytes.
  void make_room(Entry& entry);
  [[nodiscard]] bool is_done(Request request) const noexcept {
    return request.index() < entries_.size() && entries_[request.index()]->done;
  }
  // Ends the request. OperationError if it failed.
  [[nodiscard]] Received take(Request request);
  [[nodiscard]] std::string text(Request request) const;

 private:
  Forget forget_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<Request> free_;
};

}  // namespace turnout::sim
