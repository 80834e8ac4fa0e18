// SPDX-License-Identifier: BSD-3-Clause
// Table: a copy of a provider's table of operations, in which some are replaced by ours.
//
// It owns the copy; the provider's own table stays the provider's and outlives it. The record of an
// object (object.h) owns its tables and is found from a copy by owner_of(). One thread copies and
// replaces; any thread reads. Sizes are bytes. No errors. Source: fi_fabric(3) to fi_endpoint(3):
// every table begins with its size, and may be shorter or longer than these headers have it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>

namespace turnout::record::libfabric {

// The owner's address lies before the copy; the room keeps the copy aligned.
inline constexpr std::size_t kOwnerRoom = 16;

template <class Ops>
class Table {
 public:
  // As large as the provider's, and as this header's, with zeros where the provider's ends.
  void copy(const Ops* real, void* owner) {
    real_ = real;
    if (real == nullptr) return;
    const std::size_t size = std::max(real->size, sizeof(Ops));
    bytes_ = std::make_unique<std::byte[]>(kOwnerRoom + size);
    std::memcpy(bytes_.get(), &owner, sizeof owner);
    std::memcpy(bytes_.get() + kOwnerRoom, real, real->size);
  }
  // Null: the provider has no such table.
  [[nodiscard]] Ops* get() noexcept {
    return real_ == nullptr ? nullptr : reinterpret_cast<Ops*>(bytes_.get() + kOwnerRoom);
  }
  [[nodiscard]] const Ops* real() const noexcept { return real_; }
  // Where the provider has this operation, ours takes its place.
  template <class Function>
  void replace(Function Ops::*operation, Function with) noexcept {
    if (real_ != nullptr && get()->*operation != nullptr) get()->*operation = with;
  }
  // Of an object's field that holds a table: ours, or the provider's.
  void take(Ops** field) noexcept { *field = get(); }
  void restore(Ops** field) const noexcept { *field = const_cast<Ops*>(real_); }

 private:
  const Ops* real_ = nullptr;
  std::unique_ptr<std::byte[]> bytes_;
};

// Of a table that Table made, with the type that it was given.
template <class Owner, class Ops>
[[nodiscard]] Owner& owner_of(const Ops* ops) noexcept {
  void* owner = nullptr;
  std::memcpy(&owner, reinterpret_cast<const std::byte*>(ops) - kOwnerRoom, sizeof owner);
  return *static_cast<Owner*>(owner);
}

}  // namespace turnout::record::libfabric
