// SPDX-License-Identifier: BSD-3-Clause
// Streams of a DCI: requests of one stream fail together, those of others go on, until too many
// streams have failed.
//
// Source: mlx5dv_create_qp(3), mlx5dv_wr_post(3), mlx5dv_dci_stream_id_reset(3). A stream's number
// is any; those that are equal modulo the number of streams are one. With the queue pair's sq_lock.
#pragma once

#include "hca/device/objects.h"

namespace turnout::hca {

// Is this request of a stream that failed?
[[nodiscard]] bool stream_failed(const Qp& qp, const SendWqe& wqe) noexcept;
// A request failed: is it its stream alone that fails?
[[nodiscard]] bool fails_alone(Qp& qp, const SendWqe& wqe) noexcept;
// The stream works again. 0, or EINVAL: it had not failed. Takes sq_lock.
[[nodiscard]] int reset_stream(Qp& qp, std::uint16_t stream);

}  // namespace turnout::hca
