// SPDX-License-Identifier: BSD-3-Clause
// Streams of a DCI: requests of one stream fail together, those of others go on, until too many
// streams have failed.
//
// Source: mlx5dv_create_qp(3), mlx5dv_wr_post(3), mlx5dv_dci_stream_id_reset(3). A stream's number
// is any; those that are equal modulo the number of streams are one. With the queue pair's sq_lock.
#pragma once

#include <bit>
#include <mutex>

#include "hca/live/fork_guard.h"

namespace turnout::hca {

[[nodiscard]] inline std::uint64_t stream_bit(const Qp& qp, std::uint32_t stream) noexcept {
  return std::uint64_t{1} << (stream & (qp.streams.count - 1));
}
// Is this request of a stream that failed?
[[nodiscard]] inline bool stream_failed(const Qp& qp, const SendWqe& wqe) noexcept {
  return (qp.streams.failed & stream_bit(qp, wqe.stream)) != 0;
}
// A request failed: is it its stream alone that fails?
[[nodiscard]] inline bool fails_alone(Qp& qp, const SendWqe& wqe) noexcept {
  if (qp.streams.count == 0) return false;
  qp.streams.failed |= stream_bit(qp, wqe.stream);
  return static_cast<std::uint32_t>(std::popcount(qp.streams.failed)) < qp.streams.errors_allowed;
}
// The stream works again. 0, or EINVAL: it had not failed. Takes sq_lock.
[[nodiscard]] inline int reset_stream(Qp& qp, std::uint16_t stream) {
  if (const int error = refuse_child(qp.verbs.qp_base.context); error != 0) return error;
  const std::lock_guard lock(qp.sq_lock);
  if (qp.streams.count == 0 || (qp.streams.failed & stream_bit(qp, stream)) == 0) return EINVAL;
  qp.streams.failed &= ~stream_bit(qp, stream);
  return 0;
}

}  // namespace turnout::hca
