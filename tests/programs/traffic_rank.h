// SPDX-License-Identifier: BSD-3-Clause
// TrafficRank: one process of the random-traffic test. Sends its streams, posts receives of every
// class in a shuffled order, and checks each message's order, length, tag, source, data and
// contents.
//
// Windows are bounded so that any correct provider reaches the end: receives of a source are posted
// in shuffled blocks of kBlock messages, and its sender may run at most kAhead messages past the
// last full block; so every receive that is posted waits for a message that may be sent. Nothing
// else bounds the sends: were there so many of a rank at most, sends to ranks that first wait for
// others could take all, and ranks would wait in a circle. Owns its
// node and buffers; one thread. The first failure is an exception (TrafficError).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/programs/fi_node.h"
#include "tests/programs/shared_area.h"
#include "tests/programs/traffic.h"

namespace turnout::programs {

class TrafficError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct TrafficOptions {
  FiNodeOptions node;
  std::uint32_t ranks = 16;
  std::uint64_t messages = 1'000'000;  // in all; ignored when `endless`
  std::uint64_t seed = 1;
  std::size_t max_size = kMaxSize;
  // Sends go to so many ranks at a time, a set that changes all the time; 0: to all.
  std::uint32_t partners = 0;
  bool endless = false;  // until the launcher has killed a rank and all noticed
  bool strict = true;    // every operation to a dead rank must end, not only one
};

class TrafficRank {
 public:
  TrafficRank(const TrafficOptions& options, std::uint32_t rank, SharedArea& shared);
  ~TrafficRank();
  void run();

 private:
  struct Operation;
  struct Send;
  struct Receive;
  struct Source;
  struct Target;
  static constexpr std::uint64_t kBlock = 16, kAhead = 32;
  static constexpr std::size_t kReceiveWindow = 64;
  static constexpr std::uint64_t kSetMessages = 100;  // sent to a set before there is another

  [[nodiscard]] RankArea& mine() noexcept { return shared_.rank[rank_]; }
  bool try_send();
  void change_set();
  bool try_post();
  bool poll();
  void wait_a_little();
  void sent(Send& send);
  void received(Receive& receive, const fi_cq_tagged_entry& entry, fi_addr_t from);
  void verify(const Receive& receive, const Message& expected) const;
  void drain_key(std::uint32_t key);
  void failed(const fi_cq_err_entry& entry);
  void peer_failed(std::uint32_t peer, const std::string& what);
  Message take_expected(std::uint32_t source, std::uint32_t key);
  [[nodiscard]] bool finished() const;
  [[nodiscard]] bool peer_is_dead(std::uint32_t peer) const noexcept;
  [[nodiscard]] bool all_done() const noexcept;
  [[nodiscard]] bool wake_is_over();
  [[nodiscard]] std::string name(const Message& m) const;

  TrafficOptions options_;
  std::uint32_t rank_;
  SharedArea& shared_;
  Contents contents_;
  Random random_;
  std::vector<fi_addr_t> peers_;
  std::vector<Source> sources_;
  std::vector<Target> targets_;
  std::vector<std::unique_ptr<Send>> sends_;  // as many as were under way at one time
  std::vector<std::unique_ptr<Receive>> receives_;
  std::vector<Send*> free_sends_;
  std::vector<Receive*> free_receives_;
  Receive* refused_ = nullptr;                 // a receive that was answered FI_EAGAIN
  std::vector<std::deque<Receive*>> unbound_;  // wildcard-source receives in posted order, by key
  FiNode node_;                                // behind the buffers: closed before they go
  std::uint64_t to_send_ = 0, to_receive_ = 0;
  std::uint32_t set_first_ = 0;  // of `partners` ranks that follow each other
  std::uint64_t set_left_ = 0;   // messages that still go to it
  std::uint32_t idle_ = 0;
  bool lost_ = false;             // the dead rank was noticed
  bool gap_ = false;              // a wildcard receive failed on a message of the dead rank
  std::uint64_t after_loss_ = 0;  // messages of the living received since
};

}  // namespace turnout::programs
