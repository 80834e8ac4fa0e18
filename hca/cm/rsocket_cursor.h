// SPDX-License-Identifier: BSD-3-Clause
// A position in the buffers of a caller of rsendmsg() or rrecvmsg().
//
// A plain value over memory that the caller owns; one thread.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace turnout::cm {

class IovCursor {
 public:
  IovCursor(const iovec* parts, std::size_t count) noexcept : part_(parts) {
    for (std::size_t i = 0; i < count; ++i) left_ += parts[i].iov_len;
  }
  [[nodiscard]] std::size_t left() const noexcept { return left_; }

  // `n` is at most left().
  void copy_out(std::uint8_t* to, std::size_t n) noexcept {
    each(n, [&](std::uint8_t* own, std::size_t piece) {
      std::memcpy(to, own, piece);
      to += piece;
    });
  }
  void copy_in(const std::uint8_t* from, std::size_t n) noexcept {
    each(n, [&](std::uint8_t* own, std::size_t piece) {
      std::memcpy(own, from, piece);
      from += piece;
    });
  }

 private:
  template <class Copy>
  void each(std::size_t n, const Copy& copy) noexcept {
    left_ -= n;
    while (n != 0) {
      while (at_ == part_->iov_len) {
        ++part_;
        at_ = 0;
      }
      const std::size_t piece = std::min(n, part_->iov_len - at_);
      copy(static_cast<std::uint8_t*>(part_->iov_base) + at_, piece);
      at_ += piece;
      n -= piece;
    }
  }

  const iovec* part_;
  std::size_t at_ = 0, left_ = 0;
};

}  // namespace turnout::cm
