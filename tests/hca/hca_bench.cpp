// SPDX-License-Identifier: BSD-3-Clause
// hca_bench: what the virtual adapter's operations cost here. Prints medians of many rounds; no
// test.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tests/hca/rig.h"

namespace turnout::hca::test {
namespace {

using Clock = std::chrono::steady_clock;

double nanoseconds(Clock::duration d) {
  return std::chrono::duration<double, std::nano>(d).count();
}
double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}
// Median over rounds of the mean cost of one call.
template <class F>
double cost(unsigned calls, F&& f) {
  std::vector<double> rounds;
  for (int r = 0; r < 200; ++r) {
    const auto begin = Clock::now();
    for (unsigned i = 0; i < calls; ++i) f(i);
    rounds.push_back(nanoseconds(Clock::now() - begin) / calls);
  }
  return median(rounds);
}
void pin(unsigned cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu % static_cast<unsigned>(sysconf(_SC_NPROCESSORS_ONLN)), &set);
  sched_setaffinity(0, sizeof set, &set);
}

// Every 256th request is signalled.
unsigned signal_flag(unsigned i) {
  return i % 256 == 255 ? unsigned{IBV_SEND_SIGNALED} : 0U;
}

void drain(ibv_cq* cq) {
  ibv_wc wc[64];
  while (ibv_poll_cq(cq, 64, wc) > 0) {
  }
}

void posts(Exchange* x, bool shared) {
  run(2, [&](unsigned rank) {
    pin(rank);
    Rig rig(4096);
    QpOptions options;
    options.send_wr = 1024;
    ibv_qp* qp = rig.rc(options);
    Region region = rig.memory(1 << 20, shared);
    const unsigned base = shared ? 0 : 16;
    set(x, base + rank, qp->qp_num);
    connect(qp, static_cast<std::uint32_t>(get(x, base + 1 - rank)));
    if (rank == 1) {
      ibv_srq* srq = rig.srq(64);
      ibv_qp* dct = rig.dct(srq);
      set(x, base + 2, region.address());
      set(x, base + 3, region.mr->rkey);
      set(x, base + 4, dct->qp_num);
      meet(x, shared ? 0 : 1, 2);
      meet(x, shared ? 2 : 3, 2);
      return;
    }
    const std::uint64_t remote = get(x, base + 2);
    const auto rkey = static_cast<std::uint32_t>(get(x, base + 3));
    const auto dctn = static_cast<std::uint32_t>(get(x, base + 4));
    meet(x, shared ? 0 : 1, 2);
    ibv_qp* dci = rig.dci(options);
    ready_dci(dci);
    ibv_ah* ah = rig.ah();
    ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp);
    ibv_qp_ex* dex = ibv_qp_to_qp_ex(dci);
    mlx5dv_qp_ex* dv = mlx5dv_qp_ex_from_ibv_qp_ex(dex);
    std::uint8_t bytes[64] = {1};
    const char* kind = shared ? "shared" : "plain";
    for (const std::size_t size : {16UL, 64UL}) {
      std::printf("%-7s %4zu B inline RC write, builders      %7.1f ns\n", kind, size,
                  cost(256, [&](unsigned i) {
                    ibv_wr_start(ex);
                    ex->wr_id = i;
                    ex->wr_flags = signal_flag(i);
                    ibv_wr_rdma_write(ex, rkey, remote + (i % 16) * 4096);
                    ibv_wr_set_inline_data(ex, bytes, size);
                    ibv_wr_complete(ex);
                    if (i % 256 == 255) drain(rig.send_cq);
                  }));
      ibv_sge sge{reinterpret_cast<std::uint64_t>(bytes), static_cast<std::uint32_t>(size), 0};
      std::printf("%-7s %4zu B inline RC write, ibv_post_send %7.1f ns\n", kind, size,
                  cost(256, [&](unsigned i) {
                    ibv_send_wr wr{}, *bad = nullptr;
                    wr.sg_list = &sge;
                    wr.num_sge = 1;
                    wr.opcode = IBV_WR_RDMA_WRITE;
                    wr.send_flags = IBV_SEND_INLINE | signal_flag(i);
                    wr.wr.rdma.remote_addr = remote + (i % 16) * 4096;
                    wr.wr.rdma.rkey = rkey;
                    ibv_post_send(qp, &wr, &bad);
                    if (i % 256 == 255) drain(rig.send_cq);
                  }));
      std::printf("%-7s %4zu B inline DC write, builders      %7.1f ns\n", kind, size,
                  cost(256, [&](unsigned i) {
                    ibv_wr_start(dex);
                    dex->wr_id = i;
                    dex->wr_flags = signal_flag(i);
                    ibv_wr_rdma_write(dex, rkey, remote + (i % 16) * 4096);
                    mlx5dv_wr_set_dc_addr(dv, ah, dctn, kDcKey);
                    ibv_wr_set_inline_data(dex, bytes, size);
                    ibv_wr_complete(dex);
                    if (i % 256 == 255) drain(rig.send_cq);
                  }));
    }
    for (const std::size_t size : {4096UL, 65536UL, 1UL << 20}) {
      ibv_sge sge = region.sge(0, size);
      std::printf("%-7s %7zu B RC write, signalled + poll   %8.1f ns\n", kind, size,
                  cost(16, [&](unsigned) {
                    ibv_send_wr wr{}, *bad = nullptr;
                    wr.sg_list = &sge;
                    wr.num_sge = 1;
                    wr.opcode = IBV_WR_RDMA_WRITE;
                    wr.send_flags = IBV_SEND_SIGNALED;
                    wr.wr.rdma.remote_addr = remote;
                    wr.wr.rdma.rkey = rkey;
                    ibv_post_send(qp, &wr, &bad);
                    drain(rig.send_cq);
                  }));
    }
    std::printf("        empty ibv_poll_cq                        %7.1f ns\n",
                cost(1000, [&](unsigned) {
                  ibv_wc wc;
                  ibv_poll_cq(rig.recv_cq, 1, &wc);
                }));
    meet(x, shared ? 2 : 3, 2);
  });
}

// Half the round trip of an 8-byte inline send: RC into its receive queue, DC into an SRQ.
void ping_pong(Exchange* x, bool dc, unsigned base) {
  run(2, [&](unsigned rank) {
    pin(rank);
    constexpr unsigned kRounds = 20000, kReceives = 64;
    Rig rig(4096);
    Region in = rig.memory(65536);
    QpOptions options;
    options.send_wr = 1024;
    ibv_srq* srq = dc ? rig.srq(kReceives) : nullptr;
    ibv_qp* qp = dc ? rig.dci(options) : rig.rc(options);
    ibv_qp* dct = dc ? rig.dct(srq) : nullptr;
    ibv_ah* ah = rig.ah();
    set(x, base + rank, dc ? dct->qp_num : qp->qp_num);
    const auto peer = static_cast<std::uint32_t>(get(x, base + 1 - rank));
    if (dc) {
      ready_dci(qp);
    } else {
      connect(qp, peer);
    }
    const auto receive = [&](unsigned i) {
      if (dc) {
        post_srq(srq, {in.sge(i % kReceives * 64, 64)}, i);
      } else {
        post_recv(qp, {in.sge(i % kReceives * 64, 64)}, i);
      }
    };
    for (unsigned i = 0; i < kReceives / 2; ++i) receive(i);
    ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp);
    mlx5dv_qp_ex* dv = mlx5dv_qp_ex_from_ibv_qp_ex(ex);
    std::uint64_t word = 0;
    const auto send = [&](unsigned i) {
      ibv_wr_start(ex);
      ex->wr_id = i;
      ex->wr_flags = signal_flag(i);
      ibv_wr_send(ex);
      if (dc) mlx5dv_wr_set_dc_addr(dv, ah, peer, kDcKey);
      ibv_wr_set_inline_data(ex, &word, sizeof word);
      ibv_wr_complete(ex);
      if (i % 256 == 255) drain(rig.send_cq);
    };
    const auto wait = [&] {
      ibv_wc wc;
      while (ibv_poll_cq(rig.recv_cq, 1, &wc) == 0) {
      }
    };
    meet(x, base / 8, 2);
    std::vector<double> rounds;
    for (unsigned i = 0; i < kRounds; ++i) {
      const auto begin = Clock::now();
      if (rank == 0) {
        send(i);
        wait();
      } else {
        wait();
        send(i);
      }
      receive(i);
      rounds.push_back(nanoseconds(Clock::now() - begin) / 2);
    }
    if (rank == 0) {
      std::printf("        8 B %s send, one way, 2 processes       %7.1f ns\n", dc ? "DC" : "RC",
                  median(rounds));
    }
    meet(x, base / 8 + 1, 2);
  });
}

}  // namespace
}  // namespace turnout::hca::test

int main() {
  using namespace turnout::hca::test;
  Exchange* x = exchange();
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  use_own_fabric();
  posts(x, true);
  use_own_fabric();
  posts(x, false);
  use_own_fabric();
  ping_pong(x, false, 64);
  use_own_fabric();
  ping_pong(x, true, 128);
  return 0;
}
