// SPDX-License-Identifier: BSD-3-Clause
// Every atomic operation on every type against a plain reference, and beside the program's own
// atomics.
#include "core/protocol/atomic_kernels.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/support/atomic_reference.h"

namespace turnout {
namespace {

TEST(AtomicKernels, DoWhatTheReferenceDoes) {
  std::mt19937_64 random(7);
  for_each_atomic_type([&]<class T>(T, AtomicType type) {
    ASSERT_EQ(sizeof(T), size_of(type));
    constexpr std::size_t kCount = 40;
    alignas(16) std::byte target[kCount * sizeof(T) + 1], operands[kCount * sizeof(T) + 1],
        compare[kCount * sizeof(T) + 1], fetched[kCount * sizeof(T) + 1];
    for (std::size_t o = 0; o < kAtomicOps; ++o) {
      const auto op = static_cast<AtomicOp>(o);
      const bool compares = exists(AtomicForm::compare, op, type);
      if (!compares && !exists(AtomicForm::fetch, op, type)) continue;
      // Operands lie anywhere; the target too, where no processor changes it in one piece.
      const std::size_t at = alignment_of(type) == 1 ? 1 : 0;
      for (int round = 0; round < 20; ++round) {
        T before[kCount], after[kCount];
        for (std::size_t i = 0; i < kCount; ++i) {
          const T value = random_value<T>(random);
          before[i] = random_value<T>(random);
          const T other = random() % 2 == 0 ? before[i] : random_value<T>(random);
          after[i] = reference(op, before[i], value, other);
          put(before[i], target + at + i * sizeof(T));
          put(value, operands + 1 + i * sizeof(T));
          put(other, compare + 1 + i * sizeof(T));
        }
        AtomicOperands with;
        if (has_operands(op)) with.operands = operands + 1;
        if (compares) with.compare = compare + 1;
        execute(op, type, target + at, kCount, with, round % 2 == 0 ? fetched + 1 : nullptr);
        for (std::size_t i = 0; i < kCount; ++i) {
          ASSERT_EQ(get<T>(target + at + i * sizeof(T)), after[i])
              << "operation " << o << " on type " << static_cast<int>(type);
          if (round % 2 == 0) {
            ASSERT_EQ(get<T>(fetched + 1 + i * sizeof(T)), before[i]);
          }
        }
      }
    }
  });
}

TEST(AtomicKernels, WhichOperationsThereAre) {
  using enum AtomicOp;
  std::size_t updates = 0, fetches = 0, compares = 0;
  for_each_atomic_type([&](auto, AtomicType type) {
    for (std::size_t o = 0; o < kAtomicOps; ++o) {
      const auto op = static_cast<AtomicOp>(o);
      updates += exists(AtomicForm::update, op, type);
      fetches += exists(AtomicForm::fetch, op, type);
      compares += exists(AtomicForm::compare, op, type);
    }
    for (const AtomicForm form : kAtomicForms) EXPECT_GE(most_elements(form, type), 4u);
  });
  // 8 integers, 3 reals, 3 complex numbers.
  EXPECT_EQ(updates, 8u * 11 + 3 * 8 + 3 * 6);
  EXPECT_EQ(fetches, updates + kAtomicTypes) << "and read";
  EXPECT_EQ(compares, 8u * 7 + 3 * 6 + 3 * 2);
  EXPECT_FALSE(exists(AtomicForm::update, read, AtomicType::int64));
  EXPECT_FALSE(exists(AtomicForm::fetch, swap_if_equal, AtomicType::int64));
  EXPECT_FALSE(exists(AtomicForm::compare, sum, AtomicType::int64));
}

// The program's processors change the same words all the time.
template <class T>
void share(AtomicType type) {
  constexpr int kTimes = 50'000;
  alignas(8) T word = 0;
  std::atomic<bool> go = false;
  std::thread beside([&] {
    while (!go) std::this_thread::yield();
    for (int i = 0; i < kTimes; ++i) std::atomic_ref<T>(word).fetch_add(1);
  });
  go = true;
  const T one = 1;
  AtomicOperands with;
  with.operands = reinterpret_cast<const std::byte*>(&one);
  for (int i = 0; i < kTimes; ++i) {
    execute(AtomicOp::sum, type, reinterpret_cast<std::byte*>(&word), 1, with, nullptr);
  }
  beside.join();
  EXPECT_EQ(word, static_cast<T>(2 * kTimes));
}

TEST(AtomicKernels, AgreeWithTheProcessorsAtomics) {
  share<std::uint8_t>(AtomicType::uint8);
  share<std::uint16_t>(AtomicType::uint16);
  share<std::int32_t>(AtomicType::int32);
  share<std::uint64_t>(AtomicType::uint64);
  share<float>(AtomicType::float32);
  share<double>(AtomicType::float64);
}

TEST(AtomicKernels, ReadingNeedsNoMoreThanReading) {
  static const std::uint64_t kConstant = 42;  // its page cannot be written
  std::uint64_t seen = 0;
  execute(AtomicOp::read, AtomicType::uint64,
          const_cast<std::byte*>(reinterpret_cast<const std::byte*>(&kConstant)), 1, {},
          reinterpret_cast<std::byte*>(&seen));
  EXPECT_EQ(seen, 42u);
}

}  // namespace
}  // namespace turnout
