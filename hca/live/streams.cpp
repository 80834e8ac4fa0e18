// SPDX-License-Identifier: BSD-3-Clause
#include "hca/live/streams.h"

#include <bit>
#include <cerrno>
#include <mutex>

#include "hca/live/fork_guard.h"

namespace turnout::hca {
namespace {

std::uint64_t bit_of(const Qp& qp, std::uint32_t stream) noexcept {
  return std::uint64_t{1} << (stream & (qp.streams.count - 1));
}

}  // namespace

bool stream_failed(const Qp& qp, const SendWqe& wqe) noexcept {
  return (qp.streams.failed & bit_of(qp, wqe.stream)) != 0;
}

bool fails_alone(Qp& qp, const SendWqe& wqe) noexcept {
  if (qp.streams.count == 0) return false;
  qp.streams.failed |= bit_of(qp, wqe.stream);
  return static_cast<std::uint32_t>(std::popcount(qp.streams.failed)) < qp.streams.errors_allowed;
}

int reset_stream(Qp& qp, std::uint16_t stream) {
  if (const int error = refuse_child(qp.verbs.qp_base.context); error != 0) return error;
  const std::lock_guard lock(qp.sq_lock);
  if (qp.streams.count == 0 || (qp.streams.failed & bit_of(qp, stream)) == 0) return EINVAL;
  qp.streams.failed &= ~bit_of(qp, stream);
  return 0;
}

}  // namespace turnout::hca
