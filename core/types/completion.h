// SPDX-License-Identifier: BSD-3-Clause
// Completions: what an endpoint hands to the layer above when an operation ends.
//
// CompletionQueue is a growing ring of finished operations and one of failed ones. It is filled by
// the endpoints bound to it during their progress and drained by the same thread (or under the lock
// that the provider holds for both). Counter counts completions without an entry. Owner: the layer
// above; both must outlive the operations that refer to them.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "base/status.h"
#include "core/types/growing_queue.h"

namespace turnout {

using PeerId = std::uint32_t;
inline constexpr PeerId kAnyPeer = 0xffffffffu;

enum CompletionFlag : std::uint32_t {
  kSend = 1u << 0,
  kRecv = 1u << 1,
  kTagged = 1u << 2,
  kMessage = 1u << 3,
  kRmaWrite = 1u << 4,
  kRmaRead = 1u << 5,
  kRemoteData = 1u << 6,     // `data` holds the sender's 64-bit immediate
  kMultiRecvDone = 1u << 7,  // the multi-receive buffer of `context` is used up (last entry for it)
  kRemoteWrite = 1u << 8,    // a peer's RMA write with data ended here
  kAtomic = 1u << 9,         // beside kRmaWrite, kRmaRead (something comes back), kRemoteWrite
  kClaimed = 1u << 10,       // answer to a peek that claimed the message
};

struct Completion {
  void* context = nullptr;  // of the operation
  void* buffer = nullptr;   // where the message was put (multi-receive: inside the user's buffer)
  std::size_t length = 0;   // bytes received; for truncation see `overflow`
  std::uint64_t tag = 0;
  std::uint64_t data = 0;
  std::uint32_t flags = 0;   // CompletionFlag
  PeerId source = kAnyPeer;  // of a received message
};

struct ErrorCompletion : Completion {
  std::size_t overflow = 0;  // bytes of the message that did not fit (truncated)
  Status status;
};

class CompletionQueue {
 public:
  explicit CompletionQueue(std::size_t expected = 1024) : completions_(expected) {}

  void push(const Completion& completion) { completions_.push_back(completion); }
  template <std::invocable Make>
  void push(Make&& make) {
    completions_.push_back() = make();
  }
  void push_error(ErrorCompletion completion) { errors_.push_back(std::move(completion)); }

  [[nodiscard]] std::size_t size() const noexcept { return completions_.size(); }
  [[nodiscard]] bool has_error() const noexcept { return !errors_.empty(); }
  // Undefined when empty: ask first.
  [[nodiscard]] const Completion& front() const noexcept { return completions_[0]; }
  void pop() noexcept { completions_.pop_front(); }
  [[nodiscard]] ErrorCompletion pop_error() {
    ErrorCompletion e = std::move(errors_.front());
    errors_.pop_front();
    return e;
  }

 private:
  GrowingQueue<Completion> completions_;
  std::deque<ErrorCompletion> errors_;
};

struct Counter {
  std::atomic<std::uint64_t> value{0};
  std::atomic<std::uint64_t> errors{0};
};

}  // namespace turnout
