// SPDX-License-Identifier: BSD-3-Clause
// EngineParts: what the components of a world stand on: its kernel, its tables, and each other.
//
// References to parts of one VirtualEngine, which owns them. The components derive from it and name
// each part without a prefix. One thread.
#pragma once

#include "hca/virtual/processes.h"

namespace turnout::hca {

struct EngineParts {
  Kernel& kernel;
  const Profile& profile;
  Processes& processes;
  NumberTable<VirtualQp*>& qps;
  class Operations& operations;
  class AsyncEvents& events;
  class Regions& regions;
  class SharedReceiveQueues& srqs;
  class Tracer& trace;
  class Completions& completions;
  class Receives& receives;
  class AdapterContexts& contexts;
  class Network& network;
  class DataMover& data;
  class WorkQueues& work_queues;
  class Requester& requester;
  class XrcDomains& xrc;
  class QueuePairs& queue_pairs;
};

}  // namespace turnout::hca
