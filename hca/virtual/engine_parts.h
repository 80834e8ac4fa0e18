// SPDX-License-Identifier: BSD-3-Clause
// EngineParts: what the two sides of the adapters and the verbs stand on.
//
// References to components of one VirtualEngine, which owns them. One thread.
#pragma once

#include "hca/virtual/adapter_contexts.h"
#include "hca/virtual/data_mover.h"
#include "hca/virtual/network.h"
#include "hca/virtual/operations.h"
#include "hca/virtual/receives.h"

namespace turnout::hca {

struct EngineParts : WorldParts {
  Operations& operations;
  AsyncEvents& events;
  Regions& regions;
  SharedReceiveQueues& srqs;
  Tracer& trace;
  Completions& completions;
  Receives& receives;
  AdapterContexts& contexts;
  Network& network;
  DataMover& data;
};

}  // namespace turnout::hca
