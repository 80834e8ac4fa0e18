// SPDX-License-Identifier: BSD-3-Clause
// What peer providers share in the interface of libfabric 2.5 (<rdma/providers/fi_peer.h>), in
// names of our own: 1.17, whose headers this is built with, has older forms of some and no
// counters.
//
// fi_peer(3) promises no stability, and a structure tells its form by no version: owners in
// libraries from 1.18 to 2.4 are refused (PeerReceives::open), those of 1.17 by the size of their
// table of calls. Plain data that the owner allocates and keeps until the object opened with it is
// closed. Source: fi_peer(3), and what libfabric 2.5.1's lnx passes: its entries have no links any
// more.
#pragma once

#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_ext.h>

#include <cstddef>
#include <cstdint>

namespace turnout::provider {

struct PeerSrxFid;

// fi_peer_rx_entry: a receive of the owner's, or a message that waits for one.
struct PeerRxEntry {
  PeerSrxFid* srx;  // lnx leaves it null
  fi_addr_t addr;
  std::size_t msg_size;
  std::uint64_t tag;
  std::uint64_t cq_data;
  std::uint64_t flags;
  void* context;
  std::size_t count;  // of iov
  void** desc;
  void* peer_context;  // ours
  void* owner_context;
  iovec* iov;
};

struct PeerMatch {  // fi_peer_match_attr
  fi_addr_t addr;
  std::size_t msg_size;
  std::uint64_t tag;
};

struct SrxOwnerOps {  // fi_ops_srx_owner
  std::size_t size;
  int (*get_msg)(PeerSrxFid*, PeerMatch*, PeerRxEntry**);
  int (*get_tag)(PeerSrxFid*, PeerMatch*, PeerRxEntry**);
  int (*queue_msg)(PeerRxEntry*);
  int (*queue_tag)(PeerRxEntry*);
  void (*foreach_unspec_addr)(PeerSrxFid*, fi_addr_t (*)(PeerRxEntry*));
  void (*free_entry)(PeerRxEntry*);
};

struct SrxPeerOps {  // fi_ops_srx_peer
  std::size_t size;
  int (*start_msg)(PeerRxEntry*);
  int (*start_tag)(PeerRxEntry*);
  int (*discard_msg)(PeerRxEntry*);
  int (*discard_tag)(PeerRxEntry*);
};

struct PeerSrxFid {  // fid_peer_srx
  fid_ep ep_fid;
  SrxOwnerOps* owner_ops;
  SrxPeerOps* peer_ops;
};

struct PeerSrxContext {  // fi_peer_srx_context
  std::size_t size;
  PeerSrxFid* srx;
};

struct PeerCntrFid;

struct CntrOwnerOps {  // fi_ops_cntr_owner
  std::size_t size;
  void (*inc)(PeerCntrFid*);
  void (*incerr)(PeerCntrFid*);
};

struct PeerCntrFid {  // fid_peer_cntr
  ::fid fid;
  CntrOwnerOps* owner_ops;
};

struct PeerCntrContext {  // fi_peer_cntr_context
  std::size_t size;
  PeerCntrFid* cntr;
};

static_assert(sizeof(fi_ops_srx_owner) == 48 && sizeof(SrxOwnerOps) == 56);
static_assert(sizeof(PeerSrxFid) == sizeof(fid_peer_srx) && sizeof(SrxPeerOps) == 40);

}  // namespace turnout::provider
