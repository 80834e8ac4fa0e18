// SPDX-License-Identifier: BSD-3-Clause
// Atomic operations on a peer's memory: which there are, on which types, and how many elements one
// takes. Plain data; what they do is in protocol/atomic_kernels.h.
//
// Names and order are those of libfabric (fi_atomic(3)), so that the provider's numbers are these.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace turnout {

enum class AtomicType : std::uint8_t {
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float32,
  float64,
  complex_float32,
  complex_float64,
  long_double,
  complex_long_double,
};
inline constexpr std::size_t kAtomicTypes = 14;

enum class AtomicOp : std::uint8_t {
  min,
  max,
  sum,
  prod,
  logical_or,
  logical_and,
  bit_or,
  bit_and,
  logical_xor,
  bit_xor,
  read,
  write,
  // Of the form `compare`: the operand is written if the compare value is (==, !=, <=, ...) what is
  // there.
  swap_if_equal,
  swap_if_not_equal,
  swap_if_le,
  swap_if_lt,
  swap_if_ge,
  swap_if_gt,
  masked_swap,  // the bits that are set in the compare value
};
inline constexpr std::size_t kAtomicOps = 19;

enum class AtomicForm : std::uint8_t {
  update,   // nothing comes back
  fetch,    // what was there before comes back
  compare,  // the same, and compare values go with the operands
};

// Bytes of operands and compare values that one request may carry. With all headers it fits the
// smallest message that any channel takes (wire.h), and both ends keep that much for each request
// that is under way.
inline constexpr std::size_t kAtomicLimit = 256;
// Requests of one endpoint to another that may be under way; later ones wait for answers.
inline constexpr std::uint32_t kAtomicWindow = 16;

[[nodiscard]] constexpr std::size_t size_of(AtomicType type) noexcept {
  constexpr std::size_t kLong = sizeof(long double);
  constexpr std::size_t sizes[kAtomicTypes] = {1, 1, 2, 2, 4,  4,     8,
                                               8, 4, 8, 8, 16, kLong, 2 * kLong};
  return sizes[static_cast<std::size_t>(type)];
}
[[nodiscard]] constexpr bool is_integer(AtomicType type) noexcept {
  return type <= AtomicType::uint64;
}
[[nodiscard]] constexpr bool is_complex(AtomicType type) noexcept {
  return type == AtomicType::complex_float32 || type == AtomicType::complex_float64 ||
         type == AtomicType::complex_long_double;
}
// Where an element may lie: one that the processor changes in one piece must not be split.
[[nodiscard]] constexpr std::size_t alignment_of(AtomicType type) noexcept {
  return is_complex(type) || type == AtomicType::long_double ? 1 : size_of(type);
}

[[nodiscard]] constexpr bool exists(AtomicForm form, AtomicOp op, AtomicType type) noexcept {
  if ((op >= AtomicOp::swap_if_equal) != (form == AtomicForm::compare)) return false;
  switch (op) {
    case AtomicOp::min:
    case AtomicOp::max:
    case AtomicOp::swap_if_le:
    case AtomicOp::swap_if_lt:
    case AtomicOp::swap_if_ge:
    case AtomicOp::swap_if_gt:
      return !is_complex(type);
    case AtomicOp::bit_or:
    case AtomicOp::bit_and:
    case AtomicOp::bit_xor:
    case AtomicOp::masked_swap:
      return is_integer(type);
    case AtomicOp::read:
      return form == AtomicForm::fetch;
    default:
      return true;
  }
}

[[nodiscard]] constexpr bool has_operands(AtomicOp op) noexcept {
  return op != AtomicOp::read;
}
// Elements that one request may name at most.
[[nodiscard]] constexpr std::size_t most_elements(AtomicForm form, AtomicType type) noexcept {
  return kAtomicLimit / size_of(type) / (form == AtomicForm::compare ? 2 : 1);
}
// Whether there is such a request; form, operation and type may be any numbers. Errors: invalid.
[[nodiscard]] inline Status check_request(AtomicForm form, AtomicOp op, AtomicType type,
                                          std::uint64_t count) {
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
