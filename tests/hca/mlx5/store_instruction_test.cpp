// SPDX-License-Identifier: BSD-3-Clause
// The instructions that store to doorbells, as the assembler encodes them.
#include "hca/mlx5/store_instruction.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <initializer_list>
#include <optional>
#include <vector>

#if defined(__x86_64__)

namespace turnout::hca {
namespace {

// The encoding of one instruction, at the end of a page behind which nothing may be read.
class Code {
 public:
  explicit Code(const std::vector<std::uint8_t>& bytes) {
    void* const pages =
        mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pages_ = static_cast<std::uint8_t*>(pages);
    mprotect(pages_ + kPage, kPage, PROT_NONE);
    at_ = pages_ + kPage - bytes.size();
    std::memcpy(at_, bytes.data(), bytes.size());
  }
  ~Code() { munmap(pages_, 2 * kPage); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  [[nodiscard]] const std::uint8_t* at() const { return at_; }

 private:
  static constexpr std::size_t kPage = 4096;
  std::uint8_t* pages_;
  std::uint8_t* at_;
};

// `instruction` in the text, between two labels.
#define ASSEMBLE(name, instruction)                                      \
  extern "C" const std::uint8_t name##_begin[], name##_end[];            \
  __asm__(".pushsection .text\n" #name "_begin: " instruction "\n" #name \
          "_end:\nnop\n"                                                 \
          ".popsection")

ASSEMBLE(store_rax, "movq %rax, (%rdi)");
ASSEMBLE(store_r9_near, "movq %r9, 0x18(%r12)");
ASSEMBLE(store_rdx_far, "movq %rdx, 0x12345(%r13)");
ASSEMBLE(store_indexed, "movq %rcx, 8(%rsp,%rbx,4)");
ASSEMBLE(store_relative, "movq %r15, 0x10(%rip)");
ASSEMBLE(store_word, "movl %esi, (%rax)");
ASSEMBLE(store_half, "movw %si, (%rax)");
ASSEMBLE(store_byte, "movb %sil, (%rax)");
ASSEMBLE(store_constant, "movq $-1, 0x800(%rax)");
ASSEMBLE(store_constant_word, "movl $7, (%rax)");
ASSEMBLE(store_constant_half, "movw $7, (%rax)");
ASSEMBLE(store_constant_byte, "movb $7, 4(%rax)");
ASSEMBLE(store_not_cached, "movnti %rax, (%rdx)");
ASSEMBLE(store_sse, "movups %xmm0, (%rdi)");
ASSEMBLE(store_sse_aligned, "movaps %xmm9, 0x40(%r8)");
ASSEMBLE(store_sse_long, "movq %xmm1, (%rdi)");
ASSEMBLE(store_sse_integers, "movdqu %xmm3, 0x10(%rdi)");
ASSEMBLE(store_sse_not_cached, "movntdq %xmm3, (%rdi)");
ASSEMBLE(store_avx, "vmovdqu %ymm0, (%rdi)");
ASSEMBLE(store_avx_extended, "vmovups %ymm12, 0x20(%r14)");
ASSEMBLE(store_avx_three, "vmovdqa %xmm11, 0x20(%r14)");
ASSEMBLE(store_avx512, "vmovdqu64 %zmm16, (%rdi)");
ASSEMBLE(store_avx512_near, "vmovdqu64 %zmm30, -0x40(%rdi,%rdx,1)");
ASSEMBLE(store_avx512_low, "vmovdqu64 %zmm9, 0x12345(%r12)");
ASSEMBLE(store_avx512_ymm, "vmovdqu8 %ymm23, 0x20(%r8)");
ASSEMBLE(store_mmx, "movq %mm3, (%rdi)");
ASSEMBLE(store_float, "movss %xmm3, (%rdi)");
ASSEMBLE(store_double, "movsd %xmm3, (%rdi)");

struct Known {
  const std::uint8_t* begin;
  const std::uint8_t* end;
  std::uint32_t bytes;
  int general_register;
  int vector_register;
};
#define KNOWN(name, bytes, number)              \
  Known {                                       \
    name##_begin, name##_end, bytes, number, -1 \
  }
#define VECTOR(name, number)                \
  Known {                                   \
    name##_begin, name##_end, 0, -1, number \
  }

TEST(StoreInstruction, DecodesWhatCompilersMake) {
  const Known known[] = {
      KNOWN(store_rax, 8, 0),
      KNOWN(store_r9_near, 8, 9),
      KNOWN(store_rdx_far, 8, 2),
      KNOWN(store_indexed, 8, 1),
      KNOWN(store_relative, 8, 15),
      KNOWN(store_word, 4, 6),
      KNOWN(store_half, 2, 6),
      KNOWN(store_byte, 1, -1),
      KNOWN(store_constant, 8, -1),
      KNOWN(store_constant_word, 4, -1),
      KNOWN(store_constant_half, 2, -1),
      KNOWN(store_constant_byte, 1, -1),
      KNOWN(store_not_cached, 8, 0),
      VECTOR(store_sse, 0),
      VECTOR(store_sse_aligned, 9),
      VECTOR(store_sse_long, 1),
      VECTOR(store_sse_integers, 3),
      VECTOR(store_sse_not_cached, 3),
      VECTOR(store_avx, 0),
      VECTOR(store_avx_extended, 12),
      VECTOR(store_avx_three, 11),
      VECTOR(store_avx512, 16),
      VECTOR(store_avx512_near, 30),
      VECTOR(store_avx512_low, 9),
      VECTOR(store_avx512_ymm, 23),
      VECTOR(store_double, 3),
      VECTOR(store_mmx, -1),
      VECTOR(store_float, -1),
  };
  for (const Known& one : known) {
    const Code code({one.begin, one.end});
    const auto found = decode_store(code.at());
    const auto place = &one - known;
    ASSERT_TRUE(found.has_value()) << place;
    EXPECT_EQ(found->length, one.end - one.begin) << place;
    EXPECT_EQ(found->bytes, one.bytes) << place;
    EXPECT_EQ(found->general_register, one.general_register) << place;
    EXPECT_EQ(found->vector_register, one.vector_register) << place;
  }
}

TEST(StoreInstruction, RefusesOthers) {
  const std::vector<std::uint8_t> others[] = {
      {0x48, 0x8b, 0x07},                    // mov (%rdi), %rax: a load
      {0x48, 0x89, 0xc7},                    // mov %rax, %rdi: no memory
      {0x0f, 0x10, 0x07},                    // movups (%rdi), %xmm0: a load
      {0x0f, 0x11, 0xc1},                    // movups %xmm0, %xmm1
      {0xf3, 0x48, 0xa5},                    // rep movsq
      {0xf0, 0x48, 0x0f, 0xc1, 0x07},        // lock xadd %rax, (%rdi)
      {0x48, 0x87, 0x07},                    // xchg %rax, (%rdi)
      {0xc4, 0xe2, 0x7d, 0x58, 0x07},        // VEX of another map
      {0xc5, 0xfc, 0x28, 0x07},              // vmovaps (%rdi), %ymm0: a load
      {0x62, 0xe1, 0xfe, 0x48, 0x6f, 0x06},  // vmovdqu64 (%rsi), %zmm16: a load
      {0x62, 0xe2, 0xfe, 0x48, 0x7f, 0x07},  // EVEX of another map
      {0x66, 0x66, 0x66, 0x66, 0x90},        // more prefixes than a store has
  };
  for (const auto& bytes : others) {
    const Code code(bytes);
    EXPECT_FALSE(decode_store(code.at()).has_value()) << int{bytes[0]} << ' ' << int{bytes[1]};
  }
}

ASSEMBLE(load_word, "movl (%rax), %edx");
ASSEMBLE(load_word_near, "movl 4(%r9), %r10d");
ASSEMBLE(load_long_indexed, "movq 8(%rsp,%rbx,4), %rdi");

TEST(LoadInstruction, DecodesPlainLoads) {
  const Known known[] = {
      KNOWN(load_word, 4, 2),
      KNOWN(load_word_near, 4, 10),
      KNOWN(load_long_indexed, 8, 7),
  };
  for (const Known& one : known) {
    const Code code({one.begin, one.end});
    const auto found = decode_load(code.at());
    const auto place = &one - known;
    ASSERT_TRUE(found.has_value()) << place;
    EXPECT_EQ(found->length, one.end - one.begin) << place;
    EXPECT_EQ(found->bytes, one.bytes) << place;
    EXPECT_EQ(found->general_register, one.general_register) << place;
  }
  EXPECT_FALSE(decode_load(Code({0x89, 0x07}).at()).has_value());        // a store
  EXPECT_FALSE(decode_load(Code({0x8b, 0xc7}).at()).has_value());        // no memory
  EXPECT_FALSE(decode_load(Code({0x66, 0x8b, 0x07}).at()).has_value());  // two bytes
}

}  // namespace
}  // namespace turnout::hca

#endif
