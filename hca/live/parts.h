// SPDX-License-Identifier: BSD-3-Clause
// LiveParts: what the components of the live engine stand on: the fabric, this process's objects on
// it, and each other.
//
// References to parts of one LiveEngine, which owns them. The components derive from it and name
// each part without a prefix. Any thread.
#pragma once

#include "hca/live/fabric.h"
#include "hca/live/local_objects.h"

namespace turnout::hca {

struct LiveParts {
  Fabric& fabric;
  LocalObjects& objects;
  class Memory& memory;
  class IdlePolls& idle_polls;
  class SharedCopies& shared_copies;
  class LiveEvents& events;
  class Hazards& hazards;
  class LiveCompletions& completions;
  class LiveReceives& receives;
  class LiveRegions& regions;
  class LiveWindows& windows;
  class IndirectKeys& indirect_keys;
  class LiveMulticast& multicast;
  class QpNumbers& numbers;
  class DirectWrites& direct_writes;
  class Executor& executor;
  class Faults& faults;
  class LiveSendQueues& send_queues;
  class LiveXrc& xrc;
  class LiveQueuePairs& queue_pairs;
  class LiveSrqs& srqs;
  class Mlx5Queues& mlx5_queues;
};

}  // namespace turnout::hca
