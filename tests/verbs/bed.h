// SPDX-License-Identifier: BSD-3-Clause
// Bed: an adapter opened for one case of the conformance table, and the objects of that case, which
// it destroys in the right order. Plain verbs, so that it runs on any libibverbs.
//
// One thread, unless a function says otherwise. What a case needs and does not ask about throws
// Cannot; what it asks about is answered as words: "ok" or the name of an errno, the name of a
// status without IBV_WC_.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace turnout::conform {

struct Cannot : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Which adapter and address; the first that has an active port, and its IPv4 address if it is
// Ethernet's.
struct Choice {
  std::string device;
  int gid_index = -1;
};

// How to reach a queue pair.
struct Where {
  std::uint32_t number = 0, lid = 0;
  ibv_gid gid{};
};

struct QpAsk {
  ibv_qp_type type = IBV_QPT_RC;
  std::uint32_t send_wr = 16, recv_wr = 16, sge = 2, inline_data = 0;
  ibv_srq* srq = nullptr;
  ibv_cq* cq = nullptr;  // of both directions; null: a new one
  ibv_pd* pd = nullptr;  // null: the bed's
  bool signal_all = false;
};
struct Link {
  std::uint8_t timeout = 10;  // 4 ms
  std::uint8_t retry_count = 2, rnr_retry = 7, min_rnr_timer = 1;
  int access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  std::uint32_t rq_psn = 0, sq_psn = 0;
};
inline constexpr std::uint32_t kQkey = 0x1234;
inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct Memory {
  std::uint8_t* data = nullptr;
  std::size_t size = 0;
  ibv_mr* mr = nullptr;
  [[nodiscard]] std::uint64_t at(std::size_t offset = 0) const {
    return reinterpret_cast<std::uint64_t>(data + offset);
  }
  [[nodiscard]] ibv_sge sge(std::size_t offset, std::size_t length) const {
    return {at(offset), static_cast<std::uint32_t>(length), mr->lkey};
  }
};

class Bed {
 public:
  explicit Bed(const Choice& chosen);
  ~Bed();
  Bed(const Bed&) = delete;
  Bed& operator=(const Bed&) = delete;

  const Choice choice;
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_device_attr attributes{};
  ibv_port_attr port{};
  int gid_index = 0;
  ibv_gid gid{};
  [[nodiscard]] bool global() const { return port.link_layer == IBV_LINK_LAYER_ETHERNET; }

  ibv_pd* domain();
  ibv_comp_channel* channel();
  ibv_cq* cq(int entries = 64, ibv_comp_channel* on = nullptr);
  ibv_srq* srq(std::uint32_t max_wr);
  ibv_qp* qp(const QpAsk& ask = {});
  Memory memory(std::size_t size = 4096, int access = kAllAccess, ibv_pd* in = nullptr);
  ibv_ah* ah(const Where& to);
  ibv_mw* window(ibv_mw_type type);
  // What a case destroyed itself.
  void forget(const void* object);
  [[nodiscard]] Where where(const ibv_qp* qp) const;
  [[nodiscard]] ibv_ah_attr path(const Where& to) const;

 private:
  std::vector<std::pair<void*, int (*)(void*)>> made_;  // destroyed from the last to the first
  std::vector<std::unique_ptr<std::uint8_t[]>> bytes_;
};

// Two RC queue pairs connected with each other, each with a queue of its own; a's memory is
// `local`, b's `remote`.
struct Pair {
  explicit Pair(Bed& bed, const QpAsk& ask = {}, const Link& link = {});
  Bed& bed;
  ibv_qp *a, *b;
  Memory local, remote;
};

struct Request {
  ibv_wr_opcode opcode = IBV_WR_SEND;
  std::vector<ibv_sge> pieces;
  std::uint64_t id = 1;
  std::uint64_t remote = 0;
  std::uint32_t rkey = 0;
  unsigned flags = IBV_SEND_SIGNALED;
  std::uint32_t imm = 0;  // or the key to invalidate
  std::uint64_t compare_add = 0, swap = 0;
  ibv_ah* ah = nullptr;
  std::uint32_t number = 0, qkey = kQkey;
};
// Of `length` bytes, from the beginning of a's memory to that of b's.
[[nodiscard]] Request write_of(const Pair& pair, std::size_t length = 8);
[[nodiscard]] std::string post(ibv_qp* qp, const Request& request);
[[nodiscard]] std::string receive(ibv_qp* qp, const std::vector<ibv_sge>& pieces,
                                  std::uint64_t id = 1);
[[nodiscard]] std::string receive(ibv_srq* srq, const std::vector<ibv_sge>& pieces,
                                  std::uint64_t id = 1);
// For what the case is not about.
void must(const std::string& outcome, const char* what);

// Steps of a queue pair to ready-to-send; UD takes no peer.
[[nodiscard]] std::string to_init(ibv_qp* qp, const Link& link = {});
[[nodiscard]] std::string to_rtr(ibv_qp* qp, const Bed& bed, const Where& peer,
                                 const Link& link = {});
[[nodiscard]] std::string to_rts(ibv_qp* qp, const Link& link = {});
void connect(ibv_qp* qp, const Bed& bed, const Where& peer, const Link& link = {});
[[nodiscard]] std::string move(ibv_qp* qp, ibv_qp_state state);

// The next completion; none after so long.
[[nodiscard]] std::optional<ibv_wc> poll(ibv_cq* cq, int milliseconds = 5000);
// "SUCCESS", the status, or "nothing"; of a success that is received, what it says.
[[nodiscard]] std::string done(ibv_cq* cq, int milliseconds = 5000);
[[nodiscard]] std::string words(const ibv_wc& wc);
inline constexpr int kNothing = 150;  // ms to wait for what should not come
// The next asynchronous event, acknowledged: its name without IBV_EVENT_, or "no event".
[[nodiscard]] std::string event(const Bed& bed, int milliseconds = kNothing);
[[nodiscard]] std::string state_of(ibv_qp* qp);
[[nodiscard]] std::string name_of(int error);  // "ok" or errno's name
[[nodiscard]] std::string name_of(ibv_qp_state state);

}  // namespace turnout::conform
