// SPDX-License-Identifier: BSD-3-Clause
#include "core/memory/account.h"

#include <bit>

namespace turnout {

std::uint64_t queue_pair_bytes(QpService service, std::uint32_t max_send_wr, std::uint32_t max_sge,
                               std::uint32_t max_inline) noexcept {
  constexpr std::uint64_t kContext = 4096;
  if (service == QpService::dct) return kContext;  // a target has no send queue
  const auto align = [](std::uint64_t value, std::uint64_t to) {
    return (value + to - 1) / to * to;
  };
  std::uint64_t overhead = 16 + 16;              // control and remote-address segments
  if (service != QpService::rc) overhead += 48;  // address vector
  const std::uint64_t with_sges = overhead + 16 * std::uint64_t{max_sge};
  const std::uint64_t with_inline = overhead + align(4 + std::uint64_t{max_inline}, 16);
  const std::uint64_t entry = align(std::max(with_sges, with_inline), 64);
  return kContext + std::bit_ceil(std::max<std::uint64_t>(max_send_wr, 1) * entry);
}

}  // namespace turnout
