// SPDX-License-Identifier: BSD-3-Clause
// AsyncAnswers: a descriptor that answers of DevX come by which a program did not wait for, each
// as mlx5_ib_uapi_devx_async_cmd_hdr and what the firmware said, whole and in order.
//
// Owns a pair of sockets that keep messages apart: the program reads a duplicate of one end, and
// may poll it. What nobody has read yet is bounded by the socket's buffer, as a real device's is by
// its driver. Lives as long as a descriptor of the program's for it. Any thread. Sources:
// mlx5dv_devx_create_cmd_comp(3), mlx5dv_devx_obj_query_async(3); Linux,
// drivers/infiniband/hw/mlx5/devx.c.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/file_descriptor.h"

namespace turnout::hca {

class AsyncAnswers {
 public:
  // 0 or errno.
  [[nodiscard]] int open() noexcept;
  // The end that a program reads.
  [[nodiscard]] int read_end() const noexcept { return reader_.get(); }
  // Never waits. 0, EAGAIN where too much is unread, or errno.
  [[nodiscard]] int put(std::uint64_t wr_id, std::span<const std::byte> answer) const noexcept;
  // No more answers will come: behind those that are there the reader finds the end.
  void end() const noexcept;
  // The next answer, by the program's duplicate. Waits unless the program made that non-blocking.
  // Bytes, or -errno: ENOSPC where it is longer than `count`, and it stays; EIO behind the end.
  [[nodiscard]] static ssize_t read(int fd, void* to, std::size_t count) noexcept;

 private:
  Descriptor reader_, writer_;
};

}  // namespace turnout::hca
