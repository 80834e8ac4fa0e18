// SPDX-License-Identifier: BSD-3-Clause
// IoctlCommand: one command of the kernel's newer uverbs interface, as a program hands it to
// ioctl(2) of /dev/infiniband/uverbsN: a method of an object, and its attributes.
//
// Attributes are copied once, so what the program changes meanwhile does not matter. What a method
// does not know is refused where the program says that it must be known: then, as where there is no
// such method, the answer is EPROTONOSUPPORT, and libibverbs falls back to write(2). Memory that is
// not there gives EFAULT. Used by one thread. Sources: rdma/rdma_user_ioctl_cmds.h,
// rdma/ib_user_ioctl_cmds.h, the kernel's Documentation/driver-api/infiniband.rst.
#pragma once

#include <rdma/rdma_user_ioctl_cmds.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

namespace turnout::hca {

class IoctlCommand {
 public:
  // What a method takes. Values are at least `bytes` long, lists of values a multiple of it.
  // Flags are a value of 4 or 8 bytes, read as 8.
  enum class Kind : std::uint8_t { handle, new_handle, value, flags, list, answer };
  struct Attribute {
    std::uint16_t id;
    Kind kind;
    std::uint16_t bytes = 0;  // of a value, of a list's element
    bool required = true;
  };

  // 0 or errno.
  [[nodiscard]] int read(const void* argument) noexcept;
  [[nodiscard]] std::uint16_t object() const noexcept { return object_; }
  [[nodiscard]] std::uint16_t method() const noexcept { return method_; }
  // Are these the attributes that there are? 0 or errno.
  [[nodiscard]] int check(std::span<const Attribute> known) const noexcept;

  [[nodiscard]] bool has(std::uint16_t id) const noexcept { return find(id) != nullptr; }
  // Of checked attributes. What is not there reads as zero.
  [[nodiscard]] std::uint32_t handle(std::uint16_t id) const noexcept;
  template <class T>
  [[nodiscard]] T value(std::uint16_t id) const noexcept {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    T out{};
    const Given* const given = find(id);
    if (given != nullptr) __builtin_memcpy(&out, &given->attribute.data, sizeof out);
    return out;
  }
  // Bytes of a list.
  [[nodiscard]] std::size_t list_bytes(std::uint16_t id) const noexcept;
  // A part of it, which lies within. 0 or EFAULT.
  [[nodiscard]] int list(std::uint16_t id, std::size_t at, void* to,
                         std::size_t bytes) const noexcept;

  // A struct that is given as a list of its bytes: what is missing reads as zero. 0 or EFAULT.
  template <class T>
  [[nodiscard]] int block(std::uint16_t id, T& to) const noexcept {
    to = {};
    return has(id) ? list(id, 0, &to, std::min(sizeof to, list_bytes(id))) : 0;
  }

  // Nothing is answered to whom did not ask.
  template <class T>
  void answer(std::uint16_t id, const T& answer) noexcept {
    put(id, &answer, sizeof answer);
  }
  // Bytes that there is room for in an answer, and an answer of any length.
  [[nodiscard]] std::size_t answer_bytes(std::uint16_t id) const noexcept { return list_bytes(id); }
  void answer(std::uint16_t id, std::span<const std::byte> bytes) noexcept {
    put(id, bytes.data(), bytes.size());
  }
  // Of a new object, or a descriptor.
  void answer_handle(std::uint16_t id, std::uint32_t handle) noexcept;
  // 0, or EFAULT when an answer had no memory to go to.
  [[nodiscard]] int answer_error() const noexcept { return answer_error_; }

 private:
  static constexpr std::size_t kMaxAttributes = 32;  // more than any method has
  struct Given {
    ib_uverbs_attr attribute;
    std::uint64_t place;  // where the program has it
  };

  [[nodiscard]] const Given* find(std::uint16_t id) const noexcept;
  void put(std::uint16_t id, const void* from, std::size_t bytes) noexcept;

  std::uint16_t object_ = 0, method_ = 0;
  std::size_t count_ = 0;  // of `given_`
  std::array<Given, kMaxAttributes> given_{};
  int answer_error_ = 0;
};

}  // namespace turnout::hca
