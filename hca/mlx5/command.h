// SPDX-License-Identifier: BSD-3-Clause
// Mlx5Command: one command of the kernel's uverbs interface, as a program writes it to
// /dev/infiniband/uverbsN, and its answer.
//
// A command has a part that is every device's and one that is mlx5's, and so has the answer.
// Lengths are the program's: what a request lacks reads as zero, and no more is answered than there
// is room for. Memory that is not there gives EFAULT. Used by one thread. Sources: the kernel's
// Documentation/infiniband/user_verbs.rst, rdma/ib_user_verbs.h, rdma/mlx5-abi.h.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hca/mlx5/program_memory.h"

namespace turnout::hca {

class Mlx5Command {
 public:
  // 0 or errno.
  [[nodiscard]] int read(const void* bytes, std::size_t count) noexcept;

  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
  [[nodiscard]] bool extended() const noexcept { return extended_; }

  // The part that is every device's; what follows is mlx5's. Once.
  template <class T>
  [[nodiscard]] T request() noexcept {
    T out{};
    std::memcpy(static_cast<void*>(&out), body_.data(), std::min(sizeof out, body_bytes_));
    if (!extended_) {
      driver_at_ = std::min(sizeof out, body_bytes_);
      std::memcpy(&response_, body_.data(), std::min(sizeof response_, body_bytes_));
    }
    return out;
  }
  template <class T>
  [[nodiscard]] T driver_request() const noexcept {
    T out{};
    std::memcpy(static_cast<void*>(&out), body_.data() + driver_at_,
                std::min(sizeof out, total_bytes_ - driver_at_));
    return out;
  }
  [[nodiscard]] std::size_t driver_request_bytes() const noexcept {
    return total_bytes_ - driver_at_;
  }
  // 0 or EFAULT.
  template <class T>
  [[nodiscard]] int answer(const T& answer) const noexcept {
    return put(response_, &answer, sizeof answer, response_bytes_);
  }
  template <class T, class Driver>
  [[nodiscard]] int answer(const T& common, const Driver& driver) const noexcept {
    if (const int error = answer(common); error != 0) return error;
    if (extended_) return put(response_ + response_bytes_, &driver, sizeof driver, driver_bytes_);
    if (response_bytes_ <= sizeof common) return 0;
    return put(response_ + sizeof common, &driver, sizeof driver, response_bytes_ - sizeof common);
  }

 private:
  static int put(std::uint64_t to, const void* from, std::size_t bytes, std::size_t room) noexcept {
    return copy_to_program(to, from, std::min(bytes, room)) ? 0 : EFAULT;
  }

  std::uint32_t number_ = 0;
  bool extended_ = false;
  std::array<std::byte, 1024> body_;  // longer than any command
  std::size_t body_bytes_ = 0;        // of the common part, and what may follow it
  std::size_t total_bytes_ = 0;
  std::size_t driver_at_ = 0;
  std::uint64_t response_ = 0;
  std::size_t response_bytes_ = 0;  // of a command that is not extended: mlx5's answer included
  std::size_t driver_bytes_ = 0;
};

}  // namespace turnout::hca
