// SPDX-License-Identifier: BSD-3-Clause
// LiveParts: what the queues and the verbs of the live engine stand on.
//
// References to components of one LiveEngine, which owns them. A component derives from it and
// names each part without a prefix. Any thread.
#pragma once

#include "hca/live/multicast.h"
#include "hca/live/qp_numbers.h"
#include "hca/live/regions.h"
#include "hca/live/windows.h"

namespace turnout::hca {

struct LiveParts {
  Fabric& fabric;
  LocalObjects& objects;
  Memory& memory;
  LiveEvents& events;
  Hazards& hazards;
  LiveCompletions& completions;
  LiveReceives& receives;
  LiveRegions& regions;
  LiveWindows& windows;
  LiveMulticast& multicast;
  QpNumbers& numbers;
};

}  // namespace turnout::hca
