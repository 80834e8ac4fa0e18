// SPDX-License-Identifier: BSD-3-Clause
#include "core/types/atomic.h"

#include <fmt/format.h>

namespace turnout {

Status check_request(AtomicForm form, AtomicOp op, AtomicType type, std::uint64_t count) {
  const auto form_number = static_cast<unsigned>(form), op_number = static_cast<unsigned>(op),
             type_number = static_cast<unsigned>(type);
  if (form_number > static_cast<unsigned>(AtomicForm::compare) || op_number >= kAtomicOps ||
      type_number >= kAtomicTypes || !exists(form, op, type)) {
    return {Code::invalid,
            fmt::format("atomic: operation {} of form {} is not supported on type {}", op_number,
                        form_number, type_number)};
  }
  const std::size_t most = most_elements(form, type);
  if (count == 0 || count > most) {
    return {Code::invalid, fmt::format("atomic: count {} is out of range: 1 to {} for type {}",
                                       count, most, type_number)};
  }
  return {};
}

}  // namespace turnout
