// SPDX-License-Identifier: BSD-3-Clause
// WaitReporter: what the operations of an endpoint wait for, and since when.
//
// Operations have no start time: a clock read for each would cost more than what it is for. Each
// look notes the operations that are pending, at most WaitsReport::kMost of a kind, and how old
// those are that the look before found already. An operation is known again by its record together
// with a number that changes with each message (its id, or a sequence number of its peer); where
// there is none that is certain, its age begins anew. Ages are therefore lower bounds.
//
// The endpoint owns it and calls it from its thread, once a second while somebody watches or
// TURNOUT_STUCK is set; otherwise it keeps nothing. Times are nanoseconds.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/endpoint/components.h"

namespace turnout {

class WaitReporter : ComponentsUser {
 public:
  using ComponentsUser::ComponentsUser;

  [[nodiscard]] WaitsReport look(Nanoseconds now);
  // The pid of a peer, for messages.
  [[nodiscard]] std::string peer_text(const WaitReport& wait) const;

 private:
  // `identity` differs between operations, also those of one record.
  void add(WaitsReport* report, WaitReport wait, std::uint64_t identity);
  void add_receives(WaitsReport* report);
  void add_unexpected(WaitsReport* report);
  void add_sends(WaitsReport* report);
  void add_transfers(WaitsReport* report);
  void add_atomics(WaitsReport* report);
  void add_peers(WaitsReport* report);
  [[nodiscard]] WaitFor what_holds(const Peer& peer, const SendOperation& operation) const;
  [[nodiscard]] bool may_add(const WaitsReport& report, WaitKind kind) const noexcept;

  struct Seen {
    std::uint64_t identity = 0;
    Nanoseconds since = 0;
    friend auto operator<=>(const Seen&, const Seen&) = default;
  };
  std::vector<Seen> before_, now_;  // of the last look, by identity; of this one
  Nanoseconds time_ = 0;            // of this look
  std::uint64_t messages_ = 0;      // delivered and sent, at the last look
  Nanoseconds moved_ = 0;           // when that was last seen to change
  std::string mpi_;
  bool knows_mpi_ = false;
};

}  // namespace turnout
