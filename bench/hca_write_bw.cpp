// SPDX-License-Identifier: BSD-3-Clause
// hca_write_bw: RDMA writes between two processes over plain verbs, as perftest's ib_write_bw makes
// them; what the adapter itself can do, for bench/run_micro.py's bandwidth.
//
//   hca_write_bw [--bytes 1048576] [--writes 5000] [--depth 128] [--buffers 1]
//
// One RC queue pair at each side; the target only waits. As in ib_write_bw, the requests all write
// one buffer, of ordinary memory, to one of the target's, at most `depth` (its --tx-depth) are not
// completed, and every request is signalled. `buffers`: at the target the requests go round so
// many, as the receives of a program that has a window of them. Prints one line of JSON; checks
// what has been written last. It links with the virtual adapter's libibverbs.
#include <infiniband/verbs.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "bench/hca_program.h"

namespace {

using namespace turnout::bench;

struct Options {
  std::uint64_t bytes = 1 << 20, writes = 5000, buffers = 1;
  std::uint32_t depth = 128;
};

struct Place {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0, queue = 0, lid = 0;
};

class Side {
 public:
  Side(const Options& options, std::uint64_t bytes) : memory_(bytes) {
    ibv_device** const devices = ibv_get_device_list(nullptr);
    expect(devices != nullptr && devices[0] != nullptr, "no device");
    context_ = ibv_open_device(devices[0]);
    ibv_free_device_list(devices);
    expect(context_ != nullptr, "ibv_open_device");
    ibv_port_attr port{};
    succeed(ibv_query_port(context_, 1, &port), "ibv_query_port");
    pd_ = ibv_alloc_pd(context_);
    expect(pd_ != nullptr, "ibv_alloc_pd");
    cq_ = ibv_create_cq(context_, static_cast<int>(options.depth), nullptr, nullptr, 0);
    expect(cq_ != nullptr, "ibv_create_cq");
    region_ =
        ibv_reg_mr(pd_, memory_.data(), bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    expect(region_ != nullptr, "ibv_reg_mr");
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = cq_;
    wanted.cap = {options.depth, 1, 1, 1, 0};
    wanted.qp_type = IBV_QPT_RC;
    qp_ = ibv_create_qp(pd_, &wanted);
    expect(qp_ != nullptr, "ibv_create_qp");
    own_ = {reinterpret_cast<std::uint64_t>(memory_.data()), region_->rkey, qp_->qp_num, port.lid};
    mtu_ = port.active_mtu;
  }
  ~Side() {
    ibv_destroy_qp(qp_);
    ibv_dereg_mr(region_);
    ibv_destroy_cq(cq_);
    ibv_dealloc_pd(pd_);
    ibv_close_device(context_);
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  Place meet(int socket) {
    Place other;
    expect(::send(socket, &own_, sizeof own_, MSG_NOSIGNAL) == sizeof own_, "send");
    expect(::recv(socket, &other, sizeof other, MSG_WAITALL) == sizeof other, "recv");
    to_init(qp_, IBV_ACCESS_REMOTE_WRITE);
    connect(qp_, other.queue, other.lid, mtu_);
    wait(socket);
    return other;
  }
  static void wait(int socket) {
    char word = 0;
    expect(::send(socket, &word, 1, MSG_NOSIGNAL) == 1, "send");
    expect(::recv(socket, &word, 1, MSG_WAITALL) == 1, "recv");
  }

  void write(const Options& options, const Place& to, std::uint64_t count) {
    ibv_sge part{own_.address, static_cast<std::uint32_t>(options.bytes), region_->lkey};
    ibv_send_wr request{}, *bad = nullptr;
    request.sg_list = &part;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.rkey = to.rkey;
    std::uint64_t posted = 0, done = 0;
    while (done < count) {
      while (posted < count && posted - done < options.depth) {
        request.wr.rdma.remote_addr = to.address + posted % options.buffers * options.bytes;
        succeed(ibv_post_send(qp_, &request, &bad), "ibv_post_send");
        ++posted;
      }
      ibv_wc entries[16];
      const int n = ibv_poll_cq(cq_, 16, entries);
      expect(n >= 0, "ibv_poll_cq");
      for (int i = 0; i < n; ++i) {
        if (entries[i].status != IBV_WC_SUCCESS) fail(ibv_wc_status_str(entries[i].status), EIO);
      }
      done += static_cast<std::uint64_t>(n);
    }
  }

  std::vector<unsigned char>& memory() { return memory_; }

 private:
  std::vector<unsigned char> memory_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* region_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_mtu mtu_ = IBV_MTU_4096;
  Place own_;
};

unsigned char byte_at(std::uint64_t i) {
  return static_cast<unsigned char>(i * 7 + (i >> 8) + 1);
}

void target(const Options& options, int socket) {
  Side side(options, options.bytes * options.buffers);
  static_cast<void>(side.meet(socket));
  Side::wait(socket);  // everything is written
  for (std::uint64_t i = 0; i < side.memory().size(); ++i) {
    if (side.memory()[i] != byte_at(i % options.bytes)) fail("what was written differs", EIO);
  }
}

void initiator(const Options& options, int socket) {
  using Clock = std::chrono::steady_clock;
  Side side(options, options.bytes);
  for (std::uint64_t i = 0; i < options.bytes; ++i) side.memory()[i] = byte_at(i);
  const Place to = side.meet(socket);
  side.write(options, to, std::max(options.buffers, std::uint64_t{options.depth}));  // warms up
  const auto begun = Clock::now();
  side.write(options, to, options.writes);
  const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
  Side::wait(socket);
  const double rate = static_cast<double>(options.writes) / seconds;
  std::printf(
      "{\"benchmark\": \"hca_write_bw\", \"bytes\": %llu, \"buffers\": %llu, \"messages\": %llu, "
      "\"messages_per_s\": %.0f, \"bytes_per_s\": %.0f}\n",
      static_cast<unsigned long long>(options.bytes),
      static_cast<unsigned long long>(options.buffers),
      static_cast<unsigned long long>(options.writes), rate,
      rate * static_cast<double>(options.bytes));
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("RDMA writes between two processes over the virtual adapter, as ib_write_bw's");
  app.add_option("--bytes", options.bytes)
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 30));
  app.add_option("--writes", options.writes)->check(CLI::PositiveNumber);
  app.add_option("--depth", options.depth)->check(CLI::Range(1, 4096));
  app.add_option("--buffers", options.buffers)->check(CLI::Range(1, 4096));
  CLI11_PARSE(app, argc, argv);
  int sockets[2];
  expect(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0, "socketpair");
  const pid_t child = fork();  // before the adapter is opened
  expect(child >= 0, "fork");
  if (child == 0) {
    target(options, sockets[1]);
    std::exit(0);
  }
  ::close(sockets[1]);
  initiator(options, sockets[0]);
  int status = -1;
  expect(waitpid(child, &status, 0) == child, "waitpid");
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
}
