// SPDX-License-Identifier: BSD-3-Clause
// Task: a coroutine of a simulated rank. Lazy: runs when awaited; resumes its awaiter at its end.
//
// Owner: whoever holds the Task; destroying it destroys the coroutine, suspended or not. Exceptions
// travel to the awaiter. One thread.
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace turnout::sim {

class [[nodiscard]] Task {
 public:
  struct promise_type {
    std::coroutine_handle<> awaiter;
    std::exception_ptr failure;

    Task get_return_object() {
      return Task(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    auto final_suspend() noexcept {
      struct Final {
        bool await_ready() noexcept { return false; }
        std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> ended) noexcept {
          const auto next = ended.promise().awaiter;
          return next ? next : std::noop_coroutine();
        }
        void await_resume() noexcept {}
      };
      return Final{};
    }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { failure = std::current_exception(); }
  };

  Task() = default;
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  [[nodiscard]] bool done() const noexcept { return !handle_ || handle_.done(); }
  // For the root of a rank: runs until it first suspends.
  void start() { handle_.resume(); }
  void rethrow() const {
    if (handle_ && handle_.promise().failure) std::rethrow_exception(handle_.promise().failure);
  }

  auto operator co_await() && noexcept {
    struct Awaiter {
      std::coroutine_handle<promise_type> handle;
      bool await_ready() noexcept { return !handle || handle.done(); }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiter) noexcept {
        handle.promise().awaiter = awaiter;
        return handle;
      }
      void await_resume() {
        if (handle && handle.promise().failure) std::rethrow_exception(handle.promise().failure);
      }
    };
    return Awaiter{handle_};
  }

 private:
  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

}  // namespace turnout::sim
