// SPDX-License-Identifier: BSD-3-Clause
// JsonReader: reads members of one JSON object that may be damaged; remembers in a Status the first
// thing that is wrong, with its place, and reads nothing after it. For files of others: reports,
// kept results. Errors: invalid. One thread.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/status.h"
#include "core/types/channel_kind.h"

namespace turnout {

using Json = nlohmann::ordered_json;

// JSON has no infinity.
[[nodiscard]] inline double finite(double v) {
  return std::isfinite(v) ? v : 0;
}

class JsonReader {
 public:
  // `what` the object is part of, for messages: "a report". It and the object outlive the reader.
  JsonReader(std::string_view what, const Json& object, std::string place, Status* status)
      : what_(what), object_(object), place_(std::move(place)), status_(status) {
    if (!object_.is_object()) wrong("", "an object");
  }

  void get(const char* key, std::string* out) const { take(key, &Json::is_string, "text", out); }
  void get(const char* key, bool* out) const { take(key, &Json::is_boolean, "true or false", out); }
  void get(const char* key, double* out) const {
    take(key, &Json::is_number, "a number", out);
    *out = finite(*out);
  }
  template <class Integer>
  void get(const char* key, Integer* out) const {
    static_assert(std::is_integral_v<Integer>);
    const Json* const v = member(key);
    if (v != nullptr && !integer(*v, out)) wrong(key, "an integer in range");
  }
  // False: it is none, or not in range.
  template <class Integer>
  [[nodiscard]] static bool integer(const Json& value, Integer* out) {
    const auto fits = [out](auto number) {
      if (!std::in_range<Integer>(number)) return false;
      *out = static_cast<Integer>(number);
      return true;
    };
    if (value.is_number_unsigned()) return fits(value.get<std::uint64_t>());
    return value.is_number_integer() && fits(value.get<std::int64_t>());
  }
  // In quotes; with `0x` before it only where a report may have it so.
  void get_hex(const char* key, std::uint64_t* out, bool may_have_prefix = false) const {
    std::string text;
    get(key, &text);
    const char* const end = text.data() + text.size();
    const std::size_t skip = may_have_prefix && text.starts_with("0x") ? 2 : 0;
    const auto [next, error] = std::from_chars(text.data() + skip, end, *out, 16);
    if (error != std::errc{} || next != end) wrong(key, "a hexadecimal number in quotes");
  }
  void get(const char* key, ChannelKind* out) const {
    get_name(key, kChannelNames, "a channel name", out);
  }
  // One of an enumeration's names, in its order.
  template <class Names, class Kind>
  void get_name(const char* key, const Names& names, std::string_view expected, Kind* out) const {
    std::string text;
    get(key, &text);
    if (const std::optional<std::size_t> kind = index_of(names, text)) {
      *out = static_cast<Kind>(*kind);
    } else {
      wrong(key, expected);
    }
  }
  // Calls read(element, place) for every element of the array `key`, which has at most so many.
  template <class Read>
  void each(const char* key, Read read,
            std::size_t most = std::numeric_limits<std::size_t>::max()) const {
    const Json* v = member(key);
    if (v == nullptr) return;
    if (!v->is_array() || v->size() > most) {
      wrong(key, "an array");
      return;
    }
    std::size_t i = 0;
    for (const Json& element : *v) {
      if (!status_->ok()) return;
      read(element, fmt::format("{}{}[{}].", place_, key, i++));
    }
  }
  // Null: it is not there, which is no error.
  [[nodiscard]] const Json* optional(const char* key) const {
    if (!status_->ok()) return nullptr;
    const auto found = object_.find(key);
    return found != object_.end() ? &*found : nullptr;
  }
  [[nodiscard]] bool has(const char* key) const { return optional(key) != nullptr; }
  [[nodiscard]] const Json* member(const char* key) const {
    if (!status_->ok()) return nullptr;
    if (const Json* const found = optional(key)) return found;
    *status_ = {Code::invalid, fmt::format("{} without \"{}{}\"", what_, place_, key)};
    return nullptr;
  }
  [[nodiscard]] const std::string& place() const { return place_; }

  // `key`: of a member, or "key[0]" of one of its elements.
  void wrong(std::string_view key, std::string_view expected) const {
    if (status_->ok()) {
      *status_ = {Code::invalid,
                  fmt::format("{} whose \"{}{}\" is not {}", what_, place_, key, expected)};
    }
  }

 private:
  template <class T>
  void take(const char* key, bool (Json::*is)() const noexcept, std::string_view expected,
            T* out) const {
    const Json* const v = member(key);
    if (v == nullptr) return;
    if ((v->*is)()) {
      *out = v->get<T>();
    } else {
      wrong(key, expected);
    }
  }

  std::string_view what_;
  const Json& object_;
  std::string place_;
  Status* status_;
};

}  // namespace turnout
