// SPDX-License-Identifier: BSD-3-Clause
// The rsockets of this process, by number. Any thread may call.
#pragma once

#include <memory>

#include "hca/cm/rsocket.h"

namespace turnout::cm {

// Null: not an rsocket.
[[nodiscard]] std::shared_ptr<Rsocket> find_rsocket(int number);
void add_rsocket(const std::shared_ptr<Rsocket>& socket);
// Whoever gets it closes it; null: it is not there any more. `of_parent`: this is a child of the
// process that made it, which can only abandon it.
[[nodiscard]] std::shared_ptr<Rsocket> remove_rsocket(int number, bool& of_parent);
// In a child of fork() it is the parent's: calls give EPERM.
[[nodiscard]] bool is_parents(int number);

// Lets all connections that are being made in this process take the steps they can. Without any
// rsocket's mutex: a program of one thread may be both ends.
void advance_handshakes();

}  // namespace turnout::cm
