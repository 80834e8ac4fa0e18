// SPDX-License-Identifier: BSD-3-Clause
#include "hca/mlx5/ioctl_command.h"

#include <algorithm>

#include "hca/mlx5/program_memory.h"

namespace turnout::hca {
namespace {

constexpr std::size_t kInline = sizeof(std::uint64_t);  // values up to here lie in the attribute

}  // namespace

int IoctlCommand::read(const void* argument) noexcept {
  const auto from = reinterpret_cast<std::uint64_t>(argument);
  ib_uverbs_ioctl_hdr head;
  if (!copy_from_program(&head, from, sizeof head)) return EFAULT;
  if (head.length != sizeof head + head.num_attrs * sizeof(ib_uverbs_attr)) return EINVAL;
  if (head.reserved1 != 0 || head.reserved2 != 0 || head.num_attrs > kMaxAttributes) {
    return EPROTONOSUPPORT;
  }
  object_ = head.object_id;
  method_ = head.method_id;
  count_ = head.num_attrs;
  std::array<ib_uverbs_attr, kMaxAttributes> attributes;
  if (!copy_from_program(attributes.data(), from + sizeof head, head.length - sizeof head)) {
    return EFAULT;
  }
  for (std::size_t i = 0; i < count_; ++i) {
    const std::uint16_t id = attributes[i].attr_id;
    if (std::any_of(given_.data(), given_.data() + i,
                    [=](const Given& other) { return other.attribute.attr_id == id; })) {
      return EINVAL;
    }
    given_[i] = {attributes[i], from + sizeof head + i * sizeof(ib_uverbs_attr)};
  }
  return 0;
}

int IoctlCommand::check(std::span<const Attribute> known) const noexcept {
  for (const Given& given : std::span(given_).first(count_)) {
    const ib_uverbs_attr& attribute = given.attribute;
    const auto found = std::find_if(known.begin(), known.end(), [&](const Attribute& one) {
      return one.id == attribute.attr_id;
    });
    if ((attribute.flags & ~std::uint32_t{UVERBS_ATTR_F_MANDATORY}) != 0) return EINVAL;
    if (found == known.end()) {
      if ((attribute.flags & UVERBS_ATTR_F_MANDATORY) != 0) return EPROTONOSUPPORT;
      continue;
    }
    switch (found->kind) {
      case Kind::handle:
      case Kind::new_handle:
        if (attribute.len != 0) return EINVAL;
        break;
      case Kind::value:
        // A longer one says what nobody here understands.
        if (attribute.len != found->bytes) return attribute.len > kInline ? EOPNOTSUPP : EINVAL;
        break;
      case Kind::flags:
        if (attribute.len != kInline / 2 && attribute.len != kInline) return EINVAL;
        break;
      case Kind::list:
        if (attribute.len == 0 || attribute.len % found->bytes != 0) return EINVAL;
        break;
      case Kind::answer:
        if (attribute.len < found->bytes) return EINVAL;
        break;
    }
  }
  const bool complete = std::all_of(known.begin(), known.end(), [this](const Attribute& one) {
    return !one.required || find(one.id) != nullptr;
  });
  return complete ? 0 : EINVAL;
}

const IoctlCommand::Given* IoctlCommand::find(std::uint16_t id) const noexcept {
  const auto given = std::span(given_).first(count_);
  const auto found = std::find_if(given.begin(), given.end(),
                                  [=](const Given& one) { return one.attribute.attr_id == id; });
  return found != given.end() ? &*found : nullptr;
}

std::uint32_t IoctlCommand::handle(std::uint16_t id) const noexcept {
  const Given* const given = find(id);
  if (given == nullptr) return 0;
  // No object has a number beyond 32 bits.
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(given->attribute.data, UINT32_MAX));
}

std::size_t IoctlCommand::list_bytes(std::uint16_t id) const noexcept {
  const Given* const given = find(id);
  return given != nullptr ? given->attribute.len : 0;
}

int IoctlCommand::list(std::uint16_t id, std::size_t at, void* to,
                       std::size_t bytes) const noexcept {
  const ib_uverbs_attr& attribute = find(id)->attribute;
  if (attribute.len <= kInline) {
    __builtin_memcpy(to, reinterpret_cast<const std::byte*>(&attribute.data) + at, bytes);
    return 0;
  }
  return copy_from_program(to, attribute.data + at, bytes) ? 0 : EFAULT;
}

void IoctlCommand::put(std::uint16_t id, const void* from, std::size_t bytes) noexcept {
  const Given* const given = find(id);
  if (given == nullptr) return;
  const ib_uverbs_attr& attribute = given->attribute;
  const auto flags = static_cast<std::uint16_t>(attribute.flags | UVERBS_ATTR_F_VALID_OUTPUT);
  if (!copy_to_program(attribute.data, from, std::min<std::size_t>(bytes, attribute.len)) ||
      !copy_to_program(given->place + offsetof(ib_uverbs_attr, flags), &flags, sizeof flags)) {
    answer_error_ = EFAULT;
  }
}

void IoctlCommand::answer_handle(std::uint16_t id, std::uint32_t handle) noexcept {
  const Given* const given = find(id);
  const std::uint64_t number = handle;
  if (given != nullptr &&
      !copy_to_program(given->place + offsetof(ib_uverbs_attr, data), &number, sizeof number)) {
    answer_error_ = EFAULT;
  }
}

}  // namespace turnout::hca
