// SPDX-License-Identifier: BSD-3-Clause
// Operations: the components of this folder, in the order of their layers: each holds references to
// lower ones only.
//
// The endpoint owns them; only the thread that drives the endpoint calls them.
#pragma once

#include "core/operations/one_sided.h"
#include "core/operations/receive_engine.h"

namespace turnout {

struct Operations {
  EndpointState& state;
  Messaging& messaging;

  PostedReceives posted{state, messaging};
  SendBacklog backlog{state};
  RdmaEngine rdma{state, messaging, posted, backlog};
  FragmentEngine fragments{state, messaging, backlog, rdma};
  RputEngine rput{state, messaging, backlog, rdma, fragments};
  RendezvousReceiver rndv{state, posted, rdma, fragments, rput};
  PutEngine put{state, backlog, rdma};
  SendEngine send_engine{state, messaging, backlog, put};
  RtrEngine rtr{state, messaging, posted, backlog, rdma, fragments, send_engine};
  AtomicEngine atomic_engine{state, messaging, backlog, rdma, put};
  OneSided one_sided{state, rdma, atomic_engine};
  UnexpectedMessages unexpected{state, messaging, posted, rndv, atomic_engine};
  ReceiveEngine receive_engine{state, messaging, posted,        backlog,   fragments,
                               rndv,  rtr,       atomic_engine, unexpected};
};

}  // namespace turnout
