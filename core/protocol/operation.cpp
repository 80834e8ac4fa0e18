// SPDX-License-Identifier: BSD-3-Clause
#include "core/protocol/operation.h"

#include <algorithm>
#include <cstring>

namespace turnout {

void IoVec::copy_out(std::byte* to) const noexcept {
  for (std::uint32_t i = 0; i < count; ++i) {
    if (parts[i].iov_len == 0) continue;
    std::memcpy(to, parts[i].iov_base, parts[i].iov_len);
    to += parts[i].iov_len;
  }
}

IoVec IoVec::slice(std::size_t offset, std::size_t length) const noexcept {
  IoVec part;
  for (std::uint32_t i = 0; i < count && part.total < length; ++i) {
    if (offset >= parts[i].iov_len) {
      offset -= parts[i].iov_len;
      continue;
    }
    const std::size_t n = std::min(parts[i].iov_len - offset, length - part.total);
    part.parts[part.count++] = {static_cast<std::byte*>(parts[i].iov_base) + offset, n};
    part.total += n;
    offset = 0;
  }
  return part;
}

std::size_t IoVec::copy_in(std::size_t offset, const std::byte* from,
                           std::size_t length) const noexcept {
  std::size_t done = 0;
  for (std::uint32_t i = 0; i < count && done < length; ++i) {
    if (offset >= parts[i].iov_len) {
      offset -= parts[i].iov_len;
      continue;
    }
    const std::size_t n = std::min(parts[i].iov_len - offset, length - done);
    std::memcpy(static_cast<std::byte*>(parts[i].iov_base) + offset, from + done, n);
    done += n;
    offset = 0;
  }
  return done;
}

}  // namespace turnout
