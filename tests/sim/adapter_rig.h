// SPDX-License-Identifier: BSD-3-Clause
// The rig of the tests that drive verbs on the virtual engine without the messaging core: a world,
// processes with their adapters, queue pairs between them, completions with the time they came.
//
// One world at a time. One thread; times are picoseconds of the world.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/transport/dc_queue.h"
#include "core/verbs/handles.h"
#include "core/verbs/library.h"
#include "hca/virtual/world.h"

namespace turnout::sim {

using hca::kMicrosecond;
using hca::kNanosecond;
using hca::Picoseconds;

// What an RC or UD queue pair has otherwise than usual.
struct QpOptions {
  std::uint8_t timeout = 14, retry_count = 7, rnr_retry = 7, min_rnr_timer = 1;  // IBTA codes
  bool shared_receive = false;
};

// One work request. Offsets are those of the processes' memory.
struct Work {
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
  std::uint32_t length = 8;
  std::uint64_t from = 0, to = 0;
  bool inlined = false, signalled = true;
  std::uint64_t compare_add = 0, swap = 0;
  std::uint32_t rkey = 0;  // 0: the right one
  std::uint32_t lkey = 0;
  ibv_qp* datagram = nullptr;  // UD: to whom
};

struct Done {
  ibv_wc entry;
  Picoseconds at;  // of the process, when it had taken the entry
};

// A process: its adapter, a region of its own, DC targets and initiators as asked for, RC and UD
// queue pairs as they are made.
struct Node {
  static constexpr std::uint64_t kDcKey = 77;
  static constexpr std::uint32_t kQkey = 5;

  hca::World& world;
  hca::ProcessIndex process;
  bool woken = false;
  std::unique_ptr<verbs::Device> device;
  std::vector<std::byte> memory = std::vector<std::byte>(16384);
  verbs::Cq cq;
  verbs::Srq srq;
  verbs::Mr region;
  verbs::Ah ah;
  std::vector<std::unique_ptr<DcTarget>> targets;
  UnsignalledBuffers buffers;
  std::vector<std::unique_ptr<DcInitiator>> initiators;
  std::vector<verbs::Qp> qps;

  Node(hca::World& w, std::uint32_t node, std::size_t n_targets, std::size_t n_initiators);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // DC
  void read(std::size_t initiator, const Node& from) {
    transfer(initiator, from, IBV_WR_RDMA_READ);
  }
  void transfer(std::size_t initiator, const Node& other, ibv_wr_opcode opcode,
                std::uint32_t rkey = 0);
  // Completions there are; their work requests are forgotten.
  int poll();

  // RC, UD
  [[nodiscard]] ibv_qp* make_qp(ibv_qp_type type, const QpOptions& options = {});
  void connect(ibv_qp* qp, std::uint32_t peer, const QpOptions& options = {});
  // 0 or errno.
  int post(ibv_qp* qp, const Node& to, const Work& work);
  void receive(ibv_qp* qp, std::uint32_t length = 64, std::uint64_t at = 8192);
  void receive_shared(int count, std::uint32_t length = 64);
  // Plays the world until so many completions were taken, fewer when nothing happens any more.
  [[nodiscard]] std::vector<Done> wait(std::size_t count);
  [[nodiscard]] std::uint64_t& word(std::size_t at) {
    return *reinterpret_cast<std::uint64_t*>(memory.data() + at);
  }
};

struct Cluster {
  std::unique_ptr<hca::World> world;
  std::vector<std::unique_ptr<Node>> nodes;
  Cluster() = default;
  Cluster(Cluster&&) = default;
  Cluster& operator=(Cluster&&) = delete;
  ~Cluster() { nodes.clear(); }
};

[[nodiscard]] std::unique_ptr<hca::World> make_world(const hca::Profile& profile,
                                                     std::uint32_t nodes, std::uint64_t seed = 1);
// Clients on node 0, targets on the others.
[[nodiscard]] Cluster client_and_targets(const hca::Profile& profile, std::size_t clients,
                                         std::size_t initiators, std::uint32_t targets);
// Until all these reads of the first client have completed; the time from the first post.
[[nodiscard]] Picoseconds reads(Cluster& c, const std::vector<const Node*>& targets);
// Plays everything that is to happen.
void play(hca::World& world);

// Two processes with one RC connection, on two nodes or on one.
struct Pair {
  Cluster cluster;
  hca::World& world;
  Node& a;
  Node& b;
  ibv_qp* to_b = nullptr;
  ibv_qp* to_a = nullptr;

  explicit Pair(const hca::Profile& profile, const QpOptions& options = {}, bool one_node = false,
                std::uint64_t seed = 1);
  // A further connection of the two.
  [[nodiscard]] std::pair<ibv_qp*, ibv_qp*> connection(const QpOptions& options = {});
  // Posts it at a, the first connection; when its completion was taken, from the post.
  [[nodiscard]] Picoseconds timed(const Work& work);
};

// The same with a pair of its own.
[[nodiscard]] Picoseconds timed(const hca::Profile& profile, const Work& work,
                                bool one_node = false);

}  // namespace turnout::sim
