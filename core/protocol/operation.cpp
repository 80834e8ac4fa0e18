// SPDX-License-Identifier: BSD-3-Clause
#include "core/protocol/operation.h"

#include <algorithm>
#include <cstring>

namespace turnout {

void Pieces::copy_out(std::byte* to) const noexcept {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (iov[i].iov_len == 0) continue;
    std::memcpy(to, iov[i].iov_base, iov[i].iov_len);
    to += iov[i].iov_len;
  }
}

Pieces Pieces::slice(std::size_t offset, std::size_t length) const noexcept {
  Pieces part;
  for (std::uint32_t i = 0; i < count && part.total < length; ++i) {
    if (offset >= iov[i].iov_len) {
      offset -= iov[i].iov_len;
      continue;
    }
    const std::size_t n = std::min(iov[i].iov_len - offset, length - part.total);
    part.iov[part.count++] = {static_cast<std::byte*>(iov[i].iov_base) + offset, n};
    part.total += n;
    offset = 0;
  }
  return part;
}

std::size_t Pieces::copy_in(std::size_t offset, const std::byte* from,
                            std::size_t length) const noexcept {
  std::size_t done = 0;
  for (std::uint32_t i = 0; i < count && done < length; ++i) {
    if (offset >= iov[i].iov_len) {
      offset -= iov[i].iov_len;
      continue;
    }
    const std::size_t n = std::min(iov[i].iov_len - offset, length - done);
    std::memcpy(static_cast<std::byte*>(iov[i].iov_base) + offset, from + done, n);
    done += n;
    offset = 0;
  }
  return done;
}

}  // namespace turnout
