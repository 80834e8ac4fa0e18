// SPDX-License-Identifier: BSD-3-Clause
// RankOperations: the operations of a simulated rank, from its program to its endpoint and back,
// and the table of its requests.
//
// Owned by the rank; in the simulation's thread, after World::enter(). Job and endpoint outlive the
// operations under way. Errors: OperationError if the library refuses an operation, SimulationError
// for an operation that cannot be or content that is wrong.
#pragma once

#include <tsl/robin_map.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/endpoint.h"
#include "sim/runtime/content_checker.h"
#include "sim/runtime/job.h"
#include "sim/runtime/one_sided_memory.h"
#include "sim/runtime/rank.h"

namespace turnout::sim {

using OperationKind = Rank::StartAwaiter::Kind;

// "send to", "receive from", ...
[[nodiscard]] const char* words_of(OperationKind kind) noexcept;

// RequestTable: the operations of a simulated rank from their start until they were waited for, and
// the buffers of those whose content is checked. An entry's address stays the same; it is the
// context of the endpoint's completion. Entries and buffers are used again. Owned by the rank; in
// the simulation's thread. Errors: SimulationError.
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

// An endpoint's id ends with its rank.
[[nodiscard]] inline std::uint32_t rank_of(std::uint64_t endpoint_id) noexcept {
  return static_cast<std::uint32_t>(endpoint_id & 0xff'ffff);
}

class RankOperations {
 public:
  RankOperations(Job& job, std::uint32_t rank);
  void use(Endpoint& endpoint) noexcept { endpoint_ = &endpoint; }

  // False: the endpoint has no room for it now.
  [[nodiscard]] bool try_start(Rank::StartAwaiter& operation);
  // Ends the requests whose operations have ended. True: there were some.
  bool drain();
  [[nodiscard]] RequestTable& requests() noexcept { return requests_; }
  // To memory that the ranks of a node share.
  [[nodiscard]] std::uint64_t add_in_node(std::uint32_t to, std::uint32_t cell,
                                          std::uint64_t value);
  // The peers of its operations but receives, in that order, never one twice in a row.
  [[nodiscard]] std::vector<std::uint32_t>& partners() noexcept { return partners_; }

 private:
  using Entry = RequestTable::Entry;
  [[nodiscard]] Status start(const Rank::StartAwaiter& operation, Entry& entry);
  [[nodiscard]] Status start_send(Entry& entry, SendEnds ends);
  [[nodiscard]] Status start_receive(Entry& entry);
  [[nodiscard]] Status start_one_sided(Entry& entry);
  [[nodiscard]] Status start_add(std::uint64_t value, Entry& entry);
  void end_receive(const Completion& completion, Entry& entry);
  void check_reached(Entry& entry);
  [[nodiscard]] PeerId peer(std::uint32_t rank);
  [[nodiscard]] Report report_to(Entry& entry) noexcept {
    return {&queue_, &queue_, nullptr, &entry};
  }

  Job& job_;
  std::uint32_t rank_;
  Endpoint* endpoint_ = nullptr;
  CompletionQueue queue_{16};
  RequestTable requests_;
  ContentChecker content_;
  tsl::robin_map<std::uint32_t, PeerId> peers_;
  std::uint32_t reaches_ = 0;  // puts and gets begun, while content is checked
  std::vector<std::uint32_t> partners_;
};

}  // namespace turnout::sim
