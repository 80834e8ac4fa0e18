// SPDX-License-Identifier: BSD-3-Clause
// QueueMaker: makes, modifies and ends the queues of one command file, whichever form of a command
// asked for it.
//
// What it makes is the caller's, and ended by end(). Requests say what a program said: lengths,
// ranges and addresses are checked here, objects are the engine's and alive. Functions return 0 or
// an errno value. The lock of the command file guards it. Sources: the man pages of the verbs;
// rdma/mlx5-abi.h.
#pragma once

#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>

#include <memory>

#include "hca/mlx5/file_objects.h"
#include "hca/mlx5/queue_objects.h"

namespace turnout::hca {

struct CqRequest {
  std::uint64_t user_handle = 0;
  std::uint32_t cqe = 0, comp_vector = 0;
  Channel* channel = nullptr;  // null: none
  bool unchecked = false;      // overruns are the program's affair
};

struct SrqRequest {
  std::uint64_t user_handle = 0;
  Pd* pd = nullptr;
  ibv_srq_attr limits{};
  Xrcd* xrcd = nullptr;  // with `cq`: of an XRC one
  Cq* cq = nullptr;
  bool cyclic = false;  // entries are used in the order of the ring, not in that of a list
};

struct QpRequest {
  ib_uverbs_ex_create_qp asked{};  // its handles are resolved in:
  Pd* pd = nullptr;
  Xrcd* xrcd = nullptr;  // of an XRC target, instead of `pd`
  Cq *send = nullptr, *receive = nullptr;
  Srq* srq = nullptr;
};

class QueueMaker {
 public:
  // What was made since the context was opened.
  struct Made {
    std::uint32_t queue_pairs = 0, shared_queues = 0, completion_queues = 0;
    std::uint64_t bytes = 0;  // of the program's memory, for their entries
  };

  explicit QueueMaker(FileObjects& objects) noexcept : objects_(objects) {}

  [[nodiscard]] int make(const CqRequest& request, const mlx5_ib_create_cq& mlx5,
                         std::unique_ptr<CqObject>& made);
  [[nodiscard]] int make(const SrqRequest& request, const mlx5_ib_create_srq& mlx5,
                         std::unique_ptr<SrqObject>& made);
  [[nodiscard]] int make(const QpRequest& request, const mlx5_ib_create_qp& mlx5,
                         std::unique_ptr<QpObject>& made);
  // As ibv_modify_qp(3); what was posted before it may send is sent when it may.
  [[nodiscard]] int modify(QpObject& pair, const ibv_qp_attr& attr, int mask);
  // EBUSY: others use it.
  [[nodiscard]] int end(CqObject& queue);
  [[nodiscard]] int end(SrqObject& shared);
  [[nodiscard]] int end(QpObject& pair);

  [[nodiscard]] const Made& made() const noexcept { return made_; }

 private:
  FileObjects& objects_;
  Made made_;
};

}  // namespace turnout::hca
