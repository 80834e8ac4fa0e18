// SPDX-License-Identifier: BSD-3-Clause
// What atomic operations must do, written plainly and apart from the core: one element at a time,
// integers by 128-bit arithmetic, complex numbers by the standard library's.
#pragma once

#include <complex>
#include <cstdint>
#include <cstring>
#include <random>
#include <tuple>
#include <type_traits>
#include <vector>

#include "core/types/atomic.h"

namespace turnout {

__extension__ typedef __int128 Wide;

template <class T>
constexpr bool kIsComplex = false;
template <class F>
constexpr bool kIsComplex<std::complex<F>> = true;

// In the order of AtomicType.
using AtomicReferenceTypes =
    std::tuple<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t,
               std::int64_t, std::uint64_t, float, double, std::complex<float>,
               std::complex<double>, long double, std::complex<long double>>;

template <class T>
T arithmetic(AtomicOp op, T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    const Wide x = a, y = b;
    return static_cast<T>(op == AtomicOp::sum ? x + y : x * y);
  } else {
    return op == AtomicOp::sum ? a + b : a * b;
  }
}

template <class T>
T bits(AtomicOp op, T a, T b, T mask) {
  if constexpr (std::is_integral_v<T>) {
    switch (op) {
      case AtomicOp::bit_or:
        return static_cast<T>(a | b);
      case AtomicOp::bit_and:
        return static_cast<T>(a & b);
      case AtomicOp::bit_xor:
        return static_cast<T>(a ^ b);
      default:
        for (unsigned i = 0; i < 8 * sizeof(T); ++i) {
          const auto bit = static_cast<T>(T{1} << i);
          if ((mask & bit) != 0) a = static_cast<T>((a & ~bit) | (b & bit));
        }
    }
  }
  return a;
}

// -1, 0, 1; complex numbers are equal or not.
template <class T>
int order(T a, T b) {
  if constexpr (kIsComplex<T>) {
    return a == b ? 0 : 1;
  } else {
    return a == b ? 0 : a < b ? -1 : 1;
  }
}

// What is there after the operation.
template <class T>
T reference(AtomicOp op, T old, T operand, T compare) {
  const bool x = old != T{}, y = operand != T{};
  const int left = order(compare, old);
  switch (op) {
    case AtomicOp::min:
      return order(operand, old) < 0 ? operand : old;
    case AtomicOp::max:
      return order(operand, old) > 0 ? operand : old;
    case AtomicOp::sum:
    case AtomicOp::prod:
      return arithmetic(op, old, operand);
    case AtomicOp::logical_or:
      return x || y ? T(1) : T(0);
    case AtomicOp::logical_and:
      return x && y ? T(1) : T(0);
    case AtomicOp::logical_xor:
      return x != y ? T(1) : T(0);
    case AtomicOp::bit_or:
    case AtomicOp::bit_and:
    case AtomicOp::bit_xor:
    case AtomicOp::masked_swap:
      return bits(op, old, operand, compare);
    case AtomicOp::read:
      return old;
    case AtomicOp::write:
      return operand;
    case AtomicOp::swap_if_equal:
      return left == 0 ? operand : old;
    case AtomicOp::swap_if_not_equal:
      return left != 0 ? operand : old;
    case AtomicOp::swap_if_le:
      return left <= 0 ? operand : old;
    case AtomicOp::swap_if_lt:
      return left < 0 ? operand : old;
    case AtomicOp::swap_if_ge:
      return left >= 0 ? operand : old;
    case AtomicOp::swap_if_gt:
      return left > 0 ? operand : old;
  }
  return old;
}

// Integers of any size now and then, else small numbers, whose results are exact in every type.
template <class T>
T random_value(std::mt19937_64& random) {
  const auto small = static_cast<std::int64_t>(random() % 9) - 4;
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(random() % 2 == 0 ? random() : static_cast<std::uint64_t>(small));
  } else if constexpr (kIsComplex<T>) {
    using F = typename T::value_type;
    return {static_cast<F>(small), static_cast<F>(static_cast<int>(random() % 3) - 1)};
  } else {
    return static_cast<T>(small);
  }
}

// Clears what is no part of the value first (long double has such bytes).
template <class T>
void put(T value, std::byte* to) {
  std::memset(to, 0, sizeof(T));
  std::memcpy(to, &value, sizeof value);
}
template <class T>
T get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Calls visit(T{}, type) for every type.
template <class Visit>
void for_each_atomic_type(Visit&& visit) {
  [&]<std::size_t... kTypes>(std::index_sequence<kTypes...>) {
    (visit(std::tuple_element_t<kTypes, AtomicReferenceTypes>{}, static_cast<AtomicType>(kTypes)),
     ...);
  }
  (std::make_index_sequence<kAtomicTypes>());
}

inline constexpr AtomicForm kAtomicForms[] = {AtomicForm::update, AtomicForm::fetch,
                                              AtomicForm::compare};

}  // namespace turnout
