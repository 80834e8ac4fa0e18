// SPDX-License-Identifier: BSD-3-Clause
// Streams of a DCI: requests of one stream fail together, those of others go on, until too many
// streams have failed.
//
// Source: mlx5dv_create_qp(3), mlx5dv_wr_post(3), mlx5dv_dci_stream_id_reset(3). A stream's number
// is any; those that are equal modulo the number of streams are one.
#include <bit>
#include <cerrno>
#include <mutex>

#include "hca/live/engine.h"
#include "hca/live/fork_guard.h"

namespace turnout::hca {
namespace {

std::uint64_t bit_of(const Qp& qp, std::uint32_t stream) noexcept {
  return std::uint64_t{1} << (stream & (qp.streams - 1));
}

}  // namespace

bool stream_failed(const Qp& qp, const SendWqe& wqe) noexcept {
  return (qp.failed_streams & bit_of(qp, wqe.stream)) != 0;
}

bool LiveEngine::fails_alone(Qp& qp, const SendWqe& wqe) noexcept {
  if (qp.streams == 0) return false;
  qp.failed_streams |= bit_of(qp, wqe.stream);
  return static_cast<std::uint32_t>(std::popcount(qp.failed_streams)) < qp.stream_errors_allowed;
}

int LiveEngine::reset_stream(Qp& qp, std::uint16_t stream) {
  if (const int error = refuse_child(context_of(qp.verbs.qp_base.context)); error != 0)
    return error;
  const std::lock_guard lock(qp.sq_lock);
  if (qp.streams == 0 || (qp.failed_streams & bit_of(qp, stream)) == 0) return EINVAL;
  qp.failed_streams &= ~bit_of(qp, stream);
  return 0;
}

}  // namespace turnout::hca
