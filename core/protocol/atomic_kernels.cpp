// SPDX-License-Identifier: BSD-3-Clause
#include "core/protocol/atomic_kernels.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

namespace turnout {
namespace {

template <class F>
struct Complex {
  F re, im;
  friend bool operator==(const Complex& a, const Complex& b) noexcept {
    return a.re == b.re && a.im == b.im;
  }
};

// In the order of AtomicType.
using Types = std::tuple<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t,
                         std::uint32_t, std::int64_t, std::uint64_t, float, double, Complex<float>,
                         Complex<double>, long double, Complex<long double>>;
static_assert(std::tuple_size_v<Types> == kAtomicTypes);

template <class T>
constexpr bool kComplex = false;
template <class F>
constexpr bool kComplex<Complex<F>> = true;

template <class T>
bool truth(const T& value) noexcept {
  if constexpr (kComplex<T>) {
    return value.re != 0 || value.im != 0;
  } else {
    return value != 0;
  }
}

template <class T>
T from_truth(bool value) noexcept {
  if constexpr (kComplex<T>) {
    return {value ? decltype(T::re){1} : decltype(T::re){0}, 0};
  } else {
    return static_cast<T>(value);
  }
}

template <class T>
T sum_of(T a, T b) noexcept {
  if constexpr (kComplex<T>) {
    return {a.re + b.re, a.im + b.im};
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return a + b;
  }
}

template <class T>
T product_of(T a, T b) noexcept {
  if constexpr (kComplex<T>) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else {
    return a * b;
  }
}

// What is written where `old` is.
template <AtomicOp kOp, class T>
T result_of(T old, T operand, [[maybe_unused]] T compare) noexcept {
  using enum AtomicOp;
  if constexpr (kOp == min) return operand < old ? operand : old;
  if constexpr (kOp == max) return old < operand ? operand : old;
  if constexpr (kOp == sum) return sum_of(old, operand);
  if constexpr (kOp == prod) return product_of(old, operand);
  if constexpr (kOp == logical_or) return from_truth<T>(truth(old) || truth(operand));
  if constexpr (kOp == logical_and) return from_truth<T>(truth(old) && truth(operand));
  if constexpr (kOp == logical_xor) return from_truth<T>(truth(old) != truth(operand));
  if constexpr (kOp == bit_or) return static_cast<T>(old | operand);
  if constexpr (kOp == bit_and) return static_cast<T>(old & operand);
  if constexpr (kOp == bit_xor) return static_cast<T>(old ^ operand);
  if constexpr (kOp == read) return old;
  if constexpr (kOp == write) return operand;
  if constexpr (kOp == swap_if_equal) return compare == old ? operand : old;
  if constexpr (kOp == swap_if_not_equal) return compare == old ? old : operand;
  if constexpr (kOp == swap_if_le) return compare <= old ? operand : old;
  if constexpr (kOp == swap_if_lt) return compare < old ? operand : old;
  if constexpr (kOp == swap_if_ge) return compare >= old ? operand : old;
  if constexpr (kOp == swap_if_gt) return compare > old ? operand : old;
  if constexpr (kOp == masked_swap) {
    return static_cast<T>((operand & compare) | (old & static_cast<T>(~compare)));
  }
}

// void: no processor changes so many bytes in one piece.
template <std::size_t kSize>
using WordOf = std::conditional_t<
    kSize == 1, std::uint8_t,
    std::conditional_t<kSize == 2, std::uint16_t,
                       std::conditional_t<kSize == 4, std::uint32_t,
                                          std::conditional_t<kSize == 8, std::uint64_t, void>>>>;

template <AtomicOp kOp, class T>
T change(std::byte* at, const T& operand, const T& compare) noexcept {
  using Word = WordOf<sizeof(T)>;
  if constexpr (!std::is_void_v<Word>) {
    if (reinterpret_cast<std::uintptr_t>(at) % sizeof(Word) == 0) {
      auto* const word = reinterpret_cast<Word*>(at);
      Word before = __atomic_load_n(word, __ATOMIC_ACQUIRE);
      for (;;) {
        const T old = std::bit_cast<T>(before);
        const Word after = std::bit_cast<Word>(result_of<kOp>(old, operand, compare));
        // Memory that is only read may be read-only.
        if (after == before || __atomic_compare_exchange_n(word, &before, after, true,
                                                           __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
          return old;
        }
      }
    }
  }
  T old;
  std::memcpy(&old, at, sizeof old);
  if constexpr (kOp != AtomicOp::read) {
    const T after = result_of<kOp>(old, operand, compare);
    std::memcpy(at, &after, sizeof after);
  }
  return old;
}

using Kernel = void (*)(std::byte*, std::size_t, const AtomicOperands&, std::byte*) noexcept;

template <AtomicOp kOp, class T>
void run(std::byte* target, std::size_t count, const AtomicOperands& with,
         std::byte* fetched) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    T operand{}, compare{};
    if constexpr (kOp != AtomicOp::read) {
      std::memcpy(&operand, with.operands + i * sizeof(T), sizeof(T));
    }
    if constexpr (kOp >= AtomicOp::swap_if_equal) {
      std::memcpy(&compare, with.compare + i * sizeof(T), sizeof(T));
    }
    const T old = change<kOp>(target + i * sizeof(T), operand, compare);
    if (fetched != nullptr) std::memcpy(fetched + i * sizeof(T), &old, sizeof(T));
  }
}

constexpr bool exists_in_a_form(AtomicOp op, AtomicType type) noexcept {
  return exists(AtomicForm::fetch, op, type) || exists(AtomicForm::compare, op, type);
}

template <std::size_t kType, std::size_t kOp>
constexpr Kernel kernel() noexcept {
  using T = std::tuple_element_t<kType, Types>;
  static_assert(sizeof(T) == size_of(static_cast<AtomicType>(kType)));
  if constexpr (exists_in_a_form(static_cast<AtomicOp>(kOp), static_cast<AtomicType>(kType))) {
    return run<static_cast<AtomicOp>(kOp), T>;
  } else {
    return nullptr;
  }
}

template <std::size_t kType, std::size_t... kOps>
constexpr std::array<Kernel, kAtomicOps> kernels_of(std::index_sequence<kOps...>) noexcept {
  return {kernel<kType, kOps>()...};
}

template <std::size_t... kTypes>
constexpr auto all_kernels(std::index_sequence<kTypes...>) noexcept {
  return std::array{kernels_of<kTypes>(std::make_index_sequence<kAtomicOps>())...};
}

constexpr auto kKernels = all_kernels(std::make_index_sequence<kAtomicTypes>());

}  // namespace

void execute(AtomicOp op, AtomicType type, std::byte* target, std::size_t count,
             const AtomicOperands& with, std::byte* fetched) noexcept {
  kKernels[static_cast<std::size_t>(type)][static_cast<std::size_t>(op)](target, count, with,
                                                                         fetched);
}

}  // namespace turnout
