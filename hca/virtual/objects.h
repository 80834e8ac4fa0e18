// SPDX-License-Identifier: BSD-3-Clause
// The virtual engine's part of the verbs objects, and what stands behind them: processes, nodes,
// regions, operations on their way.
//
// Everything belongs to one VirtualEngine and is used by one thread. The verbs objects begin with
// those of hca/device/objects.h, so that the exported functions serve both engines.
#pragma once

#include <tsl/robin_map.h>

#include <vector>

#include "hca/device/fifo.h"
#include "hca/device/objects.h"
#include "hca/virtual/context_cache.h"
#include "hca/virtual/server.h"
#include "hca/virtual/world.h"

namespace turnout::hca {

struct VirtualQp;
struct VirtualXrcd;
struct VirtualTarget;

// An XRC domain: of a node and a file, or of one handle alone. It lives while somebody has it open.
struct XrcDomain {
  std::uint32_t node = 0;
  bool named = false;  // of the file:
  std::uint64_t device = 0, inode = 0;
  std::vector<VirtualXrcd*> opens;
};

struct Node {
  Picoseconds send_free = 0, receive_free = 0;  // the adapter's two sides, operation by operation
  Server link_out, link_in;                     // the port
  Server memory_reads, memory_writes;           // PCI Express: data to the adapter, data from it
  ContextCache contexts;
  std::vector<Picoseconds> fetches;  // when each fetcher of contexts is free
  // Responder contexts of DC in use: initiator's queue pair -> operations of it not yet answered.
  tsl::robin_map<std::uint32_t, std::uint32_t> responders;
};

struct Process {
  std::uint32_t node = 0;
  World::Callback wake = nullptr;
  void* wake_context = nullptr;
  Picoseconds busy = 0;  // its code has run up to here
  std::uint64_t rnr_waits = 0;
  bool alive = true;
};

struct Region {
  std::uint32_t key = 0;  // 0: none
  ProcessIndex owner = 0;
  std::uint32_t pd = 0;
  std::uint32_t access = 0;
  std::uint8_t generation = 0;  // survives
  std::uint64_t iova = 0, length = 0, address = 0;
};

struct VirtualReceive {
  std::uint64_t wr_id = 0;
  std::uint64_t room = 0;
  std::uint32_t count = 0;
  ibv_sge first{};
  std::vector<ibv_sge> more;  // from the second on
};

struct VirtualCq : Cq {
  ProcessIndex process = 0;
  std::uint32_t slots = 0;
  Cqe gate{};  // what the exported poll looks at: its sequence tells whether there are entries
  Fifo<Completion> entries;
  bool overflowed = false;
  Armed armed = Armed::no;
};

struct VirtualXrcd : Xrcd {
  ProcessIndex process = 0;
  XrcDomain* domain = nullptr;  // null: its process was killed
};

struct VirtualSrq : Srq {
  ProcessIndex process = 0;
  std::uint32_t pd = 0;
  std::uint32_t max_wr = 0, max_sge = 0, limit = 0;
  Fifo<VirtualReceive> receives;
};

struct VirtualChannel : Channel {
  Fifo<VirtualCq*> events;
};

// Where a work request is on its way.
struct Flight {
  enum class Place : std::uint8_t { queued, flying, answered, completing, done };
  VirtualQp* qp = nullptr;  // null: nobody waits for it any more
  Place place = Place::queued;
  Picoseconds ready = 0;       // at the adapter
  Picoseconds spread = 0;      // of the data on their way: from the first packet to the last
  Picoseconds answer_at = 0;   // of what lands: when its answer is at the sender's adapter
  std::uint32_t source = 0;    // number of the sender's queue pair
  std::uint32_t target = 0;    // and of the receiver's
  std::uint32_t events = 0;    // pending that name it
  std::uint32_t attempts = 0;  // refused for lack of a receive
  ibv_wc_status status = IBV_WC_SUCCESS;
  bool signalled = false;
  bool lost = false;          // every time that it was sent
  bool datagram = false;      // on its way by itself: the sender has completed
  bool local = false;         // its target is on the same node
  bool received = false;      // all its data have come through the port
  bool at_responder = false;  // DC: counted in Node::responders
  bool xrc = false;           // its receive and its memory are those of the SRQ that it names
  bool took_receive = false;
  bool tail_first = false;   // its bytes are placed out of order, in two steps
  bool tail_placed = false;  // the first of these is done
};
// One work request on its way, with its data.
struct Operation : Flight {
  SendWqe wqe;
  VirtualReceive receive;          // taken at the target
  std::vector<std::uint8_t> copy;  // of a datagram's data
  Operation* next_free = nullptr;
};

struct VirtualQp : Qp {
  ProcessIndex process = 0;  // XRC target: the one that created it, and may be gone
  std::uint32_t pd = 0;
  QpPhase phase = QpPhase::reset;
  VirtualCq* send_cq = nullptr;
  VirtualCq* recv_cq = nullptr;
  VirtualSrq* srq = nullptr;
  std::uint32_t max_recv_wr = 0, max_recv_sge = 0;
  Fifo<VirtualReceive> receives;
  Fifo<Operation*> operations;  // not ended, oldest first
  std::size_t started = 0;      // of these, how many have left
  Picoseconds last_ready = 0, last_arrival = 0, last_landing = 0;
  bool broken = false;          // a request has failed: what follows is not executed
  std::uint32_t broken_at = 0;  // its position
  PacketSequence sequence{};    // that it takes
  // RNR: arrivals that wait behind the first one refused.
  Fifo<Operation*> refused;
  std::uint32_t rnr_left = 0;
  // DCI
  std::uint32_t connected = 0;   // target's number, 0: none
  std::uint32_t unanswered = 0;  // operations to it
  Picoseconds answered_at = 0;   // the last operation
  Picoseconds nack_wait = 0;
  bool waits = false;  // the head waits for the present target's last answer

  void break_at(const Operation& operation) noexcept {
    if (broken && !is_before(operation.wqe.position, broken_at)) return;
    broken = true;
    broken_at = operation.wqe.position;
  }
  // What was sent before the failed request is executed as if it had not failed.
  [[nodiscard]] bool behind_failure(const Operation& operation) const noexcept {
    return broken && is_before(broken_at, operation.wqe.position);
  }

 private:
  // Positions count on past 2^32.
  [[nodiscard]] static bool is_before(std::uint32_t a, std::uint32_t b) noexcept {
    return static_cast<std::int32_t>(a - b) < 0;
  }
};

// What a program has of an XRC target: its number, its context, its events.
struct TargetHandle : Qp {
  ProcessIndex process = 0;
  VirtualTarget* target = nullptr;  // null: its process was killed
};

// An XRC target, which the programs' handles share. Destroyed with the last of them.
struct VirtualTarget : VirtualQp {
  XrcDomain* domain = nullptr;
  std::vector<TargetHandle*> handles;  // in the order in which they were opened
};

}  // namespace turnout::hca
