// SPDX-License-Identifier: BSD-3-Clause
// Undoes what a process left half done when it died holding a queue's lock. The caller has the lock
// now. Any thread.
#pragma once

#include "hca/live/tables.h"

namespace turnout::hca {

void repair(const Tables& tables, ReceiveQueue& queue) noexcept;
void repair(const Tables& tables, CqRecord& cq) noexcept;

}  // namespace turnout::hca
