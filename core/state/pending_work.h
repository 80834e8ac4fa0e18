// SPDX-License-Identifier: BSD-3-Clause
// PendingWork: which lists of an endpoint may hold work that progress goes on with. Who adds to a
// list says so here. A call of progress looks at this word, and at the lists that it names.
//
// Owned by the endpoint's context; only the thread that drives the endpoint uses it.
#pragma once

#include <cstdint>

namespace turnout {

// In the order in which progress goes on with them.
enum class Pending : std::uint8_t {
  control_messages,
  datagrams,          // a queue of UD was full
  deferred_messages,  // that wait for an RTR
  recoveries,
  xrc_recoveries,
  atomic_answers,
  backlogs,
  fragments,
  last_bytes,  // of messages that are written to us
  rput_sends,
  rtr_cancels,
  transfers,
  unexpected_messages,  // that wait for memory
  setup_jobs,
  stalled_peers,
  receives,  // to be posted again
};

class PendingWork {
 public:
  void add(Pending list) noexcept { lists_ |= bit(list); }
  void remove(Pending list) noexcept { lists_ &= ~bit(list); }
  [[nodiscard]] bool has(Pending list) const noexcept { return (lists_ & bit(list)) != 0; }
  [[nodiscard]] bool any() const noexcept { return lists_ != 0; }

 private:
  [[nodiscard]] static constexpr std::uint32_t bit(Pending list) noexcept {
    return std::uint32_t{1} << static_cast<unsigned>(list);
  }
  std::uint32_t lists_ = 0;
};

}  // namespace turnout
