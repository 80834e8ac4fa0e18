// SPDX-License-Identifier: BSD-3-Clause
// KillWorker: one process of hca_kill. It keeps a connection to every other rank and a mixed,
// checked load on all of them; when one dies it must be told by an error completion, and connects
// to the one that replaces it. One thread. Throws std::runtime_error at the first violation.
#pragma once

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "tests/hca/kill_shared.h"

namespace turnout::hca::kill_test {

inline constexpr std::uint64_t kDcKey = 0x1122334455667788ULL;
inline constexpr std::uint32_t kQkey = 0x1234;

class KillWorker {
 public:
  KillWorker(SharedArea& shared, std::uint32_t rank, std::uint32_t ranks, std::uint32_t incarnation,
             std::uint64_t seed);
  KillWorker(const KillWorker&) = delete;
  KillWorker& operator=(const KillWorker&) = delete;
  void run();  // until Phase::leave; then everything has been destroyed

 private:
  static constexpr std::uint32_t kWindow = 16;     // requests under way on a connection
  static constexpr std::uint32_t kUnchecked = 24;  // messages the peer has not looked at
  static constexpr std::uint32_t kReceives = 16;   // of a queue pair without SRQ
  static constexpr std::uint32_t kDcWindow = 8;
  static constexpr std::uint32_t kDatagrams = 8;
  static constexpr std::uint32_t kStride = kMaxMessageBytes + 64;  // room for a datagram's header

  struct Region {
    std::uint8_t* data = nullptr;
    std::size_t size = 0;
    int fd = -1;
    ibv_mr* mr = nullptr;
  };
  struct Request {
    ibv_wr_opcode opcode;
    std::uint32_t slot, length, offset;
  };
  enum class State : std::uint8_t { down, offered, connected, up, broken };
  struct Link {
    State state = State::down;
    std::uint32_t peer_incarnation = 0;
    ibv_qp* qp = nullptr;
    std::uint64_t posted = 0, done = 0;           // requests
    std::uint64_t sent = 0, received = 0;         // messages
    std::uint64_t written = 0, writes_taken = 0;  // of them, those written with immediate data
    std::uint64_t added = 0;                      // fetch-adds done
    std::uint64_t dc_sent = 0, dc_received = 0, ud_sent = 0, ud_received = 0;
    std::int64_t failed_at = 0;   // when the first error was polled
    bool failed_request = false;  // a request has failed: all behind it are flushed
    std::deque<Request> requests;
  };
  struct DcRequest {
    std::uint32_t peer, incarnation;
    std::uint64_t sequence;
  };

  // kill_worker.cpp: the objects, connecting and what the loop does
  Region make_region(std::size_t size, bool shared);
  void drop(Region& region);
  void open();
  void close();
  ibv_qp* make_qp(ibv_qp_type type, bool on_srq, bool dct);
  void modify(ibv_qp* qp, ibv_qp_state state, std::uint32_t peer);
  void ready(ibv_qp* qp, std::uint32_t peer);  // to RTS
  void maintain(std::uint32_t peer);
  void end_link(std::uint32_t peer);
  void rest();
  [[nodiscard]] bool is_quiet() const;
  void tell_quiet();

  // kill_traffic.cpp: the load and its checks
  bool post_some(std::uint32_t peer);
  void post_datagram(std::uint32_t peer);
  void post_dc(std::uint32_t peer);
  void post_receive(ibv_qp* qp, std::uint32_t peer, std::uint32_t slot);
  void post_shared_receive(std::uint32_t slot);
  bool poll();
  void take_done(const ibv_wc& wc);
  void take_dc_done(const ibv_wc& wc);
  void take_received(const ibv_wc& wc);
  void check_message(const std::uint8_t* data, std::uint32_t length, Kind kind, std::uint32_t peer);
  void connection_failed(std::uint32_t peer, const ibv_wc& wc, bool receive);

  [[nodiscard]] bool on_srq(std::uint32_t peer) const { return ((rank_ + peer) & 1) != 0; }
  [[nodiscard]] bool was_killed(std::uint32_t peer, std::uint32_t incarnation) const {
    return shared_.rank[peer].killed.load() >= incarnation;
  }
  [[nodiscard]] std::uint32_t random(std::uint32_t below) {
    return static_cast<std::uint32_t>(random_() % below);
  }
  [[nodiscard]] std::uint32_t random_length();
  [[noreturn]] void fail(const std::string& text) const;
  // Throws with errno unless `ok`.
  void need(bool ok, const char* what) const;

  // Where things lie in the two regions.
  static constexpr std::size_t kConstantAt = 4096, kInboxAt = kConstantAt + kConstantBytes;
  [[nodiscard]] static std::size_t counter_at(std::uint32_t rank) { return rank * 8; }
  [[nodiscard]] static std::size_t inbox_at(std::uint32_t rank, std::uint64_t message) {
    return kInboxAt + (rank * kUnchecked + message % kUnchecked) * kMaxMessageBytes;
  }
  [[nodiscard]] std::uint8_t* local(std::uint32_t block, std::uint32_t slot) const {
    return local_.data + (std::size_t{block} * kSharedReceives + slot) * kStride;
  }
  [[nodiscard]] ibv_sge piece(const std::uint8_t* at, std::uint32_t length) const {
    return {reinterpret_cast<std::uint64_t>(at), length, local_.mr->lkey};
  }
  // Blocks of the local region: requests and receives of each peer, and these.
  [[nodiscard]] std::uint32_t requests_block(std::uint32_t peer) const { return peer; }
  [[nodiscard]] std::uint32_t receives_block(std::uint32_t peer) const { return ranks_ + peer; }
  [[nodiscard]] std::uint32_t dc_block() const { return 2 * ranks_; }
  [[nodiscard]] std::uint32_t ud_block() const { return 2 * ranks_ + 1; }
  [[nodiscard]] std::uint32_t srq_block() const { return 2 * ranks_ + 2; }
  [[nodiscard]] std::uint32_t blocks() const { return 2 * ranks_ + 3; }

  SharedArea& shared_;
  RankArea& mine_;
  const std::uint32_t rank_, ranks_, incarnation_;
  std::mt19937_64 random_;

  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq *send_cq_ = nullptr, *recv_cq_ = nullptr;
  ibv_srq* srq_ = nullptr;
  ibv_ah* ah_ = nullptr;
  ibv_qp *dci_ = nullptr, *dct_ = nullptr, *ud_ = nullptr;
  Region target_, local_;  // what peers reach; requests and receives
  std::array<Link, kMaxRanks> links_;
  std::deque<DcRequest> dc_requests_;
  std::uint64_t dc_posted_ = 0, ud_posted_ = 0, ud_done_ = 0;
  bool dci_failed_ = false;
  unsigned idle_ = 0;
};

}  // namespace turnout::hca::kill_test
