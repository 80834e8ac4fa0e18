// SPDX-License-Identifier: BSD-3-Clause
// Handles: objects of one command file by the numbers that its commands name them with.
//
// Owns what it holds. The lock of the command file guards it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace turnout::hca {

template <class T>
class Handles {
 public:
  [[nodiscard]] std::uint32_t add(std::unique_ptr<T> object) {
    for (std::size_t i = first_free_; i < objects_.size(); ++i) {
      if (objects_[i] != nullptr) continue;
      objects_[i] = std::move(object);
      first_free_ = i + 1;
      return static_cast<std::uint32_t>(i);
    }
    objects_.push_back(std::move(object));
    first_free_ = objects_.size();
    return static_cast<std::uint32_t>(objects_.size() - 1);
  }
  // Null: there is none of this number.
  [[nodiscard]] T* find(std::uint32_t handle) const noexcept {
    return handle < objects_.size() ? objects_[handle].get() : nullptr;
  }
  // The first for which matches(object); null: there is none.
  template <class Matches>
  [[nodiscard]] T* find_if(const Matches& matches) const {
    for (const std::unique_ptr<T>& object : objects_) {
      if (object != nullptr && matches(*object)) return object.get();
    }
    return nullptr;
  }
  void remove(std::uint32_t handle) noexcept {
    objects_[handle].reset();
    if (handle < first_free_) first_free_ = handle;
  }
  // As clear(), but those for which first(object) before the others.
  template <class First, class End>
  void clear_in_order(const First& first, const End& end) {
    for (std::unique_ptr<T>& object : objects_) {
      if (object == nullptr || !first(*object)) continue;
      end(*object);
      object.reset();
    }
    clear(end);
  }
  // end(object) for each, the latest first; then there are none.
  template <class End>
  void clear(const End& end) {
    while (!objects_.empty()) {
      if (objects_.back() != nullptr) end(*objects_.back());
      objects_.pop_back();
    }
    first_free_ = 0;
  }

 private:
  std::vector<std::unique_ptr<T>> objects_;
  std::size_t first_free_ = 0;  // none lower is free
};

}  // namespace turnout::hca
