// SPDX-License-Identifier: BSD-3-Clause
#include "hca/mlx5/command.h"

#include <rdma/ib_user_verbs.h>

namespace turnout::hca {

int Mlx5Command::read(const void* bytes, std::size_t count) noexcept {
  const auto from = reinterpret_cast<std::uint64_t>(bytes);
  ib_uverbs_cmd_hdr head;
  if (count < sizeof head) return EINVAL;
  if (!copy_from_program(&head, from, sizeof head)) return EFAULT;
  constexpr std::uint32_t kKnown = IB_USER_VERBS_CMD_COMMAND_MASK | IB_USER_VERBS_CMD_FLAG_EXTENDED;
  if ((head.command & ~kKnown) != 0) return EINVAL;
  number_ = head.command & IB_USER_VERBS_CMD_COMMAND_MASK;
  extended_ = (head.command & IB_USER_VERBS_CMD_FLAG_EXTENDED) != 0;
  std::size_t at = sizeof head;
  constexpr std::size_t kWord = 4, kExtendedWord = 8;
  if (extended_) {
    ib_uverbs_ex_cmd_hdr more;
    if (count < at + sizeof more) return EINVAL;
    if (!copy_from_program(&more, from + at, sizeof more)) return EFAULT;
    at += sizeof more;
    driver_at_ = body_bytes_ = head.in_words * kExtendedWord;
    total_bytes_ = body_bytes_ + more.provider_in_words * kExtendedWord;
    response_ = more.response;
    response_bytes_ = head.out_words * kExtendedWord;
    driver_bytes_ = more.provider_out_words * kExtendedWord;
    if (more.cmd_hdr_reserved != 0) return EINVAL;
  } else {
    if (head.in_words * kWord < at) return EINVAL;
    body_bytes_ = total_bytes_ = head.in_words * kWord - at;
    response_bytes_ = head.out_words * kWord;
  }
  if (at + total_bytes_ != count || total_bytes_ > body_.size()) return EINVAL;
  return copy_from_program(body_.data(), from + at, total_bytes_) ? 0 : EFAULT;
}

}  // namespace turnout::hca
