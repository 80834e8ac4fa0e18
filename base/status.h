// SPDX-License-Identifier: BSD-3-Clause
// Status and Result: error reporting inside Turnout.
//
// A Status has a code (the class of failure, which the provider maps to -FI_E*), the errno of the
// failed call (0: none) and a text with context: peer, object, verb, remedy. Success is a null
// pointer: no allocation, no formatting. Statuses are values; any thread may hold one. The code
// that detects a failure logs it; callers pass it on without logging again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace turnout {

enum class Code : std::uint8_t {
  ok = 0,
  again,        // back-pressure: make progress and try again; not a failure
  no_message,   // a peek found nothing
  canceled,     // the operation was cancelled by its owner
  truncated,    // the message was longer than the buffer posted for it
  peer_lost,    // the peer's process or its connection is gone
  over_budget,  // the byte budget does not allow it
  no_device,    // no adapter of that name
  invalid,      // an argument, message or setting is out of range
  version,      // two versions of Turnout meet
  permission,   // the operating system or a key refused access
  unsupported,  // this device or build cannot do it
  system,       // an operating-system or verbs call failed: see sys_errno()
  internal,     // a bug in Turnout
};

[[nodiscard]] std::string_view code_name(Code code) noexcept;

class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  Status(Code code, std::string text, int sys_errno = 0)
      : detail_(code == Code::ok
                    ? nullptr
                    : std::make_shared<const Detail>(Detail{code, sys_errno, std::move(text)})) {}

  [[nodiscard]] bool ok() const noexcept { return detail_ == nullptr; }
  explicit operator bool() const noexcept { return ok(); }
  [[nodiscard]] Code code() const noexcept { return detail_ ? detail_->code : Code::ok; }
  [[nodiscard]] int sys_errno() const noexcept { return detail_ ? detail_->sys_errno : 0; }
  [[nodiscard]] const std::string& text() const noexcept;

 private:
  struct Detail {
    Code code;
    int sys_errno;
    std::string text;
  };
  std::shared_ptr<const Detail> detail_;
};

// A value or the Status that explains its absence.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}         // NOLINT
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {}  // NOLINT

  [[nodiscard]] bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }
  [[nodiscard]] T& value() & { return std::get<0>(state_); }
  [[nodiscard]] const T& value() const& { return std::get<0>(state_); }
  [[nodiscard]] T&& value() && { return std::get<0>(std::move(state_)); }
  [[nodiscard]] Status status() const { return ok() ? Status{} : std::get<1>(state_); }
  T* operator->() { return &std::get<0>(state_); }
  T& operator*() & { return std::get<0>(state_); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace turnout
