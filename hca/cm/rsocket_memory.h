// SPDX-License-Identifier: BSD-3-Clause
// The buffers of an rsocket: pages of a memfd, so that peers of the virtual adapter write them
// directly, and their registrations.
//
// Owns both. Under the mutex of its socket. Sizes in bytes. Errors are errno values.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace turnout::cm {

class RsocketMemory {
 public:
  RsocketMemory() = default;
  RsocketMemory(const RsocketMemory&) = delete;
  RsocketMemory& operator=(const RsocketMemory&) = delete;
  ~RsocketMemory();

  // Two parts in one piece: what only this process writes through the adapter, and what peers may
  // write (0: nothing).
  [[nodiscard]] int create(ibv_pd* pd, std::size_t own, std::size_t remote);

  [[nodiscard]] std::uint8_t* own() const noexcept { return base_; }
  [[nodiscard]] std::uint8_t* remote() const noexcept { return base_ + remote_at_; }
  [[nodiscard]] std::uint32_t own_key() const noexcept { return own_mr_->lkey; }
  [[nodiscard]] std::uint32_t remote_key() const noexcept { return remote_mr_->rkey; }

 private:
  std::uint8_t* base_ = nullptr;
  std::size_t length_ = 0, remote_at_ = 0;
  ibv_mr *own_mr_ = nullptr, *remote_mr_ = nullptr;
};

}  // namespace turnout::cm
