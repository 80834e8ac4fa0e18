// SPDX-License-Identifier: BSD-3-Clause
// Rig: the smallest set of verbs objects a test needs, and processes to run them in.
//
// A Rig owns everything it makes and destroys it in the right order. Every Rig of one process uses
// the fabric named by use_own_fabric(), so tests never meet each other. Helpers fail the running
// gtest.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace turnout::hca::test {

// Sets TURNOUT_FABRIC to a name nobody else uses, and a small TURNOUT_FABRIC_SIZE.
void use_own_fabric();
// The memory of a fabric whose processes are there, as anybody finds it; -1: there are none.
[[nodiscard]] int open_fabric(const std::string& name = std::getenv("TURNOUT_FABRIC"));
[[nodiscard]] bool fabric_exists();

// Memory in a memfd, mapped here, registered through ibv_reg_dmabuf_mr with iova = address; or
// ordinary memory registered through ibv_reg_mr.
struct Region {
  std::uint8_t* data = nullptr;
  std::size_t size = 0;
  int fd = -1;
  ibv_mr* mr = nullptr;
  [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const {
    return reinterpret_cast<std::uint64_t>(data + offset);
  }
  [[nodiscard]] ibv_sge sge(std::size_t offset, std::size_t length) const {
    return {address(offset), static_cast<std::uint32_t>(length), mr->lkey};
  }
};
inline constexpr int kFullAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

struct QpOptions {
  std::uint32_t send_wr = 64, recv_wr = 64, send_sge = 4, recv_sge = 4, inline_data = 256;
  ibv_srq* srq = nullptr;
  ibv_cq* send_cq = nullptr;  // null: the rig's
  ibv_cq* recv_cq = nullptr;
  ibv_pd* pd = nullptr;
  bool signal_all = false;
  bool builders = true;
};
struct ConnectOptions {
  std::uint8_t timeout = 8;  // 1 ms
  std::uint8_t retry_cnt = 3, rnr_retry = 7, min_rnr_timer = 1;
  int access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  std::uint32_t rq_psn = 0, sq_psn = 0;
};
inline constexpr std::uint64_t kDcKey = 0x1122334455667788ULL;
inline constexpr std::uint32_t kQkey = 0x1234;

class Rig {
 public:
  explicit Rig(int cqe = 256);
  ~Rig();
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;  // made by the first notify_cq()
  ibv_cq* send_cq = nullptr;
  ibv_cq* recv_cq = nullptr;

  Region memory(std::size_t size, bool shared = true, int access = kFullAccess,
                ibv_pd* in = nullptr);
  void drop(Region& region);
  ibv_cq* cq(int entries, ibv_comp_channel* on = nullptr);
  ibv_srq* srq(std::uint32_t max_wr, std::uint32_t max_sge = 2);
  ibv_qp* rc(const QpOptions& options = {});
  ibv_qp* uc(const QpOptions& options = {});
  ibv_qp* ud(const QpOptions& options = {});
  ibv_qp* dci(const QpOptions& options = {});
  ibv_qp* dct(ibv_srq* srq, const QpOptions& options = {});  // in RTR: has its number
  ibv_ah* ah();
  // XRC. fd: of the domain's file; -1: the domain is the handle's alone.
  ibv_xrcd* xrcd(int fd = -1);
  ibv_srq* xrc_srq(ibv_xrcd* xrcd, std::uint32_t max_wr, ibv_cq* cq = nullptr,
                   ibv_pd* in = nullptr);
  ibv_qp* xrc_target(ibv_xrcd* xrcd);
  ibv_qp* open_target(ibv_xrcd* xrcd, std::uint32_t number);
  ibv_qp* xrc_initiator(const QpOptions& options = {});
  void destroy(ibv_qp* qp);
  void destroy(ibv_srq* srq);
  void close(ibv_xrcd* xrcd);

 private:
  ibv_qp* dc(mlx5dv_dc_type type, ibv_srq* srq, const QpOptions& options);
  std::vector<Region> regions_;
  std::vector<ibv_qp*> qps_;
  std::vector<ibv_srq*> srqs_;
  std::vector<ibv_xrcd*> xrcds_;
  std::vector<ibv_cq*> cqs_;
  std::vector<ibv_ah*> ahs_;
};

void to_init(ibv_qp* qp, const ConnectOptions& options = {});
void to_rtr(ibv_qp* qp, std::uint32_t peer, const ConnectOptions& options = {});
void to_rts(ibv_qp* qp, const ConnectOptions& options = {});
void connect(ibv_qp* qp, std::uint32_t peer, const ConnectOptions& options = {});
void ready_ud(ibv_qp* qp);
void ready_dci(ibv_qp* qp, const ConnectOptions& options = {});
ibv_qp_state state_of(ibv_qp* qp);
int modify_state(ibv_qp* qp, ibv_qp_state state);

// Posts one request; fails the test unless the answer is `expect`.
void post(ibv_qp* qp, ibv_wr_opcode opcode, std::vector<ibv_sge> sges, std::uint64_t wr_id,
          std::uint64_t remote = 0, std::uint32_t rkey = 0, unsigned flags = IBV_SEND_SIGNALED,
          int expect = 0);
// An atomic one: compares `a` and swaps in `b`, or adds `a`.
void post_atomic(ibv_qp* qp, ibv_wr_opcode opcode, const ibv_sge& old, std::uint64_t remote,
                 std::uint32_t rkey, std::uint64_t a, std::uint64_t b = 0);
void post_recv(ibv_qp* qp, std::vector<ibv_sge> sges, std::uint64_t wr_id, int expect = 0);
void post_srq(ibv_srq* srq, std::vector<ibv_sge> sges, std::uint64_t wr_id, int expect = 0);
std::uint32_t srq_number(ibv_srq* srq);
// A request of an XRC initiator.
void post_xrc(ibv_qp* qp, std::uint32_t srqn, ibv_wr_opcode opcode, const ibv_sge& sge,
              std::uint64_t wr_id, std::uint64_t remote = 0, std::uint32_t rkey = 0,
              unsigned flags = IBV_SEND_SIGNALED);
// Through the builders of a DCI.
void post_dc(ibv_qp* qp, ibv_ah* ah, std::uint32_t dctn, ibv_wr_opcode opcode, const ibv_sge& sge,
             std::uint64_t wr_id, std::uint64_t remote = 0, std::uint32_t rkey = 0,
             std::uint64_t key = kDcKey, unsigned flags = IBV_SEND_SIGNALED);

// Polls until one entry arrives (bounded by a generous time: a hang fails the test).
ibv_wc wait_wc(ibv_cq* cq);
[[nodiscard]] bool empty(ibv_cq* cq);
// Repeats until true, bounded likewise.
[[nodiscard]] bool eventually(const std::function<bool()>& condition);
[[nodiscard]] bool readable(int fd, int timeout_ms);
// TURNOUT_TEST_SEED, or 1. Printed, so that it is known of a test that hangs, too.
[[nodiscard]] unsigned seed_of_test();

// Memory that parent and children share, for numbers and barriers.
struct Exchange {
  std::atomic<std::uint64_t> word[512];
  std::atomic<std::uint32_t> arrived[64];
};
Exchange* exchange();
// The `count` processes meet at point `index` (each index once). Fails after a generous time.
void meet(Exchange* x, unsigned index, unsigned count);
void set(Exchange* x, unsigned i, std::uint64_t value);
std::uint64_t get(Exchange* x, unsigned i);  // waits until it was set

// Forks before anything is opened; runs the function in each child; every child must end with
// success. kill_self() inside a child ends it by SIGKILL, which is then expected.
struct Children {
  std::vector<int> pids;
  std::vector<bool> killed;
};
Children start(unsigned count, const std::function<void(unsigned)>& body);
void finish(Children& children);
[[noreturn]] void kill_self();
void run(unsigned count, const std::function<void(unsigned)>& body);

}  // namespace turnout::hca::test
