// SPDX-License-Identifier: BSD-3-Clause
// VerbsProcess: a process of a world that calls verbs itself, without the messaging core: its
// adapter, one registered buffer, queue pairs, one completion queue.
//
// Owned by the benchmark, destroyed before the world. One thread; verbs are called for the process
// that was entered last (World::enter). Errors: those of the verbs, in words.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/settings.h"
#include "base/status.h"
#include "core/transport/dc_queue.h"
#include "core/verbs/device.h"
#include "core/verbs/handles.h"
#include "hca/virtual/world.h"

namespace turnout::sim {

class VerbsProcess {
 public:
  // `bytes`: of the buffer.
  [[nodiscard]] static Result<std::unique_ptr<VerbsProcess>> create(hca::World& world,
                                                                    std::uint32_t node,
                                                                    const Settings& settings,
                                                                    std::size_t bytes);
  VerbsProcess(const VerbsProcess&) = delete;
  VerbsProcess& operator=(const VerbsProcess&) = delete;

  void enter() { world_.enter(index_); }

  // RC: to be connected. UD: ready to send. At most `depth` requests and receives under way.
  [[nodiscard]] Status make_rc(std::uint32_t depth, ibv_qp** out) {
    return make(IBV_QPT_RC, depth, out);
  }
  [[nodiscard]] Status connect(ibv_qp* qp, std::uint32_t peer);
  [[nodiscard]] Status make_ud(std::uint32_t depth, ibv_qp** out);
  [[nodiscard]] Status make_dc_target();
  [[nodiscard]] Status make_dc_initiator();

  struct Request {
    ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
    std::uint32_t bytes = 8;  // from the begin of the buffer
    bool inlined = false;
    std::uint32_t datagram_to = 0;  // UD: number of the queue pair
    std::uint32_t at = 0;           // where in the target's buffer
  };
  [[nodiscard]] Status post(ibv_qp* qp, const VerbsProcess& target, const Request& request);
  // Over the DC initiator, to the target's DC target.
  [[nodiscard]] Status read_dc(const VerbsProcess& target, std::uint32_t bytes);
  [[nodiscard]] Status post_receive(ibv_qp* qp);

  // The next completion; false: there is none. Errors: what the completion says.
  [[nodiscard]] Result<bool> take(ibv_wc* entry);
  // Plays the world until this process has taken a completion of the opcode; others before it are
  // taken too. Errors: internal if nothing happens any more.
  [[nodiscard]] Status wait(ibv_wc_opcode opcode);

  [[nodiscard]] std::vector<std::byte>& buffer() noexcept { return buffer_; }
  // Something reached the process since this was set to false.
  bool woken = false;

 private:
  explicit VerbsProcess(hca::World& world) : world_(world) {}
  [[nodiscard]] Status make(ibv_qp_type type, std::uint32_t depth, ibv_qp** out);

  hca::World& world_;
  hca::ProcessIndex index_ = 0;
  std::unique_ptr<verbs::Device> device_;
  std::vector<std::byte> buffer_;
  verbs::Cq cq_;
  verbs::Srq srq_;
  verbs::Mr region_;
  verbs::Ah ah_;
  UnsignalledBuffers buffers_;
  std::unique_ptr<DcTarget> dc_target_;
  std::unique_ptr<DcInitiator> dc_initiator_;
  std::vector<verbs::Qp> qps_;
};

}  // namespace turnout::sim
